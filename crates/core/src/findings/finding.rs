//! What a rule finds, and what a rule is.

use crate::{
    codes::{Family, ProblemCode},
    findings::Case,
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

    /// What to tell first: the largest, of the device before the host's.
    pub(crate) fn rank(&self) -> (bool, Bytes) {
        (!self.is_of_host(), self.bytes)
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
        Finding {
            code: self.code,
            weight,
            title: title.into(),
            bytes,
            count: 0,
            at: None,
            made_at: None,
            step: None,
            evidence: Vec::new(),
            remedy: String::new(),
            blocks: Vec::new(),
            device: 0,
        }
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

/// `file.py:12`, as people find it.
pub(crate) fn place(line: &CodeLine) -> String {
    let name = line.file.rsplit(['/', '\\']).next().unwrap_or_default();
    format!("{name}:{}", line.line)
}
