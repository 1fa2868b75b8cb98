//! The names by which the binary, the agent and the phantom meet: the variables of the script's environment, and what
//! lies in a session's folder beside the recording. The names inside a recording are in
//! [`plimsoll_core::recording::contract`].
//!
//! A variable is put into the environment in `launch/`, whoever asks for it with a [`Setting`]. Nothing else in Rust spells one of these
//! names, and a test holds the agent, the phantom and the Python package against this file.

use std::ffi::OsString;

/// A variable of the script's environment, and its value.
pub(crate) type Setting = (&'static str, OsString);

/// How every variable of ours begins.
pub(crate) const OURS: &str = "PLIMSOLL_";

// What every run has.

/// The session's folder, absolute. The binary says it; the agent and the phantom write there. The nursery says it anew for
/// each run.
pub(crate) const SESSION: &str = "PLIMSOLL_SESSION";
/// What the agent is there for: `predict`, `run` (on a real GPU), or `nursery` (it only waits). The agent reads it.
pub(crate) const MODE: &str = "PLIMSOLL_MODE";
/// The folder in which bytecode of installed packages is kept from run to run, absolute. The agent reads it.
pub(crate) const BYTECODE: &str = "PLIMSOLL_BYTECODE";
/// When the agent ends the run: `steady`, `validation`, `steps:3` or `until-exit`.
pub(crate) const STOP: &str = "PLIMSOLL_STOP";
/// Whether large tensors on the host have values: `auto`, `on` (they have none), `off` or `stand-ins` (random ones repeat).
/// The agent reads it.
pub(crate) const GHOST_WEIGHTS: &str = "PLIMSOLL_GHOST_WEIGHTS";

// Which of a job's ranks run. The agent reads them.

/// `1`: a launcher in the command starts all ranks.
pub(crate) const ALL_RANKS: &str = "PLIMSOLL_ALL_RANKS";
/// How many ranks the job has, of which one runs.
pub(crate) const WORLD: &str = "PLIMSOLL_WORLD";
/// Which of them runs, from 0.
pub(crate) const RANK: &str = "PLIMSOLL_RANK";

/// Which ranks of the job run, with commas, where several do and the rest is imagined. The phantom reads it, too: each machine of the
/// job has devices of its own.
pub(crate) const TOGETHER: &str = "PLIMSOLL_TOGETHER";

// What `fit` and `run` ask for. The agent reads them.

/// The plan: JSON, as `Plan::for_agent` writes it.
pub(crate) const PLAN: &str = "PLIMSOLL_PLAN";
/// How long every batch is made: a number, `longest`, or `half`.
pub(crate) const BATCH_LENGTH: &str = "PLIMSOLL_BATCH_LENGTH";
/// How high and wide every image is made: `800x1333`.
pub(crate) const IMAGE_SIZE: &str = "PLIMSOLL_IMAGE_SIZE";
/// `1`: every batch has the largest sample of the data set.
pub(crate) const WORST_SAMPLE: &str = "PLIMSOLL_WORST_SAMPLE";
/// What of every batch is made half: `samples`, or `size` of images.
pub(crate) const HALF: &str = "PLIMSOLL_HALF";
/// `1`: loaders whose batches differ in size begin with the worst ones. The agent reads it.
pub(crate) const WORST_BATCHES: &str = "PLIMSOLL_WORST_BATCHES";
/// `1`: workers of a `DataLoader` make no batch that nobody waits for.
pub(crate) const UNHURRIED: &str = "PLIMSOLL_UNHURRIED";
/// `1`: workers of loaders make their batches themselves, where other runs of the nursery have made them. The agent reads it.
pub(crate) const OWN_BATCHES: &str = "PLIMSOLL_OWN_BATCHES";
/// What a search asks of a serving engine: JSON, `{"flags": {...}, "users": 8, "context": 32768}`.
pub(crate) const ENGINE: &str = "PLIMSOLL_ENGINE";
/// `3:6`: so many parts of a batch in more parts go through the model, to show what all take, once so many batches went through it with all. The agent reads it.
pub(crate) const FEW_PARTS: &str = "PLIMSOLL_FEW_PARTS";
/// How many bytes the allocator may reserve.
pub(crate) const LIMIT_RESERVED: &str = "PLIMSOLL_LIMIT_RESERVED";
/// What that is where the script itself may set no limit either.
pub(crate) const WITHOUT_END: &str = "-1";
/// `1073741824:3`: so many bytes allocated are more than can ever fit, and such a run is ended once so many steps are over, with a note `hopeless`.
/// The agent reads it.
pub(crate) const HOPELESS: &str = "PLIMSOLL_HOPELESS";
/// Files of the script's have another text: JSON, a list of `{"file", "size", "start", "was", "is"}`. Only where writes go into a
/// layer: a file is written anew.
pub(crate) const EDITS: &str = "PLIMSOLL_EDITS";
/// `1`: note where the script can be changed.
pub(crate) const SITES: &str = "PLIMSOLL_SITES";
/// `1`: count the operations of a step.
pub(crate) const METER: &str = "PLIMSOLL_METER";
/// `1`: what runs out of memory is done again, where that leaves the numbers as they are.
pub(crate) const SURVIVE: &str = "PLIMSOLL_SURVIVE";
/// `1`: measure how long steps take.
pub(crate) const MEASURE: &str = "PLIMSOLL_MEASURE";
/// `1`: watch the run and raise alarms. `status`: only leave the file that `plimsoll top` reads.
pub(crate) const WATCH: &str = "PLIMSOLL_WATCH";
/// What a watched run is called.
pub(crate) const LABEL: &str = "PLIMSOLL_LABEL";
/// How many bytes a plan or a prediction says that PyTorch reserves at most.
pub(crate) const EXPECTED: &str = "PLIMSOLL_EXPECTED";
/// How many of the last events of the allocator are kept.
pub(crate) const EVENTS: &str = "PLIMSOLL_EVENTS";
/// Which steps of a run on a real GPU have stacks: `all`, `sampled` or `none`.
pub(crate) const STACKS: &str = "PLIMSOLL_STACKS";
/// Set where Python prints the script's out-of-memory error, or its interrupt, without its traceback.
pub(crate) const FOLDS: &str = "PLIMSOLL_FOLDS";

// What people set.

/// The Python that runs a script given without one. The binary reads it.
pub(crate) const PYTHON: &str = "PLIMSOLL_PYTHON";
/// The folder for files of ours. The binary reads it.
pub(crate) const CACHE: &str = "PLIMSOLL_CACHE";

/// How writes are kept apart: `mounts`, `user` or `traced`, instead of the first that holds. The binary reads it.
pub(crate) const WRITES_WAY: &str = "PLIMSOLL_WRITES_WAY";

/// The folder of status files, instead of the account's own. The agent writes there; the binary reads.
pub(crate) const RUNNING: &str = "PLIMSOLL_RUNNING";

/// The folder of the user's own cards. The binary reads it.
pub(crate) const CARDS: &str = "PLIMSOLL_CARDS";
/// Ids of cards that the catalogue is to forget, with commas: a bench sees what a card's file is worth. The binary reads it.
pub(crate) const FORGET_CARDS: &str = "PLIMSOLL_FORGET_CARDS";

// What passes between the others, and never through the binary.
#[expect(dead_code, reason = "all names stand in one place, whoever uses them")]
mod others {
    /// How many devices a process sees, where the job has several. The agent says it to the phantom.
    const DEVICES: &str = "PLIMSOLL_DEVICES";
    /// A `phantom.conf` anywhere: the phantom stands in for the machine's own device. Tests say it to the phantom.
    const PHANTOM_CONF: &str = "PLIMSOLL_PHANTOM_CONF";
    /// The binary that the Python package starts. People say it to the package.
    const BIN: &str = "PLIMSOLL_BIN";
    /// What each process of a session holds on each device: a file in the session's folder that all of them map. The phantom's.
    const DEVICES_TABLE: &str = "devices.table";
    /// A file that says whether something was written under tracing. The tracer says it to the library that lets looks pass.
    const UNTOUCHED: &str = "PLIMSOLL_UNTOUCHED";
    /// `1`: the script is a function that the Python package was given. The package says it to itself.
    const CALL: &str = "PLIMSOLL_CALL";
}

// What the phantom calls host memory that a real run holds whole, as a process's list of mappings has it.

/// Page-locked memory.
pub(crate) const PINNED: &str = "/memfd:plimsoll-pinned";
/// Large tensors of the CPU without values.
pub(crate) const GHOSTS: &str = "/memfd:plimsoll-ghosts";

// What lies in a session's folder and not in a recording.

/// What a script prints that nobody is to see now. The script and the nursery's child write it.
pub(crate) const OUTPUT: &str = "output.txt";
/// Empty; there from the moment when the agent of a process asked it to end. The agent writes it.
pub(crate) const ASKED_TO_STOP: &str = "asked-to-stop";
/// Empty; there from the moment when a process that uses the device, or a thread or child of it, ended with an error that nobody caught.
/// The agent writes it.
pub(crate) const FAILED: &str = "failed";
/// Empty; there from the moment when a serving engine has the device. The agent writes it.
pub(crate) const SERVES: &str = "serves";
/// Whom processes of the run reached, and where they listened themselves, a line each. The preloaded library writes it.
pub(crate) const NETWORK: &str = "network";
/// What was said of alarms, one JSON object a line. The binary writes it, the agent shows it to others.
pub(crate) const TOLD: &str = "told.jsonl";
/// A folder of programs that the script finds first: our `nvidia-smi`.
pub(crate) const PROGRAMS: &str = "bin";
/// What torch.compile makes of the script's code.
pub(crate) const INDUCTOR: &str = "inductor";
/// What Triton compiles.
pub(crate) const TRITON: &str = "triton";
