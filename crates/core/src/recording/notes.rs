//! The agent's notes: what only Python can know (phases, steps, names), pinned to places in the
//! trace. One struct for each kind of line that the agent writes.

use crate::{
    codes::RemarkCode,
    recording::{PlanNotes, WeightsNote, alarms::AlarmNote, engine::EngineNote},
    units::Bytes,
};

/// Everything that the agent of one process wrote.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Notes {
    /// Compute capabilities that the torch of the process has kernels for (90 for 9.0); empty if
    /// unknown.
    pub architectures: Vec<u32>,
    /// The first line; none if the process died before it.
    pub begin: Option<Begin>,
    /// Steps and phases, in the order they happened.
    pub marks: Vec<Mark>,
    /// What lived where, at several places of the trace.
    pub tensors: Vec<Tensors>,
    /// Who held which tensors at the end.
    pub keepers: Vec<Keepers>,
    /// What autograd's graph showed when backward passes began.
    pub graphs: Vec<GraphNote>,
    /// Batches of an evaluation that are much larger than those of the training.
    pub large_batches: Vec<LargeBatch>,
    /// How much of the training's batches is padding, as far as they were looked at.
    pub padding: Option<Padding>,
    /// Windows that overlap.
    pub unfolded: Vec<Unfolded>,
    /// Recurrent layers whose weights are no single piece of memory.
    pub in_pieces: Vec<InPieces>,
    /// Classes of which several models are on a device, the last of each.
    pub models: Vec<Models>,
    /// Lines of the first rank that open its GPU in the other ranks, too.
    pub first_gpu: Vec<FirstGpu>,
    /// The ranks that this one sends objects to or gets them from one to one, itself included: those of a pipeline's stages. Nothing
    /// if there are none, and where all ranks ran.
    pub stages: Vec<u32>,
    /// Ranks between the first and the last one that the script's text treats unlike others: `rank == 1`, `[8, 16, 8, 8][rank]`.
    pub named_ranks: Vec<u32>,
    /// What the weights of each model were, the last of each.
    pub weights: Vec<WeightsNote>,
    /// Where stacks were switched on and off; nothing if all events have them.
    pub stacks: Vec<StacksNote>,
    /// What a serving engine reported of its memory, if one was started.
    pub engine: Option<EngineNote>,
    /// How the program changed the allocator's settings while it ran.
    pub settings: Vec<SettingsNote>,
    /// Requests that failed, caught or not.
    pub ooms: Vec<OomNote>,
    /// What ran out of memory and was done again, or not, where that was asked for.
    pub redone: Vec<RedoneNote>,
    /// Lines that read values which the phantom does not know, most frequent first.
    pub reads: Vec<ReadNote>,
    /// Who asked how large the card is.
    pub asked_size: Vec<AskedSize>,
    /// Sentences for people.
    pub remarks: Vec<Remark>,
    /// Why this environment cannot be predicted.
    pub unsupported: Option<Unsupported>,
    /// What the first training step took, by device.
    pub first_steps: Vec<FirstStep>,
    /// How long steps took, where that was asked for.
    pub step_times: Option<StepTimes>,
    /// What the process had of the host's memory; none where the agent did not say.
    pub host: Option<HostNote>,
    /// The allocators' own statistics at the end, by device.
    pub stats: Vec<DeviceStats>,
    /// What went wrong, where the run was watched.
    pub alarms: Vec<AlarmNote>,
    /// Why the notes end before the process did, in the system's words: what came later is not known.
    pub cut: Option<String>,
    /// Its program had failed and waited so many seconds for what did not come; then we ended it.
    pub waited: Option<f64>,
    /// What is of a plan, and for a search.
    pub plan: PlanNotes,
    /// The last line; none if the process was killed.
    pub end: Option<End>,
}

