//! The report as JSON. Everything that leaves the program as data is declared in this file, and
//! nothing else in the crate derives `Serialize`: the model is free to change, the wire is not.
//!
//! Adding a field keeps [`VERSION`]; changing the meaning of one, or removing one, raises it.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    prediction::{
        CardFit, Carries, Category, Counted, Covers, Doubt, LineShare, ModuleShare, Moment, Note,
        OomPlace, Origin, OtherEnd, Outcome, Peaks, PhasePeak, Rank, RunPhase, RunsAhead,
        ScriptExit, Serving, SmallestRun, StepPeaks, Verdict, Writes, WrittenFile,
    },
    recording::{CodeLine, CutLoop, Destination, Exception, LoopStage, Phase, Reached, Transport},
    replay::{Candidate, RanOut, WhatIf},
    trace::{Frame, StackId, Trace},
    units::Bytes,
    views::{answer::Answer, explain_wire, replay::ReplayReport},
};

/// The version of the format.
pub const VERSION: u32 = 1;

/// `answer` as one JSON document, with a line feed at its end.
pub fn prediction(answer: Answer<'_>) -> String {
    let mut res = serde_json::to_string_pretty(&PredictionWire::from(answer))
        .expect("the wire has only strings for keys");
    res.push('\n');
    res
}

#[derive(Debug, Serialize)]
struct PredictionWire<'a> {
    version: u32,
    /// `fits`, `grows`, `out_of_memory` or `script_failed`.
    outcome: &'static str,
    /// As [`crate::prediction::Verdict::word`] has it: with `--max` taken into account.
    verdict: &'static str,
    /// The card's id.
    gpu: &'a str,
    gpu_name: &'a str,
    gpu_total_bytes: u64,
    max_bytes: Option<u64>,
    steps_seen: u32,
    /// What a step is: `steps`, `backward_passes` or `forward_passes`.
    counted: &'static str,
    seen: SeenWire<'a>,
    steady: bool,
    /// Of a script that grows: what each step leaves, the line that made it, and the step in which the card runs out.
    growth_bytes_per_step: Option<u64>,
    /// Where it is an evaluation that leaves something: the same, of each.
    growth_bytes_per_evaluation: Option<u64>,
    growth_bytes_per_turn: Option<u64>,
    growth_at: Option<CodeWire<'a>>,
    runs_out_at_step: Option<u64>,
    runs_out_at_evaluation: Option<u64>,
    runs_out_at_turn: Option<u64>,
    peak_allocated_bytes: u64,
    peak_reserved_bytes: u64,
    peak_device_bytes: u64,
    context_bytes: u64,
    /// Device memory of libraries outside PyTorch's allocator.
    other_bytes: u64,
    /// What the script took of the host at most, workers and what they share included, and what of it was shared.
    host_peak_bytes: Option<u64>,
    shm_bytes: Option<u64>,
    /// Null where nothing is enough.
    safe_bytes: Option<u64>,
    headroom_bytes: Option<u64>,
    /// What lies in memory of the host that the driver lends; none where it lends nothing.
    spilled_bytes: Option<u64>,
    first_step: Option<PeaksWire>,
    steady_state: Option<PeaksWire>,
    /// The peak of each phase that the run went through, in their order.
    phases: Vec<PhaseWire<'a>>,
    /// The one that decides how much the run needs, if it is not a training step.
    deciding_phase: Option<&'static str>,
    /// The peaks with work done as late as it may be, where that matters.
    #[serde(skip_serializing_if = "Option::is_none")]
    late: Option<PeaksWire>,
    /// The peaks with all work done at once, where the report shows those of `late`.
    #[serde(skip_serializing_if = "Option::is_none")]
    early: Option<PeaksWire>,
    /// The peaks with the first step of a gradient scaler skipped, where one is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    overflow: Option<PeaksWire>,
    /// The peaks with the largest workspaces of the algorithms that `cudnn.benchmark` chooses from, where they differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    workspaces: Option<PeaksWire>,
    /// The peaks where masks of unknown values select everything, if that was run to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    everything_found: Option<PeaksWire>,
    /// The peaks where a router sends all tokens to one expert, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    one_expert: Option<PeaksWire>,
    /// What decides, where the verdict is that it depends.
    #[serde(skip_serializing_if = "Option::is_none")]
    undecided: Option<&'static str>,
    peak_at: Option<MomentWire>,
    /// The moment that is broken down: the one in which memory ran out, else that of the peak.
    categories_at: Option<MomentWire>,
    /// What the process had of the device then: `peak_device_bytes`, if memory did not run out.
    categories_bytes: u64,
    /// Sums to `categories_bytes`.
    categories: BTreeMap<&'static str, u64>,
    top_lines: Vec<LineWire<'a>>,
    top_modules: Vec<ModuleWire<'a>>,
    steps: Vec<StepWire>,
    oom: Option<OomWire<'a>>,
    cards: Vec<CardWire>,
    /// Of a run without `--gpu`: the smallest card that a run on it showed to be enough, where smaller cards were run.
    #[serde(skip_serializing_if = "Option::is_none")]
    smallest: Option<SmallestWire>,
    /// Of a run that ran out of memory: a larger card on which it did not, and what it needed there.
    #[serde(skip_serializing_if = "Option::is_none")]
    larger: Option<LargerWire>,
    process: ProcessWire<'a>,
    ranks: Vec<RankWire>,
    #[serde(skip_serializing_if = "Option::is_none")]
    world_size: Option<u32>,
    /// What a serving engine makes of the card, if the script starts one.
    #[serde(skip_serializing_if = "Option::is_none")]
    serving: Option<ServingWire<'a>>,
    /// As in `plimsoll explain --json`.
    findings: Vec<serde_json::Value>,
    notes: Vec<NoteWire<'a>>,
    /// The command that helps where it does not fit.
    next_command: Option<&'a str>,
    /// What the script wrote, and where that went.
    #[serde(skip_serializing_if = "Option::is_none")]
    writes: Option<WritesWire<'a>>,
    /// Whom it reached outside of its own processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    connections: Option<Vec<DestinationWire<'a>>>,
    seconds: f64,
}

