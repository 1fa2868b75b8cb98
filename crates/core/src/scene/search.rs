//! Finds blocks by the code that asked for them, the tensor in them, their size or their address.

use std::cmp::Reverse;

use crate::{
    scene::{LifeId, Scene, count},
    trace::{FrameId, StackId},
    units::Bytes,
};

/// How many blocks an answer lists; all are counted.
const LISTED: usize = 200;
/// Two sizes that people would call the same differ by less than this share: they read `1.50 GiB`.
const SAME: u64 = 200;

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// How the words were understood, in a few words.
    pub by: String,
    /// How many blocks match.
    pub blocks: u64,
    /// Their sizes together.
    pub bytes: Bytes,
    /// The largest of them.
    pub hits: Vec<Hit>,
}

/// A block that matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Which.
    pub life: LifeId,
    /// Its size.
    pub size: Bytes,
    /// The line that asked for it, or its name.
    pub label: String,
    /// When it began.
    pub start: u32,
}

/// What to look for.
enum Query {
    Address(u64),
    Size(Bytes),
    AtLeast(Bytes),
    Text(String),
}

impl Query {
    fn of(words: &str) -> Query {
        let words = words.trim();
        if let Some(hex) = words.strip_prefix("0x")
            && let Ok(address) = u64::from_str_radix(hex, 16)
        {
            return Query::Address(address);
        }
        if let Some(size) = words.strip_prefix('>')
            && let Ok(size) = size.trim().trim_start_matches('=').parse()
        {
            return Query::AtLeast(size);
        }
        let has_unit =
            words.ends_with(['b', 'B']) && words.starts_with(|c: char| c.is_ascii_digit());
        match words.parse() {
            Ok(size) if has_unit => Query::Size(size),
            _ => Query::Text(words.to_lowercase()),
        }
    }

    fn by(&self) -> String {
        match self {
            Query::Address(it) => format!("address {it:#x}"),
            Query::Size(it) => format!("about {it}"),
            Query::AtLeast(it) => format!("at least {it}"),
            Query::Text(it) => format!("stack or name with \"{it}\""),
        }
    }
}

impl Scene<'_> {
    /// The blocks that `words` mean: a hexadecimal address (`0x7f...`), a size (`512MiB`, `>1GiB`), or a
    /// part of a function, file or tensor name.
    pub fn search(&self, words: &str) -> Hits {
        let query = Query::of(words);
        let stacks = match &query {
            Query::Text(text) => self.stacks_with(text),
            _ => Vec::new(),
        };
        let mut res = Hits { by: query.by(), ..Hits::default() };
        let mut found: Vec<(Bytes, LifeId)> = Vec::new();
        let n = count(self.n_before() + self.run.replay.blocks.len());
        for life in 0..n {
            let (address, size) = self.extent(life);
            let is_it = match &query {
                Query::Address(it) => (address..address + size.0.max(1)).contains(it),
                Query::Size(it) => size.0.abs_diff(it.0) <= it.0 / SAME,
                Query::AtLeast(it) => *it <= size,
                Query::Text(text) => {
                    let names =
                        || self.names.get(&life).is_some_and(|it| it.to_lowercase().contains(text));
                    stacks[self.stack(life).index()] || names()
                }
            };
            if is_it {
                res.blocks += 1;
                res.bytes += size;
                found.push((size, life));
            }
        }
        let key = |it: &(Bytes, LifeId)| (Reverse(it.0), it.1);
        if LISTED < found.len() {
            found.select_nth_unstable_by_key(LISTED, key);
            found.truncate(LISTED);
        }
        found.sort_unstable_by_key(key);
        res.hits = found.into_iter().map(|(size, life)| self.hit(life, size)).collect();
        res
    }

    fn hit(&self, life: LifeId, size: Bytes) -> Hit {
        let name = self.names.get(&life).cloned();
        let line = || self.line(self.stack(life)).map(|it| it.to_string());
        let label = name.or_else(line).unwrap_or_else(|| "no stack".to_owned());
        let block = (life as usize).checked_sub(self.n_before());
        let start = block.map_or(0, |it| self.run.replay.blocks[it].alloc.0 + 1);
        Hit { life, size, label, start }
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
        let mut res = vec![false; table.n_nodes()];
        for node in 1..table.n_nodes() {
            let id = StackId(count(node));
            let own = table.frame_ids(id).next().is_some_and(|it| frames[it.index()]);
            res[node] = own || res[table.caller(id).index()];
        }
        res
    }
}
