//! What a mistake costs, and where one is, as both the runs and the views say it.

use plimsoll_lint::Diagnosis;

use super::files::Linted;

/// What one mistake costs: the n-th of the k-th file.
#[derive(Debug)]
pub(super) struct Cost {
    pub(super) file: usize,
    pub(super) diagnosis: usize,
    /// In words.
    pub(super) text: String,
    /// What is saved at the peak without it, and per step; none if it was not tried.
    pub(super) bytes: Option<Saved>,
}

/// What is less without a mistake.
#[derive(Clone, Copy, Debug)]
pub(super) struct Saved {
    pub(super) allocated: i128,
    pub(super) reserved: i128,
    pub(super) per_step: i128,
}

pub(super) fn cost_of(costs: &[Cost], file: usize, diagnosis: usize) -> Option<&Cost> {
    costs.iter().find(|it| it.file == file && it.diagnosis == diagnosis)
}

/// `path:line:column`, and a notebook's cell.
pub(super) fn place(file: &Linted, it: &Diagnosis) -> String {
    match it.cell {
        Some(cell) => format!("{}:cell {cell}:{}:{}", file.shown, it.start.line, it.start.column),
        None => format!("{}:{}:{}", file.shown, it.start.line, it.start.column),
    }
}
