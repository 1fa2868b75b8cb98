//! What was live at a moment: by what it is for, by line of code, by stack and by module; and what
//! changed between two.

use std::{cmp::Reverse, collections::BTreeMap};

use crate::{
    scene::{
        Grouping, LifeId, Line, Position, Scene,
        line::{line_of, name_of},
        lives::Life,
    },
    trace::{FrameId, StackId},
    units::Bytes,
};

/// A part of a tree that is smaller than this share of the whole is summed with its neighbours.
const SMALLEST_SHARE: u64 = 2000;

/// Everything that was live at one position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Which moment.
    pub position: Position,
    /// What was allocated.
    pub allocated: Bytes,
    /// What was reserved.
    pub reserved: Bytes,
    /// How many blocks.
    pub blocks: u64,
    /// What they are for, by index of [`Scene::groups`]: bytes and blocks.
    pub categories: Vec<(Bytes, u64)>,
    /// By line and category, the largest first.
    pub rows: Vec<Row>,
    /// By call stack; callers outside.
    pub stacks: Tree,
    /// By module, where the recorder knew modules.
    pub modules: Tree,
}

/// What one line asked for, for one purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The line; none when there is no stack.
    pub line: Option<Line>,
    /// What it is for, as an index of [`Scene::groups`].
    pub category: u8,
    /// How much.
    pub bytes: Bytes,
    /// How many blocks.
    pub blocks: u64,
    /// The largest of them.
    pub largest: LifeId,
}

/// A tree of sums. Parents come before their children; the first node is the whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// The nodes.
    pub nodes: Vec<TreeNode>,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeNode {
    /// The node that it is in; itself for the first.
    pub parent: u32,
    /// What it stands for.
    pub name: String,
    /// Bytes below it, its own included.
    pub bytes: Bytes,
    /// Blocks below it.
    pub blocks: u64,
}

/// What changed for one line and purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The line; none when there is no stack.
    pub line: Option<Line>,
    /// What it is for, as the word of its group.
    pub category: &'static str,
    /// Bytes and blocks before.
    pub before: (Bytes, u64),
    /// And after.
    pub after: (Bytes, u64),
}

/// Bytes and blocks.
type Sum = (Bytes, u64);

