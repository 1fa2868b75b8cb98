//! What is wrong with a run's memory, or could be had back. One file is one kind of problem: its code,
//! its manual page, its check. A rule reads a `Case` and returns what it found; it changes nothing and
//! calls no other rule.
//!
//! A code never changes its meaning, because people search for it.

mod began_late;
mod case;
mod clock;
mod double_buffer;
mod dynamic_shapes;
mod eval_without_no_grad;
mod first_step;
mod foreach;
mod fragmentation;
mod gradients_kept;
mod graph_retained;
mod growth;
mod idle_pools;
mod kv_cache;
mod one_allocation;
mod outside;
mod peak;
mod per_step;
mod refilled;
mod remade;
mod results_kept;
mod ring;
mod streams;
mod unused_graph;
mod what_if;
mod workspaces;

pub(crate) use case::Case;
pub use case::Window;

use std::cmp::Reverse;

use crate::{prediction::Category, recording::CodeLine, replay::BlockId, units::Bytes};

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
    /// Its stable code, such as `leak/graph-retained`.
    pub code: &'static str,
    /// How much it matters.
    pub weight: Weight,
    /// One sentence with the numbers.
    pub title: String,
    /// What fixing it would give back at the peak.
    pub bytes: Bytes,
    /// How many blocks, steps or requests it is about.
    pub count: u64,
    /// The line of code.
    pub at: Option<CodeLine>,
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
    /// Its stable code.
    pub code: &'static str,
    /// What it is, in a few words.
    pub title: &'static str,
    /// The manual page, in Markdown.
    pub page: &'static str,
    find: fn(&Case<'_>) -> Vec<Finding>,
}

/// Every kind, in the order of the manual.
pub const RULES: &[Rule] = &[
    graph_retained::RULE,
    eval_without_no_grad::RULE,
    unused_graph::RULE,
    results_kept::RULE,
    per_step::RULE,
    kv_cache::RULE,
    fragmentation::RULE,
    one_allocation::RULE,
    foreach::RULE,
    gradients_kept::RULE,
    double_buffer::RULE,
    dynamic_shapes::RULE,
    streams::RULE,
    idle_pools::RULE,
    workspaces::RULE,
    outside::RULE,
    first_step::RULE,
    peak::RULE,
    ring::RULE,
    began_late::RULE,
];

/// The rule of `code`.
pub fn rule(code: &str) -> Option<&'static Rule> {
    RULES.iter().find(|it| it.code == code)
}

/// Everything that the rules find, what would give back the most first.
pub(crate) fn find(case: &Case<'_>) -> Vec<Finding> {
    let mut res: Vec<Finding> = RULES.iter().flat_map(|it| (it.find)(case)).collect();
    for it in &mut res {
        it.device = case.run.index;
    }
    sort(&mut res);
    res
}

/// What would give back the most first; of equals, what matters more.
pub(crate) fn sort(findings: &mut [Finding]) {
    findings.sort_by_key(|it| (it.weight == Weight::Fact, Reverse(it.bytes), it.weight, it.code));
}

impl Rule {
    /// A finding of this kind, to be filled in.
    fn finding(&self, weight: Weight, bytes: Bytes, title: impl Into<String>) -> Finding {
        Finding {
            code: self.code,
            weight,
            title: title.into(),
            bytes,
            count: 0,
            at: None,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_each_page_says_what_it_is_about() {
        for rule in RULES {
            assert_eq!(RULES.iter().filter(|it| it.code == rule.code).count(), 1, "{}", rule.code);
            let title = rule.page.lines().next().unwrap();
            assert_eq!(title, format!("# {}", rule.code));
            for part in ["## What it means", "## What to change", "## What it cannot know"] {
                assert!(rule.page.contains(part), "{}: {part}", rule.code);
            }
        }
    }
}
