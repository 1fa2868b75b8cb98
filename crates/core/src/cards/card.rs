//! A card: what it is to PyTorch, cuDNN and the person who has it.

use crate::units::Bytes;

/// Windows lends half of the host's memory; few machines with one card have more than twice this.
const MOST_LENT: Bytes = Bytes::gib(64);
/// More than any program asks for.
const WITHOUT_END: Bytes = Bytes::gib(1 << 12);

/// What a card is to PyTorch, cuDNN and the person who has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Card {
    /// How it is called on our command line, such as `rtx4090`.
    pub id: String,
    /// Other ids for it, such as `4090`.
    pub aliases: Vec<String>,
    /// Whether reports name it; they count the others.
    pub usual: bool,
    /// The name that the driver reports.
    pub name: String,
    /// `Ampere`, `Ada`; empty for a card that somebody described without.
    pub generation: String,
    /// Compute capability, major and minor.
    pub compute_capability: (u32, u32),
    /// What the driver calls total memory (`cudaMemGetInfo`): less than what is sold.
    pub total: Bytes,
    /// What the driver keeps of that for no process: free from the start for nobody.
    pub kept: Bytes,
    /// What NVML, and so `nvidia-smi`, calls total beyond that, in use from the start: the firmware's.
    pub hidden: Bytes,
    /// What other programs hold of it: the display, a browser. Nothing unless somebody says so.
    pub beside: Bytes,
    /// What the driver lends of the host's memory once the card is full, as NVIDIA's for Windows does; nothing elsewhere.
    pub lent: Bytes,
    /// What the first use of the card takes before PyTorch has asked for anything: CUDA context,
    /// loaded kernels, cuBLAS.
    pub context: Bytes,
    /// By how much more or less [`Card::context`] may be; nothing if somebody measured it.
    pub context_range: Bytes,
    /// What a handle of cuBLAS takes, of which two are in the context.
    pub blas: Bytes,
    /// And one of cuDNN, likewise.
    pub dnn: Bytes,
    /// Streaming multiprocessors.
    pub sm_count: u32,
    /// Those of the chip, with the ones that are switched off: local memory is taken for all of them.
    pub chip_sms: u32,
    /// Multiprocessors of each graphics processing cluster, and of each pair outside of them, as cuDNN's engines for
    /// Hopper and later see them; empty for cards without thread block clusters.
    pub gpcs: Vec<u32>,
    /// Threads that one multiprocessor holds.
    pub max_threads_per_sm: u32,
    /// Blocks that one multiprocessor holds.
    pub max_blocks_per_sm: u32,
    /// Shared memory that a kernel may opt in to, per block.
    pub shared_per_block_optin: Bytes,
    /// Shared memory of one multiprocessor.
    pub shared_per_sm: Bytes,
    /// 32-bit registers of one multiprocessor.
    pub registers_per_sm: u32,
    /// L2 cache.
    pub l2: Bytes,
    /// Boost clock of the multiprocessors, in kHz.
    pub clock_khz: u32,
    /// Clock of the memory as the driver reports it, in kHz.
    pub memory_clock_khz: u32,
    /// Width of the memory bus, in bits.
    pub memory_bus_bits: u32,
    /// What NCCL takes of it, where somebody measured that on a machine with several; else the phantom has its own figures.
    pub nccl: Option<Nccl>,
    /// How fast its machine is, as far as somebody measured it.
    pub speeds: Speeds,
    /// How well each group of the numbers is known.
    pub provenance: Provenance,
}

/// What NCCL takes on a device, in each process that uses it, as `plimsoll calibrate` measures it. The phantom's `nccl.rs` has the
/// figures for cards of which nobody did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nccl {
    /// How many of the cards took part.
    pub ranks: u32,
    /// With a process's first communicator, whatever its size.
    pub library: Bytes,
    /// With each communicator of several ranks.
    pub tables: Bytes,
    /// With each communicator of one rank.
    pub alone: Bytes,
    /// Buffers of a communicator, at its first collective over all ranks.
    pub ring: Bytes,
    /// Kernels of a process, at its first collective.
    pub ring_kernels: Bytes,
    /// And at its first message from one rank to another.
    pub peer_kernels: Bytes,
    /// Buffers of a communicator to send to one other rank.
    pub send: Bytes,
    /// And to receive from one.
    pub receive: Bytes,
}

