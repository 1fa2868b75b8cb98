//! A model that was quantized, and whose large weights are not all: experts that are one parameter for all, layers that were
//! left out, frozen tables in 32 bits. Seen by the element type of parameters, never by a library's names.

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight},
    recording::WideWeights,
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::NotQuantized, find };

/// One packed module may be a table of anything.
const MODULES: u64 = 2;
/// Names that a sentence has at most.
const NAMED: usize = 3;
const LEAST: Bytes = Bytes::mib(32);

fn find(case: &Case<'_>) -> Vec<Finding> {
    if !case.is_first_device() {
        return Vec::new();
    }
    let models = case.run.recording.notes.weights.iter();
    let quantized = models.filter(|it| MODULES <= it.packed_modules);
    quantized
        .flat_map(|it| [matrices(case, &it.wide, it.packed), tables(case, &it.wide)])
        .flatten()
        .collect()
}

/// Weights that quantization was meant for, and did not reach.
fn matrices(case: &Case<'_>, wide: &[WideWeights], packed: Bytes) -> Option<Finding> {
    let left: Vec<&WideWeights> = wide.iter().filter(|it| !it.is_table).collect();
    let bytes: Bytes = left.iter().map(|it| it.bytes).sum();
    if !case.matters(bytes, 10, LEAST) {
        return None;
    }
    let tensors: u64 = left.iter().map(|it| it.tensors).sum();
    let title = format!(
        "the model is quantized, but {bytes} of its weights are not: {} ({tensors} tensors in {} bits); {packed} are packed",
        names(&left),
        left[0].bits,
    );
    let mut res = RULE.finding(Weight::Problem, bytes, title);
    res.count = tensors;
    for it in left.iter().take(8) {
        res.evidence.push(format!(
            "{:>10} {} of `{}`: {} in {} bits",
            it.bytes, it.name, it.class, it.tensors, it.bits
        ));
    }
    res.remedy = "quantize these modules too: take them out of the list of modules to skip (`llm_int8_skip_modules`, `modules_to_not_convert`). bitsandbytes packs `nn.Linear` only; experts that are one parameter for all stay as they are, so load a checkpoint that has them packed, or a quantization that knows them".to_owned();
    Some(res)
}

/// Frozen embeddings and heads in 32 bits: 16 are enough for what is not trained.
fn tables(case: &Case<'_>, wide: &[WideWeights]) -> Option<Finding> {
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
