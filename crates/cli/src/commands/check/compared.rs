//! What a script takes now, against what it took: pure, so that it is tested without a run.

use std::collections::BTreeMap;

use plimsoll_core::units::Bytes;

use super::goldens::{Line, Took};

/// A number that is another one now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) what: String,
    pub(super) was: Bytes,
    pub(super) is: Bytes,
}

/// A line that holds more or less at the peak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LineChange {
    /// Where it stands now; where it stood, if it is gone.
    pub(super) line: Line,
    pub(super) was: Bytes,
    pub(super) is: Bytes,
}

/// What came of one script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    AsItWas,
    Changed {
        outcome: Option<(String, String)>,
        totals: Vec<Change>,
        categories: Vec<Change>,
        /// The largest change first.
        lines: Vec<LineChange>,
    },
    /// Nothing can be said; why.
    CouldNotTell(String),
}

/// Lines beyond these are not named.
const MOST_LINES: usize = 8;

#[expect(
    clippy::cast_precision_loss,
    reason = "bytes of a card are far below what a double counts exactly"
)]
fn differs(was: Bytes, is: Bytes, of: Bytes, tolerance: f64) -> bool {
    tolerance * (of.0 as f64) < was.0.abs_diff(is.0) as f64
}

/// `was` is the golden.
pub(super) fn compared(was: &Took, is: &Took, tolerance: f64) -> Verdict {
    for (what, was, is) in [
        ("plimsoll", &was.plimsoll, &is.plimsoll),
        ("torch", &was.torch, &is.torch),
        ("the card", &was.card, &is.card),
    ] {
        if was != is {
            return Verdict::CouldNotTell(format!(
                "the golden was measured with {what} {was}, and this is {is}: not compared. To measure it again with {is}: plimsoll check --update"
            ));
        }
    }
    let outcome = (was.outcome != is.outcome).then(|| (was.outcome.clone(), is.outcome.clone()));
    let mut totals = Vec::new();
    for (what, before) in &was.totals {
        // What no longer fits has no safe size; its outcome says so.
        let Some(&now) = is.totals.get(what) else { continue };
        if differs(*before, now, *before, tolerance) {
            totals.push(Change { what: what.clone(), was: *before, is: now });
        }
    }
    for (what, now) in is.totals.iter().filter(|it| !was.totals.contains_key(it.0)) {
        totals.push(Change { what: what.clone(), was: Bytes::ZERO, is: *now });
    }
    // A category counts by what it is of the whole: the smallest may double.
    let whole = was.totals.get("device").copied().unwrap_or_default();
    let names: std::collections::BTreeSet<&String> =
        was.categories.keys().chain(is.categories.keys()).collect();
    let of = |took: &Took, name: &str| took.categories.get(name).copied().unwrap_or_default();
    let mut categories: Vec<Change> = names
        .into_iter()
        .map(|name| Change { what: name.clone(), was: of(was, name), is: of(is, name) })
        .filter(|it| differs(it.was, it.is, whole, tolerance))
        .collect();
    categories.sort_by_key(|it| std::cmp::Reverse(it.was.0.abs_diff(it.is.0)));
    if outcome.is_none() && totals.is_empty() && categories.is_empty() {
        return Verdict::AsItWas;
    }
    Verdict::Changed { outcome, totals, categories, lines: lines(&was.lines, &is.lines) }
}

/// Which of the two changed how, where tensors and the memory that PyTorch reserves without using it went different ways: what the process
/// needs follows from both.
pub(super) fn opposed(was: &Took, is: &Took) -> Option<String> {
    let of = |took: &Took, what: &str| took.totals.get(what).copied();
    let (tensors, now) = (of(was, "allocated")?, of(is, "allocated")?);
    let cache = of(was, "reserved")?.saturating_sub(tensors);
    let cache_now = of(is, "reserved")?.saturating_sub(now);
    let moved = |was: Bytes, is: Bytes| {
        let by = Bytes(was.0.abs_diff(is.0));
        format!("{by} {}", if was < is { "more" } else { "less" })
    };
    let is_opposed = tensors < now && cache_now < cache || now < tensors && cache < cache_now;
    let (device, device_now) = (of(was, "device")?, of(is, "device")?);
    is_opposed.then(|| {
        format!(
            "tensors: {}; reserved and not used: {}; the process needs {}",
            moved(tensors, now),
            moved(cache, cache_now),
            if device == device_now { "the same".to_owned() } else { moved(device, device_now) }
        )
    })
}

