//! What is left to do when the kernel has done a call under another name: the program is told what it would have been
//! told without us.

use std::{
    fs::Metadata,
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::PathBuf,
};

use nix::{errno::Errno, unistd::Pid};

use super::{
    memory,
    renames::rename_by_copy,
    view::{View, path_of},
};

/// What is left to do when the kernel has done it.
#[derive(Debug)]
pub(super) enum After {
    Nothing,
    /// A complete folder looks as the disk's did: programs notice when a folder becomes another one.
    Looks {
        folder: PathBuf,
        buffer: u64,
        kind: Buffer,
    },
    /// Our name is taken out of a link's text.
    Named {
        buffer: u64,
        size: u64,
    },
    /// An overlay may have refused what a disk would do.
    Renamed {
        from: PathBuf,
        to: PathBuf,
    },
}

/// The form in which a file's looks are told.
#[derive(Clone, Copy, Debug)]
pub(super) enum Buffer {
    Stat,
    Statx,
}

/// Does what is left of a call whose answer is `res`; the answer that the program gets.
pub(super) fn finish(view: Option<&View>, task: Pid, after: &After, res: i64) -> i64 {
    let Some(view) = view else {
        return match after {
            After::Renamed { from, to } => rename_by_copy(from, to, res),
            _ => res,
        };
    };
    match after {
        After::Nothing | After::Renamed { .. } => res,
        After::Looks { folder, buffer, kind } => {
            if res == 0
                && let Some(meta) = view.looked(folder)
            {
                let _ = tell_looks(task, *buffer, *kind, meta);
            }
            res
        }
        After::Named { buffer, size } => {
            take_out_name(view, task, *buffer, *size, res).unwrap_or(res)
        }
    }
}

fn take_out_name(view: &View, task: Pid, buffer: u64, size: u64, res: i64) -> Option<i64> {
    let length = usize::try_from(res).ok().filter(|it| 0 < *it)?;
    let text = memory::read_bytes(task, buffer, length).ok()?;
    let real = path_of(text);
    let named = view.named(&real);
    if named == real || !real.is_absolute() {
        return None;
    }
    let bytes = named.as_os_str().as_bytes();
    let n = bytes.len().min(usize::try_from(size).ok()?);
    memory::write_bytes(task, buffer, &bytes[..n]).ok()?;
    i64::try_from(n).ok()
}

/// stat(2) and statx(2) say where each number is.
fn tell_looks(task: Pid, buffer: u64, kind: Buffer, meta: &Metadata) -> Result<(), Errno> {
    let put = |at: u64, bytes: &[u8]| memory::write_bytes(task, buffer + at, bytes);
    match kind {
        Buffer::Stat => {
            put(0, &meta.dev().to_ne_bytes())?;
            put(8, &meta.ino().to_ne_bytes())?;
            put(24, &meta.mode().to_ne_bytes())?;
            put(28, &meta.uid().to_ne_bytes())?;
            put(32, &meta.gid().to_ne_bytes())
        }
        Buffer::Statx => {
            let mode = u16::try_from(meta.mode()).map_err(|_| Errno::EINVAL)?;
            put(20, &meta.uid().to_ne_bytes())?;
            put(24, &meta.gid().to_ne_bytes())?;
            put(28, &mode.to_ne_bytes())?;
            put(32, &meta.ino().to_ne_bytes())?;
            put(136, &libc::major(meta.dev()).to_ne_bytes())?;
            put(140, &libc::minor(meta.dev()).to_ne_bytes())
        }
    }
}