#[derive(Debug, Serialize)]
struct PeaksWire {
    allocated_bytes: u64,
    reserved_bytes: u64,
    device_bytes: u64,
}

/// The most that one phase had.
#[derive(Debug, Serialize)]
struct PhaseWire<'a> {
    phase: &'static str,
    allocated_bytes: u64,
    reserved_bytes: u64,
    device_bytes: u64,
    /// The line that made allocated memory largest.
    at: Option<CodeWire<'a>>,
}

#[derive(Debug, Serialize)]
struct ServingWire<'a> {
    engine: &'a str,
    starts: bool,
    /// Why not, and what to change.
    refusal: Option<&'a str>,
    remedies: &'a [String],
    weights_bytes: Option<u64>,
    forward_bytes: Option<u64>,
    graphs_bytes: Option<u64>,
    states_bytes: Option<u64>,
    /// Outside PyTorch.
    beside_bytes: Option<u64>,
    cache_bytes: Option<u64>,
    blocks: Option<u64>,
    tokens: Option<u64>,
    /// The share of the card that the engine may use, and the smallest with which it starts.
    share: Option<f64>,
    least_share: Option<f64>,
    /// The smallest whose cache holds the longest request, where the engine starts without.
    share_for_longest: Option<f64>,
    /// The largest, by arithmetic.
    most_share: Option<f64>,
    /// Of an engine that plans its cache without a pass: what was free at the largest moment of the run, and the tokens of its longest pass.
    free_bytes: Option<u64>,
    longest_pass: Option<u64>,
    /// Tokens that the engine's own functions plan with other flags.
    instead: Vec<InsteadWire<'a>>,
    users: Vec<UsersWire>,
    /// By arithmetic, not by a run.
    other_cards: Vec<OtherCardWire<'a>>,
}

#[derive(Debug, Serialize)]
struct InsteadWire<'a> {
    flag: &'a str,
    tokens: u64,
    freed_bytes: u64,
}

#[derive(Debug, Serialize)]
struct UsersWire {
    tokens_each: u64,
    users: u64,
}

#[derive(Debug, Serialize)]
struct OtherCardWire<'a> {
    gpu: &'a str,
    starts: bool,
    cache_bytes: Option<u64>,
    tokens: u64,
}

/// What an engine makes of a card, as the report of `predict` has it under `serving`.
pub fn serving(it: &Serving) -> serde_json::Value {
    serde_json::to_value(ServingWire::from(it)).unwrap_or_default()
}

impl<'a> From<&'a Serving> for ServingWire<'a> {
    fn from(it: &'a Serving) -> ServingWire<'a> {
        let engine = &it.engine;
        let bytes = |it: Option<Bytes>| it.map(|it| it.0);
        ServingWire {
            engine: &engine.name,
            starts: engine.refused.is_none(),
            refusal: engine.refused.as_ref().map(|it| it.why.as_str()),
            remedies: engine.refused.as_ref().map_or(&[], |it| &it.remedies),
            weights_bytes: bytes(engine.weights),
            forward_bytes: bytes(engine.forward),
            graphs_bytes: bytes(engine.graphs),
            states_bytes: bytes(engine.states),
            beside_bytes: bytes(engine.beside),
            cache_bytes: bytes(engine.cache.or(engine.available)),
            blocks: engine.blocks,
            tokens: engine.tokens,
            share: engine.share,
            least_share: it.least_share.map(|it| f64::from(it) / 100.0),
            share_for_longest: it.share_for_longest.map(|it| f64::from(it) / 100.0),
            most_share: it.most_share.map(|it| f64::from(it) / 100.0),
            free_bytes: bytes(it.free),
            longest_pass: engine.longest_pass,
            instead: (engine.instead.iter())
                .map(|it| InsteadWire {
                    flag: &it.flag,
                    tokens: it.tokens,
                    freed_bytes: it.freed.0,
                })
                .collect(),
            users: (it.users.iter())
                .map(|it| UsersWire { tokens_each: it.length, users: it.users })
                .collect(),
            other_cards: (it.elsewhere.iter())
                .map(|other| OtherCardWire {
                    gpu: &other.card.id,
                    starts: other.available.is_some(),
                    cache_bytes: bytes(other.available),
                    tokens: other.tokens,
                })
                .collect(),
        }
    }
}

