//! Where something lies that a command names, and what is there.

use std::{
    ffi::{OsStr, OsString},
    fs::Metadata,
    io,
    os::unix::{ffi::OsStringExt as _, fs::FileTypeExt as _},
    path::{Path, PathBuf},
};

use nix::{errno::Errno, unistd::Pid};

/// Where something lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the layer.
    Ours(PathBuf),
    /// On the disk, not to be written to.
    Theirs(PathBuf),
    /// Where the run reads and writes in truth.
    Through(PathBuf),
}

impl Place {
    pub(super) fn path(&self) -> &Path {
        let (Place::Ours(it) | Place::Theirs(it) | Place::Through(it)) = self;
        it
    }

    pub(super) fn join(&self, name: &OsStr) -> Place {
        match self {
            Place::Ours(it) => Place::Ours(it.join(name)),
            Place::Theirs(it) => Place::Theirs(it.join(name)),
            Place::Through(it) => Place::Through(it.join(name)),
        }
    }
}

/// A path, with its links followed.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// As the command would name it; no link, dot or double dot is left in it.
    pub(super) path: PathBuf,
    pub(super) place: Place,
    /// What is there; nothing if there is nothing, in a folder that exists.
    pub(super) meta: Option<Metadata>,
    /// The path ended in the descriptor of this process and this number.
    pub(super) descriptor: Option<(Pid, i32)>,
    /// The kernel would come to the same, starting from an absolute path or a folder that is its own.
    pub(super) is_natural: bool,
}

impl Found {
    pub(super) fn is_folder(&self) -> bool {
        self.meta.as_ref().is_some_and(Metadata::is_dir)
    }

    pub(super) fn is_file(&self) -> bool {
        self.meta.as_ref().is_some_and(Metadata::is_file)
    }

    pub(super) fn is_pipe(&self) -> bool {
        self.meta.as_ref().is_some_and(|it| it.file_type().is_fifo())
    }
}

pub(super) fn errno(error: &io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}

/// Bytes that a program gave, as a path.
pub(super) fn path_of(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes))
}
