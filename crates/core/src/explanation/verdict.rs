//! The verdict on one out-of-memory error: what was asked, what was free and why it could not serve, what
//! would have had to go, and whether it is size, growth, fragmentation, a limit or somebody else.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    codes::{Family, ProblemCode},
    explanation::{
        choice, largest,
        oom::{Oom, Shape},
        proof::{Proof, live_bytes},
        root_cause::{self, LARGE_PART},
    },
    failures::{self, Cause, Failure, Kind},
    findings::{self, Case, Finding, Weight},
    prediction::{Category, origins::Live, stacks::Signs, timeline::Stage},
    recording::{CodeLine, Form, LoopLines, Phase},
    replay::{BlockId, Config, TorchVersion, rounding},
    trace::EventId,
    units::Bytes,
};

/// What helps where the model's own memory is too much.
const LESS_STATE: [&str; 2] = [
    "use an optimizer with less state (8-bit Adam, Adafactor, SGD), weights in bf16, or fewer trained weights (LoRA)",
    "shard the states over cards (FSDP, ZeRO) or offload them to the CPU; a smaller batch does not change them",
];

/// The same where nothing but weights is there.
const LESS_WEIGHTS: [&str; 2] = [
    "make or load the weights in 16 bits (`dtype=torch.bfloat16`) if they have 32, or quantized: on the GPU, `.half()` comes too late",
    "spread the weights over cards (`device_map=\"auto\"`, FSDP) or leave some on the CPU; a smaller batch does not change them",
];

/// What helps where several models of one class are there.
const FEWER_MODELS: &str = "have fewer of these models on the GPU at once: load one, use it and drop it before the next, or keep the others on the CPU";

/// What helps where derivatives of derivatives are wanted.
const FEWER_GRAPHS: &str = "compute the derivatives of some points or samples at a time, and call `backward()` for each part: gradients add up, and only one part's graphs are allocated";

/// What helps where `vmap` computes many rows at once.
const ROWS_AT_ONCE: &str = "give `vmap` (or `jacrev`) a `chunk_size`: it takes so many rows at a time; of `torch.autograd.functional`, set `vectorize=False`";

/// What helps where L-BFGS keeps a history.
const LESS_HISTORY: &str = "lower `history_size` of LBFGS: each step of its history has two vectors as large as all weights";

/// What helps where most of a model's states are buffers.
const SMALLER_BUFFERS: &str = "make buffers that each layer has alike (masks, tables of positions) once for all layers, as long as the inputs are, or where they are used";

/// What helps where the gradient of a sparse matrix is wanted.
const STAYS_SPARSE: &str = "the gradient of a sparse matrix is made dense (`torch.sparse.mm` does so): compute with its entries instead (take the features at one end of each edge, multiply, `index_add_`), or do not train the matrix";

/// So many show how large inputs are.
const FEW_INPUTS: usize = 4;

/// What helps where nothing is trained.
const FEWER: [&str; 2] = [
    "use fewer or shorter inputs at a time",
    "use half precision, where it is not used yet: `.half()`, or autocast to bf16",
];
/// Causes that no line's remedy is the first for.
const GENERAL: [ProblemCode; 2] = [ProblemCode::ModelStates, ProblemCode::Activations];

