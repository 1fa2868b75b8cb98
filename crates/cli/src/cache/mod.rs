//! The one folder where plimsoll keeps files of its own: the unpacked bundle and the folders of running
//! sessions. Which folder that is, and whether it can be used; it knows nothing of what a session does.

pub(crate) mod bundle;
pub(crate) mod session;

use std::{
    env, fs, io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use anyhow::bail;
use nix::{
    sys::statvfs::{FsFlags, statvfs},
    unistd::{geteuid, getuid},
};

use crate::contract;

/// What the bundle and the snapshot of an ordinary run need; with less we do not start.
const NEEDED_BYTES: u64 = 64 << 20;

/// A folder that exists, is ours, can be written to and has room.
#[derive(Debug)]
pub(crate) struct Cache {
    /// The folder.
    pub(crate) root: PathBuf,
    /// The folders that would have come first, each with why it was passed over.
    pub(crate) passed_over: Vec<String>,
}

impl Cache {
    /// The first usable folder of `$PLIMSOLL_CACHE` (alone, when it is set), `$XDG_CACHE_HOME/plimsoll`,
    /// `~/.cache/plimsoll` and, for a home that is read-only or full, `$TMPDIR/plimsoll-<uid>`.
    pub(crate) fn open() -> anyhow::Result<Cache> {
        let mut passed_over = Vec::new();
        for Candidate { root, is_shared_place } in candidates() {
            match prepare(&root, is_shared_place) {
                Ok(()) => return Ok(Cache { root, passed_over }),
                Err(reason) => passed_over.push(format!("{}: {reason}", root.display())),
            }
        }
        bail!(
            "found no folder to unpack into ({}); set PLIMSOLL_CACHE to a folder that you may write to, \
             with {} MiB free",
            passed_over.join("; "),
            NEEDED_BYTES >> 20,
        )
    }

    /// The bytes free on the disk that the folder is on.
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        let disk = statvfs(&self.root).ok()?;
        Some(disk.blocks_available() * disk.fragment_size())
    }
}

struct Candidate {
    root: PathBuf,
    /// Whether other people can make folders where this one is looked for.
    is_shared_place: bool,
}

fn candidates() -> Vec<Candidate> {
    let own = |root| Candidate { root, is_shared_place: false };
    // Relative values are to be ignored, says the XDG base directory specification.
    let folder = |name: &str| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|it| !it.as_os_str().is_empty() && it.is_absolute())
    };
    if let Some(root) = env::var_os(contract::CACHE).filter(|it| !it.is_empty()) {
        // A relative one is meant as typed, but the script may run elsewhere.
        let root = PathBuf::from(root);
        return vec![own(std::path::absolute(&root).unwrap_or(root))];
    }
    let mut res = Vec::new();
    match (folder("XDG_CACHE_HOME"), folder("HOME")) {
        (Some(cache), _) => res.push(own(cache.join("plimsoll"))),
        (None, Some(home)) => res.push(own(home.join(".cache/plimsoll"))),
        (None, None) => (),
    }
    let own_name = format!("plimsoll-{}", getuid());
    let temporary = folder("TMPDIR").unwrap_or_else(|| PathBuf::from("/tmp"));
    res.push(Candidate { root: temporary.join(own_name), is_shared_place: true });
    res
}

fn prepare(root: &Path, is_shared_place: bool) -> Result<(), String> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(root)
        .map_err(|error| reason(&error))?;
    // A folder that others may change could hand us their library.
    let meta = fs::metadata(root).map_err(|error| reason(&error))?;
    let (others_write, sticky) = (0o002, 0o1000);
    if meta.mode() & others_write != 0 && meta.mode() & sticky == 0 {
        return Err("everybody may write to it".to_owned());
    }
    let link = fs::symlink_metadata(root).map_err(|error| reason(&error))?;
    if is_shared_place && (link.is_symlink() || meta.uid() != geteuid().as_raw()) {
        return Err("belongs to somebody else".to_owned());
    }
    let disk = statvfs(root).map_err(|error| error.desc().to_owned())?;
    if disk.flags().contains(FsFlags::ST_NOEXEC) {
        return Err("is mounted noexec, so no library can be loaded from it".to_owned());
    }
    // Leaves nothing behind, whatever happens to us.
    tempfile::tempfile_in(root).map_err(|error| reason(&error))?;
    let free = disk.blocks_available() * disk.fragment_size();
    if free < NEEDED_BYTES {
        let free = free >> 20;
        return Err(format!("no space left: {free} MiB free, {} MiB needed", NEEDED_BYTES >> 20));
    }
    Ok(())
}

/// The operating system's words without "(os error 30)".
pub(crate) fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(code) => nix::errno::Errno::from_raw(code).desc().to_lowercase(),
        None => error.to_string(),
    }
}