#[derive(Debug, Serialize)]
struct SeenWire<'a> {
    /// The script came to its end by itself, and nothing of it was cut.
    whole: bool,
    evaluation: bool,
    /// In words.
    missing: Option<&'static str>,
    /// The line that decides about an evaluation that was not reached.
    awaited_at: Option<CodeWire<'a>>,
    /// The loop around the steps of which later turns were not run.
    cut_loop: Option<CutLoopWire<'a>>,
    stage: Option<StageWire<'a>>,
    /// What the script computes after its loops, which the run did not come to.
    after_loops_at: Option<CodeWire<'a>>,
    /// What a thread of the script's own fills without a limit.
    ahead: Option<AheadWire<'a>>,
    /// What the numbers are about, if that is not all of the script.
    covers: Option<CoversWire>,
}

#[derive(Debug, Serialize)]
struct CutLoopWire<'a> {
    at: CodeWire<'a>,
    batches_taken: u64,
    /// None where the loader has no length.
    batches: Option<u64>,
    /// What each of those that were taken left in use, on the average.
    bytes_per_batch: u64,
}

impl<'a> From<&'a CutLoop> for CutLoopWire<'a> {
    fn from(it: &'a CutLoop) -> CutLoopWire<'a> {
        let CutLoop { line, taken, of, rise, .. } = it;
        CutLoopWire {
            at: line.into(),
            batches_taken: *taken,
            batches: *of,
            bytes_per_batch: rise.0,
        }
    }
}

#[derive(Debug, Serialize)]
struct StageWire<'a> {
    at: CodeWire<'a>,
    variable: &'a str,
    /// From 1.
    turn: u64,
    turns: Option<u64>,
    /// The turn with which the line does what was not seen.
    from_turn: Option<u64>,
    /// What turns that were seen left, where each makes an optimizer.
    left_bytes: Option<u64>,
}

impl<'a> From<&'a LoopStage> for StageWire<'a> {
    fn from(it: &'a LoopStage) -> StageWire<'a> {
        let LoopStage { line, name, turn, turns, from, adds_up } = it;
        let left_bytes = adds_up.map(|it| it.0);
        let (turn, turns, from_turn) = (*turn, *turns, *from);
        StageWire { at: line.into(), variable: name, turn, turns, from_turn, left_bytes }
    }
}

#[derive(Debug, Serialize)]
struct AheadWire<'a> {
    at: CodeWire<'a>,
    name: &'a str,
    /// That waited at last.
    entries: u64,
    bytes_an_entry: u64,
}

impl<'a> From<&'a RunsAhead> for AheadWire<'a> {
    fn from(it: &'a RunsAhead) -> AheadWire<'a> {
        let RunsAhead { name, at, held } = it;
        AheadWire { at: at.into(), name, entries: held.entries, bytes_an_entry: held.each.0 }
    }
}

#[derive(Debug, Serialize)]
struct CoversWire {
    /// `batches`, or what `counted` says.
    what: &'static str,
    seen: u64,
    /// Null where it is not known.
    of: Option<u64>,
    /// `of` is one epoch's, and the number of epochs is unknown.
    an_epoch: bool,
    /// "the 21 batches seen of 800".
    words: String,
}

impl From<Covers> for CoversWire {
    fn from(it: Covers) -> CoversWire {
        let what = if it.are_batches { "batches" } else { counted(it.counted) };
        CoversWire { what, seen: it.seen, of: it.of, an_epoch: it.an_epoch, words: it.words() }
    }
}

fn counted(it: Counted) -> &'static str {
    match it {
        Counted::Steps => "steps",
        Counted::BackwardPasses => "backward_passes",
        Counted::ForwardPasses => "forward_passes",
        Counted::Evaluations => "evaluations",
        Counted::Turns => "turns",
    }
}

#[derive(Debug, Serialize)]
struct MomentWire {
    /// From 1; 0 before training.
    step: u32,
    phase: Option<&'static str>,
}

