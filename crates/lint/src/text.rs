//! A file's text: where its lines begin, which of its comments silence a rule, and a notebook's cells as one text.

use std::{collections::BTreeSet, fmt};

use serde::{
    Deserialize,
    de::{Deserializer, Error, SeqAccess, Visitor},
};

use crate::bounds::{LARGEST, TooMuch};

/// What a comment begins with that silences rules.
const MARK: &str = "plimsoll:";

/// A place in a file, as editors count: from 1, the column in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

/// Characters are counted up to every so many bytes: a line may have millions, and many places in it.
const BLOCK: usize = 1024;
/// So much of a line is shown.
const LONGEST_SHOWN: usize = 1000;

/// Where the lines of a text begin.
#[derive(Debug)]
pub(crate) struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
    /// How many characters begin before each block of bytes.
    chars: Vec<usize>,
}

impl<'a> Lines<'a> {
    pub(crate) fn of(text: &'a str) -> Lines<'a> {
        let ends = text.bytes().enumerate().filter(|(_, it)| *it == b'\n');
        let starts = std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect();
        let mut n_chars = 0;
        let mut chars = vec![0];
        for block in text.as_bytes().chunks(BLOCK) {
            n_chars += count(block);
            chars.push(n_chars);
        }
        Lines { text, starts, chars }
    }

    /// How many characters begin before the byte `at`.
    fn chars_before(&self, at: usize) -> usize {
        let at = at.min(self.text.len());
        let block = at / BLOCK;
        self.chars[block] + count(&self.text.as_bytes()[block * BLOCK..at])
    }

    /// The number of the line, from 0, in which the byte `at` stands.
    pub(crate) fn index(&self, at: usize) -> usize {
        self.starts.partition_point(|it| *it <= at).saturating_sub(1)
    }

    /// Where the line begins in which the byte `at` stands.
    pub(crate) fn start(&self, at: usize) -> usize {
        self.starts[self.index(at)]
    }

    pub(crate) fn place(&self, at: usize) -> Place {
        let column = self.chars_before(at) - self.chars_before(self.start(at)) + 1;
        Place { line: self.index(at) + 1, column }
    }

    /// The line `number`, from 1, as far as it is shown.
    pub(crate) fn line(&self, number: usize) -> &'a str {
        let start = self.starts.get(number.saturating_sub(1)).copied().unwrap_or(self.text.len());
        let end = self.starts.get(number).copied().unwrap_or(self.text.len());
        let line = self.text[start..end].trim_end_matches(['\r', '\n']);
        line.char_indices().nth(LONGEST_SHOWN).map_or(line, |(end, _)| &line[..end])
    }
}

/// How many characters begin in these bytes of a text.
fn count(bytes: &[u8]) -> usize {
    bytes.iter().filter(|it| **it & 0xc0 != 0x80).count()
}

/// What the comments of a file silence.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    /// Codes that are not said of this file; `*` is all of them.
    file: BTreeSet<String>,
    /// By line, from 0.
    lines: Vec<(usize, BTreeSet<String>)>,
}

impl Silence {
    /// `comments`: where each begins and ends.
    pub(crate) fn of(text: &str, lines: &Lines<'_>, comments: &[(usize, usize)]) -> Silence {
        let mut res = Silence::default();
        for (start, end) in comments {
            let Some((_, said)) = text[*start..*end].split_once(MARK) else { continue };
            let said = said.trim();
            if let Some(rest) = said.strip_prefix("ignore-file") {
                res.file.extend(codes(rest));
            } else if let Some(rest) = said.strip_prefix("ignore") {
                res.lines.push((lines.index(*start), codes(rest)));
            }
        }
        res
    }

    /// Whether the rule is silenced on any of the lines from `first` to `last`, from 0.
    pub(crate) fn has(&self, rule: [&str; 2], first: usize, last: usize) -> bool {
        let names = |set: &BTreeSet<String>| {
            set.contains("*") || rule.iter().any(|it| set.contains(&it.to_ascii_lowercase()))
        };
        let from = self.lines.partition_point(|(at, _)| *at < first);
        let until = self.lines.partition_point(|(at, _)| *at <= last);
        names(&self.file) || self.lines[from..until].iter().any(|(_, set)| names(set))
    }
}

/// `[PLM101, kept-loss]`; without brackets, all.
fn codes(rest: &str) -> BTreeSet<String> {
    let inside = rest.trim_start().strip_prefix('[').and_then(|it| it.split(']').next());
    match inside {
        Some(inside) => inside.split(',').map(|it| it.trim().to_ascii_lowercase()).collect(),
        None => BTreeSet::from(["*".to_owned()]),
    }
}

/// The code of a notebook as one text, and for each of its lines the cell and the line in it, from 1.
#[derive(Debug, Default)]
pub(crate) struct Notebook {
    pub(crate) text: String,
    pub(crate) cells: Vec<(u32, u32)>,
}

impl Notebook {
    /// Cells of other languages (`%%bash`) are left out. Outputs, which are most of a notebook, are passed over as they are read.
    pub(crate) fn of(json: &str) -> Result<Notebook, String> {
        #[derive(Deserialize)]
        struct Whole {
            #[serde(deserialize_with = "cells")]
            cells: Notebook,
        }
        serde_json::from_str::<Whole>(json)
            .map(|it| it.cells)
            .map_err(|it| format!("it is not a notebook: {it}"))
    }

    fn add(&mut self, number: u32, source: &str) {
        let first = source.trim_start().lines().next().unwrap_or_default();
        if first.starts_with("%%")
            && !["%%time", "%%capture"].iter().any(|it| first.starts_with(it))
        {
            return;
        }
        for (line, text) in (1..).zip(source.lines()) {
            let is_magic = text.starts_with("%%");
            self.text += if is_magic { "" } else { text };
            self.text.push('\n');
            self.cells.push((number, line));
        }
    }
}

/// The cells, each taken as it comes, so that none is kept beside its code.
fn cells<'de, D: Deserializer<'de>>(json: D) -> Result<Notebook, D::Error> {
    #[derive(Deserialize)]
    struct Cell {
        cell_type: Option<String>,
        source: Option<Source>,
    }
    struct Cells;
    impl<'de> Visitor<'de> for Cells {
        type Value = Notebook;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of cells")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut cells: A) -> Result<Notebook, A::Error> {
            let mut res = Notebook::default();
            let mut number = 0;
            while let Some(cell) = cells.next_element::<Cell>()? {
                number += 1;
                if let (Some("code"), Some(source)) = (cell.cell_type.as_deref(), &cell.source) {
                    res.add(number, &source.0);
                }
                if LARGEST < res.text.len() {
                    return Err(A::Error::custom(TooMuch::Large));
                }
            }
            Ok(res)
        }
    }
    json.deserialize_seq(Cells)
}

/// The text of a cell: whole, or by lines.
struct Source(String);

impl<'de> Deserialize<'de> for Source {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Source, D::Error> {
        struct Lines;
        impl<'de> Visitor<'de> for Lines {
            type Value = Source;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a cell's text, as one string or a list of lines")
            }

            fn visit_str<E>(self, text: &str) -> Result<Source, E> {
                Ok(Source(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut lines: A) -> Result<Source, A::Error> {
                let mut res = String::new();
                while let Some(line) = lines.next_element::<String>()? {
                    res += &line;
                }
                Ok(Source(res))
            }
        }
        json.deserialize_any(Lines)
    }
}
