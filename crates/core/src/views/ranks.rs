//! The ranks of a job beside each other, as a table for people and as JSON.

use std::fmt::{self, Display};

use serde_json::{Value, json};

use crate::{
    explanation::{RankFacts, RankTable},
    views::style::Styles,
};

/// Rows that are shown one by one; more are the lowest, the highest and what ran out.
const SHOWN: usize = 32;

/// `table` as text of at most `width` columns.
pub fn text(table: &RankTable, styles: Styles, width: usize) -> impl Display {
    fmt::from_fn(move |f| {
        let RankTable { rows, .. } = table;
        writeln!(f, "{}", styles.heading.of(format!("{} ranks and devices", rows.len())))?;
        writeln!(f, "  {:<7} {:>11} {:>11} {:>5}", "", "allocated", "reserved", "steps")?;
        let lowest = (0..rows.len()).min_by_key(|it| rows[*it].peak_allocated);
        let is_shown = |row: usize| {
            rows.len() <= SHOWN
                || [table.highest, table.first_out, lowest].contains(&Some(row))
                || rows[row].ran_out_micros.is_some()
        };
        for (at, row) in rows.iter().enumerate().filter(|(at, _)| is_shown(*at)) {
            let mut words = Vec::new();
            if table.highest == Some(at) && 1 < rows.len() {
                words.push("highest peak");
            }
            if table.first_out == Some(at) {
                words.push("ran out of memory first");
            } else if row.ran_out_micros.is_some() {
                words.push("ran out of memory");
            }
            let (allocated, reserved) =
                (row.peak_allocated.to_string(), row.peak_reserved.to_string());
            let line = format!(
                "  {:<7} {allocated:>11} {reserved:>11} {:>5}  {}{}{}",
                name(table, at),
                row.steps,
                row.name,
                if words.is_empty() { "" } else { ": " },
                words.join(", "),
            );
            let room = width.max(60);
            writeln!(f, "{}", line.chars().take(room).collect::<String>())?;
        }
        if SHOWN < rows.len() {
            writeln!(f, "  ... and the others, between the lowest and the highest")?;
        }
        if !table.lines.is_empty() {
            writeln!(
                f,
                "\n{}",
                styles.heading.of("Lines in which they differ most, at their peaks")
            )?;
            writeln!(f, "  {:>11} {:<8} {:>11} {:<8}  line", "least", "", "most", "")?;
            for it in &table.lines {
                let (least, most) = (it.least.1.to_string(), it.most.1.to_string());
                let (low, high) = (name(table, it.least.0), name(table, it.most.0));
                writeln!(f, "  {least:>11} {low:<8} {most:>11} {high:<8}  {}", it.at)?;
            }
        }
        if !table.notes.is_empty() {
            writeln!(f)?;
        }
        table.notes.iter().try_for_each(|it| writeln!(f, "  - {it}"))
    })
}

/// What a row is called: its rank, with the device where a rank has several.
pub(super) fn name(table: &RankTable, row: usize) -> String {
    let RankFacts { rank, device, name, .. } = &table.rows[row];
    let same = table.rows.iter().filter(|it| it.rank == *rank && it.name == *name).count();
    match rank {
        Some(rank) if 1 < same => format!("{rank}:gpu{device}"),
        Some(rank) => format!("rank {rank}"),
        None if 1 < same => format!("gpu{device}"),
        None => format!("#{row}"),
    }
}

/// `table` as JSON.
pub(super) fn value(table: &RankTable) -> Value {
    let rows: Vec<Value> = table
        .rows
        .iter()
        .map(|rank| {
            json!({
                "name": rank.name,
                "rank": rank.rank,
                "device": rank.device,
                "peak_allocated_bytes": rank.peak_allocated.0,
                "peak_reserved_bytes": rank.peak_reserved.0,
                "steps": rank.steps,
                "torch_version": rank.torch_version,
                "ran_out": rank.ran_out_micros.is_some(),
                "ran_out_us": rank.ran_out_micros.filter(|it| *it != 0),
            })
        })
        .collect();
    let lines: Vec<Value> = table
        .lines
        .iter()
        .map(|moment| {
            json!({
                "at": moment.at,
                "least": { "row": moment.least.0, "bytes": moment.least.1.0 },
                "most": { "row": moment.most.0, "bytes": moment.most.1.0 },
            })
        })
        .collect();
    json!({
        "rows": rows,
        "highest": table.highest,
        "first_out": table.first_out,
        "lines": lines,
        "notes": table.notes,
    })
}