/// What autograd's graph showed that was new, when a backward pass began or memory ran out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GraphNote {
    /// Attention that is written out, by the shape of its scores.
    pub attention: Vec<WrittenOut>,
    /// Parameters that were cast to another type more than once.
    pub casts: Vec<Recast>,
    /// Parameters whose gradients no optimizer uses, by network.
    pub unowned: Vec<Unowned>,
    /// Embedding tables whose gradients are dense.
    pub tables: Vec<Table>,
    /// Variables with a graph that no backward pass went through, each with the statement that sets it.
    pub unused: Vec<(String, LoopLines)>,
}

/// Softmax between two products of batches of matrices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WrittenOut {
    /// Of the scores: matrices, queries, keys.
    pub shape: [u64; 3],
    /// How many of these the graph has.
    pub count: u64,
    /// What each saves for the backward pass, a size for each tensor.
    pub saved: Vec<Bytes>,
}

/// A parameter that was cast again and again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recast {
    /// Its name.
    pub name: String,
    /// The bytes of one copy.
    pub bytes: Bytes,
    /// How many copies the graph has.
    pub copies: u64,
}

/// Parameters that get gradients and that no optimizer has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unowned {
    /// The class of the network, if none of it is trained.
    pub model: Option<String>,
    /// The path of the module that has them and none that is trained.
    pub part: Option<String>,
    /// Their names.
    pub names: Vec<String>,
    /// Their bytes.
    pub bytes: Bytes,
    /// Gradients go through it to something that is trained.
    pub is_needed: bool,
}

/// An embedding table that nothing but embeddings uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The name of its weight.
    pub name: String,
    /// The bytes of its weight, and of a dense gradient.
    pub bytes: Bytes,
    /// Its rows.
    pub rows: u64,
    /// How many of them one backward pass uses at most; of an `EmbeddingBag`, how many bags it makes of them.
    pub used: u64,
    /// It is of an `EmbeddingBag`.
    pub is_of_bags: bool,
}

/// A forward pass of an evaluation that was given much more than any of the training.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LargeBatch {
    /// Rows of the largest tensor of a training batch.
    pub rows_in_training: u64,
    /// And its numbers.
    pub elements_in_training: u64,
    /// Rows of the largest tensor of this one.
    pub rows: u64,
    /// And its numbers.
    pub elements: u64,
}

/// Batches of a training that all have one length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Padding {
    /// Numbers in a row.
    pub length: u64,
    /// The longest row, without its padding.
    pub longest: u64,
    /// Batches that were looked at.
    pub batches: u64,
}

/// Windows that one `unfold` gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unfolded {
    /// How many windows have a value.
    pub copies: u64,
    /// All windows, written out.
    pub bytes: Bytes,
}

/// A recurrent layer whose weights are no single piece of memory, which cuDNN wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InPieces {
    /// Its path.
    pub module: String,
    /// All of its weights.
    pub bytes: Bytes,
}

/// Several outermost modules of one class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Models {
    /// The class.
    pub model: String,
    /// How many there are.
    pub count: u64,
    /// Their weights.
    pub bytes: Bytes,
}

/// A line that opens GPU 0 in every rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstGpu {
    /// It loads a file without `map_location`; else it names no GPU before the rank has chosen one.
    pub is_load: bool,
    /// What it put there.
    pub bytes: Bytes,
    /// The line.
    pub at: CodeLine,
}

/// How a process began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Begin {
    /// Its command line.
    pub argv: Vec<String>,
    /// The folder it ran in.
    pub cwd: String,
    /// The version of Python.
    pub python: String,
    /// The version of torch.
    pub torch: String,
    /// The script, as an absolute path, if there is one.
    pub script: Option<String>,
    /// Its rank in a distributed job.
    pub rank: Option<u32>,
    /// How many ranks the job has.
    pub world_size: Option<u32>,
    /// Which of the job's machines it is on.
    pub machine: Option<u32>,
    /// It is a child of Python's multiprocessing.
    pub is_child: bool,
}

