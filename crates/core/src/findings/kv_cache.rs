//! Keys and values of attention, which grow with each token: what generation is, named so that nobody takes it for a leak.

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight, blocks, growth::Kind},
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::KvCache, find };

fn find(case: &Case<'_>) -> Vec<Finding> {
    let growths = case.growth.iter().filter(|it| it.kind == Kind::KvCache);
    growths
        .map(|growth| {
            // A generation leaves something in each pass; what only some passes left are the caches of conversations that are over.
            let are_several = growth.apart || !growth.larger_each_time && growth.steps * 2 <= growth.of;
            let title = if growth.apart {
                format!("key-value caches of several texts stay on the device: {} in {}", growth.held, blocks(growth.counted.len()))
            } else if are_several {
                format!("{} key-value caches stay on the device: {}, about {} each", growth.steps, growth.held, growth.per_step)
            } else {
                format!("a key-value cache grew to {} in {} tokens", growth.held, growth.steps)
            };
            let mut res = RULE.finding(Weight::Chance, growth.bytes, title);
            res.remedy = if are_several { "delete a conversation's cache when it ends, and the oldest when there are too many; or store caches on the CPU (`OffloadedCache`, `.cpu()`), or store the text and process it again" } else { "generation needs this cache. To make it smaller: fewer sequences at once, a shorter maximum length, a static or quantized cache (`cache_implementation=\"static\"`, `\"quantized\"`), a model with grouped-query attention" }.to_owned();
            growth.tell(case, &mut res);
            res
        })
        .collect()
}