/// The error that ended the run on this device, if there was one.
pub(super) fn of_case(case: &Case<'_>, findings: &[Finding], messages: &[Failure]) -> Option<Oom> {
    let run = case.run;
    let event = run.oom?;
    let recorded = run.device.events.get(event.index());
    let levels = case.at_oom.unwrap_or_default();
    let note = run.recording.notes.ooms.iter().rev().find(|it| it.device == run.index);
    let message =
        messages.iter().rev().find(|it| it.device.is_none_or(|it| it as usize == run.index));
    let (asked, free) = (recorded.size, Bytes(recorded.address));
    let slack = levels.reserved.saturating_sub(levels.allocated);
    let mut facts = message.cloned().unwrap_or_default();
    facts.kind = Kind::OutOfMemory;
    facts.at = 0;
    facts.times = 1;
    facts.device = u32::try_from(run.index).ok();
    facts.requested = Some(asked);
    facts.free = facts.free.or(Some(free));
    facts.allocated = Some(levels.allocated);
    facts.reserved = Some(levels.reserved);
    facts.slack = Some(slack);
    let mut res = Oom::of_failure(&facts);
    let moment = run.moment(event);
    res.at = note
        .and_then(|it| it.user_frame.clone())
        .or_else(|| case.line_of(recorded.stack))
        .or(res.at);
    res.library_at = case.line_of_library(recorded.stack);
    let module = run.trace.text(recorded.metadata).strip_prefix("m=");
    res.module = module.filter(|it| !it.is_empty()).map(str::to_owned);
    res.facts.phase = note.and_then(|it| it.phase).or(moment.phase);
    // From stacks alone, an optimizer that was cut short looks like the end of its step.
    let last = run.timeline.step_ends.last().copied();
    let passed = last.is_none_or(|last| run.timeline.starts(Stage::Forward).any(|it| last <= it));
    let cut_short = !run.timeline.marked && !passed;
    res.step = Some(moment.step.saturating_sub(u32::from(cut_short)).max(1));
    if cut_short && res.facts.phase.is_none() {
        res.facts.phase = Some(Phase::Optimizer);
    }
    // Small requests take a segment of the driver, which is larger.
    let wanted = rounding::allocation_size(asked, &Config::of_torch(TorchVersion::NEWEST));
    if message.is_none() && wanted <= free {
        res.cause = Cause::Limit;
        res.why = format!(
            "the device had {free} free, but the request for {asked} failed: the process limits itself (set_per_process_memory_fraction), or the driver limits it"
        );
        res.remedies = vec![
            "raise the limit, or remove it".to_owned(),
            "or make the run fit the limit: a smaller batch, activation checkpointing, a smaller type"
                .to_owned(),
        ];
    }
    decide(&mut res, case, event, findings);
    res.shape = shape(&res, findings, run.timeline.has(Stage::Backward));
    if res.root.code.family() == Family::Size
        && let Some((now, before, n)) = larger_input(case, event)
    {
        let text = format!("; its input has {now}, each of the {n} before at most {before}");
        res.root.text += &text;
        res.why.clone_from(&res.root.text);
        res.shape = Shape::LargeInput;
    }
    Some(res)
}

/// The input that was there, if it is far larger than those that its line made for the passes before: (its size, the largest before, how many).
fn larger_input(case: &Case<'_>, event: EventId) -> Option<(Bytes, Bytes, usize)> {
    let live = case.live_after(event);
    let inputs = live.iter().filter(|it| it.category == Category::Inputs);
    let now = inputs.max_by_key(|it| it.size)?;
    let line = case.line(now.block)?;
    let timeline = &case.run.timeline;
    let passes = timeline.starts(Stage::Forward).chain(timeline.starts(Stage::Evaluation));
    let passes: BTreeSet<EventId> = passes.collect();
    // What is gone before a pass begins is a part of what that is given.
    let mut before: BTreeMap<EventId, Bytes> = BTreeMap::new();
    for block in (0..now.block.0).map(BlockId).filter(|it| case.line(*it).as_ref() == Some(&line)) {
        let life = case.life(block);
        let next = passes.range(life.alloc..).next().copied();
        if let Some(next) = next.filter(|it| life.free.is_none_or(|free| *it < free)) {
            let most = before.entry(next).or_default();
            *most = life.size.max(*most);
        }
    }
    let most = *before.values().max()?;
    let is_larger = FEW_INPUTS <= before.len() && most.0 * 4 <= now.size.0;
    is_larger.then_some((now.size, most, before.len()))
}

