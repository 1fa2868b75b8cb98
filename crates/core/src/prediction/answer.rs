//! What a prediction says: plain values for the views, and nothing that computes them.

use std::ops::Deref;

use crate::{
    cards::Card,
    codes::RemarkCode,
    prediction::{Counted, Note, OtherEnd, ScriptExit, Seen, Serving, Writes},
    recording::{CodeLine, CutLoop, Exception, FirstStep, LoopStage, Phase, Reached, Unlimited},
    units::Bytes,
};

/// What came of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It ran within the card.
    Fits,
    /// Each step leaves more behind than the one before: it runs out, sooner or later.
    Grows,
    /// It asked for more than the card has.
    OutOfMemory,
    /// It did not get far enough to tell; a note says why.
    ScriptFailed,
}

/// The answer to "will it fit?", which is also the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It fits.
    Fits,
    /// What was seen fits, and the script comes to an evaluation that was not, or has ranks of other kinds that were not.
    FitsSoFar,
    /// It grows with the steps, until it does not fit.
    Grows,
    /// It does not fit the card.
    DoesNotFit,
    /// It fits the card only with memory that the driver lends it of the host, as under Windows: it runs, many times slower.
    Spills,
    /// It fits the card, but not what `--max` allows.
    OverMax,
    /// It fits, or has what `--max` allows, at one end of what differs from one real run to the next or of values that nobody
    /// computed, and not at the other: masks that find nothing or everything, a router, work that is done early or late.
    Depends,
    /// We could not tell.
    CouldNotTell,
}

impl Verdict {
    /// All of them.
    pub const ALL: [Verdict; 8] = [
        Verdict::Fits,
        Verdict::FitsSoFar,
        Verdict::Grows,
        Verdict::DoesNotFit,
        Verdict::Spills,
        Verdict::OverMax,
        Verdict::Depends,
        Verdict::CouldNotTell,
    ];

    /// As it stands in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Fits => "fits",
            Verdict::FitsSoFar => "fits_so_far",
            Verdict::Grows => "grows",
            Verdict::DoesNotFit => "does_not_fit",
            Verdict::Spills => "spills",
            Verdict::OverMax => "over_max",
            Verdict::Depends => "depends",
            Verdict::CouldNotTell => "could_not_tell",
        }
    }

    /// The one with this word.
    pub fn of_word(word: &str) -> Option<Verdict> {
        Verdict::ALL.into_iter().find(|it| it.word() == word)
    }
}

/// What a run on the phantom says about the real thing. It is built once, of all that was observed; who has it reads it:
///
/// ```
/// # use plimsoll_core::{prediction::Prediction, units::Bytes};
/// fn needs(it: &Prediction) -> Bytes {
///     it.peak.device
/// }
/// ```
///
/// and cannot change it:
///
/// ```compile_fail
/// # use plimsoll_core::{prediction::Prediction, units::Bytes};
/// fn forget(it: &mut Prediction) {
///     it.peak.device = Bytes::ZERO;
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Prediction(Predicted);

impl Prediction {
    /// Of everything that it says.
    pub(super) fn of(it: Predicted) -> Prediction {
        Prediction(it)
    }

    /// Its parts, for who needs few of them and keeps those. There is no way back.
    pub fn into_parts(self) -> Predicted {
        self.0
    }
}

impl Deref for Prediction {
    type Target = Predicted;

    fn deref(&self) -> &Predicted {
        &self.0
    }
}

