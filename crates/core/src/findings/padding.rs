//! Batches of the training that are made as long as a text could be, where no text seen comes near: most of what is computed is padding.
//! The agent looks at the values of batches in the host's memory; here is decided whether what is computed makes the peak. How much of that is
//! for padding, a run without padding says: no share of it is.

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
    if !case.matters(case.sum(&blocks), 30, Bytes::mib(128)) {
        return Vec::new();
    }
    let seen = match it.batches {
        1 => "the batch seen".to_owned(),
        n => format!("the {n} batches seen"),
    };
    let title = format!(
        "batches are padded to {} tokens, and no text of {seen} has more than {}",
        it.length, it.longest
    );
    let mut res = RULE.finding(Weight::Chance, Bytes::ZERO, title);
    res.show(blocks.clone());
    let largest = blocks.iter().copied().max_by_key(|it| case.life(*it).size);
    res.at = largest.and_then(|it| case.line_outside(case.stack(it)));
    res.step = case.step(case.moment());
    res.remedy = "pad each batch to its own longest text: `tokenizer(..., padding=\"longest\")` or `DataCollatorWithPadding` in `collate_fn`, not `padding=\"max_length\"` in the data set; with your own loop, `torch.nn.utils.rnn.pad_sequence`. `plimsoll predict --worst-seq text` runs the script without padding, and so measures what that saves".to_owned();
    vec![res]
}