/// Which of the findings it was, what would have been enough, and what each remedy would have done.
fn decide(res: &mut Oom, case: &Case<'_>, event: EventId, findings: &[Finding]) {
    let proof = Proof::of(case, event);
    let said = res.cause;
    res.root = choice::choose(case, event, res, findings, proof.as_ref());
    let part = largest::of(case, event, res.root.code, res.root.bytes);
    res.root.text += &part.as_ref().map(largest::Part::sentence).unwrap_or_default();
    res.cause = res.root.coarse();
    res.why.clone_from(&res.root.text);
    let expandable = proof.as_ref().and_then(Proof::with_expandable_segments);
    let unfragmented =
        expandable.as_ref().is_some_and(|it| it.served_now != 0 && it.ran_out.is_none());
    let mut remedies = Vec::new();
    // What had gone by then would not have helped.
    let is_there = |finding: &&Finding| {
        proof.is_none()
            || finding.blocks.is_empty()
            || live_bytes(case, finding, event) != Bytes::ZERO
    };
    let is_worth = |it: &&Finding| Bytes::mib(1) <= it.bytes || it.code == ProblemCode::Padding;
    let worth = findings.iter().filter(|it| it.weight != Weight::Fact).filter(is_worth);
    let worth = worth.filter(is_there);
    for it in worth.filter(|it| it.code.family() != Family::Fragmentation).take(4) {
        let proven = proof.as_ref().filter(|_| !it.blocks.is_empty());
        let said = match proven {
            Some(proof) => {
                let bytes = live_bytes(case, it, event);
                let verdict = if proof.fits_without(it) {
                    "replayed without them, the request fits"
                } else {
                    "replayed without them, the request still fails: not enough alone"
                };
                format!("{bytes} of the blocks live then; {verdict}")
            }
            None if it.bytes == Bytes::ZERO => "that run says how much".to_owned(),
            None => format!("could save up to {} (an estimate)", it.bytes),
        };
        remedies.push(format!("{} ({}: {said})", it.remedy, it.code));
    }
    let setting = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True before Python starts";
    let with_segments = expandable.as_ref().filter(|_| unfragmented).map(|it| {
        let most = it.peak_reserved.bytes;
        format!("{setting} (replayed with it, the request fits, with {most} reserved at most)")
    });
    // Where next to nothing of it is free, or no step has come to its end, the run gets a little further at most.
    let (allocated, slack) = (res.facts.allocated, res.facts.slack);
    let is_full = GENERAL.contains(&res.root.code)
        && (choice::most_in_a_step(case, event).is_none()
            || allocated.zip(slack).is_some_and(|(all, slack)| slack.0 < all.0 / 32));
    let (first, last) = if is_full { (None, with_segments) } else { (with_segments, None) };
    let are_states = res.root.code == ProblemCode::ModelStates;
    let many = choice::many_models(case, res.facts.allocated.unwrap_or_default());
    let form = form(case, res);
    let asked = res.facts.requested.unwrap_or_default();
    let is_made_dense = res.facts.phase == Some(Phase::Backward)
        && findings::as_large_when_dense(case, asked).is_some();
    let is_vectorized = form.as_ref().is_some_and(|it| it.0 == Form::Vectorized);
    let has_rows = !is_vectorized && res.cause == Cause::Size && are_of_vmap(case, event);
    let own = [
        res.root.is_of_derivatives().then(|| FEWER_GRAPHS.to_owned()),
        (are_states && many.is_some()).then(|| FEWER_MODELS.to_owned()),
        (are_states && keeps_history(case, event)).then(|| LESS_HISTORY.to_owned()),
        has_rows.then(|| ROWS_AT_ONCE.to_owned()),
        (are_states && are_mostly_buffers(case, event)).then(|| SMALLER_BUFFERS.to_owned()),
        part.as_ref().and_then(largest::Part::remedy),
        is_made_dense.then(|| STAYS_SPARSE.to_owned()),
    ];
    let own: Vec<String> = own.into_iter().flatten().collect();
    let own_edit = own.first().cloned();
    let first: Vec<String> = own.into_iter().chain(first).collect();
    let n_first = first.len() + usize::from(form.is_some());
    remedies.splice(0..0, first);
    // What mends the cause comes first.
    let at = |code: ProblemCode| findings.iter().find(|it| root_cause::told_as(it.code) == code);
    let cause = at(res.root.code);
    if let Some(it) = cause {
        let of_cause = format!("({}: ", it.code);
        remedies.sort_by_key(|it| !it.contains(&of_cause));
    }
    let form = form.map(|(form, place)| place + written(form));
    remedies.splice(0..0, form.clone());
    // A setting of the allocator is none.
    let cause = cause.filter(|it| it.code.family() != Family::Fragmentation);
    let in_chunks = res.root.code == ProblemCode::OneAllocation;
    res.edit = form.or_else(|| cause.map(|it| it.remedy.clone())).or(own_edit);
    res.edit = res.edit.take().or_else(|| in_chunks.then(|| findings::IN_CHUNKS.to_owned()));
    let general = general(res, said, &remedies, has_states(case, event));
    let tried = "expandable_segments:True";
    let is_seen = case.window.stacks && !case.window.began_late && !case.window.overwritten;
    let is_told = |sentence: &String| {
        expandable.is_some() && sentence.contains(tried) || is_seen && sentence == failures::GROWS
    };
    let general = general.into_iter().filter(|it| !is_told(it));
    res.remedies = match res.cause {
        Cause::OtherProcess | Cause::Limit => general.chain(remedies).collect(),
        // What one line could do with less is not what it hangs on.
        Cause::Size if GENERAL.contains(&res.root.code) => {
            let own = remedies.split_off(n_first.min(remedies.len()));
            remedies.into_iter().chain(general).chain(own).chain(last).collect()
        }
        _ => remedies.into_iter().chain(general).collect(),
    };
    if expandable.is_some() && !unfragmented {
        res.in_vain.push(format!("{setting} (replayed with it, the run still runs out)"));
    }
    res.enough = proof.as_ref().map(Proof::fewest).unwrap_or_default();
    res.is_proven = !res.enough.is_empty();
}