/// What a line of code holds.
#[derive(Debug, Serialize)]
pub struct LineWire<'a> {
    /// `line`, `backward` (the backward pass that the line started) or `no_stack`.
    origin: &'static str,
    #[serde(flatten)]
    at: Option<CodeWire<'a>>,
    bytes: u64,
    blocks: u64,
    category: &'static str,
    /// Whether another category has a tenth of it or more.
    mixed: bool,
}

#[derive(Debug, Serialize)]
struct CodeWire<'a> {
    file: &'a str,
    line: u32,
    function: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    text: &'a str,
}

#[derive(Debug, Serialize)]
struct ModuleWire<'a> {
    module: &'a str,
    modules: u64,
    bytes: u64,
    blocks: u64,
    category: &'static str,
    /// Whether another category has a tenth of it or more.
    mixed: bool,
}

#[derive(Debug, Serialize)]
struct StepWire {
    step: u32,
    peak_allocated_bytes: u64,
    peak_reserved_bytes: u64,
    allocated_after_bytes: u64,
    finished: bool,
}

#[derive(Debug, Serialize)]
struct OomWire<'a> {
    step: u32,
    phase: Option<&'static str>,
    requested_bytes: u64,
    allocated_bytes: u64,
    reserved_bytes: u64,
    free_bytes: Option<u64>,
    at: Option<CodeWire<'a>>,
}

#[derive(Debug, Serialize)]
struct CardWire {
    id: &'static str,
    name: &'static str,
    total_bytes: u64,
    context_bytes: u64,
    /// `yes`, `tight`, `grows`, `no`, `unknown` or `no_kernels`.
    carries: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    runs_out_at_step: Option<u64>,
}

#[derive(Debug, Serialize)]
struct SmallestWire {
    /// Null where the script ran out of memory on each card that was run.
    gpu: Option<&'static str>,
    /// What the run on it needed.
    peak: Option<PeaksWire>,
    /// The cards on which it ran out of memory.
    too_small: Vec<&'static str>,
}

#[derive(Debug, Serialize)]
struct LargerWire {
    gpu: &'static str,
    peak: PeaksWire,
}

impl From<&SmallestRun> for SmallestWire {
    fn from(it: &SmallestRun) -> SmallestWire {
        SmallestWire {
            gpu: it.fits.map(|it| &*it.0.id),
            peak: it.fits.map(|it| PeaksWire::from(it.1)),
            too_small: it.too_small.iter().map(|it| &*it.id).collect(),
        }
    }
}

#[derive(Debug, Serialize)]
struct ProcessWire<'a> {
    exit_code: Option<i32>,
    signal: Option<i32>,
    exception: Option<ExceptionWire<'a>>,
}

#[derive(Debug, Serialize)]
struct ExceptionWire<'a> {
    class: &'a str,
    message: &'a str,
    at: Option<CodeWire<'a>>,
}

#[derive(Debug, Serialize)]
struct RankWire {
    pid: u32,
    rank: Option<u32>,
    device: usize,
    #[serde(flatten)]
    peak: PeaksWire,
}

#[derive(Debug, Serialize)]
struct NoteWire<'a> {
    code: &'a str,
    text: String,
}

#[derive(Debug, Serialize)]
struct WritesWire<'a> {
    /// `a mount namespace`, `a user namespace` or `tracing`; null where the script wrote into the user's files.
    way: Option<&'a str>,
    /// The folder that it was copied to.
    kept: Option<&'a str>,
    /// Of all files together.
    bytes: u64,
    /// What they might take on the disk.
    max_bytes: Option<u64>,
    files: Vec<WrittenFileWire<'a>>,
    /// Downloads among them that later runs find again.
    downloads: Vec<DownloadWire<'a>>,
    read_only: Vec<ReadOnlyWire<'a>>,
}

#[derive(Debug, Serialize)]
struct WrittenFileWire<'a> {
    path: &'a str,
    /// `created`, `changed`, `deleted` or `renamed`.
    kind: &'static str,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct DownloadWire<'a> {
    path: &'a str,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct ReadOnlyWire<'a> {
    path: &'a str,
    why: &'a str,
}

/// Whom a script reached.
#[derive(Debug, Serialize)]
pub struct DestinationWire<'a> {
    /// `hooks.slack.com:443`, or the name of a socket.
    to: &'a str,
    /// `tcp`, `udp` or `unix`.
    by: &'static str,
    /// Connections; null of datagrams.
    count: Option<u64>,
}

impl<'a> From<&'a Destination> for DestinationWire<'a> {
    fn from(it: &'a Destination) -> DestinationWire<'a> {
        let (by, count) = match it.transport {
            Transport::Tcp => ("tcp", Some(it.count)),
            Transport::Unix => ("unix", Some(it.count)),
            Transport::Udp => ("udp", None),
        };
        DestinationWire { to: &it.name, by, count }
    }
}

/// All whom it reached.
pub fn connections(it: &Reached) -> Vec<DestinationWire<'_>> {
    it.destinations().iter().map(DestinationWire::from).collect()
}

