//! What the layouts came to: a table for people, and JSON.

use std::{cmp::Reverse, collections::BTreeMap, fmt::Write as _};

use plimsoll_core::{prediction::Verdict, printable::printable, units::Bytes, views::text::Styles};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::candidates::Layout;
use crate::exit::Exit;

/// Rows of each table; `--json` has all.
const ROWS: usize = 10;
/// Layouts that are named beside a reason.
const NAMED: usize = 3;
/// Groups of memory that a row names.
const GROUPS: usize = 3;

/// A layout that was tried.
#[derive(Clone, Debug)]
pub(super) struct Tried {
    pub(super) layout: Layout,
    /// What runs it alone.
    pub(super) command: String,
    pub(super) answer: Answer,
}

impl Tried {
    /// It does not fit, and nobody knows by how much.
    pub(super) fn wants_size(&self) -> bool {
        matches!(&self.answer, Answer::Ran { verdict: Verdict::DoesNotFit, sizes } if sizes.needs.is_none())
    }
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It ran to an answer; what it needs is unknown where nothing was large enough.
    Ran { verdict: Verdict, sizes: Sizes },
    /// In the words of the script.
    CannotWork(String),
}

impl Answer {
    fn fits(&self) -> bool {
        matches!(self, Answer::Ran { verdict: Verdict::Fits, .. })
    }

    /// What was seen of it fits, and what was not seen decides.
    fn is_open(&self) -> bool {
        let verdicts = [Verdict::FitsSoFar, Verdict::Depends];
        matches!(self, Answer::Ran { verdict, .. } if verdicts.contains(verdict))
    }
}

/// What decides where it depends, as reports say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Undecided {
    Masks,
    Experts,
    Order,
    Addresses,
}

/// What the rank takes that needs most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) needs: Option<Bytes>,
    pub(super) safe: Option<Bytes>,
    /// What decides, where it depends.
    pub(super) undecided: Option<Undecided>,
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
    /// How many did not run to an answer, because somebody asked us to stop.
    pub(super) not_run: usize,
}

/// One that ran to an answer.
type Row<'a> = (&'a Tried, Verdict, &'a Sizes);

