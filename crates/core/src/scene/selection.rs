//! Sets of blocks that people mean: by words, by line, by purpose, by module, by a part of a flame graph.

use std::{cmp::Reverse, collections::BTreeSet};

use crate::{
    scene::{Grouping, LifeId, Position, Scene, owners, position::count},
    trace::{FrameId, StackId},
    units::Bytes,
};

/// How many blocks an answer tells more of; all are counted.
const LISTED: usize = 200;
/// Two sizes that people would call the same differ by less than this share: they read `1.50 GiB`.
const SAME: u64 = 200;

/// What to select.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pick {
    /// What somebody typed, and blocks that it means beside those that have the words.
    Words(String, Vec<LifeId>),
    /// One of [`Row::owner`](crate::scene::Row::owner), and perhaps only what is for one purpose.
    Owner(u32, Option<u8>),
    /// Everything for one purpose, as an index of [`Scene::groups`].
    Category(u8),
    /// A module and those in it.
    Module(String),
    /// What was asked for below these parts of a flame graph; the others are exact.
    Stacks(Vec<u32>),
    /// What was asked for at one line of a file.
    Place(String, u32),
    /// These blocks.
    Lives(Vec<LifeId>),
}

/// Blocks that were selected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// How it was understood, in a few words.
    pub by: String,
    /// All of them, the largest first.
    pub lives: Vec<LifeId>,
    /// Of them, what was live at the moment that was asked for.
    pub live: (Bytes, u64),
    /// The most that they held at once, and when.
    pub most: (Bytes, Position),
    /// More about the largest of them.
    pub hits: Vec<Hit>,
}

/// A block that matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Which.
    pub life: LifeId,
    /// Its size.
    pub size: Bytes,
    /// Its name, or the line that asked for it.
    pub label: String,
    /// When it began.
    pub start: u32,
    /// Whether it was live at the moment that was asked for.
    pub is_live: bool,
}

/// What somebody typed.
enum Query {
    Address(u64),
    /// About one of these.
    Sizes(Vec<Bytes>),
    AtLeast(Bytes),
    /// A number as sizes are shown, in any unit: `312` is 312.5 MiB as well as 312 B.
    Number(String),
    Text(String),
}

impl Pick {
    /// What a page writes into an address: `words:gelu`, `owner:12`, `owner:12:3`, `category:3`,
    /// `module:h.0.mlp`, `stacks:4,17`, `lives:1,2`, `line:12:/home/me/train.py`.
    pub fn of(text: &str) -> Option<Pick> {
        let (kind, rest) = text.split_once(':')?;
        let numbers = || rest.split(',').map(|it| it.parse().ok()).collect::<Option<Vec<u32>>>();
        match kind {
            "words" => Some(Pick::Words(rest.to_owned(), Vec::new())),
            "owner" => {
                let (owner, category) =
                    rest.split_once(':').map_or((rest, None), |(a, b)| (a, Some(b)));
                let category = match category {
                    Some(it) => Some(it.parse().ok()?),
                    None => None,
                };
                Some(Pick::Owner(owner.parse().ok()?, category))
            }
            "category" => Some(Pick::Category(rest.parse().ok()?)),
            "module" => Some(Pick::Module(rest.to_owned())),
            "stacks" => Some(Pick::Stacks(numbers()?)),
            "lives" => Some(Pick::Lives(numbers()?)),
            "line" => {
                let (line, file) = rest.split_once(':')?;
                Some(Pick::Place(file.to_owned(), line.parse().ok()?))
            }
            _ => None,
        }
    }
}

impl Query {
    fn of(words: &str) -> Query {
        let words = words.trim();
        if let Some(hex) = words.strip_prefix("0x")
            && let Ok(address) = u64::from_str_radix(hex, 16)
        {
            return Query::Address(address);
        }
        let is_number = |it: &str| it.chars().all(|it| it.is_ascii_digit() || it == '.');
        if let Some(least) = words.strip_prefix('>') {
            let least = least.trim().trim_start_matches('=').trim();
            // Without a unit it is the one that most sizes are shown in.
            let unit = if is_number(least) { "MiB" } else { "" };
            if let Ok(size) = format!("{least}{unit}").parse() {
                return Query::AtLeast(size);
            }
        }
        match words.parse::<Bytes>() {
            Ok(_) if is_number(words) => Query::Number(words.to_owned()),
            Ok(size) => {
                let lower = words.to_lowercase();
                // Many say MB and mean MiB, which is what is shown.
                let binary = ["kb", "mb", "gb", "tb"].iter().find(|it| lower.ends_with(*it));
                let number = binary.and_then(|it| lower.strip_suffix(it));
                let shown = number.zip(binary).map(|(it, unit)| format!("{it}{}", &unit[..1]));
                let shown = shown.and_then(|it| it.parse().ok());
                Query::Sizes([size].into_iter().chain(shown).collect())
            }
            Err(_) => Query::Text(words.to_lowercase()),
        }
    }

