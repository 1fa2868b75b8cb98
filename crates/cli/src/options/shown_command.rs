//! Commands as somebody would type them, to be copied from a report.

use std::{ffi::OsString, path::Path};

use plimsoll_core::{
    prediction::{Outcome, Prediction, Verdict},
    units::Bytes,
};

use crate::options::{
    assumption::Assumption,
    beside::Beside,
    cli::{FitArgs, PredictArgs},
};
use crate::shell::shown;

/// A context that engines are asked to hold where nobody said which: chats are shorter, documents longer.
const USUAL_CONTEXT: &str = "4096";

/// What to run where it does not fit: the search for a plan, with what the user told `predict`.
pub(crate) fn next(args: &PredictArgs, prediction: &Prediction) -> Option<String> {
    let mut words: Vec<OsString> = ["plimsoll", "fit"].map(OsString::from).to_vec();
    let mut add = |name: &str, value: String| words.extend([name.into(), value.into()]);
    let engine = prediction.serving.as_ref().map(|it| &it.engine);
    // It asks for a larger share of the card than is free, whatever its context.
    if engine.is_some_and(|it| it.refused.is_some() && it.needs.is_empty()) {
        return None;
    }
    // Of a serving engine, the longest context is what there is to find; where its weights are too large, the smallest card.
    let is_too_large = engine.is_some_and(|it| it.weights.is_none() && it.refused.is_none());
    if engine.is_some() {
        add("--users", "1".to_owned());
    }
    if is_too_large {
        add("--context", USUAL_CONTEXT.to_owned());
    } else {
        add("--gpu", args.gpu.clone().unwrap_or_else(|| prediction.card.id.clone()));
    }
    // What runs out at some addresses only is no less in need of a plan.
    let verdict = match prediction.outcome {
        Outcome::OutOfMemory => Verdict::DoesNotFit,
        _ => prediction.verdict(),
    };
    match (verdict, args.max, args.memory) {
        // An engine has its share of the card, and no budget.
        (Verdict::OverMax, Some(max), _) if prediction.serving.is_none() => {
            add("--budget", exact(max));
        }
        (Verdict::DoesNotFit | Verdict::Spills, _, memory) => {
            if let Some(memory) = memory.filter(|_| !is_too_large) {
                add("--memory", exact(memory));
            }
        }
        _ => return None,
    }
    let is_budget = prediction.verdict() == Verdict::OverMax;
    if let Some(it) = args.beside.filter(|_| !is_budget) {
        add("--beside", said_beside(it));
    }
    if let Some(it) = args.worst_seq {
        add("--worst-seq", it.to_string());
    }
    if let Some(it) = args.worst_size {
        add("--worst-size", it.to_string());
    }
    for it in &args.assume {
        add("--assume", Assumption::to_string(it));
    }
    if args.windows && !is_budget {
        words.push("--windows".into());
    }
    words.push("--".into());
    words.extend(args.command.iter().cloned());
    Some(shown(&words))
}

/// The search for a plan for `command`, with what the user told the search for a value.
pub(crate) fn find_plan(args: &FitArgs, command: &[OsString]) -> String {
    let mut words: Vec<OsString> = ["plimsoll", "fit"].map(OsString::from).to_vec();
    let mut add = |name: &str, value: String| words.extend([name.into(), value.into()]);
    let FitArgs {
        gpu, memory, beside, budget, limit_reserved, worst_seq, worst_size, assume, ..
    } = args;
    let said = [
        ("--gpu", gpu.clone()),
        ("--memory", memory.map(exact)),
        ("--beside", beside.map(said_beside)),
        ("--budget", budget.map(exact)),
        ("--limit-reserved", limit_reserved.map(exact)),
        ("--worst-seq", worst_seq.map(|it| it.to_string())),
        ("--worst-size", worst_size.map(|it| it.to_string())),
    ];
    for (name, value) in said {
        if let Some(value) = value {
            add(name, value);
        }
    }
    for it in assume {
        add("--assume", Assumption::to_string(it));
    }
    if args.windows {
        words.push("--windows".into());
    }
    words.push("--".into());
    words.extend(command.iter().cloned());
    shown(&words)
}

