//! What the layouts came to: a table for people, and JSON.

use std::{cmp::Reverse, collections::BTreeMap, fmt::Write as _};

use plimsoll_core::{printable::printable, units::Bytes, views::text::Styles};
use serde_json::{Map, Value, json};

use super::candidates::Layout;

/// Rows of each table; `--json` has all.
const ROWS: usize = 10;
/// Layouts that are named beside a reason.
const NAMED: usize = 3;
/// Groups of memory that a row names.
const GROUPS: usize = 3;

/// A layout that was tried.
#[derive(Debug)]
pub(super) struct Tried {
    pub(super) layout: Layout,
    /// What runs it alone.
    pub(super) command: String,
    pub(super) answer: Answer,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Fits(Sizes),
    /// It runs out of memory, grows, or depends on values that nobody knows; `needs` is unknown where nothing was large enough.
    DoesNotFit {
        sizes: Sizes,
        verdict: String,
    },
    /// In the words of the script.
    CannotWork(String),
}

/// What the rank takes that needs most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) needs: Option<Bytes>,
    pub(super) safe: Option<Bytes>,
    /// Each rank that ran, and what it needs; empty if all need the same.
    pub(super) ranks: Vec<(u32, Bytes)>,
    /// Which ranks did not run, though they may need more.
    pub(super) unseen: Option<String>,
    /// By what it is for, largest first.
    pub(super) groups: Vec<(String, Bytes)>,
    /// The resource request, if one was asked for.
    pub(super) request: Option<String>,
}

/// All layouts of a question.
#[derive(Debug)]
pub(super) struct Layouts {
    pub(super) card: String,
    pub(super) total: Bytes,
    pub(super) gpus: u32,
    /// In the rough order of communication and recomputation.
    pub(super) tried: Vec<Tried>,
}

/// One that fits, with its place in the rough order.
type Row<'a> = (usize, &'a Tried, &'a Sizes);

