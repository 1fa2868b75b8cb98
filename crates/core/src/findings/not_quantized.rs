//! A model that was quantized, and whose large weights are not all: experts that are one parameter for all, layers that a list or a loop
//! left out, embeddings and heads. Seen by the element type of parameters; who left them out, by the lists that come with the model.

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight},
    recording::{Skip, WeightsNote, WideWeights},
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::NotQuantized, find };

/// One packed module may be a table of anything.
const MODULES: u64 = 2;
/// Names that a sentence has at most.
const NAMED: usize = 3;
const LEAST: Bytes = Bytes::mib(32);
/// Embeddings and heads in 16 bits are usual: they are worth a word where they are a large part of the peak, in hundredths.
const USUAL: (u64, Bytes) = (25, Bytes::mib(256));

fn find(case: &Case<'_>) -> Vec<Finding> {
    if !case.is_first_device() {
        return Vec::new();
    }
    let of = |model: &WeightsNote| {
        let is_packed = MODULES <= model.packed_modules;
        let others = is_packed.then(|| matrices(case, model)).flatten();
        let tables =
            is_packed.then(|| wide_tables(case, &model.wide).or(usual_tables(case, &model.wide)));
        [listed(case, model), others, tables.flatten()]
    };
    case.run.recording.notes.weights.iter().flat_map(of).flatten().collect()
}

/// Weights that a list of modules to skip has.
fn listed(case: &Case<'_>, model: &WeightsNote) -> Option<Finding> {
    let all: Vec<(&WideWeights, &Skip)> = model
        .wide
        .iter()
        .filter(|it| !it.is_table)
        .filter_map(|it| Some((it, it.skip.as_ref()?)))
        .collect();
    let first = all.first()?.1;
    let of_first = all.iter().filter(|(_, skip)| {
        (&skip.list, skip.is_of_checkpoint) == (&first.list, first.is_of_checkpoint)
    });
    let (left, skips): (Vec<&WideWeights>, Vec<&Skip>) = of_first.copied().unzip();
    let whose = if first.is_of_checkpoint { "the checkpoint's" } else { "the script's" };
    let why = format!("{whose} list `{}` leaves them out", first.list);
    let mut res = unpacked(case, model, &left, Some(&why))?;
    // A few layers left out on purpose are no mistake.
    if model.packed_modules != 0 && res.bytes <= model.packed {
        res.weight = Weight::Chance;
    }
    let mut entries: Vec<&String> = skips.iter().flat_map(|it| &it.entries).collect();
    entries.sort();
    entries.dedup();
    let more = if entries.len() <= 2 * NAMED { "" } else { " and others" };
    let entries: Vec<String> = entries.iter().take(2 * NAMED).map(|it| format!("`{it}`")).collect();
    let (entries, list) = (entries.join(", ") + more, &first.list);
    res.remedy = if first.is_of_checkpoint {
        format!(
            "the checkpoint was quantized without these modules (`{list}`: {entries}): take another checkpoint, or quantize the original weights while loading"
        )
    } else {
        format!("take {entries} out of `{list}`, then these weights are packed too")
    };
    Some(res)
}

/// Weights that no list has: the library does not know them, or what chose the modules left them out.
fn matrices(case: &Case<'_>, model: &WeightsNote) -> Option<Finding> {
    let left: Vec<&WideWeights> =
        model.wide.iter().filter(|it| !it.is_table && it.skip.is_none()).collect();
    let mut res = unpacked(case, model, &left, None)?;
    res.remedy = if left[0].class == "Linear" {
        "other layers of the model are packed, and the loop or the filter that packs them skips these: have it choose them, too".to_owned()
    } else {
        "quantize these modules too. bitsandbytes packs `nn.Linear` only; experts that are one parameter for all stay as they are, so load a checkpoint that has them packed, or a quantization that knows them".to_owned()
    };
    Some(res)
}

