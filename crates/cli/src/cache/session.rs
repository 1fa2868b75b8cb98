//! A session: the private folder where the processes of one run leave what they saw. It goes when the
//! run is over; one that was left behind by a plimsoll that was killed goes at a later start.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use plimsoll_core::{
    recording::{
        Reached,
        contract::{PHANTOM_CONF, ProcessFile, process_of},
    },
    sources,
};
use plimsoll_writes::Folder;

use crate::{
    cache::{Cache, reason},
    contract,
    files::{bounded_file, process_folder::ProcessFolder},
};

/// How the names of their folders begin.
const PREFIX: &str = "session-";
/// So much of a script's output is looked at, in bytes.
const LAST_WORDS: u64 = 1000;

/// The folder of a running session; removed with everything in it when dropped.
#[derive(Debug)]
pub(crate) struct Session {
    folder: Folder,
}

impl Session {
    /// A new folder, mode 0700, below the cache.
    pub(crate) fn create(cache: &Cache) -> anyhow::Result<Session> {
        let parent = cache.own.sessions();
        Folder::sweep(&parent, PREFIX);
        let folder = Folder::make(&parent, PREFIX).map_err(|error| {
            let (shown, reason) = (parent.display(), reason(&error));
            anyhow::anyhow!("cannot make a session folder in {shown}: {reason}")
        })?;
        Ok(Session { folder })
    }

    /// Whether the script has left it where it was. It has to be able to write there, and so to remove it.
    pub(crate) fn is_there(&self) -> bool {
        self.folder.is_there()
    }

    /// Where its runs find what others of them have compiled, made so that they can be written to from other worlds.
    pub(crate) fn share_what_is_compiled(&self) -> io::Result<[PathBuf; 2]> {
        let folders = [contract::INDUCTOR, contract::TRITON].map(|it| self.path().join(it));
        folders.iter().try_for_each(fs::create_dir_all)?;
        Ok(folders)
    }

    /// Writes what the phantom is to be.
    pub(crate) fn configure(&self, phantom_conf: &str) -> anyhow::Result<()> {
        let path = self.path().join(PHANTOM_CONF);
        fs::write(&path, phantom_conf)
            .map_err(|error| anyhow::anyhow!("cannot write {}: {}", path.display(), reason(&error)))
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Whether a serving engine runs in it.
    pub(crate) fn serves(&self) -> bool {
        self.path().join(contract::SERVES).exists()
    }

    /// Whether the run has shown enough, and a process of it was asked to end.
    pub(crate) fn was_asked_to_stop(&self) -> bool {
        self.path().join(contract::ASKED_TO_STOP).exists()
    }

    /// Whether something of the run ended with an error, so that the answer is known.
    pub(crate) fn has_failed(&self) -> bool {
        self.path().join(contract::FAILED).exists()
    }

    /// Whom the run reached outside of its own processes.
    pub(crate) fn reached(&self) -> Reached {
        let told = bounded_file::bytes(&self.path().join(contract::NETWORK), bounded_file::SOURCE);
        sources::network::read(&told.unwrap_or_default())
    }

    /// What a script prints that nobody is to see now.
    pub(crate) fn output(&self) -> PathBuf {
        self.path().join(contract::OUTPUT)
    }

    /// The last line of that, which says why a script that ended itself did so.
    pub(crate) fn last_words(&self) -> Option<String> {
        let end = bounded_file::end_of(&self.output(), LAST_WORDS).ok()?;
        let text = String::from_utf8_lossy(&end);
        Some(text.lines().rev().map(str::trim).find(|it| !it.is_empty())?.to_owned())
    }

    /// The folders `process-<pid>` that the run has left so far.
    pub(crate) fn process_paths(&self) -> Vec<(u32, PathBuf)> {
        process_paths(self.path())
    }

    /// Everything that the processes left.
    pub(crate) fn read(&self) -> Vec<ProcessFolder> {
        let processes = self.process_paths().into_iter();
        let of = |(pid, folder): (u32, PathBuf)| {
            let read = |process: ProcessFile| {
                bounded_file::bytes(&folder.join(process.name()), bounded_file::RECORDING).ok()
            };
            ProcessFolder {
                pid,
                notes: read(ProcessFile::Notes).unwrap_or_default(),
                snapshot: read(ProcessFile::Snapshot),
                phantom_log: read(ProcessFile::PhantomLog),
            }
        };
        processes.map(of).collect()
    }
}

/// The folders `process-<pid>` that the run of the session `folder` has left so far.
pub(crate) fn process_paths(folder: &Path) -> Vec<(u32, PathBuf)> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut res: Vec<(u32, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| {
            let pid = process_of(entry.file_name().to_str()?)?;
            Some((pid, entry.path()))
        })
        .collect();
    res.sort();
    res
}
