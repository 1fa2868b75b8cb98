//! What differs between two moments, of one recording or of two, and which lines of two recordings are the same.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use crate::{
    scene::{Grouping, LifeId, Line, Position, Scene, owners},
    units::Bytes,
};

/// Parts that wrappers of a model put into the names of its modules: the same module has another name without them.
const WRAPPERS: [&str; 4] =
    ["module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"];

/// What changed for one line and purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The line, as the earlier recording calls it if it has it; none when there is no stack.
    pub line: Option<Line>,
    /// What the later recording calls that line, where it is another name.
    pub renamed: Option<Line>,
    /// What it is for, as the word of its group.
    pub category: &'static str,
    /// Bytes and blocks before.
    pub before: (Bytes, u64),
    /// And after.
    pub after: (Bytes, u64),
    /// The numbers of the line, to select its blocks, before and after.
    pub owners: (Option<u32>, Option<u32>),
}

/// A line that holds something, with the modules that its blocks belong to and what they are for.
struct Place {
    line: Line,
    modules: BTreeSet<String>,
    purposes: BTreeSet<&'static str>,
}

/// What one line held for one purpose.
struct Held {
    line: Option<Line>,
    owner: u32,
    category: &'static str,
    bytes: Bytes,
    blocks: u64,
}

impl Scene<'_> {
    /// What changed from `before` to `after` of `other`, which may be this scene or another; the largest
    /// difference first.
    ///
    /// Lines of two recordings are the same where their files are. The others are paired, as far as one alone on
    /// each side fits: by name of file, function and number; by name of file, function and modules; by name of file
    /// and function; by function and modules; by modules; by the forward or backward line that is paired already; by
    /// what they are for in a function of which another line is paired.
    pub fn changes(&self, before: Position, other: &Scene<'_>, after: Position) -> Vec<Change> {
        let (earlier, places) = self.held_by_line(before);
        let (later, other_places) = other.held_by_line(after);
        let same = alike(&places, &other_places);
        let mut sums: BTreeMap<(Option<Line>, &'static str), Change> = BTreeMap::new();
        for it in earlier {
            let change = entry(&mut sums, it.line, it.category);
            change.before = (it.bytes, it.blocks);
            change.owners.0 = Some(it.owner);
        }
        for it in later {
            let found = it.line.as_ref().and_then(|it| same.get(it)).cloned();
            let renamed = it.line.clone().filter(|_| found.is_some());
            let change = entry(&mut sums, found.or(it.line), it.category);
            change.renamed = renamed;
            change.after = (it.bytes, it.blocks);
            change.owners.1 = Some(it.owner);
        }
        let mut res: Vec<Change> = sums.into_values().collect();
        res.sort_by_key(|it| Reverse(it.before.0.0.abs_diff(it.after.0.0)));
        res
    }

    fn held_by_line(&self, position: Position) -> (Vec<Held>, Vec<Place>) {
        let position = position.min(self.end() - 1);
        let groups = self.groups(Grouping::Category);
        let mut sums: BTreeMap<(u32, u8), (Bytes, u64)> = BTreeMap::new();
        let mut found: BTreeMap<u32, (BTreeSet<String>, BTreeSet<&'static str>)> = BTreeMap::new();
        for it in self.lives.at(position) {
            let owner = self.owners.index(it.id);
            let sum = sums.entry((owner, it.group)).or_default();
            sum.0 += it.size;
            sum.1 += 1;
            let (modules, purposes) = found.entry(owner).or_default();
            modules.extend(self.plain_module(it.id));
            purposes.insert(groups[usize::from(it.group)].key);
        }
        let line = |owner: u32| owners::name(&self.run, self.owners.all[owner as usize]);
        let held = sums
            .into_iter()
            .map(|((owner, category), (bytes, blocks))| {
                let category = groups[usize::from(category)].key;
                Held { line: line(owner), owner, category, bytes, blocks }
            })
            .collect();
        let places = found.into_iter().filter_map(|(owner, (modules, purposes))| {
            line(owner).map(|line| Place { line, modules, purposes })
        });
        (held, places.collect())
    }

    /// The module of `life` as its model calls it, without wrappers.
    fn plain_module(&self, life: LifeId) -> Option<String> {
        let module = self.module(life)?;
        let parts = module.split('.').filter(|it| !WRAPPERS.contains(it));
        Some(parts.collect::<Vec<_>>().join("."))
    }
}

fn entry<'a>(
    sums: &'a mut BTreeMap<(Option<Line>, &'static str), Change>,
    line: Option<Line>,
    category: &'static str,
) -> &'a mut Change {
    sums.entry((line.clone(), category)).or_insert(Change {
        line,
        renamed: None,
        category,
        before: (Bytes::ZERO, 0),
        after: (Bytes::ZERO, 0),
        owners: (None, None),
    })
}

