//! Which card is imitated: what the launcher wrote into `phantom.conf`. Knows nothing of memory in
//! use; a value that the file does not have keeps the default of [`Card::h200`].

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::machine::completion::Order;
use crate::machine::nccl::Nccl;
use crate::machine::resident::{Handles, Threads};

/// The imitated card, and how many of it the machine has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// Devices that the program sees before `CUDA_VISIBLE_DEVICES` is applied.
    pub devices: u32,
    /// As `cudaGetDeviceProperties` gives it.
    pub name: String,
    /// Compute capability, major and minor.
    pub compute_capability: (i32, i32),
    /// What the driver reports as the total, in bytes.
    pub total_bytes: u64,
    /// What of it other programs hold, in bytes.
    pub beside_bytes: u64,
    /// What NVML calls total beyond that, in use from the start, in bytes.
    pub hidden_bytes: u64,
    /// What the driver lends of the host's memory once the card is full, in bytes.
    pub lent_bytes: u64,
    /// What a training process takes for its CUDA context and loaded kernels, in bytes.
    pub context_bytes: u64,
    /// What a handle of cuBLAS takes, and one of cuDNN, in bytes.
    pub handles: Handles,
    /// What NCCL takes.
    pub nccl: Nccl,
    /// Streaming multiprocessors.
    pub sm_count: i32,
    /// Multiprocessors of each graphics processing cluster and of each pair outside of them, as cuDNN sees them; empty if unknown.
    pub gpcs: Vec<i32>,
    /// Resident threads of one multiprocessor.
    pub max_threads_per_sm: i32,
    /// Resident blocks of one multiprocessor.
    pub max_blocks_per_sm: i32,
    /// Shared memory that a block can opt in to, in bytes.
    pub shared_per_block_optin: i32,
    /// Shared memory of one multiprocessor, in bytes.
    pub shared_per_sm: i32,
    /// 32-bit registers of one multiprocessor.
    pub registers_per_sm: i32,
    /// L2 cache, in bytes.
    pub l2_bytes: i32,
    /// Clock of the multiprocessors, in kHz.
    pub clock_khz: i32,
    /// Clock of the memory, in kHz.
    pub memory_clock_khz: i32,
    /// Width of the memory bus, in bits.
    pub memory_bus_bits: i32,
    /// As `cudaDriverGetVersion` gives it: 13000 is CUDA 13.0.
    pub driver_version: i32,
    /// cuDNN's serialised device (descriptor type 38, attribute 2702); empty if none is known.
    pub cudnn_json: String,
    /// What share of unknown elements `nonzero()` finds, in millionths; `None` if nobody said.
    pub assumed_nonzero_millionths: Option<u64>,
    /// And that `unique()` leaves.
    pub assumed_unique_millionths: Option<u64>,
    /// What share of tokens a router sends to its first expert, in millionths; `None` if nobody said.
    pub assumed_experts_millionths: Option<u64>,
    /// How many of the first steps of a gradient scaler find an overflow, and are skipped; `None` if nobody said.
    pub assumed_overflows: Option<u64>,
    /// When queued work is done.
    pub order: Order,
    /// Whether results of kernels are imitated.
    pub imitates_values: bool,
    /// Whether of algorithms of cuDNN that the program times the one with the largest workspace is the fastest.
    pub tried_is_largest: bool,
}

impl Card {
    /// An NVIDIA H200 as measured: the properties of a real one under driver 580.
    pub fn h200() -> Card {
        Card {
            devices: 1,
            name: "NVIDIA H200".to_owned(),
            compute_capability: (9, 0),
            total_bytes: 150_109_880_320,
            beside_bytes: 0,
            hidden_bytes: 0,
            lent_bytes: 0,
            context_bytes: 788_529_152,
            handles: Handles::default(),
            nccl: Nccl::default(),
            sm_count: 132,
            gpcs: vec![18, 18, 16, 16, 16, 16, 16, 8, 2, 2, 2, 2],
            max_threads_per_sm: 2048,
            max_blocks_per_sm: 32,
            shared_per_block_optin: 232_448,
            shared_per_sm: 233_472,
            registers_per_sm: 65_536,
            l2_bytes: 62_914_560,
            clock_khz: 1_980_000,
            memory_clock_khz: 3_201_000,
            memory_bus_bits: 6016,
            driver_version: 13_000,
            cudnn_json: String::new(),
            assumed_nonzero_millionths: None,
            assumed_unique_millionths: None,
            assumed_experts_millionths: None,
            assumed_overflows: None,
            order: Order::AtOnce,
            imitates_values: true,
            tried_is_largest: false,
        }
    }

