//! Weights that are there twice: a larger form of them while the model is loaded, which makes the peak of the run; a
//! state dict that stays on the device beside the model that it went into; or a model in 16 bits beside the packed form that is trained.

use std::collections::BTreeMap;

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight},
    prediction::{Category, origins::Live, stacks::Signs, timeline::Stage},
    replay::BlockId,
    trace::EventId,
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::LoadedTwice, find };

const LEAST: Bytes = Bytes::mib(32);

fn find(case: &Case<'_>) -> Vec<Finding> {
    let found = while_loading(case).or_else(|| beside(case));
    found.into_iter().chain(beside_packed(case)).collect()
}

/// Models that nobody calls, of which a packed form is trained.
fn beside_packed(case: &Case<'_>) -> Option<Finding> {
    let models = &case.run.recording.notes.weights;
    let most = models.iter().max_by_key(|it| it.uncalled).filter(|_| case.is_first_device())?;
    let bytes = most.uncalled;
    if !case.matters(bytes, 5, LEAST) {
        return None;
    }
    let title = format!(
        "the weights are on the device twice: packed ({}), and as a model in more bits that no step calls: {bytes}",
        most.packed
    );
    let mut res = RULE.finding(Weight::Problem, bytes, title);
    res.remedy = "delete the model that was loaded first (`del model`) before the packed one is loaded, or load it on the device `meta` where only its shape is asked".to_owned();
    Some(res)
}

/// The largest moment of loading against the largest of what comes after.
fn while_loading(case: &Case<'_>) -> Option<Finding> {
    let moment = case.run.oom.unwrap_or(case.peak.event);
    let timeline = &case.run.timeline;
    if timeline.stage(moment) != Stage::Setup {
        return None;
    }
    let passes = [Stage::Forward, Stage::Evaluation].into_iter();
    let begins = passes.filter_map(|it| timeline.next(it, moment)).min();
    let later = begins.map_or(Bytes::ZERO, |begins| most_from(case, begins));
    let live = case.live_after(moment);
    let earlier: Vec<BlockId> =
        live.iter().filter(|it| is_earlier_form(case, it, begins)).map(|it| it.block).collect();
    let bytes: Bytes = earlier.iter().map(|it| case.life(*it).size).sum();
    let saved = bytes.min(case.peak.bytes.saturating_sub(later));
    if begins.is_none() || !case.matters(saved, 5, LEAST) {
        return None;
    }
    let title = format!(
        "loading needs more than all that follows: {} against {later}; {bytes} of it are weights in another form than the model has later",
        case.peak.bytes
    );
    let mut res = RULE.finding(Weight::Chance, saved, title);
    let largest = earlier.iter().copied().max_by_key(|it| case.life(*it).size);
    res.at = largest.and_then(|it| case.line(it));
    res.show(earlier);
    res.remedy = "load the weights in the type that they have later (`from_pretrained(..., dtype=torch.bfloat16)`), or change them before they go to the device: `model.to(torch.bfloat16).to(\"cuda\")`".to_owned();
    Some(res)
}

/// What a loader or `module.to()` made, and what is gone before the first pass.
fn is_earlier_form(case: &Case<'_>, it: &Live, begins: Option<EventId>) -> bool {
    let signs = case.signs(it.block);
    let is_made = signs.has(Signs::APPLY) || signs.has(Signs::LOADED) || signs.has(Signs::BUILT);
    let is_gone = case.life(it.block).free.zip(begins).is_some_and(|(free, begins)| free <= begins);
    is_made && is_gone
}

/// The most that was allocated from `begins` on.
fn most_from(case: &Case<'_>, begins: EventId) -> Bytes {
    let levels = case.run.replay.levels(&case.run.device.events);
    let later = levels.filter(|(event, _)| begins <= *event).map(|(_, it)| it.allocated);
    later.max().unwrap_or_default()
}

/// A state dict on the device, at the peak of the training.
fn beside(case: &Case<'_>) -> Option<Finding> {
    let blocks = state_dict(case)?;
    let bytes: Bytes = blocks.iter().map(|it| case.life(*it).size).sum();
    // Nothing ever needs it, so little counts, too; it is a problem where it is much.
    if !case.matters(bytes, 2, LEAST) {
        return None;
    }
    let weight = if case.matters(bytes, 10, LEAST) { Weight::Problem } else { Weight::Chance };
    let title = format!(
        "the weights are on the device twice at the peak: in the model, and as the state dict that was loaded: {bytes}"
    );
    let mut res = RULE.finding(weight, bytes, title);
    res.at = case.line(*blocks.first()?);
    res.frees(blocks);
    res.remedy = "load the state dict into host memory (`torch.load(path, map_location=\"cpu\", mmap=True)`, `safetensors.torch.load_file(path)`), and `del` it after `load_state_dict`; or make the model on the device `meta` and load with `assign=True`".to_owned();
    Some(res)
}

/// The blocks of loaded data that are as many of each size as the model has weights of it: no optimizer's state is among them.
pub(super) fn state_dict(case: &Case<'_>) -> Option<Vec<BlockId>> {
    let in_use = |category: Category| {
        matches!(category, Category::Parameters | Category::Buffers | Category::OptimizerState)
    };
    let is_loaded = |live: &&Live| {
        let is_named = case.evidence.name(live.block).is_some();
        case.signs(live.block).has(Signs::LOADED) && !(is_named && in_use(live.category))
    };
    let loaded: Vec<BlockId> = case.live.iter().filter(is_loaded).map(|it| it.block).collect();
    let mut weights: BTreeMap<Bytes, u64> = BTreeMap::new();
    for it in case.live.iter().filter(|it| it.category == Category::Parameters) {
        *weights.entry(case.life(it.block).requested).or_default() += 1;
    }
    let mut found = Bytes::ZERO;
    for it in &loaded {
        let life = case.life(*it);
        if let Some(n) = weights.get_mut(&life.requested).filter(|it| 0 < **it) {
            *n -= 1;
            found += life.size;
        }
    }
    let all: Bytes = loaded.iter().map(|it| case.life(*it).size).sum();
    (!loaded.is_empty() && all.0 / 10 * 9 <= found.0).then_some(loaded)
}