/// A place in the trace: after the `allocs`-th allocation and the `frees`-th request to free of each
/// device. Lists by device index; a device that is not listed was not used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Allocations so far.
    pub allocs: Vec<u64>,
    /// Requests to free so far.
    pub frees: Vec<u64>,
}

/// A step or phase began or ended here.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// What begins or ends.
    pub kind: MarkKind,
    /// Optimizer steps finished so far, this one included.
    pub step: u32,
    /// Where in the trace.
    pub place: Place,
    /// Reserved memory, by device.
    pub reserved: Vec<Bytes>,
    /// Allocated memory, by device.
    pub allocated: Vec<Bytes>,
    /// Seconds since the process began.
    pub seconds: f64,
    /// Of the begin of an evaluation: autograd was on.
    pub with_gradients: bool,
    /// Of the end of a step: RAM that is the process's own, where the kernel says it.
    pub host: Option<Bytes>,
    /// Of the end of some steps: RAM that its workers have made or changed.
    pub workers: Option<Bytes>,
}

/// What a process had of the host's memory (RAM) in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostNote {
    /// The most, files that it mapped included.
    pub peak: Option<Bytes>,
    /// What of it was in the swap file in the end.
    pub swapped: Option<Bytes>,
    /// The most that was pinned.
    pub pinned: Option<Bytes>,
    /// What the machine has, or the container is allowed.
    pub total: Option<Bytes>,
    /// How large `/dev/shm` is.
    pub shm: Option<Bytes>,
}

/// What a [`Mark`] marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkKind {
    /// A phase begins.
    Begin(Phase),
    /// A phase ends.
    End(Phase),
    /// An optimizer step is finished.
    StepEnd,
    /// The first forward pass in training is about to begin.
    TrainingBegin,
}

/// A part of a training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The outermost module's `forward`.
    Forward,
    /// `backward()`.
    Backward,
    /// `optimizer.step()`.
    Optimizer,
    /// `zero_grad()`.
    ZeroGrad,
    /// Forward passes of a model that is not in training.
    Evaluation,
    /// A library saves a model or a checkpoint.
    Saving,
    /// A library merges adapters into the weights below them.
    Merging,
}

/// What lived where at one place of the trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tensors {
    /// Where in the trace.
    pub place: Place,
    /// The device.
    pub device: usize,
    /// The tensors.
    pub entries: Vec<NamedTensor>,
}

/// A tensor that has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedTensor {
    /// Its name, such as `transformer.wte.weight`.
    pub name: String,
    /// What it is to the training.
    pub role: Role,
    /// Where its storage begins.
    pub address: u64,
    /// The size of its storage.
    pub size: Bytes,
    /// The class of the model that it belongs to.
    pub model: String,
}

/// What a tensor is to the training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// A weight.
    Parameter,
    /// A parameter's `.grad`.
    Gradient,
    /// A module's buffer.
    Buffer,
    /// What an optimizer keeps for a parameter.
    OptimizerState,
    /// What the script feeds to its model.
    Input,
}

/// Who held which tensors at one place of the trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keepers {
    /// Where in the trace.
    pub place: Place,
    /// The device.
    pub device: usize,
    /// Each of them.
    pub entries: Vec<Keeper>,
}

/// A variable of the program that holds tensors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keeper {
    /// How it is reached, such as `tracker.total[...]`.
    pub name: String,
    /// The kind of holder: `container`, `attribute`, `variable`, `closure`, `hook`, `gradient` or `traceback`.
    pub what: String,
    /// How many tensors.
    pub tensors: u64,
    /// How many nodes of autograd's graphs they hold.
    pub nodes: u64,
    /// Of a container of limited length: how many members it has, and how many it may have.
    pub limit: Option<(u64, u64)>,
    /// Where their storages begin.
    pub addresses: Vec<u64>,
    /// The line of the user's code that puts them there.
    pub at: Option<CodeLine>,
    /// The line of a method that `at` calls, if that does it.
    pub inner: Option<CodeLine>,
    /// The attribute by which objects of one class refer to one another on the way there, such as `parent`.
    pub link: Option<String>,
    /// Of the largest of its tensors.
    pub of_largest: Shape,
    /// They are sparse: what they have is that of their values.
    pub is_sparse: bool,
    /// Another thread fills it, and nothing limits how much.
    pub unlimited: Option<Unlimited>,
}

