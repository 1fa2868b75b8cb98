//! The files in which watched runs say how they are, one for each process. Whoever runs a script may write anything into them: what is read is
//! bounded, and what is no status is passed over.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::unistd::geteuid;
use plimsoll_core::units::Bytes;
use serde::Deserialize;

use crate::{
    contract,
    files::bounded_file,
    gpu::machine::{
        people::started,
        plain,
        snapshot::{Alarm, Counters, Status},
    },
};

const MOST_BYTES: u64 = 1 << 20;
const MOST_FILES: usize = 4096;
/// As many GPUs as the largest machine has.
const MOST_DEVICES: usize = 16;
const MOST_CATEGORIES: usize = 16;
const MOST_ALARMS: usize = 20;
const MOST_WORDS: usize = 256;
/// Longer ago than any process that steps has written.
const SILENCE: Duration = Duration::from_secs(60);
/// Of a label, a code, a category; and of a sentence.
const LONGEST_NAME: usize = 128;
const LONGEST_TEXT: usize = 500;

/// What each process says that lives: of this account, and for root of all.
pub(crate) fn all() -> Vec<(u32, Status)> {
    let mut seen = BTreeSet::new();
    let mut res = BTreeMap::new();
    for folder in folders() {
        let Some(found) = real(&folder) else { continue };
        let is_new = seen.insert((found.dev(), found.ino()));
        let is_theirs = found.uid() == geteuid().as_raw() || geteuid().is_root();
        if is_new && is_theirs {
            for (pid, status) in of_folder(&folder, found.uid()) {
                res.entry(pid).or_insert(status);
            }
        }
    }
    res.into_iter().collect()
}

/// What a folder is, if no link leads to it: by one a stranger could pass off a folder of ours as theirs.
fn real(folder: &Path) -> Option<fs::Metadata> {
    let is_linked = folder.parent().is_some_and(Path::is_symlink);
    fs::symlink_metadata(folder).ok().filter(|it| !is_linked && it.is_dir())
}

/// Where they may lie. A run that was started over ssh has another folder than one that was started by cron.
fn folders() -> Vec<PathBuf> {
    if let Some(named) = env::var_os(contract::RUNNING) {
        return vec![PathBuf::from(named)];
    }
    let own = geteuid();
    let below = |it: &Path| it.join("plimsoll").join("running");
    let temporary = env::temp_dir();
    let mut res: Vec<PathBuf> =
        env::var_os("XDG_RUNTIME_DIR").map(|it| below(Path::new(&it))).into_iter().collect();
    res.push(Path::new("/run/user").join(own.to_string()).join("plimsoll/running"));
    res.push(temporary.join(format!("plimsoll-{own}")).join("running"));
    if own.is_root() {
        let within =
            |it: &Path| fs::read_dir(it).into_iter().flatten().flatten().map(|it| it.path());
        res.extend(within(Path::new("/run/user")).map(|it| below(&it)));
        let is_ours = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("plimsoll-")
        };
        res.extend(within(&temporary).filter(is_ours).map(|it| it.join("running")));
    }
    res
}

/// The statuses in a folder that belongs to `uid`.
fn of_folder(folder: &Path, uid: u32) -> Vec<(u32, Status)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(MOST_FILES);
    let mut res = Vec::new();
    for path in entries.map(|it| it.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let Some(pid) = name.strip_suffix(".json").and_then(|it| it.parse().ok()) else { continue };
        match of_file(&path, pid, uid) {
            Found::Living(status) => res.push((pid, status)),
            Found::Stale if uid == geteuid().as_raw() && is_old(&path) => {
                let _ = fs::remove_file(&path);
                let _ = fs::remove_file(path.with_extension("json.part"));
            }
            Found::Stale | Found::Nothing => {}
        }
    }
    res
}

/// Whether nobody has written it for a while. In a container the processes of the host look as if they had ended.
fn is_old(path: &Path) -> bool {
    let written = fs::metadata(path).and_then(|it| it.modified()).ok();
    written.and_then(|it| it.elapsed().ok()).is_some_and(|it| SILENCE < it)
}

enum Found {
    Living(Status),
    /// Its process has ended.
    Stale,
    /// No status, or not now.
    Nothing,
}

