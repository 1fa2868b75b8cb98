//! What was live at a moment: by what it is for, by line of code, by stack and by module.

use std::{cmp::Reverse, collections::BTreeMap};

use crate::{
    scene::{
        Grouping, LifeId, Line, Position, Scene,
        line::{Code, code_of, name_of},
        lives::Life,
        owners,
    },
    trace::StackId,
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
    /// A number for that line, to select its blocks.
    pub owner: u32,
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
    /// Whose code it is.
    pub code: Code,
    /// What most of it is for, as an index of [`Scene::groups`].
    pub category: u8,
    /// A number to select its blocks, where there is one.
    pub id: Option<u32>,
    /// The line, for those that are one.
    pub line: Option<Line>,
}

/// Both trees of a stretch of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trees {
    /// By call stack; callers outside.
    pub stacks: Tree,
    /// By module, where the recorder knew modules.
    pub modules: Tree,
}

/// How a stretch of time weighs a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weigh {
    /// Its size, if it began there.
    #[default]
    Made,
    /// What it held there on average.
    Held,
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
        let mut rows: BTreeMap<(u32, u8), (Bytes, u64, Life)> = BTreeMap::new();
        for it in &lives {
            let (bytes, blocks) = &mut res.categories[usize::from(it.group)];
            *bytes += it.size;
            *blocks += 1;
            let owner = self.owners.index(it.id);
            let row = rows.entry((owner, it.group)).or_insert((Bytes::ZERO, 0, *it));
            row.0 += it.size;
            row.1 += 1;
            if row.2.size < it.size {
                row.2 = *it;
            }
        }
        res.rows = rows
            .into_iter()
            .map(|((owner, category), (bytes, blocks, largest))| Row {
                line: owners::name(&self.run, self.owners.all[owner as usize]),
                owner,
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

    /// What was asked for, or held on average, from `from` to before `to`.
    pub fn stretch(&self, (from, to): (Position, Position), weigh: Weigh) -> Trees {
        let to = to.clamp(1, self.end());
        let from = from.min(to - 1);
        let mut lives = Vec::new();
        self.lives.overlapping((from, to), Grouping::Category, |life| match weigh {
            Weigh::Made if life.start < from.max(1) => {}
            Weigh::Made => lives.push(life),
            Weigh::Held => {
                let lasted = u128::from(life.end.min(to) - life.start.max(from));
                let size = u128::from(life.size.0) * lasted / u128::from(to - from);
                let size = Bytes(u64::try_from(size).unwrap_or(u64::MAX));
                lives.push(Life { size, ..life });
            }
        });
        Trees { stacks: self.stack_tree(&lives), modules: self.module_tree(&lives) }
    }

    fn stack_tree(&self, lives: &[Life]) -> Tree {
        let table = &self.run.trace.stacks;
        let n_groups = self.groups(Grouping::Category).len();
        let mut sums = vec![(Bytes::ZERO, 0_u64); table.n_nodes()];
        let mut purposes = vec![Bytes::ZERO; table.n_nodes() * n_groups];
        for it in lives {
            let node = self.owners.stack(it.id).index();
            let (bytes, blocks) = &mut sums[node];
            *bytes += it.size;
            *blocks += 1;
            purposes[node * n_groups + usize::from(it.group)] += it.size;
        }
        let own = (sums[0], largest(&purposes[..n_groups]));
        // Callers come before what they call, so the way back meets every node before its caller.
        for node in (1..sums.len()).rev() {
            let caller = table.caller(StackId(super::position::count(node))).index();
            let (bytes, blocks) = sums[node];
            sums[caller].0 += bytes;
            sums[caller].1 += blocks;
            let (callers, own) = purposes.split_at_mut(node * n_groups);
            let of_caller = &mut callers[caller * n_groups..(caller + 1) * n_groups];
            of_caller.iter_mut().zip(own).for_each(|(sum, it)| *sum += *it);
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
            let frame = table.frame_ids(id).next();
            let line = frame.map(|it| name_of(&self.run, it));
            let name = line.as_ref().map(ToString::to_string).unwrap_or_default();
            let place = tree.add(parent, name, sum);
            places[node] = Some(place);
            let it = &mut tree.nodes[place as usize];
            it.code = frame.map_or(Code::Library, |it| code_of(&self.run, it));
            it.category = largest(&purposes[node * n_groups..(node + 1) * n_groups]);
            it.id = Some(id.0);
            it.line = line;
        }
        let ((bytes, blocks), category) = own;
        if blocks != 0 {
            let name = if self.run.stacks.recorded {
                "no Python stack"
            } else {
                "no stacks were recorded"
            };
            let place = tree.add(0, name.to_owned(), (bytes, blocks));
            let it = &mut tree.nodes[place as usize];
            it.category = category;
            it.id = Some(0);
        }
        tree.add_small(small);
        tree
    }

    fn module_tree(&self, lives: &[Life]) -> Tree {
        let n_groups = self.groups(Grouping::Category).len();
        let mut sums: BTreeMap<String, (Sum, Vec<Bytes>)> = BTreeMap::new();
        let mut all = (Bytes::ZERO, 0);
        let mut known = false;
        for it in lives {
            all.0 += it.size;
            all.1 += 1;
            let module = self.module(it.id);
            known |= module.is_some();
            let (sum, purposes) = sums
                .entry(module.unwrap_or_else(|| "no module".to_owned()))
                .or_insert_with(|| (Sum::default(), vec![Bytes::ZERO; n_groups]));
            sum.0 += it.size;
            sum.1 += 1;
            purposes[usize::from(it.group)] += it.size;
        }
        if !known {
            return Tree::default();
        }
        let mut tree = Tree::of("everything", all);
        let mut places: BTreeMap<String, u32> = BTreeMap::new();
        let mut purposes: Vec<Vec<Bytes>> = vec![vec![Bytes::ZERO; n_groups]];
        for (path, (sum, own)) in sums {
            let mut parent = 0;
            let mut at = String::new();
            for part in path.split('.') {
                at = if at.is_empty() { part.to_owned() } else { format!("{at}.{part}") };
                let place = *places.entry(at.clone()).or_insert_with(|| {
                    purposes.push(vec![Bytes::ZERO; n_groups]);
                    tree.add(parent, part.to_owned(), (Bytes::ZERO, 0))
                });
                tree.nodes[place as usize].bytes += sum.0;
                tree.nodes[place as usize].blocks += sum.1;
                let of_place = purposes[place as usize].iter_mut();
                of_place.zip(&own).for_each(|(sum, it)| *sum += *it);
                parent = place;
            }
        }
        for (node, purposes) in tree.nodes.iter_mut().zip(&purposes) {
            node.category = largest(purposes);
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
        let mut res = Tree::default();
        res.add(0, name.to_owned(), (bytes, blocks));
        res
    }

    fn add(&mut self, parent: u32, name: String, (bytes, blocks): (Bytes, u64)) -> u32 {
        let place = super::position::count(self.nodes.len());
        let (code, category) = (Code::Library, 0);
        let node = TreeNode { parent, name, bytes, blocks, code, category, id: None, line: None };
        self.nodes.push(node);
        place
    }

    fn add_small(&mut self, small: BTreeMap<u32, (Bytes, u64)>) {
        for (parent, sum) in small {
            self.add(parent, "smaller ones".to_owned(), sum);
        }
    }
}

/// The index of the largest; of equals the first.
fn largest(sums: &[Bytes]) -> u8 {
    let most = sums.iter().enumerate().max_by_key(|(at, it)| (**it, Reverse(*at)));
    most.map_or(0, |(at, _)| u8::try_from(at).unwrap_or(u8::MAX))
}