/// A file, a line and a function.
type Frame = (String, u32, String);

/// What is paired so far, by the names of the later recording; what is not has its own.
#[derive(Default)]
struct Paired {
    frames: BTreeMap<Frame, Frame>,
    functions: BTreeMap<(String, String), (String, String)>,
}

/// A name that two lines share if they are the same; none where it would say too little.
type Name = fn(&Place, &Paired) -> Option<String>;

/// From the surest to the least sure.
const NAMES: [Name; 8] = [
    |it, _| Some(format!("{} {}", own(it), it.line.line)),
    |it, _| Some(format!("{} {:?}", own(it), modules_of(it)?)),
    |it, _| Some(own(it)),
    |it, _| {
        let Line { function, is_backward, .. } = &it.line;
        Some(format!("{function:?} {is_backward} {:?}", modules_of(it)?))
    },
    |it, _| Some(format!("{} {:?}", it.line.is_backward, modules_of(it)?)),
    by_frame,
    |it, paired| {
        let own = (it.line.file.clone(), it.line.function.clone());
        let function = paired.functions.get(&own).unwrap_or(&own);
        Some(format!("{function:?} {} {:?}", it.line.is_backward, it.purposes))
    },
    by_frame,
];

/// For lines of `later` that `earlier` does not have, the one line of `earlier` that they are.
fn alike(earlier: &[Place], later: &[Place]) -> BTreeMap<Line, Line> {
    let known =
        |places: &[Place]| -> BTreeSet<Line> { places.iter().map(|it| it.line.clone()).collect() };
    let (olds, news) = (known(earlier), known(later));
    let mut res: BTreeMap<Line, Line> = BTreeMap::new();
    let mut taken: BTreeSet<Line> = olds.intersection(&news).cloned().collect();
    for name in NAMES {
        let mut sides: BTreeMap<String, [Vec<&Line>; 2]> = BTreeMap::new();
        let (none, paired) = (Paired::default(), Paired::of(&res));
        for it in earlier.iter().filter(|it| !taken.contains(&it.line)) {
            let Some(name) = name(it, &none) else { continue };
            sides.entry(name).or_default()[0].push(&it.line);
        }
        let is_free = |it: &&Place| !olds.contains(&it.line) && !res.contains_key(&it.line);
        for it in later.iter().filter(is_free) {
            let Some(name) = name(it, &paired) else { continue };
            sides.entry(name).or_default()[1].push(&it.line);
        }
        let found: Vec<(Line, Line)> = sides
            .into_values()
            .filter_map(|[old, new]| match (old.as_slice(), new.as_slice()) {
                ([old], [new]) => Some(((*old).clone(), (*new).clone())),
                _ => None,
            })
            .collect();
        for (old, new) in found {
            taken.insert(old.clone());
            res.insert(new, old);
        }
    }
    res
}

impl Paired {
    fn of(lines: &BTreeMap<Line, Line>) -> Paired {
        let function = |it: &Line| (it.file.clone(), it.function.clone());
        Paired {
            frames: lines.iter().map(|(new, old)| (frame(new), frame(old))).collect(),
            functions: lines.iter().map(|(new, old)| (function(new), function(old))).collect(),
        }
    }
}

/// The line that has the same forward, or backward, as one that is paired.
fn by_frame(it: &Place, paired: &Paired) -> Option<String> {
    let own = frame(&it.line);
    let frame = paired.frames.get(&own).unwrap_or(&own);
    Some(format!("{frame:?} {}", it.line.is_backward))
}