/// What another thread fills as fast as it can, and the training takes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unlimited {
    /// What kind of thing it is.
    pub waits_in: WaitsIn,
    /// How many entries waited there.
    pub entries: u64,
    /// What one of them holds of the device's memory.
    pub each: Bytes,
}

/// The sizes and the type of a tensor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Of each dimension; empty where nothing is known.
    pub sizes: Vec<u64>,
    /// As `float32`.
    pub dtype: String,
}

impl Shape {
    /// Behind the name of its tensor, ` (64 x 4096, float32)`; nothing where nothing is known.
    fn shown(&self) -> String {
        if self.sizes.is_empty() {
            return String::new();
        }
        let sizes: Vec<String> = self.sizes.iter().map(u64::to_string).collect();
        format!(" ({}, {})", sizes.join(" x "), self.dtype)
    }

    /// What it takes if each number is there; a sparse tensor has less.
    pub fn dense(&self) -> Bytes {
        let bits = self.dtype.trim_start_matches(|it: char| !it.is_ascii_digit());
        let bits = bits.parse::<u64>().unwrap_or_default();
        let n = self.sizes.iter().try_fold(1_u64, |n, it| n.checked_mul(*it));
        Bytes(n.and_then(|it| it.checked_mul(bits / 8)).unwrap_or_default())
    }
}

impl Keeper {
    /// Its name with the shape of its largest tensor, where that is known.
    pub fn shown(&self) -> String {
        format!("`{}`{}", self.name, self.of_largest.shown())
    }
}

/// What a name in the line that ran out stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operand {
    /// As it stands there.
    pub name: String,
    /// A whole number.
    pub value: Option<i64>,
    /// A tensor, or the first one of a list.
    pub of_tensor: Shape,
    /// How many a list has.
    pub members: Option<u64>,
}

impl Operand {
    /// The name with what it stands for.
    pub fn shown(&self) -> String {
        let (name, shape) = (&self.name, self.of_tensor.shown());
        match (self.value, self.members) {
            (Some(value), _) => format!("`{name}` = {value}"),
            (_, Some(n)) => format!("{n} in `{name}`, the first{shape}"),
            _ => format!("`{name}`{shape}"),
        }
    }
}

impl WaitsIn {
    /// How to limit it, as an order.
    pub const fn limit(self) -> &'static str {
        match self {
            WaitsIn::Queue => "give it a limit (`maxsize=2`)",
            WaitsIn::Deque => "let the thread wait while it has two entries",
            WaitsIn::Results => "begin the next call when a result is taken",
        }
    }
}

/// Where what a thread made waits for the training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitsIn {
    /// A queue without a `maxsize`.
    Queue,
    /// A deque without a `maxlen`.
    Deque,
    /// Futures of a pool.
    Results,
}

/// A request that failed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OomNote {
    /// The device.
    pub device: usize,
    /// Optimizer steps finished before.
    pub step: u32,
    /// The phase it happened in, if in one.
    pub phase: Option<Phase>,
    /// What was asked for.
    pub requested: Bytes,
    /// PyTorch's text.
    pub message: String,
    /// The stack, innermost first.
    pub stack: Vec<CodeLine>,
    /// The innermost line in the user's own code.
    pub user_frame: Option<CodeLine>,
    /// Whether the script went on; none when the agent cannot say.
    pub caught: Option<bool>,
    /// The script goes on to a backward pass from there, or an input of the forward pass wants a gradient.
    pub goes_back: bool,
    /// The outermost loop of the script that was running.
    pub around: Option<LoopLines>,
    /// Statements of the script of which another form takes far less.
    pub written: Vec<(LoopLines, Form)>,
    /// What the names in the line stand for, in the order of its text.
    pub operands: Vec<Operand>,
    /// The device, as its driver calls it; none in recordings of plimsoll 0.2.0 and before.
    pub gpu: Option<String>,
    /// Where in the trace.
    pub place: Place,
}