/// Everything that a prediction says.
#[derive(Clone, Debug)]
pub struct Predicted {
    /// The card that was imitated.
    pub card: Card,
    /// What came of the run.
    pub outcome: Outcome,
    /// The most that it may take, if there is a limit.
    pub max: Option<Bytes>,
    /// The largest of everything that was seen.
    pub peak: Peaks,
    /// What other processes held on the same device when all of them held most, beyond that peak.
    pub beside: Bytes,
    /// How memory grows with the steps, if that is what came of the run.
    pub growth: Option<StepGrowth>,
    /// Up to the end of the first step; none if it was not reached.
    pub first_step: Option<Peaks>,
    /// The same as the agent saw it, with what it depends on: for comparing with another run.
    pub first_step_facts: Option<FirstStep>,
    /// The line whose request made reserved memory largest.
    pub reserved_at: Option<CodeLine>,
    /// During the last step; none if fewer than two were seen.
    pub steady_state: Option<Peaks>,
    /// The peaks at the other ends of what the run depends on, if they were run; see [`Prediction::cover`].
    pub others: Vec<(OtherEnd, Peaks)>,
    /// The peaks with all work done at once, where the answer shows the run with work done late.
    pub early: Option<Peaks>,
    /// It runs out of memory at this other end.
    pub runs_out_at: Option<OtherEnd>,
    /// Not at that end, but between both; or where segments lie elsewhere.
    pub doubt: Option<Doubt>,
    /// CUDA context, loaded kernels and library handles: a constant of the card.
    pub context: Bytes,
    /// Device memory that libraries took outside PyTorch's allocator.
    pub other: Bytes,
    /// What to give the job so that it runs, if it does; see [`Prediction::safe`].
    pub with_allowance: Bytes,
    /// What the run went through.
    pub seen: Seen,
    /// Where the script decides about an evaluation that the run did not come to.
    pub awaited: Option<CodeLine>,
    /// A loop that was ended while memory rose with each of its batches, if the rest may need more than the safe size has.
    pub cut_loop: Option<CutLoop>,
    /// A loop of which later turns were not reached, though the steps use its variable.
    pub stage: Option<LoopStage>,
    /// What the script computes after its loops, which the run did not come to.
    pub after_loops: Option<CodeLine>,
    /// A thread of the script's own fills something without a limit: how far it gets depends on the machine.
    pub ahead: Option<RunsAhead>,
    /// Memory was the same in the last two steps.
    pub steady: bool,
    /// The peak of each phase that the run went through, in their order.
    pub phases: Vec<PhasePeak>,
    /// The one that decides how much the run needs, if it is not a training step.
    pub deciding_phase: Option<RunPhase>,
    /// What the largest evaluation took.
    pub evaluation: Option<EvaluationPeak>,
    /// When allocated memory was largest.
    pub peak_moment: Option<Moment>,
    /// The moment that is broken down: where memory ran out, or the one when allocated memory was largest.
    pub shown_moment: Option<Moment>,
    /// What the process had of the device then.
    pub shown: Bytes,
    /// That by what it is for, largest first; they sum to it exactly.
    pub categories: Vec<CategoryShare>,
    /// The largest contributors at that moment by line of the user's code, largest first.
    pub top_lines: Vec<LineShare>,
    /// All of them: what a comparison with another run needs.
    pub lines: Vec<LineShare>,
    /// The same by module, largest first.
    pub top_modules: Vec<ModuleShare>,
    /// Peaks of each step.
    pub steps: Vec<StepPeaks>,
    /// Where memory ran out, if it did and the script did not go on.
    pub oom: Option<OomPlace>,
    /// Every card of the catalogue, and whether it carries the run.
    pub cards: Vec<CardFit>,
    /// The smallest card that a run showed to be enough, if nobody named a card and smaller ones were run.
    pub smallest: Option<SmallestRun>,
    /// A larger card on which the script ran to an answer after it ran out on this one, and what it needed there.
    pub larger: Option<(&'static Card, Peaks)>,
    /// One for each process that used a device, worst first; the numbers above are the first's.
    pub ranks: Vec<Rank>,
    /// What NVIDIA's driver or a library wanted for itself, and did not find.
    pub lacked: Bytes,
    /// How many ranks the job has that it is of, if it is of one.
    pub world: Option<u32>,
    /// What a serving engine makes of the card, if the script starts one.
    pub serving: Option<Serving>,
    /// What the reader has to know to trust the rest.
    pub notes: Vec<Note>,
    /// What the script wrote; unknown where a recording was read.
    pub writes: Option<Writes>,
    /// Whom it reached outside of its own processes; unknown where a recording was read.
    pub reached: Option<Reached>,
    /// What it took of the host; unknown where a recording was read.
    pub host: Option<Host>,
    /// The exception that ended the script.
    pub exception: Option<Exception>,
    /// How the script ended.
    pub exit: ScriptExit,
    /// How long the run on the phantom took, in seconds.
    pub seconds: f64,
}

/// The three sizes that people compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peaks {
    /// `torch.cuda.max_memory_allocated()`
    pub allocated: Bytes,
    /// `torch.cuda.max_memory_reserved()`
    pub reserved: Bytes,
    /// What `nvidia-smi` shows for the process: reserved, other libraries and the context.
    pub device: Bytes,
}

