//! What changes nothing but the allocator: its settings, and `empty_cache` at one point of each step. Whether one would
//! have kept a run within a limit is answered by a replay of its recording.

use plimsoll_remedies::Point;

use crate::{
    prediction::{
        device_run::DeviceRun,
        timeline::{Stage, Timeline},
    },
    recording::Recording,
    replay::{self, Config, Program, WhatIf, what_if},
    trace::EventId,
    units::Bytes,
};

/// One change of the allocator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tuning {
    /// A value of `PYTORCH_CUDA_ALLOC_CONF`.
    Settings(String),
    /// `empty_cache` at this point of each step.
    EmptyCache(Point),
}

/// A change that would have kept the run within its limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuned {
    /// Which.
    pub tuning: Tuning,
    /// What would have been reserved at most.
    pub reserved: Bytes,
}

/// The changes under which the run would have reserved no more than `limit` and never have had to give memory back to
/// go on, as PyTorch counts it or not: settings first, each kind by what it would have reserved. `card` is all of the device's memory, if the
/// process has it to itself: only then settings that work by a share of it are tried.
///
/// A run on several devices is judged by the one that reserved most.
pub fn tunings(recordings: &[Recording], limit: Bytes, card: Option<Bytes>) -> Vec<Tuned> {
    let runs = recordings.iter().flat_map(DeviceRun::all);
    let Some(run) = runs.max_by_key(|it| it.replay.peak_reserved.bytes) else { return Vec::new() };
    let settings = run.trace.settings.clone().unwrap_or_default();
    let (torch, program) = (run.torch, &run.program);
    let before = run.replay.peak_reserved.bytes;
    let keeps = |it: &WhatIf| keeps(it, limit, before);
    let config = Config { card, ..Config::of_recording(&settings, torch).with_capacity(limit) };
    let mut res = settings_within(program, &config, before);
    res.retain(|it| it.tuning != Tuning::Settings(settings.text.clone()));
    let mut emptied: Vec<Tuned> = points(&run.timeline)
        .into_iter()
        .map(|(after, events)| (after, what_if(&program.emptied_before(&events), &config)))
        .filter(|(_, it)| keeps(it))
        .map(|(after, it)| Tuned {
            tuning: Tuning::EmptyCache(after),
            reserved: it.peak_reserved.bytes,
        })
        .collect();
    emptied.sort_by_key(|it| it.reserved);
    res.extend(emptied);
    res
}

/// The settings under which `program` would have kept within the capacity of `config`, as [`tunings`] has them.
fn settings_within(program: &Program, config: &Config, before: Bytes) -> Vec<Tuned> {
    let limit = config.capacity.unwrap_or(Bytes(u64::MAX));
    // Large blocks that are kept apart are given back where the driver has no more: a retry that PyTorch does not count.
    let never_full = |conf: &str| {
        let config = Config::of_alloc_conf(conf, config.torch);
        config.is_ok_and(|it| what_if(program, &it).peak_reserved.bytes <= limit)
    };
    replay::candidates(program, config)
        .into_iter()
        .filter(|it| !it.alloc_conf.is_empty() && keeps(&it.outcome, limit, before))
        .filter(|candidate| {
            config.card.is_some() || !candidate.alloc_conf.contains("garbage_collection_threshold")
        })
        .filter(|it| !it.alloc_conf.contains("max_split_size_mb") || never_full(&it.alloc_conf))
        .map(|candidate| Tuned {
            tuning: Tuning::Settings(candidate.alloc_conf),
            reserved: candidate.outcome.peak_reserved.bytes,
        })
        .collect()
}

fn keeps(it: &WhatIf, limit: Bytes, before: Bytes) -> bool {
    let less = it.peak_reserved.bytes <= limit && it.peak_reserved.bytes < before;
    it.ran_out.is_none() && it.stats.num_alloc_retries == 0 && less
}

/// The points at which the cache can be emptied, by name, with the events that come right after them.
fn points(timeline: &Timeline) -> Vec<(Point, Vec<EventId>)> {
    let ends = |wanted: Stage| {
        let of_stage = timeline.stretches().filter(move |(.., stage)| *stage == wanted);
        of_stage.map(|(_, end, _)| end).collect::<Vec<_>>()
    };
    let mut was_evaluating = false;
    let mut trains_again = Vec::new();
    for (first, _, stage) in timeline.stretches() {
        match stage {
            Stage::Evaluation => was_evaluating = true,
            Stage::Forward if std::mem::take(&mut was_evaluating) => trains_again.push(first),
            _ => {}
        }
    }
    let all = [
        (Point::Evaluation, trains_again),
        (Point::Step, ends(Stage::Optimizer)),
        (Point::Backward, ends(Stage::Backward)),
        (Point::Forward, ends(Stage::Forward)),
    ];
    all.into_iter().filter(|(_, events)| !events.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::{TorchVersion, recording};

    /// Blocks of 60, 90 and 120 MiB, one after the other; between them one of 30 MiB that stays.
    const LARGER_EACH_TIME: &str = "\
segment_alloc 1000M 60M
alloc 1000M 60M
free 1000M 60M
alloc 1000M 30M          # stays, and splits the 60 MiB
segment_alloc 2000M 90M
alloc 2000M 90M
free 2000M 90M
segment_alloc 3000M 120M
alloc 3000M 120M
free 3000M 120M
";

    #[test]
    fn a_setting_is_none_that_gives_blocks_back_where_memory_is_full() {
        let trace = recording(LARGER_EACH_TIME);
        let torch = TorchVersion::two(11);
        let (replay, program) = replay::follow(&trace, 0, Config::of_torch(torch));
        assert_eq!(replay.peak_reserved.bytes, Bytes::mib(270));
        let within = |mib: u64| {
            let config = Config::of_torch(torch).with_capacity(Bytes::mib(mib));
            let found = settings_within(&program, &config, Bytes::mib(1000));
            let split = Tuning::Settings("max_split_size_mb:32".to_owned());
            found.iter().any(|it| it.tuning == split)
        };
        assert!(within(400), "30, 60, 90 and 120 MiB are 300");
        assert!(!within(250), "60 MiB would be given back for 120");
    }
}
