//! `plimsoll explain --json`. Keys only get added; `VERSION` says when one changes
//! its meaning.

use serde_json::{Value, json};

use crate::{
    codes::ProblemCode,
    explanation::{Caught, Comparison, Explanation, Kind, Next, Oom, RootCause},
    failures::{self, Failure},
    findings::{Finding, Window},
    printed::{Printed, Statement, limits},
    recording::{CodeLine, Phase},
    units::Bytes,
    views::ranks,
};

/// The version of the format.
const VERSION: u32 = 1;

/// One input is an object of its own; several are a list beside what leads, and a comparison.
pub fn explanations(explanations: &[Explanation], comparison: Option<&Comparison>) -> String {
    let inputs: Vec<Value> = explanations.iter().map(input).collect();
    let leading = comparison.map_or(0, |it| it.leading);
    let mut res = inputs.get(leading).cloned().unwrap_or_else(|| json!({}));
    res["version"] = json!(VERSION);
    if 1 < inputs.len() {
        res["inputs"] = Value::Array(inputs);
        res["comparison"] = comparison.map_or(Value::Null, |comparison| {
            json!({
                "leading": comparison.leading,
                "smallest_peak_bytes": comparison.smallest.0,
                "largest_peak_bytes": comparison.largest.0,
                "sentences": comparison.sentences,
                "ranks": ranks::value(&comparison.table),
            })
        });
    }
    pretty(&res)
}

/// Every kind of finding.
pub fn rules() -> String {
    let (mut findings, mut causes) = (Vec::new(), Vec::new());
    for it in ProblemCode::ALL {
        let (code, title) = (it.word(), it.title());
        match it.page() {
            Some(page) => findings.push(json!({ "code": code, "title": title, "page": page })),
            None => causes.push(json!({ "code": code, "title": title })),
        }
    }
    pretty(&json!({ "version": VERSION, "findings": findings, "causes": causes }))
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

pub(super) fn input(it: &Explanation) -> Value {
    json!({
        "kind": kind(it.kind),
        "name": it.name,
        "rank": it.rank,
        "torch_version": it.torch_version,
        "torch_version_at_least": it.torch_at_least.map(|it| it.to_string()),
        "window": it.window.as_ref().map(window),
        "peak_allocated_bytes": bytes(it.peak_allocated),
        "peak_reserved_bytes": bytes(it.peak_reserved),
        "steps": it.steps,
        "cause": it.root_cause().map(|it| cause(&it)),
        "findings": it.findings.iter().map(finding).collect::<Vec<_>>(),
        "oom": it.ooms.first().map(oom),
        "ooms": it.ooms.iter().map(oom).collect::<Vec<_>>(),
        "caught": it.caught.as_ref().map(caught),
        "lacked_bytes": it.lacked.0,
        "not_oom": it.others.iter().map(other).collect::<Vec<_>>(),
        "printed": it.printed.iter().map(printed).collect::<Vec<_>>(),
        "says": it.says.iter().map(statement).collect::<Vec<_>>(),
        "cannot_say": limits(&it.printed),
        "command": it.command,
        "next": it.next.as_ref().map(next),
        "notes": it.notes,
        "unsure": it.unsure,
    })
}

fn printed(it: &Printed) -> Value {
    let last = it.last().cloned().unwrap_or_default();
    let processes: Vec<Value> = it
        .processes
        .iter()
        .map(|it| json!({ "pid": it.pid, "name": it.name, "bytes": bytes(it.bytes) }))
        .collect();
    let operators: Vec<Value> = it
        .operators
        .iter()
        .map(|it| json!({ "name": it.name, "bytes": it.bytes.0, "calls": it.calls }))
        .collect();
    json!({
        "kind": it.kind.word(),
        "line": it.line,
        "device": it.device,
        "rank": it.rank,
        "writer": it.writer,
        "card": it.card,
        "times": it.levels.len(),
        "used_bytes": bytes(last.used),
        "used_percent": last.used_percent,
        "total_bytes": bytes(last.total),
        "free_bytes": bytes(last.free),
        "allocated_bytes": bytes(last.allocated),
        "reserved_bytes": bytes(last.reserved),
        "peak_allocated_bytes": bytes(last.peak_allocated),
        "peak_reserved_bytes": bytes(last.peak_reserved),
        "processes": processes,
        "operators": operators,
        "ooms": it.ooms,
        "alloc_retries": it.retries,
        "host_percent": it.host_percent,
    })
}

fn statement(it: &Statement) -> Value {
    json!({
        "code": it.code.word(),
        "text": it.text,
        "inferred": it.is_inferred,
        "line": it.line,
        "bytes": bytes(it.bytes),
    })
}

fn next(it: &Next) -> Value {
    json!({ "command": it.command, "then": it.then, "why": it.why, "complete": it.is_complete })
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Snapshot => "snapshot",
        Kind::Recording => "recording",
        Kind::Text => "text",
        Kind::ProfilerTrace => "profiler_trace",
    }
}