/// What a byte of the process is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Category {
    /// Weights.
    Parameters,
    /// Gradients of weights.
    Gradients,
    /// What the optimizer keeps.
    OptimizerState,
    /// Made by the forward pass and kept for the backward pass.
    Activations,
    /// What the script feeds to the model.
    Inputs,
    /// Made and given back within one phase.
    Temporaries,
    /// Scratch memory of cuBLAS and cuDNN.
    Workspaces,
    /// Buffers of modules, such as running means and masks.
    Buffers,
    /// Keys and values of attention, which a serving engine or a generation holds for its texts.
    KeyValueCache,
    /// Memory of CUDA graphs: what a captured pass computes in.
    Graphs,
    /// Kept by the script from step to step: outputs, losses, caches, copies, data that it put there before.
    Retained,
    /// Allocated, and nothing that we know explains it.
    Unknown,
    /// Reserved by PyTorch's allocator and not allocated when allocated memory was largest.
    Slack,
    /// Taken by libraries outside PyTorch's allocator.
    Other,
    /// CUDA context, loaded kernels, library handles.
    Context,
}

impl Category {
    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Category::Parameters => "parameters",
            Category::Gradients => "gradients",
            Category::OptimizerState => "optimizer state",
            Category::Activations => "activations",
            Category::Inputs => "inputs",
            Category::Temporaries => "temporaries",
            Category::Workspaces => "workspaces",
            Category::Buffers => "buffers",
            Category::KeyValueCache => "key-value cache",
            Category::Graphs => "CUDA graphs",
            Category::Retained => "retained",
            Category::Unknown => "unknown",
            Category::Slack => "allocator slack",
            Category::Other => "other libraries",
            Category::Context => "CUDA context",
        }
    }

    /// Whether only programs that train nothing have it.
    pub fn is_of_serving(self) -> bool {
        matches!(self, Category::KeyValueCache | Category::Graphs)
    }

    /// All of them, in the order of the manual.
    pub const ALL: [Category; 15] = [
        Category::Parameters,
        Category::Gradients,
        Category::OptimizerState,
        Category::Activations,
        Category::Inputs,
        Category::Temporaries,
        Category::Workspaces,
        Category::Buffers,
        Category::KeyValueCache,
        Category::Graphs,
        Category::Retained,
        Category::Unknown,
        Category::Slack,
        Category::Other,
        Category::Context,
    ];
}

/// One category at the peak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CategoryShare {
    /// Which.
    pub category: Category,
    /// How much.
    pub bytes: Bytes,
    /// In how many blocks; 0 for slack, other and context, which have none.
    pub blocks: u64,
}

/// Memory that grows with the steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepGrowth {
    /// What each step leaves; on average, if they leave something every so many steps only.
    pub per_step: Bytes,
    /// After every so many steps it rises.
    pub every: u32,
    /// The line that made it, as its loop called it.
    pub at: Option<CodeLine>,
    /// Steps that were seen.
    pub seen: u32,
    /// What they are.
    pub counted: Counted,
    /// The step in which the card runs out, from 1; the one in which it did, if it did.
    pub runs_out_at: u64,
    /// It did run out.
    pub has_run_out: bool,
    /// What the device has to have more for each step: with pieces that no tensor fits into.
    pub taken: Bytes,
    /// What it had to have in the last step.
    pub needs: Bytes,
    /// By how much it had grown by then.
    pub grown: Bytes,
}

/// A place in the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The step, from 1; 0 before training.
    pub step: u32,
    /// The phase, if in one.
    pub phase: Option<Phase>,
}

/// What an evaluation took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvaluationPeak {
    /// The most that was allocated meanwhile.
    pub allocated: Bytes,
    /// How much of that it allocated itself: what lived before it began is not in it.
    pub own: Bytes,
    /// Where most of its own comes from.
    pub at: Option<Origin>,
}

/// A phase of a run, as people speak of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunPhase {
    /// Everything before the first forward pass: weights are read, moved and quantized.
    Loading,
    /// Up to the end of the first optimizer step.
    FirstStep,
    /// The steps after it, and what lies between them.
    LaterSteps,
    /// The first evaluation.
    FirstEvaluation,
    /// The evaluations after it.
    LaterEvaluations,
    /// A model or a checkpoint is saved.
    Saving,
    /// Adapters are merged into the weights below them.
    Merging,
}

