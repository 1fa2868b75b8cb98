//! Memory of the process that PyTorch's allocator knows nothing of: the context, NCCL, other libraries.

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight},
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::NotPytorch, find };

fn find(case: &Case<'_>) -> Vec<Finding> {
    let Some(phantom) = case.run.phantom() else { return Vec::new() };
    let bytes = phantom.other_peak;
    if bytes < Bytes::mib(64) {
        return Vec::new();
    }
    let mut title = format!("libraries took memory outside PyTorch's allocator: {bytes}");
    if phantom.context != Bytes::ZERO {
        title += &format!(", beside the CUDA context of {}", phantom.context);
    }
    let mut res = RULE.finding(Weight::Fact, bytes, title);
    res.remedy = "NCCL: set NCCL_BUFFSIZE, and use fewer communicators; other libraries: set their own limits (XLA_PYTHON_CLIENT_MEM_FRACTION, CuPy's set_limit)".to_owned();
    vec![res]
}