impl Layouts {
    fn ran(&self, is_wanted: impl Fn(&Answer) -> bool) -> Vec<Row<'_>> {
        let mut res: Vec<Row<'_>> = Vec::new();
        for it in self.tried.iter().filter(|it| is_wanted(&it.answer)) {
            if let Answer::Ran { verdict, sizes } = &it.answer {
                res.push((it, *verdict, sizes));
            }
        }
        res
    }

    /// With their places in the rough order.
    fn fitting(&self) -> Vec<(usize, &Tried, &Sizes)> {
        let all = self.ran(Answer::fits).into_iter().enumerate();
        let mut res: Vec<_> = all.map(|(at, (it, _, sizes))| (at + 1, it, sizes)).collect();
        res.sort_by_key(|it| (Reverse(it.2.needs), it.0));
        res
    }

    fn open(&self) -> Vec<Row<'_>> {
        let mut res = self.ran(Answer::is_open);
        res.sort_by_key(|it| it.2.needs);
        res
    }

    fn too_large(&self) -> Vec<Row<'_>> {
        let mut res = self.ran(|it| !it.fits() && !it.is_open());
        res.sort_by_key(|it| (it.2.needs.is_none(), it.2.needs));
        res
    }

    /// Whether one fits. None does only where each ran, and none of them waits for what was not seen.
    pub(super) fn exit(&self) -> Exit {
        if self.first().is_some() {
            return Exit::Fits;
        }
        let is_open = self.not_run != 0 || !self.open().is_empty();
        if is_open || self.too_large().is_empty() { Exit::CouldNotTell } else { Exit::DoesNotFit }
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
        self.tried.iter().find(|it| it.answer.fits())
    }

    /// What came of one of them, and how many have an answer.
    pub(super) fn line(&self, it: &Tried) -> String {
        let what = match &it.answer {
            Answer::CannotWork(why) => format!("cannot work: {}", printable(why)),
            Answer::Ran { verdict, sizes } => {
                let needs = sizes.needs.map_or_else(String::new, |it| format!(", needs {it}"));
                format!("{}{needs}", verdict.word().replace('_', " "))
            }
        };
        let (n, of) = (self.tried.len(), self.tried.len() + self.not_run);
        format!("{}: {what} ({n} of {of} layouts have a verdict)", shown_name(it))
    }

    pub(super) fn text(&self, styles: Styles) -> String {
        let (fitting, too_large, open) = (self.fitting(), self.too_large(), self.open());
        let impossible = self.impossible();
        let n_impossible: usize = impossible.values().map(Vec::len).sum();
        let names = self.tried.iter().map(|it| shown_name(it).chars().count());
        let width = names.max().unwrap_or(0).max("layout".len());
        let verdict = match self.exit() {
            Exit::Fits => styles.good,
            Exit::CouldNotTell => styles.warn,
            _ => styles.bad,
        };
        let mut res = format!(
            "{} of {} layouts on {} x {} ({}); {} do not fit, {n_impossible} cannot work",
            verdict.of(format!("{} FIT", fitting.len())),
            self.tried.len() + self.not_run,
            self.gpus,
            self.card,
            self.total,
            too_large.len(),
        );
        if !open.is_empty() {
            let _ = write!(res, ", {} unknown", open.len());
        }
        if self.not_run != 0 {
            let _ = write!(res, "; plimsoll was interrupted, and {} did not run", self.not_run);
        }
        if let n @ 1.. = self.tried.iter().filter(|it| it.wants_size()).count() {
            let _ = write!(res, "; by how much {n} do not fit is not known");
        }
        res.push('\n');
        if !fitting.is_empty() {
            let title = title(fitting.len(), "that fit", "tightest");
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
        if !open.is_empty() {
            let title = title(open.len(), "unknown", "smallest");
            let _ = writeln!(res, "\n{}", styles.heading.of(title));
            self.rows(&mut res, width, "to spare", &open, |it| self.total.saturating_sub(it));
        }
        if !too_large.is_empty() {
            let title = title(too_large.len(), "that do not fit", "nearest");
            let _ = writeln!(res, "\n{}", styles.heading.of(title));
            self.rows(&mut res, width, "too much", &too_large, |it| it.saturating_sub(self.total));
        }
        if !impossible.is_empty() {
            let _ =
                writeln!(res, "\n{}", styles.heading.of("Cannot work, in the words of the script"));
            for (why, of) in impossible.iter().take(ROWS) {
                let mut names: Vec<String> =
                    of.iter().take(NAMED).map(|it| shown_name(it)).collect();
                if NAMED < of.len() {
                    names.push(format!("{} more", of.len() - NAMED));
                }
                let _ = writeln!(res, "  {}: {}", printable(why), names.join(", "));
            }
            if let more @ 1.. = impossible.len().saturating_sub(ROWS) {
                let _ = writeln!(res, "  {more} more in the answer of --json");
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
            if let Answer::Ran { sizes: Sizes { request: Some(request), .. }, .. } = &it.answer {
                let _ = writeln!(res, "\n{request}");
            }
        }
        res
    }

    /// A table of those that do not fit, or of which nobody knows; `rest` is how far what they need is from the card.
    fn rows(
        &self,
        res: &mut String,
        width: usize,
        rest_is: &str,
        rows: &[Row<'_>],
        rest: impl Fn(Bytes) -> Bytes,
    ) {
        let (layout, needs) = ("layout", "needs");
        let _ = writeln!(res, "         {layout:<width$} {needs:>10} {rest_is:>10}  made of");
        for (it, verdict, sizes) in rows.iter().take(ROWS) {
            let needs = sizes.needs.map_or_else(|| "unknown".to_owned(), |it| it.to_string());
            let rest = sizes.needs.map_or_else(String::new, |it| rest(it).to_string());
            let _ = writeln!(
                res,
                "         {:<width$} {needs:>10} {rest:>10}  {}{}",
                shown_name(it),
                why(*verdict, sizes.undecided),
                made_of(sizes)
            );
        }
    }

    pub(super) fn json(&self) -> Value {
        let mut order = 0;
        let rows: Vec<Value> = self.tried.iter().map(|it| self.row(it, &mut order)).collect();
        json!({
            "version": 1,
            "gpu": self.card,
            "gpu_total_bytes": self.total.0,
            "gpus": self.gpus,
            "not_run": self.not_run,
            "layouts": rows,
        })
    }

    fn row(&self, it: &Tried, order: &mut usize) -> Value {
        let values: Map<String, Value> =
            it.layout.values.iter().map(|(name, it)| (name.clone(), it.as_str().into())).collect();
        let (verdict, sizes, reason) = match &it.answer {
            Answer::Ran { verdict, sizes } => (*verdict, Some(sizes), None),
            Answer::CannotWork(why) => (Verdict::CouldNotTell, None, Some(why)),
        };
        let fits = verdict == Verdict::Fits;
        *order += usize::from(fits);
        let needs = sizes.and_then(|it| it.needs);
        let ranks = sizes.map(|it| it.ranks.as_slice()).unwrap_or_default();
        let groups = sizes.map(|it| it.groups.as_slice()).unwrap_or_default();
        let groups: Map<String, Value> =
            groups.iter().map(|(name, it)| (name.clone(), it.0.into())).collect();
        json!({
            "values": values,
            "command": it.command,
            "verdict": verdict.word(),
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

/// How a table is headed.
fn title(n: usize, what: &str, first: &str) -> String {
    if n <= ROWS {
        format!("{n} {what}, {first} first")
    } else {
        format!("The {ROWS} {first} of {n} {what}")
    }
}

/// What a row says first of an answer that its table does not say.
fn why(verdict: Verdict, undecided: Option<Undecided>) -> &'static str {
    match verdict {
        Verdict::FitsSoFar => "fits as far as it was seen: ",
        Verdict::Depends => match undecided {
            Some(Undecided::Experts) => "depends on a router: ",
            Some(Undecided::Order) => "depends on a race: ",
            Some(Undecided::Addresses) => "depends on the addresses of PyTorch's segments: ",
            Some(Undecided::Masks) | None => "depends on what masks select: ",
        },
        Verdict::Grows => "grows: ",
        Verdict::Spills => "spills: ",
        Verdict::OverMax => "over max: ",
        Verdict::Fits | Verdict::DoesNotFit | Verdict::CouldNotTell => "",
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

#[cfg(test)]
mod tests {
    use super::*;

    fn of(answers: &[Answer], not_run: usize) -> Layouts {
        let tried = |(at, answer): (usize, &Answer)| Tried {
            layout: Layout { values: vec![("tp".to_owned(), (at + 1).to_string())] },
            command: String::new(),
            answer: answer.clone(),
        };
        let tried = answers.iter().enumerate().map(tried).collect();
        Layouts { card: "t4".to_owned(), total: Bytes::gib(15), gpus: 4, tried, not_run }
    }

    fn ran(verdict: Verdict) -> Answer {
        Answer::Ran { verdict, sizes: Sizes { needs: Some(Bytes::gib(9)), ..Sizes::default() } }
    }

    #[test]
    fn none_fits_only_where_none_may() {
        let cannot = Answer::CannotWork("6 heads".to_owned());
        let exit = |answers: &[Answer], not_run| of(answers, not_run).exit();
        for verdict in [Verdict::FitsSoFar, Verdict::Depends] {
            let open = [ran(verdict), ran(Verdict::DoesNotFit)];
            assert_eq!(exit(&open, 0), Exit::CouldNotTell, "{verdict:?}");
        }
        for verdict in [Verdict::DoesNotFit, Verdict::Grows, Verdict::Spills] {
            assert_eq!(exit(&[ran(verdict), cannot.clone()], 0), Exit::DoesNotFit, "{verdict:?}");
            assert_eq!(exit(&[ran(verdict)], 1), Exit::CouldNotTell, "{verdict:?}");
        }
        assert_eq!(exit(&[cannot], 0), Exit::CouldNotTell);
        assert_eq!(exit(&[ran(Verdict::Grows), ran(Verdict::Fits)], 7), Exit::Fits);
    }

    #[test]
    fn what_was_not_seen_whole_has_a_table_of_its_own() {
        let layouts = of(&[ran(Verdict::FitsSoFar), ran(Verdict::Grows)], 3);
        let text = layouts.text(Styles::default());
        assert!(
            text.starts_with("0 FIT of 5 layouts on 4 x t4 (15.00 GiB); 1 do not fit, 0 cannot work, 1 unknown; plimsoll was interrupted, and 3 did not run\n"),
            "{text}"
        );
        assert!(text.contains("1 unknown, smallest first"), "{text}");
        assert!(text.contains("6.00 GiB  fits as far as it was seen: "), "{text}");
        assert!(text.contains("1 that do not fit, nearest first"), "{text}");
        let json = layouts.json();
        assert_eq!(json["layouts"][0]["verdict"], "fits_so_far");
        assert_eq!(json["layouts"][0]["spare_bytes"], Value::Null);
    }
}
