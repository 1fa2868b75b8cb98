//! The one folder where plimsoll keeps files of its own, `plimsoll-cache` in a folder that may be any of the user's: the unpacked
//! bundle, the folders of running sessions, layers, downloads. Which folder that is, and whether it can be used; it knows nothing of
//! what a session does.

pub(crate) mod bundle;
pub(crate) mod session;
mod trust;
pub(crate) mod wheel;

pub(crate) use crate::files::reason::reason;

use std::{
    env, fs,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use anyhow::bail;
use nix::{
    sys::statvfs::{FsFlags, statvfs},
    unistd::getuid,
};
use plimsoll_writes::OwnFolder;

use crate::contract;

/// What the bundle and the snapshot of an ordinary run need; with less we do not start.
const NEEDED_BYTES: u64 = 64 << 20;

/// A folder that exists, is ours, can be written to and has room.
#[derive(Debug)]
pub(crate) struct Cache {
    /// The folder.
    pub(crate) own: OwnFolder,
    /// The folders that would have come first, each with why it was passed over.
    pub(crate) passed_over: Vec<String>,
}

impl Cache {
    /// That in the first usable folder of `$PLIMSOLL_CACHE` (alone, when it is set), `$XDG_CACHE_HOME/plimsoll`,
    /// `~/.cache/plimsoll` and, for a home that is read-only or full, `$TMPDIR/plimsoll-<uid>`.
    pub(crate) fn open() -> anyhow::Result<Cache> {
        let mut passed_over = Vec::new();
        for place in candidates() {
            match prepare(&place) {
                Ok(own) => return Ok(Cache { own, passed_over }),
                Err(reason) => passed_over.push(format!("{}: {reason}", place.display())),
            }
        }
        bail!(
            "found no folder to unpack into ({}); set PLIMSOLL_CACHE to a folder that you may write to, \
             with {} MiB free",
            passed_over.join("; "),
            NEEDED_BYTES >> 20,
        )
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.own.path()
    }

    /// The bytes free on the disk that the folder is on.
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        let disk = statvfs(self.path()).ok()?;
        Some(disk.blocks_available() * disk.fragment_size())
    }
}

fn candidates() -> Vec<PathBuf> {
    // Relative values are to be ignored, says the XDG base directory specification.
    let folder = |name: &str| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|it| !it.as_os_str().is_empty() && it.is_absolute())
    };
    if let Some(root) = env::var_os(contract::CACHE).filter(|it| !it.is_empty()) {
        // A relative one is meant as typed, but the script may run elsewhere.
        let root = PathBuf::from(root);
        return vec![std::path::absolute(&root).unwrap_or(root)];
    }
    let mut res = Vec::new();
    match (folder("XDG_CACHE_HOME"), folder("HOME")) {
        (Some(cache), _) => res.push(cache.join("plimsoll")),
        (None, Some(home)) => res.push(home.join(".cache/plimsoll")),
        (None, None) => (),
    }
    let own_name = format!("plimsoll-{}", getuid());
    let temporary = folder("TMPDIR").unwrap_or_else(|| PathBuf::from("/tmp"));
    res.push(temporary.join(own_name));
    res
}

/// What parts one library from the next in `LD_PRELOAD`, and one folder from the next in `PATH`.
const PARTING: [char; 2] = [':', ' '];

fn prepare(place: &Path) -> Result<OwnFolder, String> {
    let must_be_loadable = |path: &Path| match path.to_string_lossy().contains(PARTING) {
        true => Err("its path has a colon or a blank, which LD_PRELOAD does not accept".to_owned()),
        false => Ok(()),
    };
    must_be_loadable(place)?;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(place)
        .map_err(|error| reason(&error))?;
    must_be_loadable(&fs::canonicalize(place).map_err(|error| reason(&error))?)?;
    // Who may change a folder on the way could hand us their library.
    trust::check(place)?;
    let disk = statvfs(place).map_err(|error| error.desc().to_owned())?;
    if disk.flags().contains(FsFlags::ST_NOEXEC) {
        return Err("is mounted noexec, so no library can be loaded from it".to_owned());
    }
    let free = disk.blocks_available() * disk.fragment_size();
    if free < NEEDED_BYTES {
        let free = free >> 20;
        return Err(format!(
            "too little space: {free} MiB free, {} MiB needed",
            NEEDED_BYTES >> 20
        ));
    }
    let own = OwnFolder::below(place).map_err(|error| reason(&error))?;
    // Leaves nothing behind, whatever happens to us.
    tempfile::tempfile_in(own.path()).map_err(|error| reason(&error))?;
    Ok(own)
}