impl<'a> From<&'a Writes> for WritesWire<'a> {
    fn from(it: &'a Writes) -> WritesWire<'a> {
        let file = |file: &'a WrittenFile| WrittenFileWire {
            path: &file.path,
            kind: file.change,
            bytes: file.bytes.0,
        };
        WritesWire {
            way: it.is_apart().then_some(&it.way),
            kept: it.kept.as_deref(),
            bytes: it.bytes().0,
            max_bytes: it.is_apart().then_some(it.max.0),
            files: it.files.iter().map(file).collect(),
            downloads: it
                .downloads
                .iter()
                .map(|(path, bytes)| DownloadWire { path, bytes: bytes.0 })
                .collect(),
            read_only: it.read_only.iter().map(|(path, why)| ReadOnlyWire { path, why }).collect(),
        }
    }
}

impl<'a> From<Answer<'a>> for PredictionWire<'a> {
    fn from(answer: Answer<'a>) -> PredictionWire<'a> {
        let it = answer.prediction;
        let mut categories: BTreeMap<&'static str, u64> = Category::ALL
            .into_iter()
            .filter(|it| !it.is_of_serving())
            .map(|it| (category(it), 0))
            .collect();
        for share in &it.categories {
            *categories.entry(category(share.category)).or_default() += share.bytes.0;
        }
        // Only what went through several processes is worth a list.
        let ranks: &[Rank] = if 1 < it.ranks.len() { &it.ranks } else { &[] };
        let other = |end: OtherEnd| {
            let peaks = it.others.iter().find(|it| it.0 == end)?.1;
            Some(PeaksWire::from(peaks))
        };
        let grows_by =
            |is_it: fn(Counted) -> bool| it.growth.as_ref().filter(|it| is_it(it.counted));
        let of_evaluations = grows_by(|it| it == Counted::Evaluations);
        let of_turns = grows_by(|it| it == Counted::Turns);
        let of_steps = grows_by(|it| !matches!(it, Counted::Evaluations | Counted::Turns));
        PredictionWire {
            version: VERSION,
            outcome: match it.outcome {
                Outcome::Fits => "fits",
                Outcome::Grows => "grows",
                Outcome::OutOfMemory => "out_of_memory",
                Outcome::ScriptFailed => "script_failed",
            },
            verdict: it.verdict().word(),
            gpu: &it.card.id,
            gpu_name: &it.card.name,
            gpu_total_bytes: it.card.total.0,
            max_bytes: it.max.map(|it| it.0),
            steps_seen: it.seen.steps,
            counted: counted(it.seen.counted),
            seen: SeenWire {
                whole: it.seen.whole,
                evaluation: it.seen.evaluation,
                missing: it.seen.missing(),
                awaited_at: it.awaited.as_ref().map(CodeWire::from),
                cut_loop: it.cut_loop.as_ref().map(CutLoopWire::from),
                stage: it.stage.as_ref().map(StageWire::from),
                after_loops_at: it.after_loops.as_ref().map(CodeWire::from),
                ahead: it.ahead.as_ref().map(AheadWire::from),
                covers: it.seen.covers().map(CoversWire::from),
            },
            steady: it.steady,
            growth_bytes_per_step: of_steps.map(|it| it.per_step.0),
            growth_bytes_per_evaluation: of_evaluations.map(|it| it.per_step.0),
            growth_bytes_per_turn: of_turns.map(|it| it.per_step.0),
            growth_at: it.growth.as_ref().and_then(|it| it.at.as_ref()).map(CodeWire::from),
            runs_out_at_step: of_steps.map(|it| it.runs_out_at),
            runs_out_at_evaluation: of_evaluations.map(|it| it.runs_out_at),
            runs_out_at_turn: of_turns.map(|it| it.runs_out_at),
            peak_allocated_bytes: it.peak.allocated.0,
            peak_reserved_bytes: it.peak.reserved.0,
            peak_device_bytes: it.peak.device.0,
            context_bytes: it.context.0,
            other_bytes: it.other.0,
            host_peak_bytes: it.host.map(|it| it.peak.0),
            shm_bytes: it.host.map(|it| it.shared.0),
            safe_bytes: it.safe().map(|it| it.0),
            headroom_bytes: it.headroom().map(|it| it.0),
            spilled_bytes: (it.card.lent != Bytes::ZERO).then(|| it.spilled().0),
            first_step: it.first_step.map(PeaksWire::from),
            steady_state: it.steady_state.map(PeaksWire::from),
            phases: it.phases.iter().map(PhaseWire::from).collect(),
            deciding_phase: it.deciding_phase.map(run_phase),
            late: other(OtherEnd::Late),
            early: it.early.map(PeaksWire::from),
            overflow: other(OtherEnd::Overflow),
            workspaces: other(OtherEnd::Workspaces),
            everything_found: other(OtherEnd::Found),
            one_expert: other(OtherEnd::Routed),
            undecided: (it.verdict() == Verdict::Depends).then(|| match it.undecided() {
                Some(OtherEnd::Routed) => "experts",
                Some(OtherEnd::Late) => "order",
                None if it.doubt == Some(Doubt::FitsBetween) => "order",
                None => "addresses",
                _ => "masks",
            }),
            peak_at: it.peak_moment.map(MomentWire::from),
            categories_at: it.shown_moment.map(MomentWire::from),
            categories_bytes: it.shown.0,
            categories,
            top_lines: it.top_lines.iter().map(LineWire::from).collect(),
            top_modules: it.top_modules.iter().map(ModuleWire::from).collect(),
            steps: it.steps.iter().map(StepWire::from).collect(),
            oom: it.oom.as_ref().map(OomWire::from),
            cards: it.cards.iter().map(CardWire::from).collect(),
            smallest: it.smallest.as_ref().map(SmallestWire::from),
            larger: it
                .larger
                .map(|(card, peak)| LargerWire { gpu: &card.id, peak: PeaksWire::from(peak) }),
            process: ProcessWire {
                exit_code: match it.exit {
                    ScriptExit::Code(code) => Some(code),
                    ScriptExit::Signal(_) => None,
                },
                signal: match it.exit {
                    ScriptExit::Code(_) => None,
                    ScriptExit::Signal(signal) => Some(signal),
                },
                exception: it.exception.as_ref().map(ExceptionWire::from),
            },
            ranks: ranks.iter().map(RankWire::from).collect(),
            world_size: it.world,
            serving: it.serving.as_ref().map(ServingWire::from),
            findings: answer.findings.iter().map(explain_wire::finding).collect(),
            notes: it.notes.iter().map(NoteWire::from).collect(),
            next_command: answer.next,
            writes: it.writes.as_ref().map(WritesWire::from),
            connections: it.reached.as_ref().map(connections),
            seconds: it.seconds,
        }
    }
}

