//! What a rule finds, and what a rule is.

use std::cmp::Reverse;

use crate::{
    codes::{Family, ProblemCode},
    findings::{Case, growth::A_RUN},
    prediction::Category,
    recording::CodeLine,
    replay::BlockId,
    units::Bytes,
};

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// Something is wrong.
    Problem,
    /// Nothing is wrong, but memory can be had back.
    Chance,
    /// Good to know.
    Fact,
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Which.
    pub code: ProblemCode,
    /// How much it matters.
    pub weight: Weight,
    /// One sentence with the numbers.
    pub title: String,
    /// What fixing it would give back at the peak; of codes `host/`, how much of the host's memory it is about.
    pub bytes: Bytes,
    /// How many blocks, steps or requests it is about.
    pub count: u64,
    /// What each further step adds, where it grows.
    pub per_step: Bytes,
    /// The script came to its end, so nothing is added to it.
    pub is_over: bool,
    /// The line of code.
    pub at: Option<CodeLine>,
    /// Where its blocks were allocated, if `at` is the line of who holds them.
    pub made_at: Option<CodeLine>,
    /// The step it is about or began in, from 1.
    pub step: Option<u32>,
    /// What speaks for it, one sentence each.
    pub evidence: Vec<String>,
    /// What to change.
    pub remedy: String,
    /// The blocks that would be gone at the worst moment, where a rule can name them: a replay without them
    /// says what that gives.
    pub blocks: Vec<BlockId>,
    /// The blocks that its numbers count, where they count blocks: what a viewer selects.
    pub shown: Vec<BlockId>,
    /// The process and device it is of.
    pub device: usize,
}

/// One kind of problem.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Which: one that has a page.
    pub code: ProblemCode,
    pub(super) find: fn(&Case<'_>) -> Vec<Finding>,
}

impl Finding {
    /// Whether it is about the host's memory, so that the device has nothing of it.
    pub fn is_of_host(&self) -> bool {
        self.code.family() == Family::Host
    }

    /// What it comes to: a problem that grows counts with what a long run adds to it, not with what was recorded.
    fn comes_to(&self) -> Bytes {
        let later = match self.weight {
            Weight::Problem if !self.is_over => Bytes(self.per_step.0.saturating_mul(A_RUN)),
            _ => Bytes::ZERO,
        };
        self.bytes.max(later)
    }

    /// The one order of findings: what is wrong, then what could be had back, then what is good to know; the device before its
    /// host; then what comes to most, of as much a leak first.
    pub(super) fn order(&self) -> impl Ord + use<> {
        let is_other = self.code.family() != Family::Leak;
        (self.weight, self.is_of_host(), Reverse(self.comes_to()), is_other, self.code.word())
    }
}

impl Finding {
    /// One of this kind, to be filled in.
    pub(crate) fn new(code: ProblemCode, weight: Weight, bytes: Bytes, title: String) -> Finding {
        Finding {
            code,
            weight,
            title,
            bytes,
            count: 0,
            per_step: Bytes::ZERO,
            is_over: false,
            at: None,
            made_at: None,
            step: None,
            evidence: Vec::new(),
            remedy: String::new(),
            blocks: Vec::new(),
            shown: Vec::new(),
            device: 0,
        }
    }

    /// Its numbers count these blocks.
    pub(super) fn show(&mut self, blocks: Vec<BlockId>) {
        self.count = blocks.len() as u64;
        self.shown = blocks;
    }

    /// Its numbers count these blocks, and without it they are gone.
    pub(super) fn frees(&mut self, blocks: Vec<BlockId>) {
        self.blocks.clone_from(&blocks);
        self.show(blocks);
    }
}

impl Rule {
    /// A finding of this kind, to be filled in.
    pub(super) fn finding(
        &self,
        weight: Weight,
        bytes: Bytes,
        title: impl Into<String>,
    ) -> Finding {
        Finding::new(self.code, weight, bytes, title.into())
    }
}

impl Weight {
    /// A stable word for it.
    pub fn word(self) -> &'static str {
        match self {
            Weight::Problem => "problem",
            Weight::Chance => "chance",
            Weight::Fact => "fact",
        }
    }
}

/// A category in words.
pub(crate) fn category_name(category: Category) -> &'static str {
    category.name()
}

/// So many blocks, in words.
pub(crate) fn blocks(n: usize) -> String {
    if n == 1 { "1 block".to_owned() } else { format!("{n} blocks") }
}

/// `file.py:12`, as people find it.
pub(crate) fn place(line: &CodeLine) -> String {
    let name = line.file.rsplit(['/', '\\']).next().unwrap_or_default();
    format!("{name}:{}", line.line)
}
