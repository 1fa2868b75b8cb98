//! Batches of the training that are made as long as a text could be, where no text seen comes near: most of what is computed is padding.
//! The agent looks at the values of batches in the host's memory; here is decided whether that makes the peak.

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight},
    prediction::Category,
    replay::BlockId,
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::Padding, find };

/// The longest text is at most one part in so many of the length.
const MUCH: u64 = 2;

fn find(case: &Case<'_>) -> Vec<Finding> {
    let padding = case.run.recording.notes.padding;
    let Some(it) = padding.filter(|it| 0 < it.longest && it.longest * MUCH <= it.length) else {
        return Vec::new();
    };
    let live = case.live_after(case.moment());
    let is_computed = |block: &BlockId| {
        matches!(case.evidence.category(*block), Category::Activations | Category::Temporaries)
    };
    let blocks: Vec<BlockId> = live.iter().map(|it| it.block).filter(is_computed).collect();
    // Of what is computed for each number of a row, so much is for padding, also in the longest row.
    let all = case.sum(&blocks);
    let rest = u128::from(it.length - it.longest) * u128::from(all.0) / u128::from(it.length);
    let bytes = u64::try_from(rest).map_or(all, Bytes);
    if !case.matters(bytes, 15, Bytes::mib(64)) {
        return Vec::new();
    }
    let seen = match it.batches {
        1 => "the batch seen".to_owned(),
        n => format!("the {n} batches seen"),
    };
    let title = format!(
        "batches are padded to {} tokens, and no text of {seen} has more than {}: by that share, {bytes} of activations are for padding",
        it.length, it.longest
    );
    let mut res = RULE.finding(Weight::Chance, bytes, title);
    res.show(blocks.clone());
    let largest = blocks.iter().copied().max_by_key(|it| case.life(*it).size);
    res.at = largest.and_then(|it| case.line_outside(case.stack(it)));
    res.step = case.step(case.moment());
    res.remedy = "pad each batch to its own longest text: `tokenizer(..., padding=\"longest\")` or `DataCollatorWithPadding` in `collate_fn`, not `padding=\"max_length\"` in the data set; with your own loop, `torch.nn.utils.rnn.pad_sequence`".to_owned();
    vec![res]
}
