//! The text of `PYTORCH_CUDA_ALLOC_CONF`: its grammar, its keys and since when torch knows them.
//!
//! What is left out: `expandable_segments_reserve_by_class`, whose classes only C++ gives to streams, which is read
//! and changes nothing; everything about pinned host memory, which is read and checked by name only.

use crate::{
    replay::{Config, Reserve, TorchVersion},
    trace::{EventId, Settings, SettingsChange},
    units::Bytes,
};

/// Why a text is no `PYTORCH_CUDA_ALLOC_CONF`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfError {
    /// torch does not know it, in no version.
    #[error("unknown allocator setting {key:?}; known are {}", known())]
    UnknownKey {
        /// The key.
        key: String,
    },
    /// Another version of torch knows it.
    #[error("torch {torch} has no allocator setting {key:?}: {when}")]
    NotInThisTorch {
        /// The key.
        key: String,
        /// The version that was asked for.
        torch: TorchVersion,
        /// Which versions have it.
        when: String,
    },
    /// Its value is not one that torch takes.
    #[error("allocator setting {key}: {value:?} is not {expected}")]
    BadValue {
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// What torch takes.
        expected: &'static str,
    },
    /// There is no colon.
    #[error("allocator setting {given:?} has no value: expected `key:value`")]
    NoValue {
        /// What was given.
        given: String,
    },
}

/// Keys, and since which minor release of torch 2.
const KEYS: [(&str, u8); 20] = [
    ("backend", 0),
    ("expandable_segments", 1),
    ("expandable_segments_reserve", 15),
    ("expandable_segments_reserve_by_class", 15),
    ("garbage_collection_threshold", 0),
    ("graph_capture_record_stream_reuse", 9),
    ("large_segment_size_mb", 11),
    ("max_non_split_rounding_mb", 6),
    ("max_split_size_mb", 0),
    ("per_process_memory_fraction", 10),
    ("pinned_free_catch_all", 12),
    ("pinned_max_cached_size_mb", 13),
    ("pinned_max_round_threshold_mb", 13),
    ("pinned_num_register_threads", 2),
    ("pinned_reserve_segment_size_mb", 10),
    ("pinned_use_background_threads", 6),
    ("pinned_use_cuda_host_register", 2),
    ("release_lock_on_cudamalloc", 2),
    ("roundup_power2_divisions", 0),
    ("throw_on_cudamalloc_oom", 12),
];

impl Config {
    /// What a recording says that it ran under. What the recorder does not repeat is read out of the
    /// text of the variable; what is not known there is left as torch has it.
    pub fn of_recording(settings: &Settings, torch: TorchVersion) -> Config {
        let mut res = Config::of_torch(torch);
        read_known(&settings.text, &mut res);
        if settings.is_of_beginning {
            return res;
        }
        res.max_split_size = settings.max_split_size;
        res.garbage_collection_threshold = settings.garbage_collection_threshold;
        res.expandable_segments = settings.expandable_segments;
        res.roundup_power2_divisions = settings.roundup_power2_divisions;
        res
    }

    /// What the settings of a recording mean for another `torch` than the one that made it.
    ///
    /// # Errors
    ///
    /// When that one does not have what was set, or would refuse it.
    pub fn of_recording_for(settings: &Settings, torch: TorchVersion) -> Result<Config, ConfError> {
        read(&settings.text, &mut Config::of_torch(torch))?;
        if settings.expandable_segments {
            read("expandable_segments:True", &mut Config::of_torch(torch))?;
        }
        Ok(Config::of_recording(settings, torch))
    }

    /// What `text`, a value of `PYTORCH_CUDA_ALLOC_CONF`, means for `torch`.
    pub fn of_alloc_conf(text: &str, torch: TorchVersion) -> Result<Config, ConfError> {
        let mut res = Config::of_torch(torch);
        read(text, &mut res)?;
        Ok(res)
    }
}

impl Config {
    /// These settings after the program passed `text` to PyTorch: of what `text` leaves out, PyTorch resets three settings and
    /// keeps the others.
    pub(super) fn changed_by(&self, text: &str) -> Config {
        let mut res = Config {
            max_split_size: None,
            garbage_collection_threshold: 0.0,
            roundup_power2_divisions: [0; 16],
            ..self.clone()
        };
        read_known(text, &mut res);
        res
    }

    /// These settings of the beginning after those of `changes` that came before `event`.
    pub(super) fn at(&self, changes: &[SettingsChange], event: EventId) -> Config {
        let before = changes.iter().take_while(|it| it.from <= event);
        before.fold(self.clone(), |res, it| res.changed_by(&it.text))
    }
}

