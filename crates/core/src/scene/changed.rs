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

/// A line that holds something, with the modules that its blocks belong to.
struct Place {
    line: Line,
    modules: BTreeSet<String>,
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
    /// and function; by function and modules; by modules.
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
        let mut modules: BTreeMap<u32, BTreeSet<String>> = BTreeMap::new();
        for it in self.lives.at(position) {
            let owner = self.owners.index(it.id);
            let sum = sums.entry((owner, it.group)).or_default();
            sum.0 += it.size;
            sum.1 += 1;
            modules.entry(owner).or_default().extend(self.plain_module(it.id));
        }
        let line = |owner: u32| owners::name(&self.run, self.owners.all[owner as usize]);
        let held = sums
            .into_iter()
            .map(|((owner, category), (bytes, blocks))| {
                let category = groups[usize::from(category)].key;
                Held { line: line(owner), owner, category, bytes, blocks }
            })
            .collect();
        let places = modules
            .into_iter()
            .filter_map(|(owner, modules)| line(owner).map(|line| Place { line, modules }));
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

/// A name that two lines share if they are the same; none where it would say too little.
type Key<'a> = (&'a str, &'a str, bool, u32, Option<&'a BTreeSet<String>>);

/// For lines of `later` that `earlier` does not have, the one line of `earlier` that they are.
fn alike(earlier: &[Place], later: &[Place]) -> BTreeMap<Line, Line> {
    let known =
        |places: &[Place]| -> BTreeSet<Line> { places.iter().map(|it| it.line.clone()).collect() };
    let (olds, news) = (known(earlier), known(later));
    let keys: [fn(&Place) -> Option<Key<'_>>; 5] = [
        |it| Some((base(it), &it.line.function, it.line.is_backward, it.line.line, None)),
        |it| Some((base(it), &it.line.function, it.line.is_backward, 0, Some(modules_of(it)?))),
        |it| Some((base(it), &it.line.function, it.line.is_backward, 0, None)),
        |it| Some(("", &it.line.function, it.line.is_backward, 0, Some(modules_of(it)?))),
        |it| Some(("", "", it.line.is_backward, 0, Some(modules_of(it)?))),
    ];
    let mut res: BTreeMap<Line, Line> = BTreeMap::new();
    let mut taken: BTreeSet<Line> = olds.intersection(&news).cloned().collect();
    for key in keys {
        let mut sides: BTreeMap<Key<'_>, [Vec<&Line>; 2]> = BTreeMap::new();
        let free = |it: &&Place| !taken.contains(&it.line);
        for it in earlier.iter().filter(free) {
            let Some(key) = key(it) else { continue };
            sides.entry(key).or_default()[0].push(&it.line);
        }
        let free = |it: &&Place| !olds.contains(&it.line) && !res.contains_key(&it.line);
        for it in later.iter().filter(free) {
            let Some(key) = key(it) else { continue };
            sides.entry(key).or_default()[1].push(&it.line);
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

fn base(it: &Place) -> &str {
    it.line.file.rsplit(['/', '\\']).next().unwrap_or_default()
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
}
