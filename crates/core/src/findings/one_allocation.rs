//! One thing that dwarfs the rest: blocks of one size that a loss or one line makes, such as logits of
//! batch x tokens x vocabulary.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight, holders, place},
    prediction::{
        Category,
        stacks::{Signs, is_of_a_layer},
        timeline::Stage,
    },
    recording::Role,
    replay::BlockId,
    trace::StackId,
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::OneAllocation, find };

/// Vocabularies that models have; a size that one of them divides into whole rows is told by its name.
const VOCABULARIES: [u64; 16] = [
    50257, 50304, 30522, 28996, 32000, 32128, 50265, 128_256, 151_936, 152_064, 250_002, 256_000,
    262_144, 49152, 100_352, 129_280,
];

/// What helps where no loss is known to be it.
pub(crate) const IN_CHUNKS: &str = "compute the result in chunks, in place, or in a smaller type";

/// What helps where a loss makes something that is no scores of classes.
const IN_PARTS: &str = "compute the loss in parts, some rows at a time; for distances or similarities of all pairs use a matrix product (`a @ b.T`) or `torch.cdist`, which write no product of each pair";

/// More variables in a title are a list.
const SHOWN_NAMES: usize = 4;

/// Layers have more of one size.
const FEW: usize = 6;

/// Bytes that a model has for each word: 128 numbers in 32 bits at least.
const IN_A_ROW: std::ops::RangeInclusive<u64> = 512..=65536;

fn find(case: &Case<'_>) -> Vec<Finding> {
    let settled = |category: Category| {
        matches!(
            category,
            Category::Parameters
                | Category::OptimizerState
                | Category::Gradients
                | Category::Buffers
                | Category::Workspaces
        )
    };
    let mut by_size: BTreeMap<Bytes, Vec<BlockId>> = BTreeMap::new();
    // What an evaluation collected grows, and is told as growth.
    let counts = |block: BlockId| {
        case.stage(block) != Stage::Setup && !case.signs(block).has(Signs::COLLECTED)
    };
    for it in case.live.iter().filter(|it| !settled(it.category) && counts(it.block)) {
        by_size.entry(case.life(it.block).requested).or_default().push(it.block);
    }
    // The request that failed counts with them.
    let asked = case.run.oom.map(|it| case.run.device.events.get(it.index()));
    // Layers have many blocks of one size; what dwarfs the rest is a few.
    // More may be matrices of one size that as many operations make, none twice.
    let few = by_size.iter().filter(|(size, blocks)| {
        let is_large = case.matters(**size, 10, Bytes::mib(32));
        blocks.len() <= FEW || blocks.len() <= 12 && is_large && are_apart(case, blocks)
    });
    let largest = few.max_by_key(|(size, blocks)| size.0 * blocks.len() as u64);
    let Some((&size, blocks)) = largest else { return Vec::new() };
    let together = Bytes(size.0 * blocks.len() as u64);
    // Beside a request of many gigabytes that failed it is small.
    let all = case.peak.bytes + asked.map_or(Bytes::ZERO, |it| it.size);
    let dwarfs = |bytes: Bytes, percent: u64, least: Bytes| {
        least <= bytes && all.0 / 100 * percent <= bytes.0
    };
    if !dwarfs(together, 15, Bytes::mib(64)) || !dwarfs(size, 6, Bytes::mib(32)) {
        return Vec::new();
    }
    // A few more than one: all but the one that is needed.
    let spare = Bytes(size.0 * (blocks.len() as u64 - 1)).max(Bytes(size.0 / 2));
    let first = blocks[0];
    let in_loss = blocks.iter().any(|it| is_loss(case, case.stack(*it)));
    let rows = vocabulary(case, size);
    // Only these are scores of classes; a loss may as well make distances of all pairs.
    let of_scores = blocks.iter().any(|it| {
        let signs = case.signs(*it);
        signs.has(Signs::CROSS_ENTROPY) || signs.has(Signs::SCORES)
    });
    let in_tokens = in_loss && (of_scores || rows.is_some());
    let what = match rows {
        Some((rows, vocabulary, width)) if in_loss => {
            format!("logits: {rows} tokens x {vocabulary} words x {width} bytes",)
        }
        _ if in_tokens => "input of the loss (logits: batch x tokens x classes)".to_owned(),
        _ if in_loss => "made for the loss".to_owned(),
        _ if blocks.iter().all(|it| case.line(*it) == case.line(first)) => {
            "one line's result".to_owned()
        }
        _ => "blocks of one size".to_owned(),
    };
    let of_each = |block: &BlockId| holders(case, &[*block]).into_iter().next().map(|it| it.0);
    let names: BTreeSet<String> = blocks.iter().filter_map(of_each).collect();
    let names: Vec<String> = names.into_iter().collect();
    let what = if names.is_empty() || rows.is_some() || SHOWN_NAMES < names.len() {
        what
    } else {
        format!("{what}: {}", names.join(", "))
    };
    let copies = if blocks.len() == 1 {
        String::new()
    } else {
        format!(", {} of them at the same time", blocks.len())
    };
    let title = format!(
        "{size} each{copies}: {what}, {:.0} % of the peak",
        together.share_of(case.peak.bytes) * 100.0
    );
    let mut res = RULE.finding(Weight::Chance, spare, title);
    res.show(blocks.clone());
    res.blocks = blocks.iter().skip(1).copied().collect();
    res.at = blocks.iter().find_map(|it| case.line(*it));
    res.step = case.step(case.life(first).alloc);
    for block in blocks.iter().take(6) {
        let at = case.line(*block).map_or("autograd".to_owned(), |it| place(&it));
        let held = of_each(block).map_or(String::new(), |it| format!(", in {it}"));
        res.evidence.push(format!("{} made by {at}{held}", case.life(*block).size));
    }
    if let Some(asked) = asked.filter(|it| it.size == size) {
        res.evidence.push(format!("the failed request, {}, is another one", asked.size));
    }
    res.remedy = if in_loss && !in_tokens {
        IN_PARTS
    } else if in_loss {
        "compute the loss in chunks of tokens, with a fused linear cross-entropy (Liger, cut-cross-entropy), or only for the tokens that you train on; leave logits in bf16 (no `.float()`)"
    } else {
        IN_CHUNKS
    }
    .to_owned();
    vec![res]
}

