//! What a text says of memory without an error: tables of tools, counters that a program printed, and the command that it
//! ran. The texts themselves are `sources`' to know; what follows from the numbers is [`Statement`]'s.

mod statements;

pub use statements::{Statement, limits, statements};

use crate::units::Bytes;

/// Who printed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The table of `nvidia-smi`.
    Smi,
    /// `nvidia-smi -q`.
    SmiLong,
    /// `nvidia-smi dmon`.
    Dmon,
    /// `nvidia-smi --query-...=... --format=csv`.
    SmiCsv,
    /// `gpustat`.
    Gpustat,
    /// `nvitop`.
    Nvitop,
    /// DCGM: `dcgmi dmon`, and what its exporter tells Prometheus.
    Dcgm,
    /// `rocm-smi`, of AMD's cards.
    RocmSmi,
    /// `amd-smi`, of AMD's cards.
    AmdSmi,
    /// `torch.cuda.memory_summary()`.
    Summary,
    /// `torch.cuda.memory_stats()`.
    Stats,
    /// `key_averages().table()`.
    Profiler,
    /// The program itself, in words of its own.
    Program,
    /// `DeepSpeed`'s `see_memory_usage`.
    DeepSpeed,
    /// Lightning's `DeviceStatsMonitor`.
    Lightning,
    /// Transformers' `Trainer`, with `skip_memory_metrics=False`.
    Trainer,
    /// vLLM as it starts.
    Vllm,
    /// `free` and `df`: the host's memory.
    Host,
}

/// Levels at one moment. A number that does not stand there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Levels {
    /// The line of the text, from 1.
    pub line: usize,
    /// The words around the numbers: what is to be compared has the same.
    pub label: String,
    /// What is used of the device, by all processes.
    pub used: Option<Bytes>,
    /// What the device has.
    pub total: Option<Bytes>,
    /// The share of the device that is used, in percent, where only that is shown.
    pub used_percent: Option<u32>,
    /// What is free on the device.
    pub free: Option<Bytes>,
    /// What tensors have.
    pub allocated: Option<Bytes>,
    /// What PyTorch holds, in tensors or not.
    pub reserved: Option<Bytes>,
    /// Of what is held and not in tensors, what cannot be given back, because something else in its segment is used.
    pub pieces: Option<Bytes>,
    /// The most that tensors had.
    pub peak_allocated: Option<Bytes>,
    /// The most that PyTorch held.
    pub peak_reserved: Option<Bytes>,
}

/// What a process has of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedBy {
    /// Its process id.
    pub pid: Option<u32>,
    /// Its name, as far as it is shown, and who started it.
    pub name: String,
    /// How much; not every driver says.
    pub bytes: Option<Bytes>,
    /// It draws, and does not compute.
    pub is_graphics: bool,
}

/// An operator of a profiler's table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operator {
    /// Its name.
    pub name: String,
    /// What its own calls asked for, together.
    pub bytes: Bytes,
    /// How many calls those were.
    pub calls: u64,
}

/// What vLLM says of its budget.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Engine {
    /// The weights.
    pub weights: Option<Bytes>,
    /// The largest pass.
    pub activations: Option<Bytes>,
    /// What is left for the key-value cache.
    pub cache: Option<Bytes>,
    /// Nothing is left, or less than nothing, or less than one request needs.
    pub is_short: bool,
    /// Tokens that the cache holds, as it stands there.
    pub tokens: Option<String>,
    /// The share of the card that it may use, in percent.
    pub share_percent: Option<u32>,
    /// The longest request that would fit, in tokens.
    pub longest: Option<u64>,
}

/// What one tool, or one program, printed of one device: once, or again and again.
#[derive(Clone, Debug, PartialEq)]
pub struct Printed {
    /// Who printed it.
    pub kind: Kind,
    /// The line of the text where it begins, from 1.
    pub line: usize,
    /// The device index.
    pub device: Option<u32>,
    /// The rank whose lines they are.
    pub rank: Option<u32>,
    /// The program whose lines they are, where a log has several.
    pub writer: Option<String>,
    /// What the card is called, as far as it is shown.
    pub card: Option<String>,
    /// Every time it was printed.
    pub levels: Vec<Levels>,
    /// The processes on the device.
    pub processes: Vec<UsedBy>,
    /// Whether processes would be listed if there were any.
    pub lists_processes: bool,
    /// Operators by what they asked for.
    pub operators: Vec<Operator>,
    /// How often memory ran out (`num_ooms`).
    pub ooms: u64,
    /// How often the allocator had to give its cache back to be served (`num_alloc_retries`).
    pub retries: u64,
    /// The most of the host's memory that was used, in percent.
    pub host_percent: Option<u32>,
    /// What of the host's memory was in its swap file.
    pub swap: Option<Bytes>,
    /// How large `/dev/shm` is, if it is full.
    pub full_shm: Option<Bytes>,
    /// vLLM's budget.
    pub engine: Option<Engine>,
}

