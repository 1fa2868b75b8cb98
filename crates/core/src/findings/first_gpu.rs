//! Ranks that open a GPU which is another rank's, mostly GPU 0: by a checkpoint that is loaded to where it was saved from, by what is made
//! on "cuda" before the rank has chosen its GPU. Seen in a rank that has done it, or told by the lines of the first rank.

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight, place},
    prediction::stacks::Signs,
    recording::{DeviceStats, FirstGpu},
    replay::BlockId,
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::FirstGpu, find };

/// What a rank has on another's GPU is less than one in so many parts of what it has on its own.
const LITTLE: u64 = 4;
const CHOOSE: &str =
    "call `torch.cuda.set_device(local_rank)` before the first line that uses CUDA";
const LOAD: &str =
    "load with `torch.load(path, map_location=\"cpu\")`, or `map_location=f\"cuda:{local_rank}\"`";

fn find(case: &Case<'_>) -> Vec<Finding> {
    imagined(case).or_else(|| seen(case)).into_iter().collect()
}

/// The first rank ran, and the others would run the same line.
fn imagined(case: &Case<'_>) -> Option<Finding> {
    let notes = &case.run.recording.notes;
    let most = notes.first_gpu.iter().max_by_key(|it| it.bytes)?;
    let others = ranks_here(case)?.saturating_sub(1);
    if case.run.index != 0 || others == 0 {
        return None;
    }
    let made: Bytes = notes.first_gpu.iter().map(|it| it.bytes).sum();
    let context = context(case);
    let bytes = Bytes((made + context).0.saturating_mul(others));
    let who = if others == 1 {
        "the other rank opens".to_owned()
    } else {
        format!("the other {others} ranks open")
    };
    let title = format!(
        "{who} GPU 0 too, by the same line: a CUDA context of {context} and {made} each, {bytes} in all, which the numbers of this rank do not contain"
    );
    let mut res = RULE.finding(Weight::Problem, bytes, title);
    res.at = Some(most.at.clone());
    res.count = others;
    for FirstGpu { is_load, bytes, at } in &notes.first_gpu {
        let how = if *is_load {
            "loads onto the GPU that the file was saved from"
        } else {
            "names no GPU, and no rank has chosen one yet"
        };
        res.evidence.push(format!("{} {how}: {bytes}", place(at)));
    }
    res.evidence.push("assumed: only this rank ran; --all-ranks runs the others".to_owned());
    res.remedy = if most.is_load { LOAD } else { CHOOSE }.to_owned();
    Some(res)
}

/// A rank whose own GPU is another one has blocks here.
fn seen(case: &Case<'_>) -> Option<Finding> {
    let recording = case.run.recording;
    let begin = recording.notes.begin.as_ref()?;
    let rank = u64::from(begin.rank?);
    let own = usize::try_from(rank % ranks_here(case)?).ok()?;
    let stats =
        |index: usize| recording.notes.stats.iter().find(|it: &&DeviceStats| it.device == index);
    let (here, there) = (stats(case.run.index)?.peak_reserved, stats(own)?.peak_reserved);
    // A rank with several GPUs has its share on each of them.
    if case.run.index == own || here == Bytes::ZERO || there.0 < here.0.saturating_mul(LITTLE) {
        return None;
    }
    let context = context(case);
    let index = case.run.index;
    let title = format!(
        "rank {rank}, whose GPU is {own}, opens GPU {index} too: a CUDA context of {context}, and {here} reserved there"
    );
    let mut res = RULE.finding(Weight::Problem, context + here, title);
    let live: Vec<BlockId> = case.live_after(case.peak.event).iter().map(|it| it.block).collect();
    res.at = case.line_of_most(&live);
    let is_load = live.iter().any(|it| case.signs(*it).has(Signs::LOADED));
    res.remedy = if is_load { LOAD } else { CHOOSE }.to_owned();
    res.show(live);
    Some(res)
}

fn context(case: &Case<'_>) -> Bytes {
    case.run.phantom().map_or(Bytes::ZERO, |it| it.context)
}

/// Ranks on this machine, where each has a GPU.
fn ranks_here(case: &Case<'_>) -> Option<u64> {
    let recording = case.run.recording;
    let world = u64::from(recording.notes.begin.as_ref()?.world_size?);
    let devices = recording.phantom.as_ref().map_or(0, |it| it.devices.len() as u64);
    let devices = devices.max(case.run.trace.devices.len() as u64);
    let here = world.min(devices);
    (1 < here).then_some(here)
}
