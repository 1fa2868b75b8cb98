//! What `plimsoll lint` says of the very lines that a report's findings name: it stands beside them as evidence. Only files that
//! have not changed since the script ran are read, and only a few.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    time::SystemTime,
};

use plimsoll_core::{
    findings::{Finding, Weight},
    printable::printable,
    recording::CodeLine,
};
use plimsoll_lint::{Diagnosis, Selection};

use crate::files::bounded_file;

/// A run's lines are in a few files.
const MOST_FILES: usize = 8;

/// How such evidence begins.
pub(in crate::commands) const BY_LINT: &str = "`plimsoll lint`";

/// Adds to each finding what `lint` found at its line, or at the line where its memory was allocated.
/// Files that changed after `ran` are left out.
pub(in crate::commands) fn tell(findings: &mut [Finding], ran: SystemTime) {
    let mut read: BTreeMap<String, Linted> = BTreeMap::new();
    for finding in findings.iter_mut().filter(|it| it.weight != Weight::Fact) {
        let lines: Vec<CodeLine> = finding.at.iter().chain(&finding.made_at).cloned().collect();
        let mut told: BTreeSet<&str> = BTreeSet::new();
        for line in lines {
            if !read.contains_key(&line.file) && read.len() < MOST_FILES {
                read.insert(line.file.clone(), Linted::of(&line.file, ran));
            }
            let Some(linted) = read.get(&line.file) else { continue };
            for diagnosis in linted.at(&line).filter(|it| told.insert(it.rule.code)) {
                finding.evidence.push(format!(
                    "{BY_LINT} at line {}: {} [{}]",
                    line.line,
                    printable(&diagnosis.message),
                    diagnosis.rule.code
                ));
            }
        }
    }
}

/// What was found in a file; of one that cannot be read, nothing.
struct Linted(Vec<Diagnosis>);

impl Linted {
    fn of(file: &str, ran: SystemTime) -> Linted {
        let path = Path::new(file);
        let is_script = path.is_absolute() && path.extension().is_some_and(|it| it == "py");
        let changed = fs::metadata(path).and_then(|it| it.modified());
        if !is_script || !changed.is_ok_and(|it| it <= ran) {
            return Linted(Vec::new());
        }
        let text = bounded_file::text(path, bounded_file::SOURCE).unwrap_or_default();
        Linted(plimsoll_lint::lint(&text, &Selection::default()).unwrap_or_default())
    }

    fn at(&self, line: &CodeLine) -> impl Iterator<Item = &Diagnosis> {
        let number = line.line as usize;
        self.0.iter().filter(move |it| (it.start.line..=it.end.line).contains(&number))
    }
}