impl Layouts {
    fn fitting(&self) -> Vec<Row<'_>> {
        let mut res: Vec<Row<'_>> = Vec::new();
        for it in &self.tried {
            if let Answer::Fits(sizes) = &it.answer {
                res.push((res.len() + 1, it, sizes));
            }
        }
        res.sort_by_key(|it| (Reverse(it.2.needs), it.0));
        res
    }

    fn too_large(&self) -> Vec<(&Tried, &Sizes, &str)> {
        let mut res = Vec::new();
        for it in &self.tried {
            if let Answer::DoesNotFit { sizes, verdict } = &it.answer {
                res.push((it, sizes, verdict.as_str()));
            }
        }
        res.sort_by_key(|it| (it.1.needs.is_none(), it.1.needs));
        res
    }

    /// By reason; layouts of the same reason are together.
    fn impossible(&self) -> BTreeMap<&str, Vec<&Tried>> {
        let mut res: BTreeMap<&str, Vec<&Tried>> = BTreeMap::new();
        for it in &self.tried {
            if let Answer::CannotWork(why) = &it.answer {
                res.entry(why).or_default().push(it);
            }
        }
        res
    }

    /// The one that communicates and computes again least of those that fit.
    pub(super) fn first(&self) -> Option<&Tried> {
        self.tried.iter().find(|it| matches!(it.answer, Answer::Fits(_)))
    }

    pub(super) fn text(&self, styles: Styles) -> String {
        let (fitting, too_large, impossible) =
            (self.fitting(), self.too_large(), self.impossible());
        let n_impossible: usize = impossible.values().map(Vec::len).sum();
        let names = self.tried.iter().map(|it| shown_name(it).chars().count());
        let width = names.max().unwrap_or(0).max("layout".len());
        let verdict = if fitting.is_empty() { styles.bad } else { styles.good };
        let mut res = format!(
            "{} of {} layouts on {} x {} ({}); {} do not fit, {n_impossible} cannot work\n",
            verdict.of(format!("{} FIT", fitting.len())),
            self.tried.len(),
            self.gpus,
            self.card,
            self.total,
            too_large.len(),
        );
        if !fitting.is_empty() {
            let title = match fitting.len() {
                n @ ..=ROWS => format!("{n} that fit, tightest first"),
                n => format!("The {ROWS} tightest of {n} that fit"),
            };
            let _ = writeln!(res, "\n{}", styles.heading.of(title));
            let _ = writeln!(
                res,
                "  {:>5}  {:<width$} {:>10} {:>10}  made of",
                "order", "layout", "needs", "to spare"
            );
            for (order, it, sizes) in fitting.iter().take(ROWS) {
                let needs = sizes.needs.unwrap_or_default();
                let spare = self.total.saturating_sub(needs);
                let tight =
                    if sizes.safe.is_some_and(|safe| self.total < safe) { "tight: " } else { "" };
                let _ = writeln!(
                    res,
                    "  {order:>5}  {:<width$} {:>10} {:>10}  {tight}{}",
                    shown_name(it),
                    needs.to_string(),
                    spare.to_string(),
                    made_of(sizes)
                );
            }
        }
        if !too_large.is_empty() {
            let title = match too_large.len() {
                n @ ..=ROWS => format!("{n} that do not fit, nearest first"),
                n => format!("The {ROWS} nearest of {n} that do not fit"),
            };
            let _ = writeln!(res, "\n{}", styles.heading.of(title));
            let _ = writeln!(
                res,
                "         {:<width$} {:>10} {:>10}  made of",
                "layout", "needs", "too much"
            );
            for (it, sizes, verdict) in too_large.iter().take(ROWS) {
                let needs = sizes.needs.map_or_else(|| "unknown".to_owned(), |it| it.to_string());
                let over = sizes
                    .needs
                    .map(|it| it.saturating_sub(self.total).to_string())
                    .unwrap_or_default();
                let verdict = if *verdict == "does_not_fit" {
                    String::new()
                } else {
                    format!("{}: ", verdict.replace('_', " "))
                };
                let _ = writeln!(
                    res,
                    "         {:<width$} {needs:>10} {over:>10}  {verdict}{}",
                    shown_name(it),
                    made_of(sizes)
                );
            }
        }
        if !impossible.is_empty() {
            let _ =
                writeln!(res, "\n{}", styles.heading.of("Cannot work, in the words of the script"));
            for (why, of) in &impossible {
                let mut names: Vec<String> =
                    of.iter().take(NAMED).map(|it| shown_name(it)).collect();
                if NAMED < of.len() {
                    names.push(format!("{} more", of.len() - NAMED));
                }
                let _ = writeln!(res, "  {}: {}", printable(why), names.join(", "));
            }
        }
        if 1 < fitting.len() {
            res += "\norder: rough, 1 communicates and computes again least; plimsoll measures no time\n";
        }
        let unseen: Vec<&str> = fitting.iter().filter_map(|it| it.2.unseen.as_deref()).collect();
        if let Some(example) = unseen.first() {
            let _ = writeln!(
                res,
                "\n! {} of those that fit ran as their first rank only: {}",
                unseen.len(),
                printable(example)
            );
        }
        if let Some(it) = self.first() {
            let _ = writeln!(res, "\nThe report of {}:\n  {}", shown_name(it), it.command);
            if let Answer::Fits(Sizes { request: Some(request), .. }) = &it.answer {
                let _ = writeln!(res, "\n{request}");
            }
        }
        res
    }

    pub(super) fn json(&self) -> Value {
        let mut order = 0;
        let rows: Vec<Value> = self.tried.iter().map(|it| self.row(it, &mut order)).collect();
        json!({
            "version": 1,
            "gpu": self.card,
            "gpu_total_bytes": self.total.0,
            "gpus": self.gpus,
            "layouts": rows,
        })
    }

    fn row(&self, it: &Tried, order: &mut usize) -> Value {
        let values: Map<String, Value> =
            it.layout.values.iter().map(|(name, it)| (name.clone(), it.as_str().into())).collect();
        let (verdict, sizes, reason) = match &it.answer {
            Answer::Fits(sizes) => ("fits", Some(sizes), None),
            Answer::DoesNotFit { sizes, verdict } => (verdict.as_str(), Some(sizes), None),
            Answer::CannotWork(why) => ("could_not_tell", None, Some(why)),
        };
        let fits = matches!(it.answer, Answer::Fits(_));
        *order += usize::from(fits);
        let needs = sizes.and_then(|it| it.needs);
        let ranks = sizes.map(|it| it.ranks.as_slice()).unwrap_or_default();
        let groups = sizes.map(|it| it.groups.as_slice()).unwrap_or_default();
        let groups: Map<String, Value> =
            groups.iter().map(|(name, it)| (name.clone(), it.0.into())).collect();
        json!({
            "values": values,
            "command": it.command,
            "verdict": verdict,
            "order": fits.then_some(*order),
            "needs_bytes": needs.map(|it| it.0),
            "safe_bytes": sizes.and_then(|it| it.safe).map(|it| it.0),
            "spare_bytes": needs.filter(|_| fits).map(|it| self.total.saturating_sub(it).0),
            "ranks": ranks.iter().map(|(rank, it)| json!({ "rank": rank, "device_bytes": it.0 })).collect::<Vec<_>>(),
            "categories": groups,
            "reason": reason,
            "unseen": sizes.and_then(|it| it.unseen.as_deref()),
        })
    }
}

/// The values are the user's text.
fn shown_name(it: &Tried) -> String {
    printable(&it.layout.name()).into_owned()
}

/// The largest groups of a layout, and how far its ranks are apart.
fn made_of(sizes: &Sizes) -> String {
    let words = |name: &str| match name {
        "context" => "CUDA context".to_owned(),
        "kept" => "retained".to_owned(),
        "other" => "other libraries".to_owned(),
        "slack" => "allocator slack".to_owned(),
        other => other.replace('_', " "),
    };
    let short = |(name, bytes): &(String, Bytes)| format!("{} {bytes}", words(name));
    let mut parts: Vec<String> = sizes.groups.iter().take(GROUPS).map(short).collect();
    let needs = || sizes.ranks.iter().map(|it| it.1);
    if let (Some(least), Some(most)) = (needs().min(), needs().max())
        && least != most
    {
        let largest = sizes.ranks.iter().find(|it| it.1 == most).map_or(0, |it| it.0);
        parts.push(format!("ranks {least} to {most}, largest rank {largest}"));
    }
    parts.join(", ")
}