fn of_file(path: &Path, pid: u32, uid: u32) -> Found {
    let Some(bytes) = read(path, uid) else { return Found::Nothing };
    let lives = started(pid);
    // Its writer replaces it whole, so what cannot be read is somebody else's, and stays.
    let Ok(file) = serde_json::from_slice::<OnDisk>(&bytes) else { return Found::Nothing };
    if file.format != 1 || file.pid != pid {
        return Found::Nothing;
    }
    if lives.is_none() || lives != Some(file.started) {
        return Found::Stale;
    }
    // Only the account that a process runs under may speak for it.
    let is_its = fs::metadata(format!("/proc/{pid}")).is_ok_and(|it| it.uid() == uid);
    if is_its { Found::Living(file.taken()) } else { Found::Nothing }
}

/// A regular file of `uid`'s, if it is not too large. No link is followed, and a pipe keeps nobody waiting.
fn read(path: &Path, uid: u32) -> Option<Vec<u8>> {
    let file = bounded_file::open_unlinked(path).ok()?;
    if file.metadata().ok()?.uid() != uid {
        return None;
    }
    bounded_file::all(file, MOST_BYTES).ok()
}

/// The file, as its writer has it (docs/top.md). Keys that are not here are passed over.
#[derive(Debug, Deserialize)]
struct OnDisk {
    format: u32,
    pid: u32,
    started: u64,
    #[serde(default)]
    label: String,
    #[serde(default)]
    command: Vec<String>,
    rank: Option<u32>,
    #[serde(default)]
    updated: f64,
    step: Option<u64>,
    seconds_per_step: Option<f64>,
    #[serde(default)]
    devices: Vec<DeviceOnDisk>,
    expected_peak: Option<u64>,
    #[serde(default)]
    alarms: Vec<AlarmOnDisk>,
    #[serde(default = "yes")]
    raises_alarms: bool,
}