impl From<Peaks> for PeaksWire {
    fn from(it: Peaks) -> PeaksWire {
        let Peaks { allocated, reserved, device } = it;
        PeaksWire {
            allocated_bytes: allocated.0,
            reserved_bytes: reserved.0,
            device_bytes: device.0,
        }
    }
}

impl From<Moment> for MomentWire {
    fn from(it: Moment) -> MomentWire {
        MomentWire { step: it.step, phase: it.phase.map(phase) }
    }
}

impl<'a> From<&'a LineShare> for LineWire<'a> {
    fn from(it: &'a LineShare) -> LineWire<'a> {
        let LineShare { at, bytes, blocks, category: of, is_mixed } = it;
        let (origin, at) = match at {
            Origin::Line(line) => ("line", Some(CodeWire::from(line))),
            Origin::BackwardOf(line) => ("backward", Some(CodeWire::from(line))),
            Origin::Backward => ("backward", None),
            Origin::NoStack => ("no_stack", None),
        };
        let (bytes, blocks, category) = (bytes.0, *blocks, category(*of));
        LineWire { origin, at, bytes, blocks, category, mixed: *is_mixed }
    }
}

impl<'a> From<&'a CodeLine> for CodeWire<'a> {
    fn from(it: &'a CodeLine) -> CodeWire<'a> {
        let CodeLine { file, line, function, text } = it;
        CodeWire { file, line: *line, function, text }
    }
}

impl<'a> From<&'a ModuleShare> for ModuleWire<'a> {
    fn from(it: &'a ModuleShare) -> ModuleWire<'a> {
        let ModuleShare { path, modules, bytes, blocks, category: of, is_mixed } = it;
        let (module, category) = (path, category(*of));
        let (modules, bytes, blocks) = (*modules, bytes.0, *blocks);
        ModuleWire { module, modules, bytes, blocks, category, mixed: *is_mixed }
    }
}

impl From<&StepPeaks> for StepWire {
    fn from(it: &StepPeaks) -> StepWire {
        StepWire {
            step: it.step,
            peak_allocated_bytes: it.allocated.0,
            peak_reserved_bytes: it.reserved.0,
            allocated_after_bytes: it.allocated_after.0,
            finished: !it.unfinished,
        }
    }
}

fn run_phase(it: RunPhase) -> &'static str {
    match it {
        RunPhase::Loading => "loading",
        RunPhase::FirstStep => "first_step",
        RunPhase::LaterSteps => "later_steps",
        RunPhase::FirstEvaluation => "first_evaluation",
        RunPhase::LaterEvaluations => "later_evaluations",
        RunPhase::Saving => "saving",
        RunPhase::Merging => "merging",
    }
}