/// A way to write something that takes far more than another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A decomposition with square matrices.
    FullMatrices,
    /// All rows of a derivative at once.
    Vectorized,
    /// A difference or product of each row with each row, feature by feature.
    AllPairs,
    /// A product of matrices that first copies both for a dimension that one of them lacks.
    CopiesInProduct,
    /// Copies that are written out.
    CopiesByRepeat,
    /// A table with as many rows as columns.
    SquareTable,
    /// All zeros of a sparse matrix.
    MadeDense,
}

impl Form {
    /// By its word in a recording.
    pub fn of_word(word: &str) -> Option<Form> {
        match word {
            "full-matrices" => Some(Form::FullMatrices),
            "vectorized" => Some(Form::Vectorized),
            "all-pairs" => Some(Form::AllPairs),
            "copies-in-product" => Some(Form::CopiesInProduct),
            "copies-by-repeat" => Some(Form::CopiesByRepeat),
            "square-table" => Some(Form::SquareTable),
            "made-dense" => Some(Form::MadeDense),
            _ => None,
        }
    }
}

/// The lines of a loop or a statement in the text of the script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoopLines {
    /// The file, as its code has it.
    pub file: String,
    /// The first line.
    pub first: u32,
    /// The last one.
    pub last: u32,
}

impl LoopLines {
    /// Whether a line is one of them.
    pub fn has(&self, file: &str, line: u32) -> bool {
        self.file == file && (self.first..=self.last).contains(&line)
    }
}

/// What ran out of memory in a run that goes on all the same, and what became of it.
#[derive(Clone, Debug, PartialEq)]
pub struct RedoneNote {
    /// Optimizer steps finished before.
    pub step: u32,
    /// The phase it happened in, if in one.
    pub phase: Option<Phase>,
    /// The line of the user's own code.
    pub user_frame: Option<CodeLine>,
    /// What was asked for, as PyTorch words it, such as `1.50 GiB`; empty if it does not say.
    pub asked: String,
    /// What became of it.
    pub how: Redone,
}

/// How a step that ran out of memory was done again.
#[derive(Clone, Debug, PartialEq)]
pub enum Redone {
    /// In this way, and in so many seconds.
    As(RedoneWay, f64),
    /// It was not: a sentence without a point says why.
    Refused(String),
}

/// A way to do a step again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedoneWay {
    /// As it was, once what was unused had gone back to the device.
    Again,
    /// With what backward needs on the host.
    OnHost,
    /// In so many parts of the batch.
    Parts(u32),
    /// The request itself, once the model's calls had let go of what backward needs; they are made again there.
    WithRoom,
    /// Its cross-entropy some rows at a time, and what backward needs on the host.
    InChunks,
}

/// A line of source code.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CodeLine {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The function around it.
    pub function: String,
    /// What stands there; empty when unknown.
    pub text: String,
}

/// A line that copied values from the device which the phantom does not know: it got zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadNote {
    /// Where.
    pub at: CodeLine,
    /// How often.
    pub count: u64,
    /// How much in all.
    pub bytes: Bytes,
    /// How often it was one number of 64 bits, as sizes are, that nothing had an answer to.
    pub sizes: u64,
    /// Whether what it reads becomes a size, as far as the script's text shows.
    pub becomes_size: bool,
}

/// A program asked how large the card is, so that it may do otherwise on another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedSize {
    /// What it called, such as `torch.cuda.mem_get_info`.
    pub call: String,
    /// Where, if that is known.
    pub at: Option<CodeLine>,
}

/// A sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// What it is about.
    pub code: RemarkCode,
    /// The sentence.
    pub text: String,
}

