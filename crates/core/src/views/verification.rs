//! What `plimsoll verify` says, for people, for programs, and as a file to send.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::{
    cards::Card,
    prediction::OtherEnd,
    recording::Phase,
    units::{Bytes, signed},
    verification::{self, OfRank, OtherWay, Parting, Side, Verified},
    views::text::{Style, Styles},
};

/// The version of the JSON.
const VERSION: u32 = 1;
/// Requests that a report holds at most of each run.
const MOST: usize = 200_000;

/// The answer for a terminal.
pub fn text(ranks: &[OfRank], card: &Card, styles: Styles) -> String {
    let (of, where_) = match ranks {
        [_] => (card.id.clone(), ""),
        _ => (format!("{}, {} ranks", card.id, ranks.len()), " in every rank"),
    };
    let mut res = headline(ranks, &of, where_, styles);
    let name = |it: &OfRank| it.rank.map_or_else(String::new, |it| format!("rank {it}"));
    let tables = ranks.iter().map(|it| table(&it.verified, &name(it), it.other_way.as_ref()));
    res += &tables.collect::<Vec<_>>().join("\n");
    if verification::are_within(ranks) == Some(false) {
        res += "\n`--report FILE` writes one file to send: sizes and their order, no data and no code.\n";
    }
    res
}

fn in_words(end: OtherEnd) -> (&'static str, &'static str) {
    match end {
        OtherEnd::Late => ("late", "the GPU finishes its work late"),
        OtherEnd::Overflow => ("overflow", "the gradient scaler skips its first step"),
        OtherEnd::Workspaces => {
            ("workspaces", "cuDNN's fastest algorithm is the one with the largest workspace")
        }
        OtherEnd::Found => ("found", "masks of unknown values select everything"),
        OtherEnd::Routed => ("routed", "a router sends all tokens to one expert"),
    }
}

fn headline(ranks: &[OfRank], card: &str, where_: &str, styles: Styles) -> String {
    let is_within = verification::are_within(ranks);
    let is_between = ranks.iter().any(OfRank::is_between);
    let Style { on, off } = match is_within {
        Some(true) => styles.good,
        Some(false) | None => styles.bad,
    };
    let (word, rest) = match is_within {
        Some(true) if is_between => (
            "VERIFIED",
            format!(
                "the phantom is within 1 % of the card{where_}, or the card is between two possible runs"
            ),
        ),
        Some(true) => ("VERIFIED", format!("the phantom is within 1 % of the card{where_}")),
        Some(false) => ("NOT THE SAME", "the phantom is more than 1 % off".to_owned()),
        None => ("COULD NOT TELL", "one of the two runs used no GPU memory".to_owned()),
    };
    format!("{on}{word}{off} {card}: {rest}\n\n")
}

fn table(verified: &Verified, name: &str, other_way: Option<&OtherWay>) -> String {
    let mut res = String::new();
    let Verified { real, phantom, .. } = verified;
    let _ = writeln!(res, "{:<14} {:>12} {:>12} {:>12}", name, "real card", "phantom", "off by");
    for (name, pick) in [
        ("allocated", (|it: &Side| Some(it.allocated)) as fn(&Side) -> Option<Bytes>),
        ("reserved", |it| Some(it.reserved)),
        ("process", |it| it.process),
    ] {
        let (a, b) = (pick(real), pick(phantom));
        let shown =
            |it: Option<Bytes>| it.map_or_else(|| "not seen".to_owned(), |it| it.to_string());
        let _ =
            writeln!(res, "  {name:<12} {:>12} {:>12} {:>12}", shown(a), shown(b), off_by(a, b));
    }
    let _ = writeln!(res, "  {:<12} {:>12} {:>12}", "steps", real.steps, phantom.steps);
    let _ = writeln!(res, "  {:<12} {:>12} {:>12}", "requests", real.requests, phantom.requests);
    if let Some(it) = other_way {
        let (way, side) = (in_words(it.end).1, &it.side);
        let when = if it.is_the_end { "Where" } else { "Unless" };
        let _ = writeln!(
            res,
            "\n  {when} {way}, the phantom needs {} allocated and\n  {} reserved; a real run may need either, or an amount between. `plimsoll\n  \
             predict` runs both, and its safe size covers both.",
            side.allocated, side.reserved
        );
        if let Some(between) =
            it.between.filter(|it| side.reserved.max(phantom.reserved) < it.reserved)
        {
            let _ = writeln!(
                res,
                "  A rank that changes from one to the other reserves up to {}.",
                between.reserved
            );
        }
    }
    let most = real.requests.max(phantom.requests);
    let _ = match &verified.parting {
        None => writeln!(res, "\nall {most} requests are alike, in the same order"),
        Some(it) => writeln!(res, "\n{}", parting(it, verified.alike, most)),
    };
    res
}

fn off_by(real: Option<Bytes>, phantom: Option<Bytes>) -> String {
    match real.zip(phantom) {
        None => String::new(),
        Some((a, b)) if a == b => "0".to_owned(),
        Some((a, b)) => signed(i128::from(b.0) - i128::from(a.0)),
    }
}

