//! The names in a recording that other programs write: its files, and the kinds of lines in its notes. The agent and the
//! phantom write them, `sources` and the binary read them, docs/recording-format.md tells their keys. Nothing else
//! in Rust spells one of these names, and a test holds the agent and the phantom against this file.

use std::fmt;

/// The card that was imitated, `key = value` a line. The binary writes it into a session's folder before the run, the phantom and the
/// agent read it. A recording of a run on a real GPU has none.
pub const PHANTOM_CONF: &str = "phantom.conf";
/// How a recording that is one file was made: JSON. The binary and `plimsoll.record` write it, people read it.
pub const MANIFEST: &str = "manifest.json";
/// Begins the name of the folder of one process; its process id follows.
const PROCESS: &str = "process-";

/// The name of the folder that the process `pid` fills.
pub fn process_folder(pid: u32) -> String {
    format!("{PROCESS}{pid}")
}

/// The process whose folder has this name; none if it is not the folder of a process.
pub fn process_of(folder: &str) -> Option<u32> {
    folder.strip_prefix(PROCESS)?.parse().ok()
}

/// A file in the folder of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessFile {
    /// What the agent saw: one JSON object a line, see [`NoteKind`].
    Notes,
    /// PyTorch's own memory snapshot, which the agent has it write.
    Snapshot,
    /// What the phantom could not imitate: one JSON object a line, see [`NoteKind`].
    PhantomLog,
}

impl ProcessFile {
    /// All of them, in the order in which a recording has them.
    pub const ALL: [ProcessFile; 3] =
        [ProcessFile::Notes, ProcessFile::Snapshot, ProcessFile::PhantomLog];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            ProcessFile::Notes => "agent.jsonl",
            ProcessFile::Snapshot => "snapshot.pickle",
            ProcessFile::PhantomLog => "phantom.jsonl",
        }
    }

    /// The file of this name.
    pub fn of_name(name: &str) -> Option<ProcessFile> {
        ProcessFile::ALL.into_iter().find(|it| it.name() == name)
    }
}

impl fmt::Display for ProcessFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Declares [`NoteKind`], so that a kind and its word stand in one line.
macro_rules! note_kinds {
    ($($(#[$doc:meta])* $kind:ident = $word:literal,)*) => {
        /// What a line of the notes is about: the value of its `kind`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum NoteKind {
            $($(#[$doc])* $kind,)*
        }

        impl NoteKind {
            /// All of them.
            pub const ALL: &[NoteKind] = &[$(NoteKind::$kind,)*];

            /// As it stands in the file.
            pub const fn word(self) -> &'static str {
                match self {
                    $(NoteKind::$kind => $word,)*
                }
            }
        }
    };
}

note_kinds! {
    /// How the process began.
    Begin = "begin",
    /// Compute capabilities that torch has kernels for.
    Architectures = "architectures",
    /// A step or phase began or ended.
    Mark = "mark",
    /// Which tensors lie where.
    Tensors = "tensors",
    /// Who holds which tensors.
    Keepers = "keepers",
    /// What autograd's graph showed.
    Graph = "graph",
    /// A batch of an evaluation is much larger than those of the training.
    LargeBatch = "large_batch",
    /// How long the texts in batches of the training are.
    Padding = "padding",
    /// How large windows are that overlap.
    Unfolded = "unfolded",
    /// A recurrent layer whose weights are no single piece.
    InPieces = "in_pieces",
    /// Of which class several models are on a device.
    Models = "models",
    /// A line opens GPU 0 in every rank.
    FirstGpu = "first_gpu",
    /// Which ranks send each other objects one to one.
    Stages = "stages",
    /// Which ranks the script's text treats unlike others.
    NamedRanks = "named_ranks",
    /// What the weights of a model are.
    Weights = "weights",
    /// From here on events have stacks, or have none.
    Stacks = "stacks",
    /// The program changed the allocator's settings.
    Settings = "settings",
    /// A request failed.
    Oom = "oom",
    /// A step that ran out was done again, or why it was not.
    Redone = "redone",
    /// Values were read back that nobody computed.
    Read = "read",
    /// The program asked how large the card is.
    AskedSize = "asked_size",
    /// What a serving engine reports of its memory.
    Engine = "engine",
    /// A sentence for people.
    Note = "note",
    /// The environment cannot be predicted.
    Unsupported = "unsupported",
    /// The phantom's report, which the agent passes on.
    Phantom = "phantom",
    /// What the first step took.
    FirstStep = "first_step",
    /// How long steps took.
    StepTimes = "step_times",
    /// What the process had of the host's memory.
    Host = "host",
    /// PyTorch's own statistics.
    Stats = "stats",
    /// Something went wrong in a run that is watched.
    Alarm = "alarm",
    /// From here on nothing could be written.
    Cut = "cut",
    /// The program had failed, and waited for what did not come.
    Waited = "waited",
    /// How the process ended.
    End = "end",
    /// The phantom is in use; in its own log.
    PhantomBegin = "phantom_begin",
    /// A call that is not imitated; in the phantom's own log.
    NotImitated = "not_imitated",
    /// A remedy that was applied.
    Remedy = "remedy",
    /// A remedy that does not suit the script, of which the process ended.
    Refused = "refused",
    /// The repeated blocks of a model.
    Blocks = "blocks",
    /// What blocks hold, measured in a step.
    BlockMemory = "block-memory",
    /// What blocks compute, measured in a step.
    BlockWork = "block-work",
    /// The operations of a metered step.
    Work = "work",
    /// A batch is done in parts.
    Split = "split",
    /// Whether a remedy leaves results as they are.
    Exact = "exact",
    /// Batches were made as long as the worst one.
    Worst = "worst",
    /// Places in the script where something can be changed.
    Sites = "sites",
    /// The program uses `torch.compile`.
    Compiles = "compiles",
    /// Something was compiled, or was found compiled.
    Compiled = "compiled",
    /// The run was ended because it took more than can ever fit.
    Hopeless = "hopeless",
}
