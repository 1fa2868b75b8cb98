//! Recording began when memory was already in use.

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight},
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::BeganLate, find };

fn find(case: &Case<'_>) -> Vec<Finding> {
    let window = case.window;
    if !window.began_late || case.run.replay.blocks.is_empty() {
        return Vec::new();
    }
    let title = match (window.blocks_before, window.bytes_before) {
        (blocks, Bytes::ZERO) => format!(
            "the recording began late: the program freed {blocks} earlier blocks of unknown size"
        ),
        (blocks, bytes) => format!(
            "the recording began late: {bytes} in {blocks} blocks were allocated before it, for an unknown purpose"
        ),
    };
    let mut res = RULE.finding(Weight::Fact, Bytes::ZERO, title);
    res.count = window.blocks_before;
    res.remedy = "start recording before the model is made: `plimsoll predict --record`, or torch.cuda.memory._record_memory_history() as the first line".to_owned();
    vec![res]
}
