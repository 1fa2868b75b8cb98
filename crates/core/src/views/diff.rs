//! `plimsoll diff`: what differs, as a table for people and as JSON. Keys only get added; `VERSION` says
//! when one changes its meaning.

use std::fmt::{self, Display, Formatter};

use serde_json::{Value, json};

use crate::{
    explanation::{Difference, NameRow, RankTable, Row, Total},
    recording::CodeLine,
    units::{Bytes, signed},
    views::{ranks, style::Styles},
};

/// The version of the JSON.
const VERSION: u32 = 1;
/// Lines of the table; the rest is summed up.
const SHOWN: usize = 20;
/// Names of the table.
const SHOWN_NAMES: usize = 8;

/// `difference` as text of at most `width` columns.
pub fn text(difference: &Difference, styles: Styles, width: usize) -> impl Display {
    fmt::from_fn(move |f| {
        let Difference { before, after, rows, .. } = difference;
        let is_one = before.name == after.name && before.device == after.device;
        if difference.is_empty() {
            let (a, b) = (what(before, is_one), what(after, is_one));
            writeln!(
                f,
                "no difference: {a} and {b} have the same memory allocated, line by line ({})",
                before.allocated
            )?;
            return notes(f, difference);
        }
        writeln!(
            f,
            "{}",
            styles.heading.of(format!("{}  →  {}", what(before, is_one), what(after, is_one)))
        )?;
        for (word, a, b) in [
            ("allocated", before.allocated, after.allocated),
            ("reserved", before.reserved, after.reserved),
        ] {
            let change = i128::from(b.0) - i128::from(a.0);
            writeln!(
                f,
                "  {word:<10} {:>11} {:>11} {:>12}",
                a.to_string(),
                b.to_string(),
                signed(change)
            )?;
        }
        writeln!(f, "\n  {:>11} {:>11} {:>12}  line", "before", "after", "change")?;
        for it in rows.iter().take(SHOWN) {
            line(f, it.before.0, it.after.0, it.change(), &words(it), width)?;
        }
        let others: i128 = rows.iter().skip(SHOWN).map(Row::change).sum();
        if SHOWN < rows.len() {
            let words = format!("{} more lines", rows.len() - SHOWN);
            writeln!(f, "  {:>11} {:>11} {:>12}  {words}", "", "", signed(others))?;
        }
        if difference.rest() != 0 {
            writeln!(
                f,
                "  {:>11} {:>11} {:>12}  in no block of the recording",
                "",
                "",
                signed(difference.rest())
            )?;
        }
        if rows.is_empty() {
            writeln!(f, "  {:>11} {:>11} {:>12}  nothing allocated differs", "", "", "0 B")?;
        }
        if !difference.names.is_empty() {
            writeln!(f, "\n  {:>11} {:>11} {:>12}  tensor or module", "before", "after", "change")?;
            for it in difference.names.iter().take(SHOWN_NAMES) {
                line(f, it.before.0, it.after.0, change(it), &it.name, width)?;
            }
        }
        notes(f, difference)
    })
}

fn notes(f: &mut Formatter<'_>, difference: &Difference) -> fmt::Result {
    if !difference.notes.is_empty() {
        writeln!(f)?;
    }
    difference.notes.iter().try_for_each(|it| writeln!(f, "  - {it}"))
}

fn what(total: &Total, is_one: bool) -> String {
    let Total { name, device, at, .. } = total;
    if is_one { format!("{name} {at}") } else { format!("{name}, device {device}, {at}") }
}

fn words(it: &Row) -> String {
    let moved = it.moved_from.as_ref().map(|it| format!(", was {it}")).unwrap_or_default();
    let names =
        if it.names.is_empty() { String::new() } else { format!(": {}", it.names.join(", ")) };
    let function = it.line.as_ref().map(|it| format!(" in {}", it.function)).unwrap_or_default();
    format!("{}{function} ({}{moved}){names}", it.at, it.category)
}

fn line(
    f: &mut Formatter<'_>,
    before: Bytes,
    after: Bytes,
    change: i128,
    words: &str,
    width: usize,
) -> fmt::Result {
    let room = width.saturating_sub(41).max(20);
    let mut shown: String = words.chars().take(room).collect();
    if room < words.chars().count() {
        shown.pop();
        shown.push('…');
    }
    let (before, after) = (before.to_string(), after.to_string());
    writeln!(f, "  {before:>11} {after:>11} {:>12}  {shown}", signed(change))
}

fn change(it: &NameRow) -> i128 {
    i128::from(it.after.0.0) - i128::from(it.before.0.0)
}

/// `difference` as JSON, with the ranks that the two were chosen from.
pub fn wire(difference: &Difference, table: Option<&RankTable>) -> String {
    let mut document = value(difference);
    if let Some(table) = table {
        document["ranks"] = ranks::value(table);
    }
    format!("{document:#}\n")
}

fn value(difference: &Difference) -> Value {
    let rows: Vec<Value> = difference.rows.iter().map(row).collect();
    let names: Vec<Value> = difference
        .names
        .iter()
        .map(|line| {
            json!({
                "name": line.name,
                "before_bytes": line.before.0.0,
                "before_blocks": line.before.1,
                "after_bytes": line.after.0.0,
                "after_blocks": line.after.1,
                "change_bytes": number(change(line)),
            })
        })
        .collect();
    json!({
        "version": VERSION,
        "before": total(&difference.before),
        "after": total(&difference.after),
        "change_bytes": number(difference.change()),
        "rest_bytes": number(difference.rest()),
        "differences": rows,
        "names": names,
        "notes": difference.notes,
    })
}

fn row(it: &Row) -> Value {
    json!({
        "at": it.at,
        "category": it.category,
        "before_bytes": it.before.0.0,
        "before_blocks": it.before.1,
        "after_bytes": it.after.0.0,
        "after_blocks": it.after.1,
        "change_bytes": number(it.change()),
        "file": it.line.as_ref().map(|it| &it.file),
        "line": it.line.as_ref().map(|it| it.line),
        "function": it.line.as_ref().map(|it| &it.function),
        "moved_from": it.moved_from,
        "names": it.names,
        "stack": it.stack.iter().map(frame).collect::<Vec<_>>(),
    })
}

fn frame(it: &CodeLine) -> Value {
    json!({ "file": it.file, "line": it.line, "function": it.function })
}

fn total(it: &Total) -> Value {
    json!({
        "name": it.name,
        "device": it.device,
        "at": it.at.to_string(),
        "events": it.events,
        "allocated_bytes": it.allocated.0,
        "reserved_bytes": it.reserved.0,
    })
}

/// JSON's numbers end at 64 bits; no sum of memory gets there.
fn number(it: i128) -> i64 {
    i64::try_from(it).unwrap_or(if it < 0 { i64::MIN } else { i64::MAX })
}