    fn by(&self) -> String {
        match self {
            Query::Address(it) => format!("address {it:#x}"),
            Query::Sizes(it) => {
                let sizes: Vec<String> = it.iter().map(ToString::to_string).collect();
                format!("about {}", sizes.join(" or "))
            }
            Query::AtLeast(it) => format!("at least {it}"),
            Query::Number(it) => format!("sizes that read {it}, in any unit"),
            Query::Text(it) => {
                format!("\"{it}\" in a line, stack, name, module, category or finding")
            }
        }
    }
}

/// Whether a size that reads `312.5 MiB` is meant by `312`, or by `312.5`.
fn reads(size: Bytes, number: &str) -> bool {
    let text = size.to_string();
    let shown = text.split(' ').next().unwrap_or_default();
    let whole = shown.split('.').next().unwrap_or_default();
    shown == number || whole == number || size.0.to_string() == number
}

impl Scene<'_> {
    /// The blocks that `pick` means, with what they held at `position`.
    pub fn select(&self, pick: &Pick, position: Position) -> Selection {
        let (by, mut lives) = match pick {
            Pick::Words(words, also) => self.of_words(words, also),
            Pick::Lives(lives) => {
                let n = self.n_lives();
                (String::new(), lives.iter().copied().filter(|it| *it < n).collect())
            }
            Pick::Category(it) => {
                let name = self.groups(Grouping::Category).get(usize::from(*it));
                let by = name.map_or_else(String::new, |it| it.name.clone());
                (by, self.lives_where(|life| self.groups.category(life as usize) == *it))
            }
            Pick::Owner(owner, category) => {
                let is_it = |life: LifeId| {
                    let group = self.groups.category(life as usize);
                    self.owners.index(life) == *owner && category.is_none_or(|it| it == group)
                };
                let lives = self.lives_where(is_it);
                let line = lives.first().and_then(|it| self.line(*it));
                (line.map_or_else(|| "no Python stack".to_owned(), |it| it.to_string()), lives)
            }
            Pick::Module(path) => {
                let inside = format!("{path}.");
                let is_it = |life: LifeId| match self.module(life) {
                    Some(it) => it == *path || it.starts_with(&inside),
                    None => path == "no module",
                };
                (format!("module {path}"), self.lives_where(is_it))
            }
            Pick::Place(file, line) => {
                let is_it: Vec<bool> = self
                    .owners
                    .all
                    .iter()
                    .map(|owner| {
                        owner.frame.is_some_and(|id| {
                            let frame = self.run.trace.stacks.frame_of(id);
                            frame.line == *line && self.run.trace.text(frame.file) == file
                        })
                    })
                    .collect();
                let name = file.rsplit(['/', '\\']).next().unwrap_or_default();
                let lives = self.lives_where(|life| is_it[self.owners.index(life) as usize]);
                (format!("{name}:{line}"), lives)
            }
            Pick::Stacks(nodes) => {
                let below = self.below(nodes);
                let lives = self.lives_where(|life| below[self.owners.stack(life).index()]);
                ("a part of the flame graph".to_owned(), lives)
            }
        };
        lives.sort_unstable_by_key(|it| (Reverse(self.extent(*it).1), *it));
        lives.dedup();
        let mut res = Selection { by, lives, ..Selection::default() };
        self.sum(&mut res, position);
        let listed = res.lives.iter().take(LISTED);
        res.hits = listed.map(|life| self.hit(*life, position)).collect();
        res
    }

    fn lives_where(&self, is_it: impl Fn(LifeId) -> bool) -> Vec<LifeId> {
        (0..self.n_lives()).filter(|it| is_it(*it)).collect()
    }

    fn n_lives(&self) -> u32 {
        count(self.n_before() + self.run.replay.blocks.len())
    }

    /// From when to when `life` was there.
    pub(super) fn span(&self, life: LifeId) -> (Position, Position) {
        let end = |free: Option<crate::trace::EventId>| free.map_or(Position::MAX, |it| it.0 + 1);
        match (life as usize).checked_sub(self.n_before()) {
            None => {
                let it = &self.run.replay.initial[life as usize];
                (0, if it.pending { 0 } else { end(it.free) })
            }
            Some(at) => {
                let it = &self.run.replay.blocks[at];
                (it.alloc.0 + 1, end(it.free))
            }
        }
    }

    /// The most that `lives` held at once, and when first.
    pub fn most(&self, lives: &[LifeId]) -> (Bytes, Position) {
        let mut changes: Vec<(Position, bool, Bytes)> = Vec::with_capacity(2 * lives.len());
        for &life in lives {
            let (start, end) = self.span(life);
            let (_, size) = self.extent(life);
            if start < end {
                changes.push((start, true, size));
                changes.push((end, false, size));
            }
        }
        changes.sort_unstable_by_key(|it| (it.0, it.1));
        let mut held = Bytes::ZERO;
        let mut most = (Bytes::ZERO, 0);
        for (at, is_more, size) in changes {
            held = if is_more { held + size } else { held.saturating_sub(size) };
            if most.0 < held {
                most = (held, at);
            }
        }
        most
    }

    fn sum(&self, selection: &mut Selection, position: Position) {
        for &life in &selection.lives {
            let (start, end) = self.span(life);
            if start <= position && position < end {
                selection.live.0 += self.extent(life).1;
                selection.live.1 += 1;
            }
        }
        selection.most = self.most(&selection.lives);
    }

    fn hit(&self, life: LifeId, position: Position) -> Hit {
        let name = self.names.get(&life).cloned();
        let line = || self.line(life).map(|it| it.to_string());
        let label = name.or_else(line).unwrap_or_else(|| "no stack".to_owned());
        let (start, end) = self.span(life);
        let is_live = start <= position && position < end;
        Hit { life, size: self.extent(life).1, label, start, is_live }
    }

    fn of_words(&self, words: &str, also: &[LifeId]) -> (String, Vec<LifeId>) {
        let query = Query::of(words);
        let is_it = |life: LifeId| {
            let (address, size) = self.extent(life);
            match &query {
                Query::Address(it) => (address..address + size.0.max(1)).contains(it),
                Query::Sizes(all) => all.iter().any(|it| size.0.abs_diff(it.0) <= it.0 / SAME),
                Query::AtLeast(it) => *it <= size,
                Query::Number(it) => reads(size, it),
                Query::Text(_) => false,
            }
        };
        let Query::Text(text) = &query else { return (query.by(), self.lives_where(is_it)) };
        let mut lives = self.with_text(text);
        lives.extend(also);
        if lives.is_empty() && text.contains(char::is_whitespace) {
            // All of the words, wherever each stands.
            let mut all = text.split_whitespace().map(|it| self.with_text(it));
            lives = all.next().unwrap_or_default();
            for other in all {
                let others: BTreeSet<LifeId> = other.into_iter().collect();
                lives.retain(|it| others.contains(it));
            }
        }
        (query.by(), lives)
    }

    /// What has `text` in its line, its stack, its name, its module or its category.
    fn with_text(&self, text: &str) -> Vec<LifeId> {
        let has = |it: &str| !text.is_empty() && it.to_lowercase().contains(text);
        let categories: Vec<bool> =
            self.groups(Grouping::Category).iter().map(|it| has(&it.name)).collect();
        let lines: Vec<bool> = (self.owners.all.iter())
            .map(|it| owners::name(&self.run, *it).is_some_and(|it| has(&it.to_string())))
            .collect();
        let stacks = self.stacks_with(text);
        self.lives_where(|life| {
            stacks[self.owners.stack(life).index()]
                || lines[self.owners.index(life) as usize]
                || categories[usize::from(self.groups.category(life as usize))]
                || self.names.get(&life).is_some_and(|it| has(it))
                || self.module(life).is_some_and(|it| has(&it))
        })
    }

    /// By stack, whether any of its frames has `text` in its function or file.
    fn stacks_with(&self, text: &str) -> Vec<bool> {
        let trace = self.run.trace;
        let table = &trace.stacks;
        let in_frame = |frame: FrameId| {
            let frame = table.frame_of(frame);
            let place = format!("{}:{}", trace.text(frame.file), frame.line);
            place.to_lowercase().contains(text)
                || trace.text(frame.function).to_lowercase().contains(text)
        };
        let frames: Vec<bool> =
            (0..count(table.n_frames())).map(|it| in_frame(FrameId(it))).collect();
        let own = (0..count(table.n_nodes())).map(|node| {
            let frame = table.frame_ids(StackId(node)).next();
            node != 0 && frame.is_some_and(|it| frames[it.index()])
        });
        self.inherited(own.collect())
    }

    /// By stack, whether it is one of `nodes` or below it; the empty stack is only itself.
    fn below(&self, nodes: &[u32]) -> Vec<bool> {
        let mut own = vec![false; self.run.trace.stacks.n_nodes()];
        for &it in nodes {
            if let Some(own) = own.get_mut(it as usize).filter(|_| it != 0) {
                *own = true;
            }
        }
        let mut res = self.inherited(own);
        res[0] = nodes.contains(&0);
        res
    }

    /// What holds for a caller holds for what it called.
    fn inherited(&self, mut own: Vec<bool>) -> Vec<bool> {
        let table = &self.run.trace.stacks;
        for node in 1..own.len() {
            own[node] = own[node] || own[table.caller(StackId(count(node))).index()];
        }
        own
    }
}