impl RunPhase {
    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            RunPhase::Loading => "loading",
            RunPhase::FirstStep => "first step",
            RunPhase::LaterSteps => "later steps",
            RunPhase::FirstEvaluation => "first evaluation",
            RunPhase::LaterEvaluations => "later evaluations",
            RunPhase::Saving => "saving",
            RunPhase::Merging => "merging",
        }
    }

    /// The same in a run of which so much was counted: one that only calls a model evaluates nothing.
    pub fn name_in(self, counted: Counted) -> &'static str {
        match (counted, self) {
            (Counted::ForwardPasses, RunPhase::FirstEvaluation) => "first pass",
            (Counted::ForwardPasses, RunPhase::LaterEvaluations) => "later passes",
            (Counted::ForwardPasses, RunPhase::FirstStep | RunPhase::LaterSteps) => {
                "between passes"
            }
            _ => self.name(),
        }
    }

    /// Whether it is a training step.
    pub fn is_step(self) -> bool {
        matches!(self, RunPhase::FirstStep | RunPhase::LaterSteps)
    }
}

/// The most that one phase had, with what it began with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhasePeak {
    /// Which.
    pub phase: RunPhase,
    /// The most.
    pub peak: Peaks,
    /// The line that made allocated memory largest; none if the phase began with it, or nobody knows.
    pub at: Option<CodeLine>,
}

/// Blocks that one line of code holds at the peak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineShare {
    /// The line.
    pub at: Origin,
    /// How much.
    pub bytes: Bytes,
    /// In how many blocks.
    pub blocks: u64,
    /// The category that most of it belongs to.
    pub category: Category,
    /// Whether another category has a tenth of it or more.
    pub is_mixed: bool,
}

/// What most of some memory is for, as reports name it.
pub fn purpose(category: Category, is_mixed: bool) -> String {
    if is_mixed { format!("mostly {}", category.name()) } else { category.name().to_owned() }
}

/// Where blocks were allocated from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A line; of the user's own code where there is one on the stack.
    Line(CodeLine),
    /// The backward pass, started by this line: autograd's threads have no Python stack.
    BackwardOf(CodeLine),
    /// The backward pass; where it was started is not known.
    Backward,
    /// The recorder kept no stack.
    NoStack,
}

/// Blocks that one module holds at the peak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleShare {
    /// Its path, with `*` for the number of a repeated layer: `transformer.h.*.mlp`.
    pub path: String,
    /// How many modules that is.
    pub modules: u64,
    /// How much.
    pub bytes: Bytes,
    /// In how many blocks.
    pub blocks: u64,
    /// The category that most of it belongs to.
    pub category: Category,
    /// Whether another category has a tenth of it or more.
    pub is_mixed: bool,
}

/// Peaks of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepPeaks {
    /// The step, from 1.
    pub step: u32,
    /// Largest allocated.
    pub allocated: Bytes,
    /// Largest reserved.
    pub reserved: Bytes,
    /// Allocated when the step ended.
    pub allocated_after: Bytes,
    /// The step was not finished.
    pub unfinished: bool,
}

/// Where memory ran out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OomPlace {
    /// The step it happened in, from 1; 0 before training.
    pub step: u32,
    /// The phase, if in one.
    pub phase: Option<Phase>,
    /// What was asked for.
    pub requested: Bytes,
    /// Allocated at that moment.
    pub allocated: Bytes,
    /// Reserved at that moment.
    pub reserved: Bytes,
    /// What the device said was free at that moment, when the recording says: with more than was
    /// asked for it was not the card that ran out, but a limit that the script set.
    pub free: Option<Bytes>,
    /// The innermost line in the user's own code.
    pub at: Option<CodeLine>,
}

impl OomPlace {
    /// What was asked for, and what there was.
    pub fn sizes(&self) -> String {
        let OomPlace { requested, allocated, reserved, .. } = self;
        format!("requested {requested} while {allocated} were allocated and {reserved} reserved")
    }
}

/// Whether a card of the catalogue carries the run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CardFit {
    /// The card.
    pub card: &'static Card,
    /// The answer.
    pub carries: Carries,
    /// The step in which it runs out there, of a script that grows.
    pub runs_out_at: Option<u64>,
}