/// Puts what `text` sets into `config`; stops at the first thing that torch would refuse.
fn read(text: &str, config: &mut Config) -> Result<(), ConfError> {
    for item in items(text) {
        let (key, value) =
            item.split_once(':').ok_or_else(|| ConfError::NoValue { given: item.clone() })?;
        let Some((_, from)) = KEYS.iter().find(|(it, _)| *it == key) else {
            return Err(ConfError::UnknownKey { key: key.to_owned() });
        };
        let torch = config.torch;
        if torch < TorchVersion::two(*from) {
            let when = format!("it came with torch 2.{from}");
            return Err(ConfError::NotInThisTorch { key: key.to_owned(), torch, when });
        }
        set(key, value, config).map_err(|expected| ConfError::BadValue {
            key: key.to_owned(),
            value: value.to_owned(),
            expected,
        })?;
    }
    Ok(())
}

/// As [`read`], but passes over what it does not understand: a recording's text was good enough for
/// the torch that wrote it.
fn read_known(text: &str, config: &mut Config) {
    for item in items(text) {
        if let Some((key, value)) = item.split_once(':') {
            let _ = set(key, value, config);
        }
    }
}

/// The parts between commas that are not in brackets, without blanks.
fn items(text: &str) -> Vec<String> {
    let mut res = vec![String::new()];
    let mut depth = 0_u32;
    for c in text.chars().filter(|it| !it.is_whitespace()) {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                res.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = res.last_mut() {
            last.push(c);
        }
    }
    res.retain(|it| !it.is_empty());
    res
}

fn set(key: &str, value: &str, config: &mut Config) -> Result<(), &'static str> {
    let large = config.large_segment_size;
    match key {
        "max_split_size_mb" => {
            const EXPECTED: &str = "a number of MiB above 20 (from 20 on since torch 2.10; from large_segment_size_mb on since 2.11)";
            let size = mib(value).ok_or(EXPECTED)?;
            let ok = if config.torch < TorchVersion::two(10) {
                Bytes::mib(20) < size
            } else {
                large <= size
            };
            config.max_split_size = Some(size).filter(|_| ok);
            ok.then_some(()).ok_or(EXPECTED)?;
        }
        "garbage_collection_threshold" => {
            const EXPECTED: &str = "a number between 0 and 1, neither included";
            let share: f64 = value.parse().map_err(|_| EXPECTED)?;
            (0.0 < share && share < 1.0).then_some(()).ok_or(EXPECTED)?;
            config.garbage_collection_threshold = share;
        }
        "per_process_memory_fraction" => {
            const EXPECTED: &str = "a number from 0 to 1";
            let share: f64 = value.parse().map_err(|_| EXPECTED)?;
            (0.0..=1.0).contains(&share).then_some(()).ok_or(EXPECTED)?;
            config.fraction = Some(share);
        }
        "max_non_split_rounding_mb" => {
            const EXPECTED: &str = "a number of MiB above 20 (from 20 on since torch 2.10; from large_segment_size_mb on since 2.11)";
            let is_enough = |bytes: &Bytes| match config.torch {
                torch if torch < TorchVersion::two(10) => Bytes::mib(20) < *bytes,
                _ => large <= *bytes,
            };
            config.max_non_split_rounding = mib(value).filter(is_enough).ok_or(EXPECTED)?;
        }
        "large_segment_size_mb" => {
            const EXPECTED: &str = "a number of MiB above 10";
            config.large_segment_size =
                mib(value).filter(|it| Bytes::mib(10) < *it).ok_or(EXPECTED)?;
        }
        "expandable_segments" => config.expandable_segments = boolean(value)?,
        "throw_on_cudamalloc_oom" => config.throw_on_cudamalloc_oom = boolean(value)?,
        "roundup_power2_divisions" => {
            config.roundup_power2_divisions = divisions(value, config.torch)?;
        }
        "expandable_segments_reserve" => {
            const EXPECTED: &str = "a factor of the device's memory, or a size as in `40G`";
            let (is_size, number) =
                value.strip_suffix(['G', 'g']).map_or((false, value), |it| (true, it));
            let number: f64 = number.parse().map_err(|_| EXPECTED)?;
            (0.0 < number).then_some(()).ok_or(EXPECTED)?;
            config.expandable_segments_reserve =
                Some(if is_size { Reserve::Size(gib(number)) } else { Reserve::Share(number) });
        }
        "backend" => {
            (value == "native")
                .then_some(())
                .ok_or("`native`, the only allocator modelled here")?;
        }
        // Host memory and locks: nothing that a replay could show.
        _ => {}
    }
    Ok(())
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "as PyTorch computes it: a number above zero, as many bytes as there can be at most"
)]
fn gib(number: f64) -> Bytes {
    Bytes((number * f64::from(1 << 30)) as u64)
}