/// A command line that stands in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// As it would be typed, without what a shell does around it.
    pub text: String,
    /// The line of the text, from 1.
    pub line: usize,
    /// The program that it belongs to, where a log has several.
    pub writer: Option<String>,
    /// Processes that it starts for devices of their own; 1 if it does not say.
    pub processes: u32,
    /// Whether it is only known which script it was, not with which arguments.
    pub is_bare: bool,
}

/// All that a text says of memory without an error.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PrintedText {
    /// What was printed, in its order.
    pub printed: Vec<Printed>,
    /// The commands, in their order.
    pub commands: Vec<Command>,
    /// Names of cards that stand in it, as they stand there.
    pub cards: Vec<String>,
}

impl Kind {
    /// A stable word for it.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Smi => "nvidia-smi",
            Kind::SmiLong => "nvidia-smi -q",
            Kind::Dmon => "nvidia-smi dmon",
            Kind::SmiCsv => "nvidia-smi --query",
            Kind::Gpustat => "gpustat",
            Kind::Nvitop => "nvitop",
            Kind::Dcgm => "dcgm",
            Kind::RocmSmi => "rocm-smi",
            Kind::AmdSmi => "amd-smi",
            Kind::Summary => "memory_summary",
            Kind::Stats => "memory_stats",
            Kind::Profiler => "profiler table",
            Kind::Program => "printed",
            Kind::DeepSpeed => "deepspeed",
            Kind::Lightning => "lightning",
            Kind::Trainer => "trainer",
            Kind::Vllm => "vllm",
            Kind::Host => "host",
        }
    }

    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Smi => "nvidia-smi",
            Kind::SmiLong => "nvidia-smi -q",
            Kind::Dmon => "nvidia-smi dmon",
            Kind::SmiCsv => "nvidia-smi --query",
            Kind::Gpustat => "gpustat",
            Kind::Nvitop => "nvitop",
            Kind::Dcgm => "NVIDIA's monitor DCGM",
            Kind::RocmSmi => "rocm-smi",
            Kind::AmdSmi => "amd-smi",
            Kind::Summary => "torch.cuda.memory_summary()",
            Kind::Stats => "torch.cuda.memory_stats()",
            Kind::Profiler => "the profiler's table",
            Kind::Program => "what the program printed",
            Kind::DeepSpeed => "DeepSpeed's see_memory_usage",
            Kind::Lightning => "Lightning's DeviceStatsMonitor",
            Kind::Trainer => "the Trainer's memory metrics",
            Kind::Vllm => "vLLM's start",
            Kind::Host => "the host's memory",
        }
    }

    /// Whether it sees the device, with all processes on it, and not what PyTorch does with it.
    pub fn is_of_device(self) -> bool {
        let is_nvidias = matches!(
            self,
            Kind::Smi
                | Kind::SmiLong
                | Kind::Dmon
                | Kind::SmiCsv
                | Kind::Gpustat
                | Kind::Nvitop
                | Kind::Dcgm
        );
        is_nvidias || self.is_amds()
    }

    /// Whether it tells of AMD's cards.
    pub fn is_amds(self) -> bool {
        matches!(self, Kind::RocmSmi | Kind::AmdSmi)
    }
}

impl Printed {
    /// Nothing yet, at `line`.
    pub fn new(kind: Kind, line: usize) -> Printed {
        Printed {
            kind,
            line,
            device: None,
            rank: None,
            writer: None,
            card: None,
            levels: Vec::new(),
            processes: Vec::new(),
            lists_processes: false,
            operators: Vec::new(),
            ooms: 0,
            retries: 0,
            host_percent: None,
            swap: None,
            full_shm: None,
            engine: None,
        }
    }

    /// The levels that were printed last.
    pub fn last(&self) -> Option<&Levels> {
        self.levels.last()
    }

    /// What the whole of it is about, as the beginning of a sentence: `rank 1`, `GPU 0`.
    pub fn subject(&self) -> String {
        let writer = self.writer.clone();
        let rank = self.rank.map(|it| format!("rank {it}"));
        let device = self.device.map(|it| format!("GPU {it}"));
        let parts: Vec<String> = [writer, rank, device].into_iter().flatten().collect();
        parts.join(", ")
    }
}

impl Levels {
    /// What tells most of what is needed: tensors, else what PyTorch holds, else what the device has in use.
    pub fn level(&self) -> Option<Bytes> {
        let taken = || Some(self.total?.saturating_sub(self.free?));
        self.allocated.or(self.reserved).or(self.used).or_else(taken)
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        let all = [
            self.used,
            self.total,
            self.free,
            self.allocated,
            self.reserved,
            self.peak_allocated,
            self.peak_reserved,
        ];
        all.iter().all(Option::is_none) && self.used_percent.is_none()
    }
}