/// Whether a card carries the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Carries {
    /// It has at least the safe size: what was reserved, its own context, and the allowance.
    Yes,
    /// It has less than the safe size, but what was allocated fits, or would without scratch memory: the
    /// allocator may have to give memory back and try again, and cuDNN to take an algorithm that
    /// needs less.
    Tight,
    /// What was allocated at one moment, scratch memory left out, does not fit.
    No,
    /// It begins there, and grows until it runs out.
    Grows,
    /// The run stopped too early to tell.
    Unknown,
    /// The PyTorch of the run has no kernels for the card's compute capability.
    NoKernels,
}

/// The smallest card that a run showed to be enough, and what the run needed there.
#[derive(Clone, Debug, PartialEq)]
pub struct SmallestRun {
    /// The card; none if the script ran out of memory on each that was run.
    pub fits: Option<(&'static Card, Peaks)>,
    /// The cards on which it ran out of memory.
    pub too_small: Vec<&'static Card>,
}

/// One process that used a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rank {
    /// Its process id.
    pub pid: u32,
    /// Its rank, if it has one.
    pub rank: Option<u32>,
    /// The device that it used most.
    pub device: usize,
    /// What it took there. Of a rank of a job, `device` counts what other ranks held on the same GPU, too.
    pub peak: Peaks,
}

/// A part of the script that the run did not come to, and that may need more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToCome {
    /// An evaluation: where the script decides about it.
    Evaluation(CodeLine),
    /// The rest of an evaluation, in which memory rose with each batch.
    Rest(CutLoop),
    /// Later turns of a loop, whose variable the steps use.
    Turns(LoopStage),
    /// A model that is called, or trained, after the loops in which the run was ended.
    AfterLoops(CodeLine),
    /// More of what another thread makes before the training takes it.
    Ahead(RunsAhead),
}

/// A thread of the script's own that fills something without a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunsAhead {
    /// What it fills.
    pub name: String,
    /// The line that puts something there.
    pub at: CodeLine,
    /// How much waited there.
    pub held: Unlimited,
}

/// Why what fits as it was run, or at both ends of a race or of a router, may not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// A replay ran out of memory.
    RunsOut,
    /// It fits because PyTorch gave its cache back when memory was full, and with a little less memory a replay ran out: other holes may be left there.
    GaveCacheBack,
    /// It fits because PyTorch gave its cache back, and a replay with segments at other addresses ran out.
    Addresses,
    /// It fits at the late end of a race, and ran out at the early one.
    RunsOutEarly,
    /// It ran out, and a replay with segments at other addresses comes to its end.
    FitsElsewhere,
    /// It ran out at both ends of a race, and a replay between them comes to its end.
    FitsBetween,
}

/// What a run took of the host's memory at most, with all that it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// What its processes had of their own, and what they shared, counted once.
    pub peak: Bytes,
    /// What was shared: the tensors that workers hand over lie in /dev/shm.
    pub shared: Bytes,
}

impl Predicted {
    /// The answer to "will it fit?".
    pub fn verdict(&self) -> Verdict {
        match self.outcome {
            Outcome::ScriptFailed => Verdict::CouldNotTell,
            Outcome::Grows => Verdict::Grows,
            Outcome::OutOfMemory if self.doubt.is_some() => Verdict::Depends,
            Outcome::OutOfMemory => Verdict::DoesNotFit,
            Outcome::Fits if self.spilled() != Bytes::ZERO => Verdict::Spills,
            Outcome::Fits if self.max.is_some_and(|max| max < self.needs_early()) => {
                Verdict::OverMax
            }
            Outcome::Fits if self.is_in_doubt() || self.undecided().is_some() => Verdict::Depends,
            Outcome::Fits if self.may_come_to_more() => Verdict::FitsSoFar,
            Outcome::Fits => Verdict::Fits,
        }
    }

    /// What the script comes to, and the run did not; the first of several.
    pub fn to_come(&self) -> Option<ToCome> {
        let ahead = self.ahead.clone().map(ToCome::Ahead);
        let evaluation = || self.awaited.clone().map(ToCome::Evaluation);
        let rest = || self.cut_loop.clone().map(ToCome::Rest);
        let turns = || self.stage.clone().map(ToCome::Turns);
        let after_loops = || self.after_loops.clone().map(ToCome::AfterLoops);
        ahead.or_else(evaluation).or_else(rest).or_else(turns).or_else(after_loops)
    }

