//! Folders of ours as trees: how much disk they take, removed whatever their modes are, copied with their holes.

use std::{
    fs::{self, File},
    io,
    os::{
        fd::AsFd as _,
        unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, symlink},
    },
    path::Path,
};

use nix::{
    fcntl::{FallocateFlags, copy_file_range, fallocate},
    unistd::{Whence, lseek},
};

use crate::sys;

/// Files from this size on are looked through for zeros.
const LARGE: u64 = 1 << 20;
/// Zeros are looked for in pieces of this size, in bytes.
const PIECE: usize = 64 << 10;

/// The bytes that `path` and all below it take on the disk; holes take none.
pub(crate) fn disk_bytes(path: &Path) -> u64 {
    let Ok(meta) = fs::symlink_metadata(path) else { return 0 };
    let mut res = 512 * meta.blocks();
    if meta.is_dir() {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        res += entries.map(|it| disk_bytes(&it.path())).sum::<u64>();
    }
    res
}

/// The bytes that are free on the disk of `path`.
pub(crate) fn free_bytes(path: &Path) -> Option<u64> {
    let disk = nix::sys::statvfs::statvfs(path).ok()?;
    Some(disk.blocks_available() * disk.fragment_size())
}

/// Removes `path` and all below it. Who made a folder that nobody may enter has not made it for us.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    if fs::remove_dir_all(path).is_ok() {
        return Ok(());
    }
    open_up(path);
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn open_up(path: &Path) {
    let Ok(meta) = fs::symlink_metadata(path) else { return };
    if meta.is_dir() || meta.is_file() {
        // Root may have said that nobody may change it (chattr(1)).
        let _ = File::open(path).and_then(|it| sys::clear_flags(&it));
    }
    if meta.is_dir() {
        let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o700));
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            open_up(&entry.path());
        }
    }
}

/// Gives the pages of zeros in large files below `path` back to the disk: checkpoints of a phantom are zeros. Files
/// that somebody has open are left for another time.
pub(crate) fn free_zeros(path: &Path) {
    let Ok(meta) = fs::symlink_metadata(path) else { return };
    if meta.is_dir() {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            free_zeros(&entry.path());
        }
    } else if meta.is_file() && LARGE <= 512 * meta.blocks() {
        let _ = free_zeros_of(path);
    }
}

fn free_zeros_of(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::FileExt as _;
    let file = fs::OpenOptions::new().read(true).write(true).open(path)?;
    // Nobody else has it open, and whoever opens it waits until we are done.
    sys::lease(&file)?;
    let mut piece = vec![0; PIECE];
    for (from, to) in Extents::of(&file) {
        let mut at = from;
        while at < to {
            let wanted = usize::try_from(to - at).unwrap_or(PIECE).min(PIECE);
            let n = file.read_at(&mut piece[..wanted], at)?;
            if n == 0 {
                break;
            }
            if piece[..n].iter().all(|it| *it == 0) {
                let flags =
                    FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
                fallocate(&file, flags, offset(at)?, offset(n as u64)?)?;
            }
            at += n as u64;
        }
    }
    Ok(())
}

/// Copies `from`, which may be anything, to `to`, which does not exist. Holes stay holes.
pub(crate) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let meta = fs::symlink_metadata(from)?;
    let kind = meta.file_type();
    if kind.is_symlink() {
        return symlink(fs::read_link(from)?, to);
    }
    if kind.is_dir() {
        fs::create_dir(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
    } else if kind.is_file() {
        copy_bytes(&File::open(from)?, &File::create_new(to)?)?;
    } else if kind.is_fifo() {
        nix::unistd::mkfifo(to, nix::sys::stat::Mode::from_bits_truncate(meta.mode()))?;
    } else {
        return Ok(()); // A socket that nobody listens at, a device, overlayfs's mark of a deletion.
    }
    dress(&meta, to)
}

/// The bytes of a file into another, with its holes.
pub(crate) fn copy_bytes(from: &File, to: &File) -> io::Result<()> {
    for (start, end) in Extents::of(from) {
        let (mut read_at, mut write_at) = (offset(start)?, offset(start)?);
        while read_at < offset(end)? {
            let rest = usize::try_from(offset(end)? - read_at).unwrap_or(usize::MAX);
            match copy_file_range(from, Some(&mut read_at), to, Some(&mut write_at), rest) {
                Ok(0) => break,
                Ok(_) => (),
                Err(_) => {
                    copy_slowly(from, to, start, end)?;
                    break;
                }
            }
        }
    }
    to.set_len(from.metadata()?.len())
}

fn copy_slowly(from: &File, to: &File, start: u64, end: u64) -> io::Result<()> {
    use std::os::unix::fs::FileExt as _;
    let mut piece = vec![0; PIECE];
    let mut at = start;
    while at < end {
        let wanted = usize::try_from(end - at).unwrap_or(PIECE).min(PIECE);
        let n = from.read_at(&mut piece[..wanted], at)?;
        if n == 0 {
            break;
        }
        to.write_all_at(&piece[..n], at)?;
        at += n as u64;
    }
    Ok(())
}

/// Owner, mode and times, as far as we may give them.
pub(crate) fn dress(meta: &fs::Metadata, path: &Path) -> io::Result<()> {
    let _ = std::os::unix::fs::lchown(path, Some(meta.uid()), Some(meta.gid()));
    let times = fs::FileTimes::new().set_modified(meta.modified()?).set_accessed(meta.accessed()?);
    // Needs an open file, not a right to write.
    if let Ok(file) = File::open(path) {
        let _ = file.set_times(times);
    }
    fs::set_permissions(path, fs::Permissions::from_mode(meta.mode() & 0o7777))
}

/// (from, to) of the parts of a file that are not holes.
struct Extents<'a> {
    file: &'a File,
    at: i64,
}

impl Extents<'_> {
    fn of(file: &File) -> Extents<'_> {
        Extents { file, at: 0 }
    }
}

impl Iterator for Extents<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        let from = lseek(self.file.as_fd(), self.at, Whence::SeekData).ok()?;
        let to = lseek(self.file.as_fd(), from, Whence::SeekHole).ok()?;
        self.at = to;
        Some((u64::try_from(from).ok()?, u64::try_from(to).ok()?))
    }
}

fn offset(bytes: u64) -> io::Result<i64> {
    i64::try_from(bytes).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;

    #[test]
    fn a_copy_keeps_its_holes_and_zeros_become_holes() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        let file = File::create(&a).unwrap();
        file.write_all_at(b"first", 0).unwrap();
        file.write_all_at(b"last", 40 << 20).unwrap();
        copy(&a, &b).unwrap();
        assert!(fs::read(&a).unwrap() == fs::read(&b).unwrap());
        assert!(disk_bytes(&b) <= 1 << 20);
        fs::write(&b, vec![0; 8 << 20]).unwrap();
        drop(file);
        free_zeros(dir.path());
        assert_eq!(fs::metadata(&b).unwrap().len(), 8 << 20);
        assert!(disk_bytes(&b) <= 64 << 10, "{}", disk_bytes(&b));
    }

    #[test]
    fn what_nobody_may_enter_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let locked = dir.path().join("a/b");
        fs::create_dir_all(&locked).unwrap();
        fs::write(locked.join("c"), "").unwrap();
        for it in [locked.as_path(), &dir.path().join("a")] {
            fs::set_permissions(it, fs::Permissions::from_mode(0o000)).unwrap();
        }
        remove(&dir.path().join("a")).unwrap();
        assert!(!dir.path().join("a").exists());
    }
}
