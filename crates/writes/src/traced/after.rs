//! What is left to do when the kernel has done a call under another name: the program is told what it would have been
//! told without us.

use std::{
    fs::Metadata,
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
};

use nix::{errno::Errno, unistd::Pid};

use super::{
    arguments::{After, Buffer},
    memory,
    place::path_of,
    renames::rename_by_copy,
    view::View,
};

/// Does what is left of a call whose answer is `res`; the answer that the program gets.
pub(super) fn finish(view: Option<&View>, task: Pid, after: &After, res: i64) -> i64 {
    let Some(view) = view else {
        return match after {
            After::Renamed { from, to } => rename_by_copy(from, to, res),
            _ => res,
        };
    };
    match after {
        After::Nothing | After::Renamed { .. } | After::Made(_) => res,
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
        After::Socket { buffer, length, capacity } => {
            if res == 0 {
                let _ = tell_address(view, task, *buffer, *length, *capacity);
            }
            res
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

/// getsockname(2): of an address that is longer than the buffer its beginning, and the whole length.
fn tell_address(view: &View, task: Pid, buffer: u64, length: u64, capacity: usize) -> Option<()> {
    let bytes = memory::read_bytes(task, length, 4).ok()?;
    let all = usize::try_from(u32::from_ne_bytes(bytes.try_into().ok()?)).ok()?;
    let ours = memory::read_bytes(task, buffer, all.min(capacity)).ok()?;
    let address = view.address_given(&ours)?;
    memory::write_bytes(task, buffer, &address[..address.len().min(capacity)]).ok()?;
    memory::write_bytes(task, length, &u32::try_from(address.len()).ok()?.to_ne_bytes()).ok()
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
