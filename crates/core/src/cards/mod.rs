//! The cards that the phantom can imitate. One file, `catalogue.toml`, holds what is known of each
//! and where it is known from; users describe their own in the same form.

mod conf;
mod parse;

use std::sync::LazyLock;

use crate::units::Bytes;

pub use parse::{CardError, parse};

/// What a card is to PyTorch, cuDNN and the person who has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Card {
    /// How it is called on our command line, such as `rtx4090`.
    pub id: String,
    /// Other ids for it, such as `4090`.
    pub aliases: Vec<String>,
    /// The name that the driver reports.
    pub name: String,
    /// Compute capability, major and minor.
    pub compute_capability: (u32, u32),
    /// What the driver calls total memory (`cudaMemGetInfo`): less than what is sold.
    pub total: Bytes,
    /// What the first use of the card takes before PyTorch has asked for anything: CUDA context,
    /// loaded kernels, cuBLAS.
    pub context: Bytes,
    /// Streaming multiprocessors.
    pub sm_count: u32,
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
    /// How well each group of the numbers is known.
    pub provenance: Provenance,
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

/// All cards of the catalogue, by generation.
pub fn catalogue() -> &'static [Card] {
    static CARDS: LazyLock<Vec<Card>> = LazyLock::new(|| {
        parse::catalogue_text(include_str!("catalogue.toml")).expect("a test reads the catalogue")
    });
    &CARDS
}

/// The card called `name`: its id, an alias, or either in another spelling (`RTX 4090`).
pub fn find(name: &str) -> Result<&'static Card, CardError> {
    parse::find(catalogue(), name)
}

impl Card {
    /// The same card with another amount of memory (`--memory`).
    #[must_use]
    pub fn with_total(mut self, total: Bytes) -> Card {
        self.total = total;
        self
    }

    /// `phantom.conf` for `devices` of this card.
    pub fn phantom_conf(&self, devices: u32) -> String {
        conf::phantom_conf(self, devices)
    }

    /// What cuDNN is told of the card: its own serialised device description, as one line of JSON.
    pub fn cudnn_json(&self) -> String {
        conf::cudnn_json(self)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_catalogue_is_whole() {
        let mut names = BTreeSet::new();
        for card in catalogue() {
            for name in std::iter::once(&card.id).chain(&card.aliases) {
                assert!(names.insert(name.as_str()), "{name} is two cards");
            }
            assert!(!card.provenance.note.is_empty(), "{} does not say where from", card.id);
            assert!(Bytes::gib(7) < card.total && card.total < Bytes::gib(200), "{}", card.id);
            assert_eq!(card.phantom_conf(2).lines().count(), 18, "{}", card.id);
            let in_gpcs: u32 = card.gpcs.iter().sum();
            assert!(card.gpcs.is_empty() || in_gpcs == card.sm_count, "{}", card.id);
            assert_eq!(card.gpcs.is_empty(), card.compute_capability.0 < 9, "{}", card.id);
            let cudnn: serde_json::Value = serde_json::from_str(&card.cudnn_json()).unwrap();
            assert_eq!(cudnn["deviceName"], card.name.as_str());
        }
        let asked_for = [
            "rtx3060-12g",
            "rtx3090",
            "rtx4060-8g",
            "rtx4070-12g",
            "rtx4080",
            "rtx4090",
            "rtx5090",
            "t4",
            "v100-16g",
            "v100-32g",
            "a10g",
            "l4",
            "l40s",
            "a6000",
            "rtx6000-ada",
            "a100-40g",
            "a100-80g",
            "h100-80g",
            "h200",
            "b200",
        ];
        for id in asked_for {
            assert!(catalogue().iter().any(|it| it.id == id), "{id} is missing");
        }
    }

    /// What cuDNN 9.19 serialised on a real H200 and a real H100.
    #[test]
    fn cudnn_is_told_what_it_told_us() {
        let h200 = r#"{"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,"multiProcessorCount":132,"warpSize":32,"maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":232448,"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":6,"isTccDriver":0,"supportCoopLaunch":1,"totalGlobalMem":150109880320,"smClockRateKHz":1980000,"memClockRateKHz":3201000,"l2CacheSize":62914560,"cudaDeviceId":0,"deviceVer":900,"driverVer":13000,"deviceName":"NVIDIA H200"}"#;
        assert_eq!(find("h200").unwrap().cudnn_json(), h200);
        let h100 = h200
            .replace("NVIDIA H200", "NVIDIA H100 80GB HBM3")
            .replace("150109880320", "85017493504")
            .replace("3201000", "2619000")
            .replace("62914560", "52428800");
        assert_eq!(find("h100").unwrap().cudnn_json(), h100);
    }

    #[test]
    fn the_phantom_reads_this() {
        let conf = find("h200").unwrap().phantom_conf(2);
        let (keys, cudnn) = conf.split_once("cudnn_json = ").unwrap();
        assert_eq!(
            keys,
            "devices = 2\nname = NVIDIA H200\ncompute_capability = 9.0\ntotal_bytes = 150109880320\ncontext_bytes = 796917760\nsm_count = 132\ngpcs = 18,18,16,16,16,16,16,8,2,2,2,2\nmax_threads_per_sm = 2048\nmax_blocks_per_sm = 32\nshared_per_block_optin = 232448\nshared_per_sm = 233472\nregisters_per_sm = 65536\nl2_bytes = 62914560\nclock_khz = 1980000\nmemory_clock_khz = 3201000\nmemory_bus_bits = 6144\ndriver_version = 13000\n"
        );
        assert_eq!(cudnn.lines().count(), 1);
    }
}