    /// Reads `key = value` lines; unknown keys and unreadable values are ignored, because the
    /// launcher that wrote them is of the same version as this library.
    pub fn parse(text: &str) -> Card {
        let mut card = Card::h200();
        for line in text.lines() {
            let line = line.trim();
            if line.starts_with('#') {
                continue;
            }
            let Some((key, value)) = line.split_once('=') else { continue };
            card.set(key.trim(), value.trim());
        }
        card
    }

    fn set(&mut self, key: &str, value: &str) {
        fn number<T: std::str::FromStr>(value: &str, field: &mut T) {
            if let Ok(it) = value.parse() {
                *field = it;
            }
        }
        match key {
            "devices" => number(value, &mut self.devices),
            "name" => self.name = value.to_owned(),
            "compute_capability" => {
                if let Some((major, minor)) = value.split_once('.') {
                    number(major, &mut self.compute_capability.0);
                    number(minor, &mut self.compute_capability.1);
                }
            }
            "total_bytes" => number(value, &mut self.total_bytes),
            "beside_bytes" => number(value, &mut self.beside_bytes),
            "hidden_bytes" => number(value, &mut self.hidden_bytes),
            "lent_bytes" => number(value, &mut self.lent_bytes),
            "context_bytes" => number(value, &mut self.context_bytes),
            "blas_bytes" => number(value, &mut self.handles.blas),
            "dnn_bytes" => number(value, &mut self.handles.dnn),
            "nccl_bytes" => self.nccl = Nccl::parse(value).unwrap_or(self.nccl),
            "sm_count" => number(value, &mut self.sm_count),
            "gpcs" => {
                self.gpcs = value.split(',').filter_map(|it| it.trim().parse().ok()).collect()
            }
            "max_threads_per_sm" => number(value, &mut self.max_threads_per_sm),
            "max_blocks_per_sm" => number(value, &mut self.max_blocks_per_sm),
            "shared_per_block_optin" => number(value, &mut self.shared_per_block_optin),
            "shared_per_sm" => number(value, &mut self.shared_per_sm),
            "registers_per_sm" => number(value, &mut self.registers_per_sm),
            "l2_bytes" => number(value, &mut self.l2_bytes),
            "clock_khz" => number(value, &mut self.clock_khz),
            "memory_clock_khz" => number(value, &mut self.memory_clock_khz),
            "memory_bus_bits" => number(value, &mut self.memory_bus_bits),
            "driver_version" => number(value, &mut self.driver_version),
            "cudnn_json" => self.cudnn_json = value.to_owned(),
            "assumed_nonzero_millionths" => self.assumed_nonzero_millionths = value.parse().ok(),
            "assumed_unique_millionths" => self.assumed_unique_millionths = value.parse().ok(),
            "assumed_experts_millionths" => self.assumed_experts_millionths = value.parse().ok(),
            "assumed_overflows" => self.assumed_overflows = value.parse().ok(),
            "order" if value == "late" => self.order = Order::Late,
            "values" => self.imitates_values = value != "off",
            "tried" => self.tried_is_largest = value == "largest",
            _ => {}
        }
    }

    /// How many threads it keeps at once: of Hopper's 144 multiprocessors 132 are in use.
    pub fn threads(&self) -> Threads {
        let multiprocessors = u64::try_from(self.sm_count).unwrap_or(0);
        let each = u64::try_from(self.max_threads_per_sm).unwrap_or(0);
        Threads { card: multiprocessors * each, chip: multiprocessors * 12 / 11 * each }
    }

    /// `deviceVer` of cuDNN and `binaryVersion` of a kernel: 90 for compute capability 9.0.
    pub fn sm_version(&self) -> i32 {
        self.compute_capability.0 * 10 + self.compute_capability.1
    }

