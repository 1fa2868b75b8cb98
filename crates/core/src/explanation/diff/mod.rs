//! What differs between two moments: of two recordings, two steps, two devices or two ranks. Every byte of
//! the difference stands in one row, or in what is left over.

mod moved;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use crate::{
    explanation::{
        At, NoSuchDevice, NoSuchMoment,
        held::{Holdings, Names, device, origin_words},
    },
    findings::place,
    prediction::Origin,
    recording::{CodeLine, Recording},
    trace::{StackId, Trace},
    units::Bytes,
};

use moved::Moved;

/// One of the two.
#[derive(Clone, Debug)]
pub struct Side<'a> {
    /// What to call it.
    pub name: String,
    /// Its recording.
    pub recording: &'a Recording,
    /// The device; the one with the highest peak when none.
    pub device: Option<usize>,
    /// The moment.
    pub at: At,
}

/// What one of the two holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Total {
    /// What it is called.
    pub name: String,
    /// The device.
    pub device: usize,
    /// The moment.
    pub at: At,
    /// How many events had happened then.
    pub events: u32,
    /// Allocated then.
    pub allocated: Bytes,
    /// Reserved then.
    pub reserved: Bytes,
    /// Of the allocated, what no block in the recording accounts for. 0 unless it contradicts itself.
    pub rest: i128,
}

/// One line's part in both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The line, or what there is instead of one.
    pub at: String,
    /// The line, where there is one; as the second has it.
    pub line: Option<CodeLine>,
    /// Where it was in the first, when it moved: the line, or the file and the line.
    pub moved_from: Option<String>,
    /// What it is for.
    pub category: &'static str,
    /// Bytes and blocks in the first.
    pub before: (Bytes, u64),
    /// Bytes and blocks in the second.
    pub after: (Bytes, u64),
    /// Tensors and modules that it is about, what changed most first.
    pub names: Vec<String>,
    /// The stack that most of it comes from, outermost frame first.
    pub stack: Vec<CodeLine>,
}

/// One name's part in both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameRow {
    /// Of a tensor or a module, with `*` for a layer's number.
    pub name: String,
    /// Bytes and blocks in the first.
    pub before: (Bytes, u64),
    /// Bytes and blocks in the second.
    pub after: (Bytes, u64),
}

/// What differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The first.
    pub before: Total,
    /// The second.
    pub after: Total,
    /// The lines that differ, the largest difference first.
    pub rows: Vec<Row>,
    /// The names that differ; empty unless both have names.
    pub names: Vec<NameRow>,
    /// What to know, one sentence each.
    pub notes: Vec<String>,
}

impl Difference {
    /// What the second has more than the first, in bytes.
    pub fn change(&self) -> i128 {
        i128::from(self.after.allocated.0) - i128::from(self.before.allocated.0)
    }

    /// What of [`Difference::change`] no row has.
    pub fn rest(&self) -> i128 {
        self.after.rest - self.before.rest
    }

    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        let is_same = |(before, after): (Bytes, Bytes)| before == after;
        self.rows.is_empty()
            && self.rest() == 0
            && is_same((self.before.allocated, self.after.allocated))
            && is_same((self.before.reserved, self.after.reserved))
    }
}

impl Row {
    /// What the second has more than the first, in bytes.
    pub fn change(&self) -> i128 {
        i128::from(self.after.0.0) - i128::from(self.before.0.0)
    }
}

/// Why two cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoDifference {
    /// A device that is not there.
    #[error("{name}: {error}")]
    Device {
        /// In which.
        name: String,
        /// Why.
        error: NoSuchDevice,
    },
    /// A moment that is not there.
    #[error("{name}: {error}")]
    Moment {
        /// In which.
        name: String,
        /// Why.
        error: NoSuchMoment,
    },
}

