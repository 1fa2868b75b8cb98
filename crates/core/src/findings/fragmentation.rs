//! Reserved memory that no tensor used when most was reserved, or when memory ran out.

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight, what_if},
    replay::Levels,
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::Slack, find };

/// How often the cache is emptied where that is no accident.
const EMPTIED: u64 = 3;

/// Whether so much more was reserved than allocated that the replay in one piece is worth its time.
pub(crate) fn is_much(reserved: Bytes, allocated: Bytes) -> bool {
    let slack = reserved.saturating_sub(allocated);
    Bytes::mib(256) <= slack && reserved.0 / 8 <= slack.0
}

fn find(case: &Case<'_>) -> Vec<Finding> {
    let reserved = case.run.replay.peak_reserved.bytes;
    let oom = case.run.oom.zip(case.at_oom);
    let (levels, asked) = match oom {
        Some((event, levels)) => (levels, Some(case.run.device.events.get(event.index()))),
        None => (Levels { allocated: case.peak.bytes, reserved }, None),
    };
    let slack = levels.reserved.saturating_sub(levels.allocated);
    let is_large = is_much(levels.reserved, levels.allocated);
    // It would have been enough.
    let mut serves = asked
        .is_some_and(|it| it.size <= slack + Bytes(it.address) && levels.reserved.0 / 16 < slack.0);
    if !is_large && !serves {
        return Vec::new();
    }
    // What the run then needs is compared with what it had, or would have had with the request that failed.
    let best = what_if::reserved_with_expandable_segments(case);
    let (wanted, free) = asked.map_or_else(Default::default, |it| (it.size, Bytes(it.address)));
    serves &= best.is_none_or(|it| it <= levels.reserved + free);
    let wanted = if serves { wanted } else { Bytes::ZERO };
    let bytes = best.map_or(slack, |it| (levels.reserved + wanted).saturating_sub(it));
    if bytes == Bytes::ZERO || best.is_some() && bytes < Bytes::mib(64) && !serves {
        return Vec::new();
    }
    let title = match asked {
        Some(it) if serves => format!(
            "a request for {} failed although {slack} of the reserved {} were free, in pieces",
            it.size, levels.reserved
        ),
        _ => format!(
            "PyTorch reserved {slack} more than tensors ever used at the same time (peak {} reserved)",
            levels.reserved
        ),
    };
    // A cache that is emptied again and again, though nothing ran out, is slow, and the next larger request fails.
    let stats = case.run.recording.notes.stats.iter().find(|it| it.device == case.run.index);
    let emptied = stats.map_or(0, |it| it.retries.saturating_sub(it.ooms));
    // What is made anew, larger each time, leaves pieces that it does not fit into any more: the growth is to be mended.
    let is_joined = case.growth.iter().any(|it| it.larger_each_time);
    let is_emptied = EMPTIED <= emptied && levels.reserved.0 / 4 <= bytes.0 && !is_joined;
    // Every run has some; a fifth is more than most have.
    let weight = match best {
        _ if serves || is_emptied => Weight::Problem,
        None if slack.0 < levels.reserved.0 / 5 => Weight::Fact,
        _ => Weight::Chance,
    };
    let mut res = RULE.finding(weight, bytes, title);
    res.evidence.push(format!("peak {} allocated, {reserved} reserved", case.peak.bytes));
    res.evidence.push(match best {
        Some(it) => format!("replayed with expandable_segments: {it} reserved"),
        None => "that is the difference of two recorded levels; only a replay shows how much of it expandable segments would save".to_owned(),
    });
    if is_emptied {
        res.evidence.push(format!("PyTorch emptied its cache {emptied} times to go on"));
    }
    let settings = case.run.trace.settings.as_ref();
    let expandable = settings.is_some_and(|it| it.expandable_segments);
    res.remedy = if expandable {
        "expandable_segments is on already: use the same shapes in every step (pad to a few lengths), and run the largest batch first"
    } else {
        "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True before Python starts; or use the same shapes in every step, and run the largest batch first"
    }
    .to_owned();
    vec![res]
}
