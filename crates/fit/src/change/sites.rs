//! The places of a program, with the files that hold them.

use std::collections::BTreeMap;

use plimsoll_core::recording::{Sites, Span};

/// The source of each file, by its path.
pub type Sources = BTreeMap<String, String>;

/// Where things are in a program's files, and what these hold.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// Where.
    pub sites: Sites,
    /// The files.
    pub sources: Sources,
}

/// What a remedy looks at to say its edits.
pub(crate) struct Place<'a> {
    pub(crate) sites: &'a Sites,
    pub(crate) sources: &'a Sources,
}

impl Place<'_> {
    /// What a line begins with.
    pub(crate) fn indent(&self, file: &str, line: u32) -> Option<&str> {
        let index = usize::try_from(line).ok()?.checked_sub(1)?;
        let line = self.sources.get(file)?.lines().nth(index)?;
        line.get(..line.len() - line.trim_start().len())
    }

    /// How many bytes of the file come before this line and byte.
    pub(crate) fn byte(&self, file: &str, (line, byte): (u32, u32)) -> Option<usize> {
        let n_before = usize::try_from(line).ok()?.checked_sub(1)?;
        let before = self.sources.get(file)?.split_inclusive('\n').take(n_before);
        Some(before.map(str::len).sum::<usize>() + usize::try_from(byte).ok()?)
    }

    /// The source of a span within one line.
    pub(crate) fn text(&self, file: &str, span: Span) -> Option<&str> {
        let index = |it: u32| usize::try_from(it).ok();
        if span.first.0 != span.end.0 {
            return None;
        }
        let line = self.sources.get(file)?.lines().nth(index(span.first.0)?.checked_sub(1)?)?;
        line.get(index(span.first.1)?..index(span.end.1)?)
    }
}
