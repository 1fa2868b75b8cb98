//! Workspaces of cuBLAS and cuDNN at the peak.

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight, place},
    prediction::Category,
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::Workspaces, find };

fn find(case: &Case<'_>) -> Vec<Finding> {
    let (bytes, _) = case.by_category().get(&Category::Workspaces).copied().unwrap_or_default();
    if !case.matters(bytes, 5, Bytes::mib(16)) {
        return Vec::new();
    }
    let title = format!("workspaces of cuBLAS and cuDNN are {bytes} of the peak");
    let mut res = RULE.finding(Weight::Fact, bytes, title);
    let mut of: Vec<_> =
        case.live.iter().filter(|it| it.category == Category::Workspaces).collect();
    res.show(of.iter().map(|it| it.block).collect());
    of.sort_by_key(|it| std::cmp::Reverse(it.size));
    for it in of.iter().take(4) {
        let at = case.line(it.block).map_or("autograd".to_owned(), |it| place(&it));
        res.evidence.push(format!("{} taken at {at}", it.size));
    }
    res.at = of.first().and_then(|it| case.line(it.block));
    res.remedy = "cuDNN: `torch.backends.cudnn.benchmark = False`; cuBLAS: CUBLAS_WORKSPACE_CONFIG=:4096:2:16:8 makes its workspaces smaller, at some cost in speed".to_owned();
    vec![res]
}