impl Nccl {
    /// Its sizes, in the order in which a phantom reads them.
    pub fn sizes(&self) -> [Bytes; 8] {
        let Nccl {
            library, tables, alone, ring, ring_kernels, peer_kernels, send, receive, ..
        } = *self;
        [library, tables, alone, ring, ring_kernels, peer_kernels, send, receive]
    }
}

/// How fast a card's machine is. What nobody measured is taken from data sheets (`plimsoll-fit`, `cost/step_time.rs`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Speeds {
    /// Bytes in a second between pinned memory of the host and the card, in the slower direction.
    pub link: Option<Bytes>,
    /// Bytes in a second that come to a card from others of its machine, in a large collective.
    pub between: Option<Bytes>,
    /// Microseconds that the host takes for the small training step of `plimsoll calibrate`.
    pub host_step_us: Option<u32>,
}

/// Where a card's numbers come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provenance {
    /// Of [`Card::total`].
    pub total: Knowledge,
    /// Of [`Card::context`].
    pub context: Knowledge,
    /// Of what cuDNN is told.
    pub cudnn: Knowledge,
    /// In words, with sources.
    pub note: String,
}

/// How well a number is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Knowledge {
    /// We measured it on such a card.
    Measured,
    /// Somebody published what the driver reported on such a card.
    Reported,
    /// From data sheets and from cards of the same generation.
    #[default]
    Derived,
}

/// What a user's own cards change about the catalogue.
#[derive(Clone, Debug, Default)]
pub struct Own {
    /// Card files, by name: of cards that were measured here, or that somebody gave. They take the place of those of the same id or
    /// driver's name.
    pub files: Vec<(String, String)>,
    /// Ids that the catalogue is to forget.
    pub forgotten: Vec<String>,
}

impl Card {
    /// Whether both have as much memory, but for what drivers take of it.
    pub fn is_as_large(&self, other: &Card) -> bool {
        const LIKE: f64 = 0.06;
        let (a, b) = (self.total.max(other.total), self.total.min(other.total));
        (a - b).share_of(a) < LIKE
    }

    /// The same card with another amount of memory (`--memory`).
    #[must_use]
    pub fn with_total(mut self, total: Bytes) -> Card {
        self.total = total;
        self
    }

    /// The same of which other programs hold `beside`.
    #[must_use]
    pub fn with_beside(mut self, beside: Bytes) -> Card {
        self.beside = beside;
        self
    }

    /// The same under Windows or WSL: Windows keeps a part for itself, and beyond the rest the driver lends the host's memory.
    ///
    /// Windows gave a process 7.60 of the 8.00 GB of an RTX 3070 (`QueryVideoMemoryInfo`, Joakimpalm-Zen/xyntetik-runner#105); for other cards
    /// this part of 5 % is derived from that one. With its own desktop Windows holds more; `nvidia-smi` shows how much.
    #[must_use]
    pub fn on_windows(mut self) -> Card {
        self.beside += Bytes(self.total.0 / 20);
        self.lent = MOST_LENT;
        self
    }

    /// The same with memory that does not end, to learn what a script asks for after it ran out.
    #[must_use]
    pub fn without_end(mut self) -> Card {
        self.lent = WITHOUT_END;
        self
    }

    /// Whether it is one of these.
    pub fn has_no_end(&self) -> bool {
        self.lent == WITHOUT_END
    }

    /// What a script can get of it, its context included; what the driver lends is not in it.
    pub fn usable(&self) -> Bytes {
        self.total.saturating_sub(self.kept + self.beside)
    }
}