    /// Whether the script comes to something that was not seen, and that may need more.
    fn may_come_to_more(&self) -> bool {
        self.to_come().is_some()
            || self.not_run().is_some()
            || self.served_nothing()
            || self.engine_starts()
            || self.serving.as_ref().is_some_and(|it| it.engine.has_longer_passes())
    }

    /// Whether a serving engine had begun, and was not ready when the run ended.
    pub fn engine_starts(&self) -> bool {
        self.serving.as_ref().is_some_and(|it| !it.engine.is_ready)
    }

    /// Whether the script serves a model of its own, and had no request.
    fn served_nothing(&self) -> bool {
        let is_it = |it: &Note| matches!(it, Note::Remark(remark) if remark.code == RemarkCode::ServerWithoutRequests);
        self.notes.iter().any(is_it)
    }

    /// That ranks of the job that may differ, or the other end of a race, did not run to an answer.
    pub fn not_run(&self) -> Option<&Note> {
        let is_it = |it: &&Note| {
            matches!(it, Note::RanksUnseen { .. } | Note::OtherEndUnseen { end: OtherEnd::Late })
        };
        self.notes.iter().find(is_it)
    }

    /// What all processes of the script need of the device together, as far as it was seen.
    pub fn needs(&self) -> Bytes {
        self.peak.device + self.beside
    }

    /// The same where work is done early, if that was seen to be less.
    pub fn needs_early(&self) -> Bytes {
        self.early.map_or_else(|| self.needs(), |it| it.device + self.beside).min(self.needs())
    }

    /// How much of it lies in memory that the driver lends it of the host.
    pub fn spilled(&self) -> Bytes {
        let lends = self.card.lent != Bytes::ZERO;
        if lends { self.needs().saturating_sub(self.card.usable()) } else { Bytes::ZERO }
    }

    /// What it needs at the other end of values that nobody computed (masks, routers), and which end that is, if it was run to its
    /// end: the one where it needs most.
    pub fn at_other_values(&self) -> Option<(OtherEnd, Bytes)> {
        let ends = self.others.iter().filter(|it| it.0.is_of_values());
        ends.map(|it| (it.0, it.1.device + self.beside)).max_by_key(|it| it.1)
    }

    /// The end that decides whether it fits: it does not fit at that end, where it is one of a race or of values that nobody computed, or between
    /// that end and this one.
    pub fn undecided(&self) -> Option<OtherEnd> {
        let is_over = |it: &(OtherEnd, Bytes)| self.max.is_some_and(|max| max < it.1);
        let is_late_over = self.max.is_some_and(|max| max < self.needs());
        self.runs_out_at
            .or(is_late_over.then_some(OtherEnd::Late))
            .or_else(|| self.at_other_values().filter(is_over).map(|it| it.0))
    }

    /// Whether a run or a replay ran out of memory that may come about in place of the one shown.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.runs_out_at.is_some() || self.doubt.is_some()
    }

    /// How often memory was full and PyTorch gave its cache back, where the script fits because of that.
    pub fn gave_cache_back(&self) -> Option<u64> {
        self.notes.iter().find_map(|note| match note {
            Note::Retries(n) => Some(*n),
            _ => None,
        })
    }

    /// What to request so that a real run is safe; see [`safe_bytes`](super::safe_bytes). None unless the script fits.
    pub fn safe(&self) -> Option<Bytes> {
        (self.verdict() == Verdict::Fits).then_some(self.with_allowance)
    }

    /// What its slow growth adds until the script's own loop ends, where the safe size includes that.
    pub fn still_grows(&self) -> Option<Bytes> {
        let of = self.notes.iter().find_map(|note| match note {
            Note::GrowsSlowly { of, .. } => *of,
            _ => None,
        });
        of.map(|(_, bytes)| bytes)
    }

    /// How much of the card would be left at the peak, whatever masks find; none when it does not fit.
    pub fn headroom(&self) -> Option<Bytes> {
        let most = self.needs().max(self.at_other_values().map(|it| it.1).unwrap_or_default());
        let fits = self.outcome == Outcome::Fits && !self.is_in_doubt();
        let usable = self.card.usable();
        (fits && most <= usable).then(|| usable - most)
    }

    /// Why nothing can be said, if that is so.
    pub fn failure(&self) -> Option<&Note> {
        self.notes.first().filter(|_| self.outcome == Outcome::ScriptFailed)
    }
}