/// Why this environment cannot be predicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// A stable word, such as `no-cuda-build`.
    pub reason: String,
    /// One sentence.
    pub text: String,
    /// The version of torch.
    pub torch: Option<String>,
}

/// What a process took until its first training step was done, and what that depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirstStep {
    /// Largest sum of allocated blocks.
    pub allocated: Bytes,
    /// Largest sum of segments.
    pub reserved: Bytes,
    /// The version of torch.
    pub torch: String,
    /// The device, as its driver calls it.
    pub gpu: String,
    /// What the first forward pass was given, as in `input_ids 8x512 int64`.
    pub inputs: Vec<String>,
    /// How often the allocator had given everything back by then and tried again.
    pub retries: u64,
    /// What was free on the device then; none where that was not asked.
    pub free: Option<Bytes>,
}

/// Seconds that steps took, the first few left out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepTimes {
    /// As the device saw them; none if it could not be asked.
    pub device: Option<Spread>,
    /// From the end of one to the end of the next, in the process.
    pub host: Spread,
    /// How many at the beginning do not count.
    pub left_out: u64,
}

/// Where most of some numbers lie.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// How many.
    pub count: u64,
    /// The middle one.
    pub median: f64,
    /// A tenth is below.
    pub low: f64,
    /// A tenth is above.
    pub high: f64,
}

/// `torch.cuda.memory_stats` of one device at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceStats {
    /// The device.
    pub device: usize,
    /// Largest sum of allocated blocks.
    pub peak_allocated: Bytes,
    /// Largest sum of segments.
    pub peak_reserved: Bytes,
    /// Allocations.
    pub allocs: u64,
    /// Requests to free.
    pub frees: u64,
    /// How often the allocator gave everything back and tried again.
    pub retries: u64,
    /// Requests that failed.
    pub ooms: u64,
    /// Segments held in the end.
    pub segments: u64,
    /// What the script itself let the allocator take, if it did.
    pub limit: Option<Bytes>,
}

/// How a process ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct End {
    /// Why.
    pub why: EndReason,
    /// Optimizer steps finished.
    pub steps: u32,
    /// Peak and live memory were equal over two steps.
    pub steady: bool,
    /// It made an optimizer of `torch.optim`.
    pub has_optimizer: bool,
    /// The code it meant to exit with.
    pub exit_code: Option<i32>,
    /// The signal by which it ended itself.
    pub signal: Option<i32>,
    /// The exception that ended it.
    pub exception: Option<Exception>,
    /// What came after memory was steady, if the run went on to see it.
    pub later: Option<Later>,
    /// What the script has of what comes later.
    pub mentions: Mentions,
    /// Where the script decides about an evaluation that it would have come to, and that the run did not.
    pub awaited: Option<CodeLine>,
    /// A loop around that of the steps, whose later turns the run did not come to, and whose variable the steps use.
    pub stage: Option<LoopStage>,
    /// After the loops in which the run was ended: the line that calls a model there, or trains.
    pub after_loops: Option<CodeLine>,
    /// A loop over batches that no step takes, which the run ended while memory rose with each of its batches.
    pub cut_loop: Option<CutLoop>,
    /// What the script raised meanwhile, in short: its training steps were seen, so this is no failure of the run.
    pub failed_later: Option<String>,
    /// How far the script would have gone.
    pub ahead: Ahead,
    /// Of a loop of which each turn makes an optimizer: the steps that were done when the second began, and the third.
    pub turned_at: Option<(u32, u32)>,
    /// Seconds that went into imports.
    pub seconds_imports: f64,
    /// Seconds in all.
    pub seconds: f64,
}

