//! Keys and values of attention, which grow with each token: what generation is, named so that nobody takes it for a leak.

use crate::findings::{Case, Finding, Rule, Weight, growth::Kind};

pub(super) const RULE: Rule = Rule {
    code: "growth/kv-cache",
    title: "a key-value cache that grows with each token",
    page: include_str!("kv_cache.md"),
    find,
};

fn find(case: &Case<'_>) -> Vec<Finding> {
    let growths = case.growth.iter().filter(|it| it.kind == Kind::KvCache);
    growths
        .map(|it| {
            let title = format!("a key-value cache grew to {} in {} tokens", it.held, it.steps);
            let mut res = RULE.finding(Weight::Chance, it.bytes, title);
            res.remedy = "that is how generation works; less of it: fewer sequences at once, a shorter maximal length, a static or quantised cache (`cache_implementation=\"static\"`, `\"quantized\"`), a model with grouped-query attention".to_owned();
            it.tell(case, &mut res);
            res
        })
        .collect()
}