fn frame(it: &Line) -> Frame {
    (it.file.clone(), it.line, it.function.clone())
}

/// The name of the file, the function, and which way it went.
fn own(it: &Place) -> String {
    let base = it.line.file.rsplit(['/', '\\']).next().unwrap_or_default();
    format!("{base:?} {:?} {}", it.line.function, it.line.is_backward)
}

fn modules_of(it: &Place) -> Option<&BTreeSet<String>> {
    Some(&it.modules).filter(|it| !it.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::Code;

    fn place(line: &str, modules: &[&str]) -> Place {
        let [file, number, function]: [&str; 3] =
            line.split(' ').collect::<Vec<_>>().try_into().unwrap_or_default();
        Place {
            line: Line {
                file: file.to_owned(),
                line: number.parse().unwrap_or_default(),
                function: function.to_owned(),
                code: Code::Users,
                is_backward: false,
            },
            modules: modules.iter().map(|it| (*it).to_owned()).collect(),
            purposes: BTreeSet::new(),
        }
    }

    fn paired(earlier: &[Place], later: &[Place]) -> Vec<String> {
        let short = |it: &Line| format!("{}:{}", it.file, it.line);
        alike(earlier, later)
            .iter()
            .map(|(new, old)| format!("{} is {}", short(new), short(old)))
            .collect()
    }

    #[test]
    fn lines_are_the_same_by_file_function_and_modules() {
        // Another folder; then lines that moved, of which modules tell which is which.
        let old = [
            place("/a/t.py 3 main", &[]),
            place("/a/m.py 10 forward", &["h.0.attn"]),
            place("/a/m.py 12 forward", &["h.0.mlp"]),
        ];
        let new = [
            place("/b/t.py 3 main", &[]),
            place("/b/m.py 20 forward", &["h.0.attn"]),
            place("/b/m.py 21 forward", &["h.0.mlp"]),
        ];
        assert_eq!(
            paired(&old, &new),
            ["/b/m.py:20 is /a/m.py:10", "/b/m.py:21 is /a/m.py:12", "/b/t.py:3 is /a/t.py:3"]
        );
        // The file has another name: function and modules, then modules alone.
        let new =
            [place("/b/net.py 7 forward", &["h.0.attn"]), place("/b/net.py 9 block", &["h.0.mlp"])];
        assert_eq!(paired(&old, &new), ["/b/net.py:7 is /a/m.py:10", "/b/net.py:9 is /a/m.py:12"]);
    }

    #[test]
    fn of_two_that_fit_neither_is_it() {
        let old = [place("/a/m.py 10 forward", &[]), place("/a/m.py 12 forward", &[])];
        assert!(paired(&old, &[place("/b/m.py 20 forward", &[])]).is_empty());
        // What both have is no other's.
        let new = [place("/a/m.py 10 forward", &["x"]), place("/a/m.py 11 forward", &["x"])];
        assert!(paired(&[place("/a/m.py 10 forward", &["x"])], &new).is_empty());
    }

    #[test]
    fn a_function_of_which_a_line_is_paired_is_the_same_function() {
        let of = |line: &str, modules: &[&str], purpose: &'static str, is_backward: bool| {
            let mut res = place(line, modules);
            res.purposes.insert(purpose);
            res.line.is_backward = is_backward;
            res
        };
        let old = [
            of("/a/t.py 5 main", &["emb", "head"], "parameters", false),
            of("/a/t.py 6 main", &[], "inputs", false),
            of("/a/t.py 7 main", &[], "temporaries", true),
            of("/a/t.py 7 main", &["emb"], "optimizer", false),
        ];
        let new = [
            of("/b/run.py 15 train", &["emb", "head"], "parameters", false),
            of("/b/run.py 16 train", &[], "inputs", false),
            of("/b/run.py 19 train", &[], "temporaries", true),
            of("/b/run.py 19 train", &["emb"], "optimizer", false),
        ];
        assert_eq!(
            paired(&old, &new),
            [
                "/b/run.py:15 is /a/t.py:5",
                "/b/run.py:16 is /a/t.py:6",
                "/b/run.py:19 is /a/t.py:7",
                "/b/run.py:19 is /a/t.py:7"
            ]
        );
    }
}