    /// One device attribute. The numbers are those of `CUdevice_attribute` in `cuda.h`, which
    /// `cudaDeviceAttr` shares. `None` for one that we do not know.
    pub fn attribute(&self, code: i32, ordinal: u32) -> Option<i32> {
        let (major, minor) = self.compute_capability;
        let hopper = 9 <= major;
        Some(match code {
            1 => 1024,                                     // MAX_THREADS_PER_BLOCK
            2 | 3 => 1024,                                 // MAX_BLOCK_DIM_X, _Y
            4 => 64,                                       // MAX_BLOCK_DIM_Z
            5 => i32::MAX,                                 // MAX_GRID_DIM_X
            6 | 7 => 65_535,                               // MAX_GRID_DIM_Y, _Z
            8 => 49_152,                                   // MAX_SHARED_MEMORY_PER_BLOCK
            9 => 65_536,                                   // TOTAL_CONSTANT_MEMORY
            10 => 32,                                      // WARP_SIZE
            11 => i32::MAX,                                // MAX_PITCH
            12 => 65_536,                                  // MAX_REGISTERS_PER_BLOCK
            13 => self.clock_khz,                          // CLOCK_RATE
            14 => 512,                                     // TEXTURE_ALIGNMENT
            15 => 1,                                       // GPU_OVERLAP
            16 => self.sm_count,                           // MULTIPROCESSOR_COUNT
            19 => 1,                                       // CAN_MAP_HOST_MEMORY
            21 | 22 | 55 | 56 => 131_072,                  // MAXIMUM_TEXTURE/SURFACE1D/2D_WIDTH
            23 | 57 => 65_536,                             // ..._HEIGHT
            24..=26 | 58..=60 => 16_384,                   // 3D
            27 | 28 | 42 | 45 | 46 => 32_768,              // layered and gathered textures
            29 | 43 => 2048,                               // layers
            30 => 512,                                     // SURFACE_ALIGNMENT
            31 => 1,                                       // CONCURRENT_KERNELS
            33 => i32::try_from(ordinal).unwrap_or(0) + 1, // PCI_BUS_ID
            36 => self.memory_clock_khz,                   // MEMORY_CLOCK_RATE
            37 => self.memory_bus_bits,                    // GLOBAL_MEMORY_BUS_WIDTH
            38 => self.l2_bytes,                           // L2_CACHE_SIZE
            39 => self.max_threads_per_sm,                 // MAX_THREADS_PER_MULTIPROCESSOR
            40 => 3,                                       // ASYNC_ENGINE_COUNT
            41 => 1,                                       // UNIFIED_ADDRESSING
            51 => 32,                                      // TEXTURE_PITCH_ALIGNMENT
            75 => major,                                   // COMPUTE_CAPABILITY_MAJOR
            76 => minor,                                   // COMPUTE_CAPABILITY_MINOR
            78..=80 => 1,                                  // STREAM_PRIORITIES, GLOBAL_L1, LOCAL_L1
            81 => self.shared_per_sm,                      // MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
            82 => self.registers_per_sm,                   // MAX_REGISTERS_PER_MULTIPROCESSOR
            83 | 89 | 90 | 91 => 1, // MANAGED_MEMORY, CONCURRENT_MANAGED, PREEMPTION
            95 | 96 => 1,           // COOPERATIVE_LAUNCH
            97 => self.shared_per_block_optin, // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
            98 | 99 => 1,           // CAN_FLUSH_REMOTE_WRITES, HOST_REGISTER_SUPPORTED
            102 => 1,               // VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
            103 => 1,               // HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
            106 => self.max_blocks_per_sm, // MAX_BLOCKS_PER_MULTIPROCESSOR
            108 | 109 => self.l2_bytes / 2, // MAX_PERSISTING_L2, MAX_ACCESS_POLICY_WINDOW
            111 => 1024,            // RESERVED_SHARED_MEMORY_PER_BLOCK
            113..=115 => 1,         // READ_ONLY_REGISTER, TIMELINE_SEMAPHORE, MEMORY_POOLS
            119 => 1,               // MEMPOOL_SUPPORTED_HANDLE_TYPES
            120 => i32::from(hopper), // CLUSTER_LAUNCH
            121 => 1,               // DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED
            125 => 1,               // IPC_EVENT_SUPPORTED
            126 => {
                if hopper {
                    4
                } else {
                    1
                }
            } // MEM_SYNC_DOMAIN_COUNT
            127 => i32::from(hopper), // TENSOR_MAP_ACCESS_SUPPORTED
            130 | 131 | 134 => -1,  // NUMA_CONFIG and ids: none
            17 | 18 | 20 | 32 | 34 | 35 | 50 => 0, // time-out, integrated, compute mode, ECC, PCI
            47..=49 | 52..=54 | 61..=74 | 77 => 16_384, // the other texture and surface limits
            84 | 85..=88 | 92..=94 | 100 | 101 | 104 | 105 | 107 | 110 | 112 => 0,
            116..=118 | 122..=124 | 128 | 129 | 132 | 133 | 135..=149 => 0,
            _ => return None,
        })
    }
}