/// What differs between `a` and `b`.
pub fn difference(a: &Side<'_>, b: &Side<'_>) -> Result<Difference, NoDifference> {
    let (mut a, b) = (Half::of(a)?, Half::of(b)?);
    let mut notes: Vec<String> = a.notes.iter().chain(&b.notes).cloned().collect();
    // Names tell what a block is for; without them lifetimes do, and may tell it otherwise.
    let by_category = a.has_names == b.has_names;
    if !by_category {
        let which = if a.has_names { &a.total.name } else { &b.total.name };
        notes.push(format!(
            "only {which} has the agent's names, so lines are compared without categories"
        ));
    }
    let mut moves: BTreeMap<CodeLine, String> = BTreeMap::new();
    if let (Some(before), Some(after)) = (a.trace, b.trace) {
        let moved = Moved::between(before, after);
        let mut n_lines = 0;
        let mut files = BTreeSet::new();
        for group in &mut a.groups {
            let Some(line) = line_of(&mut group.origin) else { continue };
            let Some(now) = moved.now(line) else { continue };
            if now.line != line.line || file_name(&now) != file_name(line) {
                n_lines += 1;
                moves.insert(now.clone(), place(line));
            }
            if now.file != line.file {
                files.insert(file_name(line).to_owned());
            }
            *line = now;
        }
        if n_lines != 0 {
            let (lines, were) =
                if n_lines == 1 { ("line stands", "it was") } else { ("lines stand", "they were") };
            notes.push(format!(
                "{n_lines} {lines} elsewhere in the second; plimsoll matched {were} by function and file name"
            ));
        }
        if !files.is_empty() {
            notes.push(format!(
                "paths differ; plimsoll matched them by their ends: {}",
                files.into_iter().collect::<Vec<_>>().join(", ")
            ));
        }
    }
    let before = a.merged(by_category);
    let after = b.merged(by_category);
    let keys: BTreeSet<&Key> = before.keys().chain(after.keys()).collect();
    let mut rows = Vec::new();
    for key in keys {
        let (x, y) = (before.get(key), after.get(key));
        let of = |it: Option<&Group>| it.map_or((Bytes::ZERO, 0), |it| (it.bytes, it.blocks));
        if of(x) == of(y) {
            continue;
        }
        let line = match &key.0 {
            Origin::Line(line) | Origin::BackwardOf(line) => Some(line.clone()),
            Origin::Backward | Origin::NoStack => None,
        };
        let (half, most) = match (x, y) {
            (Some(x), y) if y.is_none_or(|y| y.bytes < x.bytes) => (&a, x),
            (x, y) => (&b, y.or(x).expect("a key is of one of the two")),
        };
        rows.push(Row {
            at: origin_words(&key.0),
            moved_from: line.as_ref().and_then(|it| moves.get(it).cloned()),
            line,
            category: most.category(),
            before: of(x),
            after: of(y),
            names: changed_names(x, y),
            stack: half.stack(most),
        });
    }
    rows.sort_by_key(|it| (Reverse(it.change().abs()), it.at.clone(), it.category));
    let names = if a.has_names && b.has_names { names(&a, &b) } else { Vec::new() };
    Ok(Difference { before: a.total, after: b.total, rows, names, notes })
}

/// What makes two groups the same row; the category only where both know it alike.
type Key = (Origin, Option<&'static str>);

/// Blocks of one line and purpose.
#[derive(Clone, Debug)]
struct Group {
    origin: Origin,
    bytes: Bytes,
    blocks: u64,
    categories: BTreeMap<&'static str, Bytes>,
    names: BTreeMap<String, (Bytes, u64)>,
    stacks: BTreeMap<StackId, Bytes>,
}

impl Group {
    fn empty(origin: Origin) -> Group {
        Group {
            origin,
            bytes: Bytes::ZERO,
            blocks: 0,
            categories: BTreeMap::new(),
            names: BTreeMap::new(),
            stacks: BTreeMap::new(),
        }
    }

    fn add(&mut self, other: &Group) {
        self.bytes += other.bytes;
        self.blocks += other.blocks;
        for (category, bytes) in &other.categories {
            *self.categories.entry(category).or_default() += *bytes;
        }
        for (stack, bytes) in &other.stacks {
            *self.stacks.entry(*stack).or_default() += *bytes;
        }
        for (name, (bytes, blocks)) in &other.names {
            let sum = self.names.entry(name.clone()).or_default();
            sum.0 += *bytes;
            sum.1 += blocks;
        }
    }

    fn category(&self) -> &'static str {
        let most = self.categories.iter().max_by_key(|(name, bytes)| (**bytes, Reverse(**name)));
        most.map_or("", |(name, _)| name)
    }
}

/// One side, worked out.
struct Half<'a> {
    total: Total,
    trace: Option<&'a Trace>,
    groups: Vec<Group>,
    has_names: bool,
    notes: Vec<String>,
}