/// What another form of a statement of the script would save, where that has made a good part of all.
fn form(case: &Case<'_>, oom: &Oom) -> Option<(Form, String)> {
    let run = case.run;
    let event = run.oom?;
    let note = run.recording.notes.ooms.iter().rev().find(|it| it.device == run.index)?;
    let asked = run.device.events.get(event.index()).size;
    let live = case.live_after(event);
    let made_by = |lines: &LoopLines| -> Bytes {
        let is_it = |it: &CodeLine| lines.has(&it.file, it.line);
        let made = live.iter().filter(|it| case.line(it.block).as_ref().is_some_and(is_it));
        let wanted = if oom.at.as_ref().is_some_and(is_it) { asked } else { Bytes::ZERO };
        made.map(|it| it.size).sum::<Bytes>() + wanted
    };
    let made = note.written.iter().map(|(lines, form)| (made_by(lines), lines, *form));
    let (bytes, lines, form) = made.max_by_key(|it| it.0)?;
    let all = live.iter().map(|it| it.size).sum::<Bytes>() + asked;
    let is_here = |at: &CodeLine| lines.has(&at.file, at.line);
    let place = if oom.root.at.as_ref().is_some_and(is_here) {
        String::new()
    } else {
        let line = CodeLine { file: lines.file.clone(), line: lines.first, ..CodeLine::default() };
        format!("at {}: ", findings::place(&line))
    };
    (oom.cause == Cause::Size && all.0 / LARGE_PART <= bytes.0).then_some((form, place))
}

/// What to write instead.
fn written(form: Form) -> &'static str {
    match form {
        Form::FullMatrices => {
            "give `torch.linalg.svd` `full_matrices=False` (`torch.svd`: `some=True`): the square matrix of the longer side is then not made; of many singular values only the largest few: `torch.svd_lowrank`"
        }
        Form::Vectorized => ROWS_AT_ONCE,
        Form::AllPairs => {
            "use a matrix product (`a @ b.T`) or `torch.cdist` for distances or similarities of all pairs: this line writes the features of each pair out; or take some rows at a time, or only the pairs that are used (of one sample each)"
        }
        Form::CopiesByRepeat => {
            "`.expand` instead of `.repeat` (or no copies at all, where the operation broadcasts): `repeat` writes each copy out, `expand` none"
        }
        Form::SquareTable => {
            "this line makes a table with as many rows as columns: make it for the rows of one batch, only for sides that are short, or sparse"
        }
        Form::MadeDense => {
            "keep the matrix sparse (`torch.sparse.mm`, or the features at the ends of each edge and `index_add_`): this line writes all its zeros out; or make it dense for the rows of one batch"
        }
        Form::CopiesInProduct => {
            "write the product as `torch.einsum`, or multiply one slice at a time: `@` copies both matrices for the dimension that one of them lacks"
        }
    }
}

/// Whether most of what an optimizer has is the history of L-BFGS.
fn keeps_history(case: &Case<'_>, event: EventId) -> bool {
    let live = case.live_after(event);
    let states = live.iter().filter(|it| it.category == Category::OptimizerState);
    let is_history = |it: &&Live| case.signs(it.block).has(Signs::HISTORY);
    let (history, others): (Vec<&Live>, Vec<&Live>) = states.partition(is_history);
    let sum = |it: Vec<&Live>| it.iter().map(|it| it.size).sum::<Bytes>();
    sum(others) < sum(history)
}