fn window(it: &Window) -> Value {
    json!({
        "events": it.events,
        "blocks_before": it.blocks_before,
        "bytes_before": it.bytes_before.0,
        "overwritten": it.overwritten,
        "overwritten_allocations": it.overwritten_allocations,
        "began_late": it.began_late,
        "stacks": it.stacks,
    })
}

pub(super) fn finding(it: &Finding) -> Value {
    json!({
        "code": it.code.word(),
        "title": it.title,
        "weight": it.weight.word(),
        "bytes": it.bytes.0,
        "count": it.count,
        "per_step_bytes": it.per_step.0,
        "evidence": { "line": line(it.at.as_ref()), "step": it.step, "facts": it.evidence },
        "remedy": it.remedy,
        "device": it.device,
    })
}

fn cause(it: &RootCause) -> Value {
    json!({
        "code": it.code.word(),
        "line": line(it.at.as_ref()),
        "bytes": it.bytes.0,
        "text": it.text,
        "sure": it.is_sure,
    })
}

fn oom(it: &Oom) -> Value {
    let facts = &it.facts;
    let numbers: Vec<Value> =
        facts.numbers.iter().map(|(label, it)| json!({ "label": label, "bytes": it.0 })).collect();
    let processes: Vec<Value> =
        facts.processes.iter().map(|(pid, it)| json!({ "pid": pid, "bytes": it.0 })).collect();
    let enough: Vec<Value> = it
        .enough
        .iter()
        .map(|(at, bytes, blocks)| json!({ "at": at, "bytes": bytes.0, "blocks": blocks }))
        .collect();
    json!({
        "requested_bytes": bytes(facts.requested),
        "capacity_bytes": bytes(facts.capacity),
        "free_bytes": bytes(facts.free),
        "allocated_bytes": bytes(facts.allocated),
        "reserved_bytes": bytes(facts.reserved),
        "slack_bytes": bytes(facts.slack),
        "process_bytes": bytes(facts.own_process()),
        "other_bytes": bytes(it.others),
        "limit_bytes": bytes(facts.limit),
        "private_pools_bytes": bytes(facts.private_pools),
        "backend": facts.backend.word(),
        "cause": it.cause.word(),
        "sure": it.is_sure,
        "caught": facts.kind == failures::Kind::Caught,
        "shape": it.shape.word(),
        "why": it.why,
        "remedies": it.remedies,
        "in_vain": it.in_vain,
        "device": facts.device,
        "rank": facts.rank,
        "step": it.step,
        "phase": facts.phase.map(phase),
        "progress": facts.progress,
        "at": line(it.at.as_ref()),
        "library_at": line(it.library_at.as_ref()),
        "module": it.module,
        "numbers": numbers,
        "processes": processes,
        "enough": enough,
        "proven": it.is_proven,
        "times": facts.times,
        "line": it.line(),
        "message": facts.text,
        "clipped": facts.clipped,
    })
}

fn caught(it: &Caught) -> Value {
    json!({
        "errors": it.errors,
        "largest_requested_bytes": it.requested.0,
        "at": line(it.at.as_ref()),
        "why": it.why,
    })
}

fn other(it: &Failure) -> Value {
    json!({
        "kind": it.kind.word(),
        "backend": it.backend.word(),
        "requested_bytes": bytes(it.requested),
        "limit_bytes": bytes(it.limit),
        "free_bytes": bytes(it.free),
        "why": it.verdict().why,
        "line": it.at,
        "times": it.times,
        "message": it.text,
    })
}

/// A line of code; null where none is known.
pub fn line(it: Option<&CodeLine>) -> Value {
    it.map_or(
        Value::Null,
        |it| json!({ "file": it.file, "line": it.line, "function": it.function, "text": it.text }),
    )
}

pub(super) fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Forward => "forward",
        Phase::Backward => "backward",
        Phase::Optimizer => "optimizer",
        Phase::ZeroGrad => "zero_grad",
        Phase::Evaluation => "evaluation",
        Phase::Saving => "saving",
        Phase::Merging => "merging",
    }
}

fn bytes(it: Option<Bytes>) -> Option<u64> {
    it.map(|it| it.0)
}