impl<'a> Half<'a> {
    fn of(side: &Side<'a>) -> Result<Half<'a>, NoDifference> {
        let name = side.name.clone();
        let (run, n_devices) = device(side.recording, side.device)
            .map_err(|error| NoDifference::Device { name: name.clone(), error })?;
        let evidence = run.evidence();
        let holdings = Holdings::of(&run, &evidence, side.at)
            .map_err(|error| NoDifference::Moment { name: name.clone(), error })?;
        let names = Names::new(&run, &evidence);
        let mut groups: BTreeMap<(Origin, &'static str), Group> = BTreeMap::new();
        for held in &holdings.held {
            let origin = names.origin_of(held);
            let category = Names::category(held);
            let group = groups
                .entry((origin, category))
                .or_insert_with_key(|(origin, _)| Group::empty(origin.clone()));
            group.bytes += held.size;
            group.blocks += 1;
            *group.categories.entry(category).or_default() += held.size;
            *group.stacks.entry(names.stack_of(held)).or_default() += held.size;
            if let Some(name) = held.block.and_then(|it| names.name(it)) {
                let sum = group.names.entry(name).or_default();
                sum.0 += held.size;
                sum.1 += 1;
            }
        }
        let mut notes = Vec::new();
        if side.device.is_none() && 1 < n_devices {
            notes.push(format!(
                "{name}: this compares device {}, which has the highest peak of {n_devices}",
                run.index
            ));
        }
        if !run.stacks.recorded {
            notes.push(format!("{name} has no call stacks: record with context=\"all\""));
        }
        let total = Total {
            name,
            device: run.index,
            at: side.at,
            events: holdings.found.done,
            allocated: holdings.found.levels.allocated,
            reserved: holdings.found.levels.reserved,
            rest: holdings.rest,
        };
        let has_names = !side.recording.notes.tensors.is_empty();
        let trace = side.recording.trace.as_ref();
        Ok(Half { total, trace, groups: groups.into_values().collect(), has_names, notes })
    }

    fn merged(&self, by_category: bool) -> BTreeMap<Key, Group> {
        let mut res: BTreeMap<Key, Group> = BTreeMap::new();
        for group in &self.groups {
            let key = (group.origin.clone(), by_category.then(|| group.category()));
            let origin = || Group::empty(group.origin.clone());
            res.entry(key).or_insert_with(origin).add(group);
        }
        res
    }

    /// The frames of the stack that most of `group` comes from, outermost first.
    fn stack(&self, group: &Group) -> Vec<CodeLine> {
        let most = group.stacks.iter().max_by_key(|(stack, bytes)| (**bytes, Reverse(**stack)));
        let (Some(trace), Some((stack, _))) = (self.trace, most) else { return Vec::new() };
        let mut res: Vec<CodeLine> = trace
            .frames(*stack)
            .map(|frame| CodeLine {
                file: trace.text(frame.file).to_owned(),
                line: frame.line,
                function: trace.text(frame.function).to_owned(),
                text: String::new(),
            })
            .collect();
        res.reverse();
        res
    }
}

fn line_of(origin: &mut Origin) -> Option<&mut CodeLine> {
    match origin {
        Origin::Line(line) | Origin::BackwardOf(line) => Some(line),
        Origin::Backward | Origin::NoStack => None,
    }
}

fn file_name(line: &CodeLine) -> &str {
    line.file.rsplit(['/', '\\']).next().unwrap_or_default()
}

/// The names whose bytes differ most.
fn changed_names(before: Option<&Group>, after: Option<&Group>) -> Vec<String> {
    const SHOWN: usize = 3;
    let of = |group: Option<&Group>, name: &str| {
        group.and_then(|it| it.names.get(name)).map_or(0, |(bytes, _)| bytes.0)
    };
    let names: BTreeSet<&String> =
        before.into_iter().chain(after).flat_map(|it| it.names.keys()).collect();
    let mut res: Vec<(u64, &String)> = names
        .into_iter()
        .map(|it| (of(before, it).abs_diff(of(after, it)), it))
        .filter(|(change, _)| *change != 0)
        .collect();
    res.sort_by_key(|(change, name)| (Reverse(*change), *name));
    res.into_iter().take(SHOWN).map(|(_, name)| name.clone()).collect()
}

/// By name, whatever the line; the largest difference first.
fn names(a: &Half<'_>, b: &Half<'_>) -> Vec<NameRow> {
    let sums = |half: &Half<'_>| {
        let mut res: BTreeMap<String, (Bytes, u64)> = BTreeMap::new();
        for (name, (bytes, blocks)) in half.groups.iter().flat_map(|it| &it.names) {
            let sum = res.entry(name.clone()).or_default();
            sum.0 += *bytes;
            sum.1 += blocks;
        }
        res
    };
    let (before, after) = (sums(a), sums(b));
    let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let mut res: Vec<NameRow> = keys
        .into_iter()
        .map(|name| NameRow {
            name: name.clone(),
            before: before.get(name).copied().unwrap_or_default(),
            after: after.get(name).copied().unwrap_or_default(),
        })
        .filter(|it| it.before != it.after)
        .collect();
    res.sort_by_key(|it| (Reverse(it.before.0.0.abs_diff(it.after.0.0)), it.name.clone()));
    res
}