/// The lines that hold more or less, the largest change first. A line is the same if it says the same in the same function,
/// wherever it stands; one whose text changed is the next one of the same function and kind.
fn lines(was: &[Line], is: &[Line]) -> Vec<LineChange> {
    let key = |line: &Line| {
        (
            line.file.clone(),
            line.function.clone(),
            line.backward,
            line.category.clone(),
            line.text.clone(),
        )
    };
    let mut before: BTreeMap<_, (Bytes, Line)> = BTreeMap::new();
    for it in was {
        let (sum, _) = before.entry(key(it)).or_insert_with(|| (Bytes::ZERO, it.clone()));
        *sum += it.bytes;
    }
    let mut now: BTreeMap<_, (Bytes, Line)> = BTreeMap::new();
    for it in is {
        let (sum, _) = now.entry(key(it)).or_insert_with(|| (Bytes::ZERO, it.clone()));
        *sum += it.bytes;
    }
    let mut res = Vec::new();
    let mut new = Vec::new();
    for (key, (bytes, line)) in now {
        match before.remove(&key) {
            Some((was, _)) if was == bytes => {}
            Some((was, _)) => res.push(LineChange { line, was, is: bytes }),
            None => new.push((bytes, line)),
        }
    }
    let mut gone: Vec<(Bytes, Line)> = before.into_values().collect();
    for (bytes, line) in new {
        let like = |row: &(Bytes, Line)| {
            row.1.file == line.file
                && row.1.function == line.function
                && row.1.backward == line.backward
                && row.1.category == line.category
        };
        let nearest = (0..gone.len())
            .filter(|it| like(&gone[*it]))
            .min_by_key(|it| gone[*it].1.line.abs_diff(line.line));
        let was = nearest.map_or(Bytes::ZERO, |it| gone.remove(it).0);
        if was != bytes {
            res.push(LineChange { line, was, is: bytes });
        }
    }
    res.extend(gone.into_iter().map(|(was, line)| LineChange { line, was, is: Bytes::ZERO }));
    res.sort_by(|a, b| {
        let by = |it: &LineChange| it.was.0.abs_diff(it.is.0);
        by(b)
            .cmp(&by(a))
            .then_with(|| (&a.line.file, a.line.line).cmp(&(&b.line.file, b.line.line)))
    });
    res.truncate(MOST_LINES);
    res
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(number: u32, text: &str, mib: u64) -> Line {
        Line {
            bytes: Bytes::mib(mib),
            file: "train.py".to_owned(),
            line: number,
            function: "main".to_owned(),
            backward: false,
            category: "activations".to_owned(),
            text: text.to_owned(),
        }
    }

    fn took(mib: u64, lines: Vec<Line>) -> Took {
        let totals =
            [("allocated".to_owned(), Bytes::mib(mib)), ("device".to_owned(), Bytes::mib(mib))];
        let categories = [("activations".to_owned(), Bytes::mib(mib))];
        Took { totals: totals.into(), categories: categories.into(), lines, ..Took::default() }
    }

    #[test]
    fn small_changes_and_lines_that_moved_are_none() {
        let was = took(1000, vec![line(10, "y = model(x)", 900), line(20, "z = f(y)", 100)]);
        let is = took(1004, vec![line(15, "y = model(x)", 900), line(25, "z = f(y)", 104)]);
        assert_eq!(compared(&was, &is, 0.005), Verdict::AsItWas);
        let Verdict::Changed { totals, lines, .. } = compared(&was, &is, 0.001) else { panic!() };
        assert_eq!(totals.len(), 2);
        assert_eq!(
            lines,
            [LineChange {
                line: line(25, "z = f(y)", 104),
                was: Bytes::mib(100),
                is: Bytes::mib(104)
            }]
        );
    }

    #[test]
    fn a_line_whose_text_changed_is_the_one_that_stood_there() {
        let was = took(1000, vec![line(10, "y = Linear(8, 8)(x)", 900), line(90, "other(x)", 100)]);
        let is =
            took(1900, vec![line(11, "y = Linear(8, 16)(x)", 1800), line(91, "other(x)", 100)]);
        let Verdict::Changed { lines, .. } = compared(&was, &is, 0.005) else { panic!() };
        assert_eq!(lines.len(), 1);
        assert_eq!(
            (lines[0].line.line, lines[0].was, lines[0].is),
            (11, Bytes::mib(900), Bytes::mib(1800))
        );
    }

    #[test]
    fn another_torch_is_said_and_not_compared() {
        let was = Took { torch: "2.11".to_owned(), ..took(1000, Vec::new()) };
        let is = Took { torch: "2.15".to_owned(), ..took(1000, Vec::new()) };
        let Verdict::CouldNotTell(why) = compared(&was, &is, 0.005) else { panic!() };
        assert!(why.contains("torch 2.11, and this is 2.15"), "{why}");
    }

    #[test]
    fn tensors_that_grow_into_what_was_reserved_are_told_apart_from_it() {
        let took = |allocated, reserved, device| {
            let totals = [("allocated", allocated), ("reserved", reserved), ("device", device)];
            let totals = totals.map(|(what, mib)| (what.to_owned(), Bytes::mib(mib)));
            Took { totals: totals.into(), ..Took::default() }
        };
        let was = took(1000, 1600, 1700);
        assert_eq!(
            opposed(&was, &took(1100, 1500, 1600)).as_deref(),
            Some(
                "tensors: 100.0 MiB more; reserved and not used: 200.0 MiB less; the process needs 100.0 MiB less"
            )
        );
        assert!(opposed(&was, &took(1100, 1600, 1700)).unwrap().ends_with("needs the same"));
        assert_eq!(opposed(&was, &took(1100, 1700, 1800)), None);
    }

    #[test]
    fn what_moves_from_one_category_to_another_is_a_change() {
        let was = took(1000, Vec::new());
        let mut is = was.clone();
        is.categories =
            [("activations".to_owned(), Bytes::mib(900)), ("kept".to_owned(), Bytes::mib(100))]
                .into();
        let Verdict::Changed { totals, categories, .. } = compared(&was, &is, 0.005) else {
            panic!()
        };
        assert!(totals.is_empty());
        assert_eq!(categories.len(), 2);
    }
}