fn mib(value: &str) -> Option<Bytes> {
    let n: u64 = value.parse().ok()?;
    n.checked_mul(1 << 20).map(Bytes)
}

fn boolean(value: &str) -> Result<bool, &'static str> {
    match value {
        "True" => Ok(true),
        "False" => Ok(false),
        _ => Err("`True` or `False`"),
    }
}

/// `4`, or `[256:1,512:2,1024:4,>:8]`.
fn divisions(value: &str, torch: TorchVersion) -> Result<[u32; 16], &'static str> {
    const EXPECTED: &str =
        "a power of two, or a list of them by power-of-two MiB as in `[256:1,512:2,>:4]`";
    let power = |it: &str| it.parse::<u32>().ok().filter(|it| *it == 0 || it.is_power_of_two());
    let Some(list) = value.strip_prefix('[').and_then(|it| it.strip_suffix(']')) else {
        return power(value).map(|it| [it; 16]).ok_or(EXPECTED);
    };
    let mut res = [0; 16];
    let mut last: Option<(usize, u32)> = None;
    for item in list.split(',') {
        let (size, n) = item.split_once(':').ok_or(EXPECTED)?;
        let n = power(n).ok_or(EXPECTED)?;
        if size == ">" {
            // Until 2.9 it took the last named interval as well.
            let skip = usize::from(TorchVersion::two(10) <= torch);
            let first = last.map_or(0, |(at, _)| at + skip).min(16);
            res[first..].fill(n);
            return Ok(res);
        }
        let size = power(size).filter(|it| 0 < *it).ok_or(EXPECTED)?;
        let at = size.ilog2().min(15) as usize;
        match last {
            None => res[..=at].fill(n),
            Some((before, value)) if before < at => {
                res[before..at].fill(value);
                res[at] = n;
            }
            Some(_) => res[at] = n,
        }
        last = Some((at, n));
    }
    if let Some((at, n)) = last {
        res[at..].fill(n);
    }
    Ok(res)
}

fn known() -> String {
    KEYS.map(|(key, _)| key).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, minor: u8) -> Result<Config, String> {
        Config::of_alloc_conf(text, TorchVersion::two(minor)).map_err(|it| it.to_string())
    }

    #[test]
    fn reads_what_people_set() {
        let config = of(
            "expandable_segments:True, max_split_size_mb: 128,garbage_collection_threshold:0.8",
            6,
        )
        .unwrap();
        assert!(config.expandable_segments);
        assert_eq!(config.max_split_size, Some(Bytes::mib(128)));
        assert!((config.garbage_collection_threshold - 0.8).abs() < 1e-9);
        assert_eq!(of("", 6).unwrap(), Config::of_torch(TorchVersion::two(6)));
    }

    #[test]
    fn a_list_of_divisions_fills_the_gaps() {
        let list = "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]";
        let mut expected = [1; 16];
        (expected[9], expected[10]) = (2, 4);
        expected[11..].fill(8);
        assert_eq!(of(list, 11).unwrap().roundup_power2_divisions, expected);
        expected[10] = 8;
        assert_eq!(of(list, 9).unwrap().roundup_power2_divisions, expected);
    }

    #[test]
    fn says_what_is_wrong() {
        let error = |text, minor| of(text, minor).unwrap_err();
        assert!(error("max_split_size:128", 6).starts_with("unknown allocator setting"));
        assert_eq!(
            error("large_segment_size_mb:64", 6),
            "torch 2.6 has no allocator setting \"large_segment_size_mb\": it came with torch 2.11"
        );
        assert!(error("max_split_size_mb:20", 9).contains("above 20"));
        assert!(of("max_split_size_mb:20", 10).is_ok());
        assert!(error("max_non_split_rounding_mb:20", 9).contains("above 20"));
        assert!(of("max_non_split_rounding_mb:20", 10).is_ok());
        let both = "large_segment_size_mb:64,max_non_split_rounding_mb:40";
        assert!(error(both, 11).contains("from large_segment_size_mb on"));
        assert!(error("expandable_segments:true", 6).contains("`True` or `False`"));
        assert!(error("expandable_segments", 6).contains("has no value"));
    }
}