/// The prediction of `command` that lists cards, with what the user told `fit` about batches and unknown values.
pub(crate) fn cards(args: &FitArgs, command: &[OsString]) -> String {
    let mut words: Vec<OsString> = ["plimsoll", "predict"].map(OsString::from).to_vec();
    let mut add = |name: &str, value: String| words.extend([name.into(), value.into()]);
    args.worst_seq.iter().for_each(|it| add("--worst-seq", it.to_string()));
    args.worst_size.iter().for_each(|it| add("--worst-size", it.to_string()));
    args.assume.iter().for_each(|it| add("--assume", Assumption::to_string(it)));
    words.push("--".into());
    words.extend(command.iter().cloned());
    shown(&words)
}

/// The prediction of `command` under what the user told `fit`, with this plan, if there is one: it says what `fit` says. None where `predict` has no
/// such limit.
pub(crate) fn check(
    args: &FitArgs,
    gpu: &str,
    plan: Option<&Path>,
    command: &[OsString],
) -> Option<String> {
    let FitArgs { memory, beside, budget, limit_reserved, worst_seq, worst_size, assume, .. } =
        args;
    let mut words: Vec<OsString> =
        ["plimsoll", "predict", "--gpu", gpu].map(OsString::from).to_vec();
    // A budget is a card of that size: PyTorch gives its cache back there.
    let said = [
        ("--memory", memory.or(*budget).map(exact)),
        ("--beside", beside.map(said_beside)),
        ("--worst-seq", worst_seq.map(|it| it.to_string())),
        ("--worst-size", worst_size.map(|it| it.to_string())),
    ];
    let said = said.into_iter().filter_map(|(name, value)| Some([name.into(), value?.into()]));
    words.extend(said.flatten());
    words.extend(assume.iter().flat_map(|it| ["--assume".into(), it.to_string().into()]));
    words.extend(plan.into_iter().flat_map(|it| ["--plan".into(), it.into()]));
    words.extend(args.windows.then(|| "--windows".into()));
    words.push("--".into());
    words.extend(command.iter().cloned());
    limit_reserved.is_none().then(|| shown(&words))
}

fn said_beside(it: Beside) -> String {
    match it {
        Beside::Size(size) => exact(size),
        Beside::Now => "now".to_owned(),
    }
}

/// A size as somebody would type it, the shortest that is read back as it is, if possible a whole number: a card of another size has another answer.
fn exact(it: Bytes) -> String {
    const UNITS: [(u64, &str); 7] = [
        (1 << 30, "GiB"),
        (1 << 20, "MiB"),
        (1 << 10, "KiB"),
        (1_000_000_000, "GB"),
        (1_000_000, "MB"),
        (1_000, "kB"),
        (1, "B"),
    ];
    let spelled = UNITS.iter().flat_map(|(unit, name)| {
        (0_usize..=9).map(move |decimals| {
            let parts = 10_u128.pow(u32::try_from(decimals).unwrap_or_default());
            // What is read is rounded down.
            let n = (u128::from(it.0) * parts).div_ceil(u128::from(*unit));
            match decimals {
                0 => format!("{n}{name}"),
                _ => format!("{}.{:0decimals$}{name}", n / parts, n % parts),
            }
        })
    });
    let exact = spelled.filter(|text| text.parse() == Ok(it));
    exact
        .min_by_key(|text| (text.len(), text.contains('.')))
        .unwrap_or_else(|| format!("{}B", it.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_read_back_as_it_is() {
        for size in [Bytes(6_700_000_001), Bytes(u64::MAX), Bytes(1), Bytes::ZERO] {
            assert_eq!(exact(size).parse(), Ok(size));
        }
        for said in ["20GiB", "3464MiB", "4.1GiB", "22GB", "23.49GiB", "512KiB", "1.5GB"] {
            assert_eq!(exact(said.parse().unwrap()), said);
        }
    }
}