fn parting(it: &Parting, alike: usize, most: usize) -> String {
    if it.number == 0 {
        return format!(
            "all {most} requests are alike, in the same order\n  {}",
            it.cause.sentence()
        );
    }
    let place = it.at.as_ref().map_or_else(String::new, |at| {
        let file = at.file.rsplit('/').next().unwrap_or_default();
        format!(", at {file}:{}", at.line)
    });
    let when = it.moment.map_or_else(String::new, |moment| match (moment.step, moment.phase) {
        (0, _) => ", before training".to_owned(),
        (step, phase) => format!(", in step {step}{}", phase.map_or("", word)),
    });
    let asked = |sizes: &[Bytes]| match sizes {
        [] => "nothing".to_owned(),
        [one] => one.to_string(),
        [first, ..] => format!("{first} and {} more", sizes.len() - 1),
    };
    let [real, phantom] = &it.asked;
    format!(
        "{alike} of {most} requests are alike. The first that is not: number {}{when}{place}\n  asked for on the card: {}; on \
         the phantom: {}\n  likely cause ({}): {}",
        it.number,
        asked(real),
        asked(phantom),
        it.cause.word(),
        it.cause.sentence()
    )
}

fn word(phase: Phase) -> &'static str {
    match phase {
        Phase::Forward => ", forward",
        Phase::Backward => ", backward",
        Phase::Optimizer => ", optimizer",
        Phase::ZeroGrad => ", zero_grad",
        Phase::Evaluation => ", evaluation",
        Phase::Saving => ", saving",
        Phase::Merging => ", merging",
    }
}

/// One JSON object.
pub fn json(ranks: &[OfRank], card: &Card) -> String {
    format!("{:#}\n", value(ranks, card, true))
}

/// A file to send: sizes and order, versions and the card; no data, and no name of a file, unless `with_lines`.
pub fn report(ranks: &[OfRank], card: &Card, machine: &Value, with_lines: bool) -> String {
    let mut res = value(ranks, card, with_lines);
    add_facts(&mut res, card, machine);
    match ranks {
        [one] => res["requests_bytes"] = requests(&one.verified),
        _ => {
            for (of_rank, it) in res["ranks"].as_array_mut().into_iter().flatten().zip(ranks) {
                of_rank["requests_bytes"] = requests(&it.verified);
            }
        }
    }
    format!("{res}\n")
}

fn add_facts(res: &mut Value, card: &Card, machine: &Value) {
    res["machine"] = machine.clone();
    res["card_facts"] = json!({
        "name": card.name, "total_bytes": card.total.0, "sm_count": card.sm_count, "gpcs": card.gpcs,
        "context_bytes": card.context.0, "context_range_bytes": card.context_range.0, "l2_bytes": card.l2.0,
    });
}

fn requests(verified: &Verified) -> Value {
    let asked = |side: usize| verified.asked[side].iter().take(MOST).collect::<Vec<_>>();
    json!({ "real": asked(0), "phantom": asked(1) })
}

/// Of one process its numbers; of several a list of them.
fn value(ranks: &[OfRank], card: &Card, with_lines: bool) -> Value {
    let of_rank = |one: &OfRank| {
        let mut res = compared(&one.verified, with_lines);
        let other_way = one.other_way.as_ref().map(|other| {
            json!({
                "end": in_words(other.end).0, "shown": !other.is_the_end,
                "allocated_bytes": other.side.allocated.0, "reserved_bytes": other.side.reserved.0,
                "process_bytes": other.side.process.map(|it| it.0),
                "between_reserved_bytes": other.between.map(|it| it.reserved.0),
                "between_process_bytes": other.between.map(|it| it.most.0),
            })
        });
        res["other_way"] = other_way.into();
        res["within"] = one.is_within().into();
        res["rank"] = one.rank.into();
        res
    };
    let mut res = match ranks {
        [one] => of_rank(one),
        _ => json!({ "ranks": ranks.iter().map(of_rank).collect::<Vec<_>>() }),
    };
    res["version"] = VERSION.into();
    res["card"] = card.id.as_str().into();
    res["within"] = verification::are_within(ranks).into();
    res
}

fn compared(verified: &Verified, with_lines: bool) -> Value {
    let side = |side: &Side| {
        json!({
            "steps": side.steps, "allocated_bytes": side.allocated.0, "reserved_bytes": side.reserved.0,
            "process_bytes": side.process.map(|it| it.0), "requests": side.requests, "torch": side.torch,
        })
    };
    let parting = verified.parting.as_ref().map(|parting| {
        let sizes = |side: usize| parting.asked[side].iter().map(|it| it.0).collect::<Vec<_>>();
        let at = parting.at.as_ref().filter(|_| with_lines);
        json!({
            "request": parting.number, "cause": parting.cause.word(), "real_bytes": sizes(0), "phantom_bytes": sizes(1),
            "step": parting.moment.map(|it| it.step),
            "file": at.map(|it| &it.file), "line": at.map(|it| it.line),
        })
    });
    json!({
        "real": side(&verified.real),
        "phantom": side(&verified.phantom),
        "alike": verified.alike,
        "first_difference": parting,
    })
}