/// The card of this process: what `PLIMSOLL_SESSION/phantom.conf` says, or the file that
/// `PLIMSOLL_PHANTOM_CONF` names, which makes a phantom stand in for a real device under `plimsoll run`. `None`
/// if there is no such file: then the machine has no device.
pub fn current() -> Option<&'static Card> {
    static CARD: OnceLock<Option<Card>> = OnceLock::new();
    CARD.get_or_init(|| {
        let of_session =
            std::env::var_os("PLIMSOLL_SESSION").map(|it| Path::new(&it).join("phantom.conf"));
        let named = std::env::var_os("PLIMSOLL_PHANTOM_CONF").map(PathBuf::from);
        let mut files = of_session.into_iter().chain(named);
        let text = files.find_map(|it| std::fs::read_to_string(it).ok())?;
        let mut card = Card::parse(&text);
        // A launcher in the script's process tree that asks for more devices than the command line.
        let asked = std::env::var("PLIMSOLL_DEVICES").ok().and_then(|it| it.parse().ok());
        card.devices = asked.map_or(card.devices, |it: u32| it.clamp(card.devices, 64));
        Some(card)
    })
    .as_ref()
}

/// A device that the program sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visible {
    /// Its number in the machine.
    pub ordinal: u32,
    /// What the user's machine calls it, where `CUDA_VISIBLE_DEVICES` says that in place of a number.
    pub uuid: Option<String>,
}

impl Visible {
    /// The device of this number.
    pub fn new(ordinal: u32) -> Visible {
        Visible { ordinal, uuid: None }
    }

    /// By what other processes know that they use the same device: its number, or one made of its name.
    pub fn shared(&self) -> u32 {
        const NUMBERS: u32 = 32;
        let hash = |text: &String| {
            text.bytes().fold(0_u32, |it, byte| it.wrapping_mul(31).wrapping_add(byte.into()))
        };
        self.uuid.as_ref().map_or(self.ordinal, |it| NUMBERS + hash(it) % NUMBERS)
    }
}

/// Which of the machine's devices the program sees, in the order in which it sees them:
/// `CUDA_VISIBLE_DEVICES` as the CUDA programming guide describes it (the list ends at the first
/// entry that names no device; a device named twice hides all).
///
/// A list that begins with a device which only the user's machine has, by a higher number or by its UUID, means that one: the machine
/// has it then, and up to `devices` of the list.
pub fn visible(devices: u32, variable: Option<&str>) -> Vec<Visible> {
    let Some(variable) = variable else { return (0..devices).map(Visible::new).collect() };
    let entries: Vec<&str> = variable.split(',').map(str::trim).collect();
    let is_name = |it: &str| it.starts_with("GPU-") || it.starts_with("MIG-");
    let most = usize::try_from(devices).unwrap_or(usize::MAX);
    let first = entries.first().copied().unwrap_or_default();
    if is_name(first) && own(first, devices).is_none() {
        // Of several slices of a GPU, CUDA shows the first.
        let most = if first.starts_with("MIG-") { 1 } else { most };
        let names = entries.iter().take_while(|it| is_name(it)).take(most);
        let named =
            |(ordinal, &name): (u32, &&str)| Visible { ordinal, uuid: Some(name.to_owned()) };
        return (0..).zip(names).map(named).collect();
    }
    let devices = match number(first) {
        // As many as there have to be for the first of the list.
        Some(it) if devices <= it => {
            let numbers = entries.iter().map_while(|it| number(it)).take(most);
            numbers.max().map_or(devices, |it| it + 1)
        }
        _ => devices,
    };
    let mut seen = Vec::new();
    for ordinal in entries.iter().map_while(|it| own(it, devices)) {
        if seen.contains(&ordinal) {
            return Vec::new();
        }
        seen.push(ordinal);
    }
    seen.into_iter().map(Visible::new).collect()
}