fn yes() -> bool {
    true
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DeviceOnDisk {
    uuid: Option<String>,
    index: u32,
    total: u64,
    allocated: u64,
    reserved: u64,
    active: u64,
    inactive_split: u64,
    peak_allocated: u64,
    peak_reserved: u64,
    retries: u64,
    ooms: u64,
    largest_free: Option<u64>,
    growth_per_step: Option<f64>,
    categories: BTreeMap<String, u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AlarmOnDisk {
    code: String,
    step: Option<u64>,
    text: String,
}

impl OnDisk {
    fn taken(self) -> Status {
        let alarm = |alarm: AlarmOnDisk| Alarm {
            code: plain(&alarm.code, LONGEST_NAME),
            step: alarm.step,
            text: plain(&alarm.text, LONGEST_TEXT),
        };
        let words = self.command.iter().take(MOST_WORDS);
        let older = self.alarms.len().saturating_sub(MOST_ALARMS);
        Status {
            label: plain(&self.label, LONGEST_NAME),
            command: words.map(|it| plain(it, LONGEST_TEXT)).collect(),
            rank: self.rank,
            updated: self.updated,
            step: self.step,
            seconds_per_step: self.seconds_per_step.filter(|it| 0.0 <= *it),
            counters: self
                .devices
                .into_iter()
                .take(MOST_DEVICES)
                .map(DeviceOnDisk::taken)
                .collect(),
            expected_peak: self.expected_peak.map(Bytes),
            alarms: self.alarms.into_iter().skip(older).map(alarm).collect(),
            raises_alarms: self.raises_alarms,
        }
    }
}

impl DeviceOnDisk {
    fn taken(self) -> Counters {
        let categories = self.categories.into_iter().take(MOST_CATEGORIES);
        Counters {
            uuid: self.uuid.map(|it| plain(&it, LONGEST_NAME)),
            index: self.index,
            total: Bytes(self.total),
            allocated: Bytes(self.allocated),
            reserved: Bytes(self.reserved),
            active: Bytes(self.active),
            inactive_split: Bytes(self.inactive_split),
            peak_allocated: Bytes(self.peak_allocated),
            peak_reserved: Bytes(self.peak_reserved),
            retries: self.retries,
            ooms: self.ooms,
            largest_free: self.largest_free.map(Bytes),
            growth: self.growth_per_step,
            categories: categories
                .map(|(name, size)| (plain(&name, LONGEST_NAME), Bytes(size)))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::OpenOptions, os::unix::fs::symlink};

    use super::*;

    /// A status of the process `pid`.
    fn text(pid: u32, started: u64, more: &str) -> String {
        format!(
            r#"{{"format": 1, "pid": {pid}, "started": {started}, "label": "train\u001b[2J.py", "unknown": [1]{more}}}"#
        )
    }

    #[test]
    fn only_who_lives_is_told_and_the_others_are_cleared_away() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let own = std::process::id();
        let ticks = started(own).unwrap();
        let device = r#", "devices": [{"uuid": null, "allocated": 5, "growth_per_step": 1.5, "categories": {"parameters": 3}}], "step": 7"#;
        fs::write(at(&format!("{own}.json")), text(own, ticks, device)).unwrap();
        fs::write(at("1.json"), text(1, ticks, "")).unwrap();
        fs::write(at("4194999.json"), text(4194999, ticks, "")).unwrap();
        fs::write(at("4194999.json.part"), "{").unwrap();
        fs::write(at("4195000.json"), r#"{"year": "what I measured"}"#).unwrap();
        fs::write(at("2.json"), text(2, ticks, "")).unwrap();
        fs::write(at("notes.txt"), "mine").unwrap();
        let long_ago = std::time::SystemTime::now() - 2 * SILENCE;
        for name in ["1.json", "4194999.json", "4195000.json", "notes.txt"] {
            let file = OpenOptions::new().write(true).open(at(name)).unwrap();
            file.set_modified(long_ago).unwrap();
        }
        let uid = geteuid().as_raw();
        let found = of_folder(folder.path(), uid);
        let [(pid, status)] = &found[..] else { panic!("{found:?}") };
        assert_eq!((*pid, status.label.as_str(), status.step), (own, r"train\x1b[2J.py", Some(7)));
        let counters = &status.counters[0];
        assert_eq!((counters.allocated, counters.growth), (Bytes(5), Some(1.5)));
        assert_eq!(counters.categories["parameters"], Bytes(3));
        let mut left: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
        left.sort();
        let own = format!("{own}.json");
        let mut expected = vec!["2.json", "4195000.json", own.as_str(), "notes.txt"];
        expected.sort_unstable();
        assert_eq!(left, expected);
    }

    #[test]
    fn a_folder_behind_a_link_is_none() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::create_dir_all(at("plimsoll-0/running")).unwrap();
        fs::create_dir(at("plimsoll-x")).unwrap();
        symlink(at("plimsoll-0/running"), at("plimsoll-x/running")).unwrap();
        symlink(at("plimsoll-0"), at("plimsoll-y")).unwrap();
        let is_taken = |name: &str| real(&at(name)).is_some();
        assert!(is_taken("plimsoll-0/running"));
        assert!(!is_taken("plimsoll-x/running") && !is_taken("plimsoll-y/running"));
    }

    #[test]
    fn what_is_no_status_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let own = std::process::id();
        let path = folder.path().join(format!("{own}.json"));
        let ticks = started(own).unwrap();
        let uid = geteuid().as_raw();
        let is_told = || !of_folder(folder.path(), uid).is_empty();
        for (what, text) in [
            ("cut off", text(own, ticks, "")[..20].to_owned()),
            ("another format", text(own, ticks, "").replace("\"format\": 1", "\"format\": 2")),
            ("a negative size", text(own, ticks, r#", "devices": [{"total": -1}]"#)),
            ("of another process", text(own + 1, ticks, "")),
            ("too large", text(own, ticks, &format!(", \"pad\": \"{}\"", "x".repeat(1 << 20)))),
        ] {
            fs::write(&path, text).unwrap();
            assert!(!is_told(), "{what}");
        }
        fs::remove_file(&path).unwrap();
        let elsewhere = folder.path().join("elsewhere");
        fs::write(&elsewhere, text(own, ticks, "")).unwrap();
        symlink(&elsewhere, &path).unwrap();
        assert!(!is_told(), "a link");
        fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(!is_told(), "a pipe");
        fs::remove_file(&path).unwrap();
        fs::write(&path, text(own, ticks, "")).unwrap();
        assert!(is_told());
    }
}
