//! The cards that the phantom can imitate. One file, `catalogue.toml`, holds what is known of each
//! and where it is known from; users describe their own in the same form.

mod card;
mod conf;
mod derived;
mod error;
mod kernels;
mod names;
mod parse;
mod parts;

use std::sync::{LazyLock, OnceLock};

use crate::units::Bytes;

pub use card::{Card, Knowledge, Nccl, Own, Provenance, Speeds};
pub use error::CardError;

fn read() -> &'static parse::Catalogue {
    static READ: LazyLock<parse::Catalogue> = LazyLock::new(|| {
        let mut res = parse::Catalogue::read(include_str!("catalogue.toml"))
            .expect("a test reads the catalogue");
        if let Some(own) = OWN.get() {
            res.take_in(own);
        }
        res
    });
    &READ
}

/// The cards that this machine's user has, and ids that are not to be known.
static OWN: OnceLock<Own> = OnceLock::new();

/// Takes in the user's own cards. To be called before anything asks for a card; later calls change nothing.
pub fn take_in(own: Own) {
    let _ = OWN.set(own);
}

/// The files of the user's own cards that could not be read, and why.
pub fn unread() -> &'static [(String, CardError)] {
    &read().unread
}

/// All cards of the catalogue, by generation.
pub fn catalogue() -> &'static [Card] {
    &read().cards
}

/// The slices that MIG cuts of them.
pub fn slices() -> &'static [Card] {
    &read().slices
}

/// Reads a card that a user describes, as TOML. With `like` it starts from a card of the catalogue; without, every key that
/// does not follow from others must be there.
///
/// # Errors
///
/// What is wrong with the text, and where.
pub fn parse(text: &str) -> Result<Card, CardError> {
    read().parse(text)
}

/// The card or slice called `name`: its id, an alias, or either in another spelling (`RTX 4090`, `a100-80g/3g.40gb`).
pub fn find(name: &str) -> Result<&'static Card, CardError> {
    read().find(name)
}

/// The card that the driver calls `name`, which a table may have cut off with points; `total` is what it has, if that is known.
pub fn by_drivers_name(name: &str, total: Option<Bytes>) -> Option<&'static Card> {
    names::by_drivers(catalogue(), name, total)
}

/// The card or slice whose own driver calls it `name` and gives it `total`. Of several of this name, the one whose memory is nearest.
pub fn of_device(name: &str, total: Bytes) -> Option<&'static Card> {
    names::of_device(catalogue().iter().chain(slices()), name, total)
}

/// Likewise, or a part of a card: `a40/12q` is a profile of a virtual GPU, `a100-80g/0.5` half of the memory.
pub fn resolve(name: &str) -> Result<Card, CardError> {
    read().resolve(name)
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
            assert!(Bytes::gib(3) < card.total && card.total < Bytes::gib(280), "{}", card.id);
            let lines = 20
                + usize::from(card.kept != Bytes::ZERO)
                + usize::from(card.hidden != Bytes::ZERO);
            assert_eq!(card.phantom_conf(2).lines().count(), lines, "{}", card.id);
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
            "devices = 2\nname = NVIDIA H200\ncompute_capability = 9.0\ntotal_bytes = 150109880320\nbeside_bytes = 9240576\nhidden_bytes = 644939776\ncontext_bytes = 796917760\nblas_bytes = 67108864\ndnn_bytes = 10485760\nsm_count = 132\ngpcs = 18,18,16,16,16,16,16,8,2,2,2,2\nmax_threads_per_sm = 2048\nmax_blocks_per_sm = 32\nshared_per_block_optin = 232448\nshared_per_sm = 233472\nregisters_per_sm = 65536\nl2_bytes = 62914560\nclock_khz = 1980000\nmemory_clock_khz = 3201000\nmemory_bus_bits = 6016\ndriver_version = 13000\n"
        );
        assert_eq!(cudnn.lines().count(), 1);
    }
}