/// The number of a device, if that is what it is.
fn number(entry: &str) -> Option<u32> {
    /// No machine has more.
    const MOST: u32 = 256;
    entry.parse().ok().filter(|&it| it < MOST)
}

/// One of our devices, of so many: by its number, or by (a prefix of) its UUID; ours end in the number.
fn own(entry: &str, devices: u32) -> Option<u32> {
    let ordinal = match entry.strip_prefix("GPU-") {
        Some(uuid) if uuid.starts_with(OURS) => {
            uuid.rsplit('-').next().and_then(|it| u32::from_str_radix(it, 16).ok())
        }
        Some(_) => None,
        None => number(entry),
    };
    ordinal.filter(|&it| it < devices)
}

/// How the UUIDs of our devices begin: "plim".
const OURS: &str = "706c696d";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conf_file_sets_what_it_names_and_leaves_the_rest() {
        let card = Card::parse(
            "# a card\nname = NVIDIA GeForce RTX 4090\ncompute_capability = 8.9\ntotal_bytes = 25393692672\nnonsense = 3\nsm_count = many\n",
        );
        assert_eq!(card.name, "NVIDIA GeForce RTX 4090");
        assert_eq!(card.sm_version(), 89);
        assert_eq!(card.total_bytes, 25_393_692_672);
        assert_eq!(card.sm_count, Card::h200().sm_count);
        assert_eq!(card.attribute(75, 0), Some(8));
        assert_eq!(card.attribute(120, 0), Some(0), "no clusters before Hopper");
    }

    fn numbers(devices: u32, variable: &str) -> Vec<u32> {
        visible(devices, Some(variable)).iter().map(|it| it.ordinal).collect()
    }

    #[test]
    fn visible_devices_follow_the_programming_guide() {
        assert_eq!(visible(2, None), [Visible::new(0), Visible::new(1)]);
        assert_eq!(numbers(4, "2,0"), [2, 0]);
        assert_eq!(numbers(4, "1,9,0"), [1], "the list ends at the first bad entry");
        assert_eq!(numbers(4, ""), [0; 0]);
        assert_eq!(numbers(4, "-1"), [0; 0]);
        assert_eq!(numbers(4, "NoDevFiles"), [0; 0]);
        assert_eq!(numbers(4, "1,1"), [0; 0], "named twice");
        assert_eq!(numbers(4, "GPU-706c696d-736f-6c6c-0000-000000000003"), [3]);
    }

    #[test]
    fn a_device_of_the_users_machine_is_one_of_ours() {
        assert_eq!(numbers(1, "3"), [3]);
        assert_eq!(numbers(1, "0,1,2,3"), [0], "so many as there are");
        assert_eq!(numbers(1, "2,3"), [2]);
        assert_eq!(numbers(2, "2,3"), [2, 3]);
        assert_eq!(numbers(2, "5,6,7"), [5, 6]);
        assert_eq!(numbers(1, "3,2"), [3, 2], "who has a device 3 has a device 2");
        assert_eq!(numbers(1, "4294967295"), [0; 0]);
        let named = visible(1, Some("GPU-1a2b3c4d-0000-1111-2222-333344445555,GPU-9"));
        assert_eq!(named.len(), 1);
        assert_eq!(named[0].uuid.as_deref(), Some("GPU-1a2b3c4d-0000-1111-2222-333344445555"));
        assert!(31 < named[0].shared() && named[0].shared() < 64);
        assert_eq!(visible(2, Some("MIG-1,MIG-2")).len(), 1);
        assert_eq!(visible(2, Some("GPU-1, GPU-2")).len(), 2);
    }

    #[test]
    fn no_attribute_that_a_kernel_divides_by_is_zero() {
        let card = Card::h200();
        for code in [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 36, 37, 38, 39, 81, 82, 97, 106] {
            assert!(card.attribute(code, 0).is_some_and(|it| 0 < it), "attribute {code}");
        }
    }
}