/// Whether each block is of another operation, and none a layer's result: layers of one kind share a stack, and their results are as large as the
/// batch.
pub(crate) fn are_apart(case: &Case<'_>, blocks: &[BlockId]) -> bool {
    // What autograd makes has no stack.
    let known: Vec<StackId> =
        blocks.iter().map(|it| case.stack(*it)).filter(|it| *it != StackId::EMPTY).collect();
    let stacks: BTreeSet<StackId> = known.iter().copied().collect();
    let of_a_layer = |it: &StackId| is_of_a_layer(case.run.trace, *it);
    2 <= stacks.len() && stacks.len() == known.len() && !stacks.iter().any(of_a_layer)
}

/// Whether they are a few that lines of the script made, and not layers.
pub(crate) fn are_a_few(case: &Case<'_>, blocks: &[BlockId]) -> bool {
    let stacks: BTreeSet<StackId> = blocks.iter().map(|it| case.stack(*it)).collect();
    let of_layers =
        blocks.iter().filter(|it| is_of_a_layer(case.run.trace, case.stack(**it))).count();
    2 <= stacks.len() && blocks.len() <= FEW && 3 * of_layers <= blocks.len()
}

fn is_loss(case: &Case<'_>, stack: StackId) -> bool {
    let signs = case.run.stacks.signs(stack);
    signs.has(Signs::LOSS) || signs.has(Signs::SCORES)
}

/// Rows, words and bytes for each, if `size` is whole rows of a vocabulary that a weight of the model has, too:
/// 8,000 words for four sequences are as many bytes as 32,000 for one. What that weight has for each word is as much as another weight has in
/// all, that of a norm or a bias: 200,000 rows of 2,048 bytes are 32,000 of 12,800.
fn vocabulary(case: &Case<'_>, size: Bytes) -> Option<(u64, u64, u64)> {
    let replay = &case.run.replay;
    let weights = (0..).map(BlockId).zip(&replay.blocks);
    // What the first step is fed with is made before it, too.
    let is_fed = |id: BlockId| case.evidence.name(id).is_some_and(|it| it.role == Role::Input);
    let weights = weights.filter(|(id, _)| case.stage(*id) == Stage::Setup && !is_fed(*id));
    let weights = weights.map(|(_, it)| it.requested.0);
    let weights: Vec<u64> = weights.chain(replay.initial.iter().map(|it| it.requested.0)).collect();
    // In 32 bits beside 16, or the other way round; the biases of recurrent layers have three or four.
    let is_in_all =
        |row: u64| weights.iter().any(|it| [row / 2, row, row * 2, row * 3, row * 4].contains(it));
    let is_weight = |words: u64| {
        let row = |it: &u64| it.is_multiple_of(words).then_some(it / words);
        let rows = weights.iter().filter_map(row);
        rows.into_iter().any(|it| IN_A_ROW.contains(&it) && it.is_multiple_of(128) && is_in_all(it))
    };
    [4, 2].into_iter().find_map(|width| {
        VOCABULARIES.into_iter().find_map(|words| {
            let row = words * width;
            let rows = size.0 / row;
            let is_whole = size.0.is_multiple_of(row) && (16..4_000_000).contains(&rows);
            (is_whole && is_weight(words)).then_some((rows, words, width))
        })
    })
}