impl<'a> From<&'a PhasePeak> for PhaseWire<'a> {
    fn from(it: &'a PhasePeak) -> PhaseWire<'a> {
        let Peaks { allocated, reserved, device } = it.peak;
        PhaseWire {
            phase: run_phase(it.phase),
            allocated_bytes: allocated.0,
            reserved_bytes: reserved.0,
            device_bytes: device.0,
            at: it.at.as_ref().map(CodeWire::from),
        }
    }
}

impl<'a> From<&'a OomPlace> for OomWire<'a> {
    fn from(it: &'a OomPlace) -> OomWire<'a> {
        OomWire {
            step: it.step,
            phase: it.phase.map(phase),
            requested_bytes: it.requested.0,
            allocated_bytes: it.allocated.0,
            reserved_bytes: it.reserved.0,
            free_bytes: it.free.map(|it| it.0),
            at: it.at.as_ref().map(CodeWire::from),
        }
    }
}

impl From<&CardFit> for CardWire {
    fn from(it: &CardFit) -> CardWire {
        CardWire {
            id: &it.card.id,
            name: &it.card.name,
            total_bytes: it.card.total.0,
            context_bytes: it.card.context.0,
            carries: match it.carries {
                Carries::Yes => "yes",
                Carries::Tight => "tight",
                Carries::Grows => "grows",
                Carries::No => "no",
                Carries::Unknown => "unknown",
                Carries::NoKernels => "no_kernels",
            },
            runs_out_at_step: it.runs_out_at,
        }
    }
}

impl<'a> From<&'a Exception> for ExceptionWire<'a> {
    fn from(it: &'a Exception) -> ExceptionWire<'a> {
        let Exception { class, message, user_frame } = it;
        ExceptionWire { class, message, at: user_frame.as_ref().map(CodeWire::from) }
    }
}

impl From<&Rank> for RankWire {
    fn from(it: &Rank) -> RankWire {
        let Rank { pid, rank, device, peak } = *it;
        RankWire { pid, rank, device, peak: peak.into() }
    }
}

impl<'a> From<&'a Note> for NoteWire<'a> {
    fn from(it: &'a Note) -> NoteWire<'a> {
        NoteWire { code: it.code(), text: it.to_string() }
    }
}

fn category(category: Category) -> &'static str {
    match category {
        Category::Parameters => "parameters",
        Category::Gradients => "gradients",
        Category::OptimizerState => "optimizer_state",
        Category::Activations => "activations",
        Category::Inputs => "inputs",
        Category::Temporaries => "temporaries",
        Category::Workspaces => "workspaces",
        Category::Buffers => "buffers",
        Category::KeyValueCache => "kv_cache",
        Category::Graphs => "graphs",
        Category::Retained => "kept",
        Category::Unknown => "unknown",
        Category::Slack => "slack",
        Category::Other => "other",
        Category::Context => "context",
    }
}

fn phase(phase: Phase) -> &'static str {
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

/// `report` as one JSON document, with a line feed at its end.
pub fn replay(report: &ReplayReport<'_>) -> String {
    let mut res = serde_json::to_string_pretty(&ReplayWire::from(report))
        .expect("the wire has only strings for keys");
    res.push('\n');
    res
}

#[derive(Debug, Serialize)]
struct ReplayWire<'a> {
    version: u32,
    kind: &'static str,
    /// `checked` or `what_if`.
    mode: &'static str,
    device: usize,
    /// Whose rules the recording follows; those of the replay are in `replayed`.
    torch: String,
    events: usize,
    checked_events: u64,
    mismatches: u64,
    /// Segments that were taken for private pools' though nothing names them.
    inferred_segments: usize,
    mismatch_at: Vec<MismatchWire>,
    /// Whether it ran out of memory for good.
    runs_out: bool,
    /// Why nothing is known of what comes after the last recorded request; null where it runs out, or the recording is whole.
    ends_early: Option<&'static str>,
    /// The retries are those that the events show; a snapshot does not say how many there were.
    recorded: RunWire,
    replayed: RunWire,
    settings: SettingsWire<'a>,
    ran_out: Option<RanOutWire<'a>>,
    sweep: Vec<CandidateWire<'a>>,
    notes: &'a [String],
}

#[derive(Debug, Serialize)]
struct MismatchWire {
    event: u32,
    what: &'static str,
}

#[derive(Debug, Serialize)]
struct RunWire {
    peak_allocated_bytes: u64,
    peak_reserved_bytes: u64,
    final_reserved_bytes: u64,
    slack_at_peak_bytes: u64,
    alloc_retries: u64,
    ooms: u64,
    /// By the keys of `torch.cuda.memory_stats`, counted from the first event on.
    statistics: BTreeMap<String, u64>,
}

#[derive(Debug, Serialize)]
struct SettingsWire<'a> {
    torch: String,
    alloc_conf: &'a str,
    /// What the allocator may take; null when nothing is known to limit it.
    capacity_bytes: Option<u64>,
    fraction: Option<f64>,
}

