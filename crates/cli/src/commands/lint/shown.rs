//! What was found, for people and for programs.

use std::fmt::Write as _;

use plimsoll_core::{printable::printable, views::text::Styles};
use plimsoll_lint::{Diagnosis, RULES};
use serde_json::{Value, json};

use super::{
    cost::{Cost, Saved, cost_of, place},
    files::Linted,
};
use crate::{commands::sarif, output};

fn all(linted: &[Linted]) -> impl Iterator<Item = (usize, usize, &Linted, &Diagnosis)> {
    linted
        .iter()
        .enumerate()
        .flat_map(|(k, file)| file.found.iter().enumerate().map(move |(n, it)| (k, n, file, it)))
}

pub(super) fn text(linted: &[Linted], costs: &[Cost], styles: Styles) -> String {
    let mut res = String::new();
    let mut all: Vec<_> = all(linted).collect();
    // What was measured counts more than what a mistake usually costs.
    all.sort_by_cached_key(|(k, n, ..)| {
        let saved = cost_of(costs, *k, *n).and_then(|it| it.bytes);
        let saved = saved.map(|it| (it.per_step, it.allocated)).unwrap_or_default();
        (*k, std::cmp::Reverse(saved))
    });
    for (k, n, file, it) in all {
        let _ = writeln!(
            res,
            "{} {} {}",
            printable(&place(file, it)),
            styles.warn.of(it.rule.code),
            printable(&it.message)
        );
        if let Some(cost) = cost_of(costs, k, n) {
            let _ = writeln!(res, "    {}", printable(&cost.text));
        }
    }
    for error in linted.iter().filter_map(|it| it.error.as_ref()) {
        let _ = writeln!(res, "{}", printable(error));
    }
    let n_found: usize = linted.iter().map(|it| it.found.len()).sum();
    let n_unread = linted.iter().filter(|it| it.error.is_some()).count();
    let n_files = linted.len() - n_unread;
    let mut files = if n_files == 1 { "1 file".to_owned() } else { format!("{n_files} files") };
    if n_unread != 0 {
        let _ = write!(files, "; {n_unread} could not be read");
    }
    let first = linted.iter().flat_map(|it| &it.found).min_by_key(|it| it.rule.weight);
    match (n_found, first) {
        (0, _) | (_, None) => {
            let _ = writeln!(res, "{} in {files}", styles.good.of("nothing found"));
        }
        (_, Some(first)) => {
            let mistakes =
                if n_found == 1 { "1 mistake".to_owned() } else { format!("{n_found} mistakes") };
            let _ = writeln!(
                res,
                "\n{mistakes} in {files}; why, and how to fix it: plimsoll lint --explain {}",
                first.rule.code
            );
        }
    }
    res
}

pub(super) fn json(linted: &[Linted], costs: &[Cost]) -> String {
    let diagnoses: Vec<Value> = all(linted)
        .map(|(k, n, file, it)| {
            let mut res = json!({
                "file": file.shown,
                "cell": it.cell,
                "line": it.start.line,
                "column": it.start.column,
                "end_line": it.end.line,
                "end_column": it.end.column,
                "code": it.rule.code,
                "name": it.rule.name,
                "message": it.message,
                "text": it.line,
            });
            if let Some(cost) = cost_of(costs, k, n) {
                let saved = |get: fn(&Saved) -> i128| {
                    cost.bytes.as_ref().and_then(|it| i64::try_from(get(it)).ok())
                };
                res["cost"] = json!({
                    "text": cost.text,
                    "peak_allocated_bytes": saved(|it| it.allocated),
                    "peak_reserved_bytes": saved(|it| it.reserved),
                    "growth_bytes_per_step": saved(|it| it.per_step),
                });
            }
            res
        })
        .collect();
    let unread: Vec<&String> = linted.iter().filter_map(|it| it.error.as_ref()).collect();
    let lines: usize = linted.iter().map(|it| it.n_lines).sum();
    let whole = json!({
        "version": 1,
        "files": linted.len(),
        "lines": lines,
        "diagnoses": diagnoses,
        "unread": unread,
    });
    format!("{whole:#}\n")
}

pub(super) fn sarif(linted: &[Linted], costs: &[Cost]) -> String {
    let rules: Vec<sarif::Rule<'_>> =
        RULES.iter().map(|it| (it.code, it.name, it.title, it.page)).collect();
    let results: Vec<sarif::Result> = all(linted)
        .map(|(k, n, file, it)| sarif::Result {
            rule: it.rule.code.to_owned(),
            level: "warning",
            message: with_cost(it, cost_of(costs, k, n)),
            file: Some(file.shown.clone()),
            region: [it.start.line, it.start.column, it.end.line, it.end.column],
        })
        .collect();
    sarif::document(&rules, &results)
}

fn with_cost(it: &Diagnosis, cost: Option<&Cost>) -> String {
    match cost {
        Some(cost) => format!("{}. Here: {}", it.message, cost.text),
        None => it.message.clone(),
    }
}

/// Commands of a workflow of GitHub, which shows them beside the lines.
pub(super) fn github(linted: &[Linted], costs: &[Cost]) -> String {
    let value = |text: &str| {
        let text = text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
        output::text(&printable(&text)).into_owned()
    };
    let property = |text: &str| value(text).replace(':', "%3A").replace(',', "%2C");
    let mut res = String::new();
    for (k, n, file, it) in all(linted) {
        let _ = writeln!(
            res,
            "::warning title=plimsoll ({}),file={},line={},col={},endLine={},endColumn={}::{}",
            it.rule.code,
            property(&file.shown),
            it.start.line,
            it.start.column,
            it.end.line,
            it.end.column,
            value(&with_cost(it, cost_of(costs, k, n))),
        );
    }
    for error in linted.iter().filter_map(|it| it.error.as_ref()) {
        let _ = writeln!(res, "::error title=plimsoll::{}", value(error));
    }
    res
}