/// The finding about these matrices, if they matter; `why` they are as they are, if that is known.
fn unpacked(
    case: &Case<'_>,
    model: &WeightsNote,
    left: &[&WideWeights],
    why: Option<&str>,
) -> Option<Finding> {
    let bytes: Bytes = left.iter().map(|it| it.bytes).sum();
    if !case.matters(bytes, 10, LEAST) {
        return None;
    }
    let tensors: u64 = left.iter().map(|it| it.tensors).sum();
    let (names, bits) = (names(left), left[0].bits);
    let why = why.map_or_else(String::new, |it| format!("; {it}"));
    let packed = if model.packed_modules == 0 {
        "nothing is packed".to_owned()
    } else {
        format!("{} are packed", model.packed)
    };
    let title = format!(
        "the model is quantized, but {bytes} of its weights are not: {names} ({tensors} tensors in {bits} bits){why}; {packed}"
    );
    let mut res = RULE.finding(Weight::Problem, bytes, title);
    res.count = tensors;
    for it in left.iter().take(8) {
        res.evidence.push(format!(
            "{:>10} {} of `{}`: {} in {} bits",
            it.bytes, it.name, it.class, it.tensors, it.bits
        ));
    }
    Some(res)
}

/// Embeddings and heads in 16 bits, as most libraries leave them.
fn usual_tables(case: &Case<'_>, wide: &[WideWeights]) -> Option<Finding> {
    let left: Vec<&WideWeights> = wide.iter().filter(|it| it.is_table && it.bits == 16).collect();
    let bytes: Bytes = left.iter().map(|it| it.bytes).sum();
    let (percent, least) = USUAL;
    if !case.matters(bytes, percent, least) {
        return None;
    }
    let share = 100 * bytes.0 / case.peak.bytes.0.max(1);
    let title = format!(
        "embedding and head of a quantized model stay in 16 bits: {bytes} for {}, {share} % of the peak",
        names(&left)
    );
    let mut res = RULE.finding(Weight::Chance, Bytes(bytes.0 / 2), title);
    res.count = left.iter().map(|it| it.tensors).sum();
    res.remedy = "most libraries leave them as they are. `TorchAoConfig(..., include_input_output_embeddings=True)` of transformers packs them too; an embedding that nobody trains can stay in host memory (`device_map`); or choose a model with fewer words".to_owned();
    Some(res)
}

/// Frozen embeddings and heads in 32 bits: 16 are enough for what is not trained.
fn wide_tables(case: &Case<'_>, wide: &[WideWeights]) -> Option<Finding> {
    let left: Vec<&WideWeights> = wide.iter().filter(|it| it.is_table && it.bits == 32).collect();
    let bytes: Bytes = left.iter().map(|it| it.bytes).sum();
    let saved = Bytes(bytes.0 / 2);
    if !case.matters(saved, 10, LEAST) {
        return None;
    }
    let title = format!(
        "frozen tables of a quantized model are in 32 bits: {bytes} for {}; in 16 bits they need {saved} less",
        names(&left)
    );
    let mut res = RULE.finding(Weight::Chance, saved, title);
    res.count = left.iter().map(|it| it.tensors).sum();
    res.remedy = "load the model with `dtype=torch.bfloat16`. `prepare_model_for_kbit_training` casts all weights that are not packed to 32 bits: freeze the model and enable checkpointing yourself (`requires_grad_(False)`, `gradient_checkpointing_enable()`, `enable_input_require_grads()`), or cast the tables back with `.to(torch.bfloat16)`".to_owned();
    Some(res)
}

fn names(of: &[&WideWeights]) -> String {
    let shown: Vec<String> = of.iter().take(NAMED).map(|it| format!("`{}`", it.name)).collect();
    let more = of.len().saturating_sub(NAMED);
    let rest = if more == 0 { String::new() } else { format!(" and {more} more") };
    shown.join(", ") + &rest
}