#[derive(Debug, Serialize)]
struct RanOutWire<'a> {
    event: u32,
    requested_bytes: u64,
    allocated_bytes: u64,
    reserved_bytes: u64,
    largest_hole_bytes: u64,
    largest_hole_of_all_bytes: u64,
    /// Innermost first.
    stack: Vec<CodeWire<'a>>,
}

#[derive(Debug, Serialize)]
struct CandidateWire<'a> {
    alloc_conf: &'a str,
    fits: bool,
    peak_allocated_bytes: u64,
    peak_reserved_bytes: u64,
    slack_at_peak_bytes: u64,
    alloc_retries: u64,
}

impl<'a> From<&'a ReplayReport<'_>> for ReplayWire<'a> {
    fn from(it: &'a ReplayReport<'_>) -> ReplayWire<'a> {
        let checked = it.checked;
        let stats = &checked.stats;
        let recorded = RunWire {
            peak_allocated_bytes: checked.peak_allocated.bytes.0,
            peak_reserved_bytes: checked.peak_reserved.bytes.0,
            final_reserved_bytes: checked.final_reserved.0,
            slack_at_peak_bytes: checked.slack_at_peak.0,
            alloc_retries: stats.num_alloc_retries,
            ooms: it.recorded_ooms(),
            statistics: stats.named().into_iter().collect(),
        };
        let replayed = match &it.what_if {
            Some(what_if) => RunWire::from(what_if),
            None => RunWire {
                peak_allocated_bytes: stats.allocated_bytes.all.peak,
                peak_reserved_bytes: stats.reserved_bytes.all.peak,
                final_reserved_bytes: stats.reserved_bytes.all.current,
                slack_at_peak_bytes: checked.slack_at_peak.0,
                alloc_retries: stats.num_alloc_retries,
                ooms: stats.num_ooms,
                statistics: stats.named().into_iter().collect(),
            },
        };
        let ran_out = it.what_if.as_ref().and_then(|it| it.ran_out);
        ReplayWire {
            version: VERSION,
            kind: "replay",
            mode: if it.what_if.is_some() { "what_if" } else { "checked" },
            device: it.device,
            torch: it.torch.to_string(),
            events: it.n_events(),
            checked_events: checked.checked_events,
            mismatches: checked.n_mismatches,
            inferred_segments: checked.inferred_segments,
            mismatch_at: checked
                .mismatches
                .iter()
                .map(|(event, it)| MismatchWire { event: event.0, what: it.sentence() })
                .collect(),
            runs_out: it.runs_out(),
            ends_early: it.ends_early(),
            recorded,
            replayed,
            settings: SettingsWire {
                torch: it.config.torch.to_string(),
                alloc_conf: it.alloc_conf,
                capacity_bytes: it.config.capacity.map(|it| it.0),
                fraction: it.config.fraction,
            },
            ran_out: ran_out
                .map(|ran_out| RanOutWire::of(it.trace, it.stack_of(ran_out.event), ran_out)),
            sweep: it.sweep.iter().map(CandidateWire::from).collect(),
            notes: it.notes,
        }
    }
}

impl From<&WhatIf> for RunWire {
    fn from(it: &WhatIf) -> RunWire {
        RunWire {
            peak_allocated_bytes: it.peak_allocated.bytes.0,
            peak_reserved_bytes: it.peak_reserved.bytes.0,
            final_reserved_bytes: it.stats.reserved_bytes.all.current,
            slack_at_peak_bytes: it.slack_at_peak.0,
            alloc_retries: it.stats.num_alloc_retries,
            ooms: it.stats.num_ooms,
            statistics: it.stats.named().into_iter().collect(),
        }
    }
}

impl<'a> RanOutWire<'a> {
    fn of(trace: &'a Trace, stack: StackId, it: RanOut) -> RanOutWire<'a> {
        let code = |frame: Frame| CodeWire {
            file: trace.text(frame.file),
            line: frame.line,
            function: trace.text(frame.function),
            text: "",
        };
        RanOutWire {
            event: it.event.0,
            requested_bytes: it.requested.0,
            allocated_bytes: it.allocated.0,
            reserved_bytes: it.reserved.0,
            largest_hole_bytes: it.largest_hole.0,
            largest_hole_of_all_bytes: it.largest_hole_of_all.0,
            stack: trace.frames(stack).map(code).collect(),
        }
    }
}

impl<'a> From<&'a Candidate> for CandidateWire<'a> {
    fn from(it: &'a Candidate) -> CandidateWire<'a> {
        let Candidate { alloc_conf, outcome } = it;
        CandidateWire {
            alloc_conf,
            fits: outcome.ran_out.is_none(),
            peak_allocated_bytes: outcome.peak_allocated.bytes.0,
            peak_reserved_bytes: outcome.peak_reserved.bytes.0,
            slack_at_peak_bytes: outcome.slack_at_peak.0,
            alloc_retries: outcome.stats.num_alloc_retries,
        }
    }
}
