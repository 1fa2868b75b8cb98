//! Attention that is written out as `softmax(q @ k.T) @ v`: it stores a matrix of each query with each key for the backward pass,
//! which fused attention never makes. The agent finds it in autograd's graph, by shape; what is live of that is counted here.

use std::collections::BTreeMap;

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight, as_rounded},
    prediction::stacks::Signs,
    recording::WrittenOut,
    replay::BlockId,
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::WrittenOutAttention, find };

fn find(case: &Case<'_>) -> Vec<Finding> {
    let notes = &case.run.recording.notes;
    // The same attentions are seen in several passes: what counts is the pass with most of them.
    let mut by_shape: BTreeMap<[u64; 3], &WrittenOut> = BTreeMap::new();
    for it in notes.graphs.iter().flat_map(|it| &it.attention) {
        let known = by_shape.entry(it.shape).or_insert(it);
        if known.count < it.count {
            *known = it;
        }
    }
    // Other activations may be as large as scores: no more are counted than the graphs have.
    let mut saved: BTreeMap<u64, u64> = BTreeMap::new();
    for it in by_shape.values() {
        it.saved.iter().for_each(|size| *saved.entry(as_rounded(*size)).or_default() += it.count);
    }
    let made = case.made_by_passes();
    let of_size = |(size, count): (&u64, &u64)| {
        let most = usize::try_from(*count).unwrap_or(usize::MAX);
        let all = made.get(size).map_or(&[][..], Vec::as_slice);
        all[..all.len().min(most)].to_vec()
    };
    let blocks: Vec<BlockId> = saved.iter().flat_map(of_size).collect();
    let bytes = case.sum(&blocks);
    let largest = by_shape.values().max_by_key(|it| it.shape.iter().product::<u64>());
    let Some(largest) = largest.filter(|_| case.matters(bytes, 15, Bytes::mib(64))) else {
        return Vec::new();
    };
    let [matrices, queries, keys] = largest.shape;
    let matrices =
        if matrices == 1 { "a matrix".to_owned() } else { format!("{matrices} matrices") };
    let title = format!(
        "attention is written out and stores its scores ({matrices} of {queries} x {keys} in each layer): {bytes}"
    );
    let mut res = RULE.finding(Weight::Chance, bytes, title);
    res.at = case.line_of_most(&blocks);
    res.step = case.step(case.moment());
    let layers: u64 = by_shape.values().map(|it| it.count).sum();
    res.evidence.push(format!(
        "{layers} times in the graph: a softmax of {queries} x {keys} between two matrix products, stored for the backward pass"
    ));
    let has = |sign: Signs| blocks.iter().any(|it| case.signs(*it).has(sign));
    res.remedy = if has(Signs::MULTIHEAD) {
        "call `nn.MultiheadAttention` with `need_weights=False`: it then uses `scaled_dot_product_attention`, which stores no scores"
    } else if has(Signs::EAGER) {
        "load the model with `attn_implementation=\"sdpa\"`: fused attention stores no scores"
    } else {
        "replace `softmax(q @ k.transpose(-2, -1) * scale + mask) @ v` by `torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=p if self.training else 0.0)`, which stores no scores; a causal mask is `is_causal=True`"
    }
    .to_owned();
    res.frees(blocks);
    vec![res]
}