impl Scene<'_> {
    /// What was live at `position`.
    pub fn moment(&self, position: Position) -> Moment {
        let position = position.min(self.end() - 1);
        let lives = self.lives.at(position);
        let mut res = Moment {
            position,
            allocated: self.levels.allocated(position),
            reserved: self.levels.reserved(position),
            blocks: lives.len() as u64,
            categories: vec![(Bytes::ZERO, 0); self.groups(Grouping::Category).len()],
            ..Moment::default()
        };
        let mut rows: BTreeMap<(Option<FrameId>, u8), (Bytes, u64, Life)> = BTreeMap::new();
        for it in &lives {
            let (bytes, blocks) = &mut res.categories[usize::from(it.group)];
            *bytes += it.size;
            *blocks += 1;
            let line = line_of(&self.run, self.stack(it.id));
            let row = rows.entry((line, it.group)).or_insert((Bytes::ZERO, 0, *it));
            row.0 += it.size;
            row.1 += 1;
            if row.2.size < it.size {
                row.2 = *it;
            }
        }
        res.rows = rows
            .into_iter()
            .map(|((line, category), (bytes, blocks, largest))| Row {
                line: line.map(|it| name_of(&self.run, it)),
                category,
                bytes,
                blocks,
                largest: largest.id,
            })
            .collect();
        res.rows.sort_by_key(|it| (Reverse(it.bytes), it.category));
        res.stacks = self.stack_tree(&lives);
        res.modules = self.module_tree(&lives);
        res
    }

    /// What changed from `before` to `after` of `other`, which may be this scene or another; the largest
    /// difference first.
    pub fn changes(&self, before: Position, other: &Scene<'_>, after: Position) -> Vec<Change> {
        let mut sums: BTreeMap<(Option<Line>, &'static str), [Sum; 2]> = BTreeMap::new();
        let moments = [(self, self.moment(before)), (other, other.moment(after))];
        for (side, (scene, moment)) in moments.into_iter().enumerate() {
            for row in moment.rows {
                let category = scene.groups(Grouping::Category)[usize::from(row.category)].key;
                let sum = &mut sums.entry((row.line, category)).or_default()[side];
                sum.0 += row.bytes;
                sum.1 += row.blocks;
            }
        }
        let mut res: Vec<Change> = sums
            .into_iter()
            .map(|((line, category), [before, after])| Change { line, category, before, after })
            .collect();
        res.sort_by_key(|it| Reverse(it.before.0.0.abs_diff(it.after.0.0)));
        res
    }

    fn stack_tree(&self, lives: &[Life]) -> Tree {
        let table = &self.run.trace.stacks;
        let mut sums = vec![(Bytes::ZERO, 0_u64); table.n_nodes()];
        for it in lives {
            let (bytes, blocks) = &mut sums[self.stack(it.id).index()];
            *bytes += it.size;
            *blocks += 1;
        }
        let own = sums[0];
        // Callers come before what they call, so the way back meets every node before its caller.
        for node in (1..sums.len()).rev() {
            let caller = table.caller(StackId(super::position::count(node))).index();
            let (bytes, blocks) = sums[node];
            sums[caller].0 += bytes;
            sums[caller].1 += blocks;
        }
        let mut tree = Tree::of("everything", sums[0]);
        let least = Bytes(sums[0].0.0 / SMALLEST_SHARE);
        let mut places = vec![None; sums.len()];
        places[0] = Some(0);
        let mut small: BTreeMap<u32, (Bytes, u64)> = BTreeMap::new();
        for node in 1..sums.len() {
            let id = StackId(super::position::count(node));
            let Some(parent) = places[table.caller(id).index()] else { continue };
            let sum = sums[node];
            if sum.1 == 0 {
                continue;
            }
            if sum.0 < least {
                let rest = small.entry(parent).or_default();
                rest.0 += sum.0;
                rest.1 += sum.1;
                continue;
            }
            let name = table.frame_ids(id).next().map(|it| name_of(&self.run, it).to_string());
            places[node] = Some(tree.add(parent, name.unwrap_or_default(), sum));
        }
        if own.1 != 0 {
            let name = if self.run.stacks.recorded {
                "no Python stack (autograd's threads, or from before the recording)"
            } else {
                "no stacks were recorded"
            };
            tree.add(0, name.to_owned(), own);
        }
        tree.add_small(small);
        tree
    }

    fn module_tree(&self, lives: &[Life]) -> Tree {
        let mut sums: BTreeMap<String, (Bytes, u64)> = BTreeMap::new();
        let mut all = (Bytes::ZERO, 0);
        let mut known = false;
        for it in lives {
            all.0 += it.size;
            all.1 += 1;
            let module = self.module(it.id);
            known |= module.is_some();
            let sum = sums.entry(module.unwrap_or_else(|| "no module".to_owned())).or_default();
            sum.0 += it.size;
            sum.1 += 1;
        }
        if !known {
            return Tree::default();
        }
        let mut tree = Tree::of("everything", all);
        let mut places: BTreeMap<String, u32> = BTreeMap::new();
        for (path, sum) in sums {
            let mut parent = 0;
            let mut at = String::new();
            for part in path.split('.') {
                at = if at.is_empty() { part.to_owned() } else { format!("{at}.{part}") };
                let place = *places
                    .entry(at.clone())
                    .or_insert_with(|| tree.add(parent, part.to_owned(), (Bytes::ZERO, 0)));
                tree.nodes[place as usize].bytes += sum.0;
                tree.nodes[place as usize].blocks += sum.1;
                parent = place;
            }
        }
        tree
    }

    /// The module that made `life`, or whose parameter lives in it.
    pub(super) fn module(&self, life: LifeId) -> Option<String> {
        if let Some(name) = self.names.get(&life) {
            return name.rsplit_once('.').map(|(module, _)| module.to_owned());
        }
        let block = (life as usize).checked_sub(self.n_before())?;
        let alloc = self.run.replay.blocks[block].alloc;
        let metadata = self.run.trace.text(self.run.device.events.get(alloc.index()).metadata);
        metadata.strip_prefix("m=").filter(|it| !it.is_empty()).map(str::to_owned)
    }
}

impl Tree {
    fn of(name: &str, (bytes, blocks): (Bytes, u64)) -> Tree {
        Tree { nodes: vec![TreeNode { parent: 0, name: name.to_owned(), bytes, blocks }] }
    }

    fn add(&mut self, parent: u32, name: String, (bytes, blocks): (Bytes, u64)) -> u32 {
        let place = super::position::count(self.nodes.len());
        self.nodes.push(TreeNode { parent, name, bytes, blocks });
        place
    }

    fn add_small(&mut self, small: BTreeMap<u32, (Bytes, u64)>) {
        for (parent, sum) in small {
            self.add(parent, "smaller ones".to_owned(), sum);
        }
    }
}