/// One turn of a loop around that of the steps: the stage of a curriculum, one of several sizes, a fold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoopStage {
    /// Where the loop begins, or the condition on its variable stands.
    pub line: CodeLine,
    /// Its variable.
    pub name: String,
    /// Which turn the run was in at last, from 1.
    pub turn: u64,
    /// How many there are.
    pub turns: Option<u64>,
    /// The turn, from 1, in which the condition at `line` comes to what no turn so far did; none if the loop begins at `line`.
    pub from: Option<u64>,
    /// Each turn makes an optimizer, and so most likely a network: what the turns that were seen left, which may be nothing. None if instead the
    /// steps use the variable.
    pub adds_up: Option<Bytes>,
}

/// A loop over batches that was ended while memory rose with each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutLoop {
    /// The line that takes the batches.
    pub line: CodeLine,
    /// Batches that it took.
    pub taken: u64,
    /// Of how many, if its loader has a length.
    pub of: Option<u64>,
    /// What a batch left in use, on the average.
    pub rise: Bytes,
    /// What was in use when it was ended.
    pub lives: Bytes,
}

impl CutLoop {
    /// How much more the rest would leave in use, if each batch leaves as much; none where the number of batches is unknown.
    pub fn more(&self) -> Option<Bytes> {
        let rest = self.of?.saturating_sub(self.taken);
        Some(Bytes(self.rise.0.saturating_mul(rest)))
    }

    /// Whether it may come to more than `safe`.
    pub fn may_exceed(&self, safe: Bytes) -> bool {
        self.more().is_none_or(|more| safe < self.lives + more)
    }
}

/// What the code of a script has, or its trainer is set to, of what comes later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mentions {
    /// An evaluation.
    pub evaluation: bool,
    /// A checkpoint, and none was written.
    pub checkpoint: bool,
}

/// What a run came to that went on once memory was steady.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Later {
    /// Steps finished before.
    pub steps_before: u32,
    /// Models were called otherwise than for a training step: an evaluation, generation.
    pub evaluation: bool,
    /// It was not seen to its end: its data loader was ended.
    pub evaluation_cut: bool,
    /// Data loaders of training were ended early, so that the end of an epoch came.
    pub epochs_cut: bool,
    /// The script's text speaks of an evaluation or a checkpoint.
    pub spoken_of: bool,
    /// The interval of the script's evaluation was short for some steps, so that one came soon.
    pub brought_forward: bool,
    /// The first steps after two evaluations: the first of these left something behind.
    pub evaluated_at: Option<(u32, u32)>,
}

/// How far a script would have gone, as far as its own loops and data loaders say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ahead {
    /// Batches that its training took from data loaders; none if it took none.
    pub batches: Option<u64>,
    /// How many one of these gives in an epoch.
    pub batches_an_epoch: Option<u64>,
    /// How many epochs there are.
    pub epochs: Option<u64>,
    /// How many steps there are in all, where they take no data loader, or the script counts them.
    pub steps: Option<u64>,
    /// Turns of a loop around them of which each makes an optimizer.
    pub turns: Option<u64>,
}

/// Why a process ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndReason {
    /// We ended it: memory was steady.
    Steady,
    /// We ended it: the steps asked for were done.
    Steps,
    /// We ended it: it took more than can ever fit.
    Hopeless,
    /// It ran to its end, or called `sys.exit`.
    #[default]
    Exit,
    /// An exception nobody caught.
    Exception,
    /// An out-of-memory error nobody caught.
    Oom,
    /// Ctrl-C.
    Interrupt,
}

/// An exception nobody caught.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exception {
    /// Its class, such as `FileNotFoundError`.
    pub class: String,
    /// Its text.
    pub message: String,
    /// The innermost line in the user's own code.
    pub user_frame: Option<CodeLine>,
}

/// From this place on events came with stacks, or without.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StacksNote {
    /// With them.
    pub kept: bool,
    /// Where in the trace.
    pub place: Place,
}

/// The program changed the allocator's settings here (`torch._C._accelerator_setAllocatorSettings`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SettingsNote {
    /// What the environment said when the process began.
    pub before: String,
    /// What the program passed to PyTorch.
    pub text: String,
    /// Where in the trace.
    pub place: Place,
}