/// Whether `vmap` made a quarter of what is live, or wants what is not there.
fn are_of_vmap(case: &Case<'_>, event: EventId) -> bool {
    let live = case.live_after(event);
    let all: Bytes = live.iter().map(|it| it.size).sum();
    let of_vmap = live.iter().filter(|it| case.signs(it.block).has(Signs::VMAP));
    let of_vmap: Bytes = of_vmap.map(|it| it.size).sum();
    let (asked, stack) = (
        case.run.device.events.get(event.index()).size,
        case.run.device.events.stack(event.index()),
    );
    let wanted = if case.run.stacks.signs(stack).has(Signs::VMAP) { asked } else { Bytes::ZERO };
    (all + asked).0 / 4 < (of_vmap + wanted).0
}

/// Whether anything of a training is there: gradients, or what an optimizer has, or is just making.
fn has_states(case: &Case<'_>, event: EventId) -> bool {
    let is_state =
        |it: &Live| matches!(it.category, Category::Gradients | Category::OptimizerState);
    let signs = case.run.stacks.signs(case.run.device.events.stack(event.index()));
    signs.has(Signs::OPTIMIZER) || case.live_after(event).iter().any(is_state)
}

/// Whether buffers are more than all weights and what trains them.
fn are_mostly_buffers(case: &Case<'_>, event: EventId) -> bool {
    use Category::{Buffers, Gradients, OptimizerState, Parameters};
    let live = case.live_after(event);
    let of = |categories: &[Category]| -> Bytes {
        live.iter().filter(|it| categories.contains(&it.category)).map(|it| it.size).sum()
    };
    of(&[Parameters, Gradients, OptimizerState]) < of(&[Buffers])
}

/// What helps against the cause whatever the line. The numbers of a message, which `said` something, say less than the recording
/// does, and may say otherwise.
fn general(oom: &mut Oom, said: Cause, remedies: &[String], has_states: bool) -> Vec<String> {
    let of_message = std::mem::take(&mut oom.remedies);
    let owned = |it: [&str; 2]| it.map(str::to_owned).to_vec();
    let trains = oom.facts.phase != Some(Phase::Evaluation);
    match (oom.cause, oom.root.code) {
        (Cause::Leak, _) => Vec::new(),
        (_, ProblemCode::ModelStates) if has_states => owned(LESS_STATE),
        (_, ProblemCode::ModelStates) => owned(LESS_WEIGHTS),
        (_, ProblemCode::OneAllocation) => {
            let of_one = format!("({}: ", ProblemCode::OneAllocation);
            let is_there = remedies.iter().any(|it| it.contains(&of_one));
            let chunks = (!is_there).then(|| findings::IN_CHUNKS.to_owned());
            // A wide batch makes each result of an evaluation large.
            let fewer = (!trains).then(|| FEWER[0].to_owned());
            let smaller = oom.facts.phase.is_some() && trains;
            let smaller = if smaller { owned(failures::SMALLER) } else { Vec::new() };
            let first = chunks.into_iter().chain(fewer);
            first.chain([failures::SHAPES.to_owned()]).chain(smaller).collect()
        }
        (Cause::Size, code) if code.family() == Family::Growth => Vec::new(),
        (Cause::Size, _) if !trains => owned(FEWER),
        (cause, _) if cause == said || remedies.is_empty() => of_message,
        (Cause::Size, _) => owned(failures::SMALLER),
        _ => Vec::new(),
    }
}

fn shape(oom: &Oom, findings: &[Finding], has_backward: bool) -> Shape {
    let step = oom.step.unwrap_or(1);
    let dynamic =
        findings.iter().any(|it| it.code == ProblemCode::DynamicShapes && it.step == oom.step);
    match oom.facts.phase {
        _ if oom.cause == Cause::Leak => Shape::OverTime,
        _ if dynamic => Shape::LargeInput,
        Some(Phase::Evaluation) => Shape::Evaluation,
        Some(Phase::Optimizer) if step == 1 && oom.root.code == ProblemCode::ModelStates => {
            Shape::FirstOptimizerStep
        }
        // Several passes are there.
        _ if oom.root.code == ProblemCode::ManyPasses => Shape::Other,
        Some(Phase::Forward) if step == 1 && !has_backward => Shape::FirstForward,
        _ if 3 < step => Shape::Late,
        Some(Phase::Backward) => Shape::Backward,
        Some(Phase::Forward) if step == 1 => Shape::FirstForward,
        _ => Shape::Other,
    }
}
