//! What a command inherits that is open: folders, and files that are open for reading. They are the disk's. Whoever has one can
//! open it once more for writing (`/dev/stdin`, `/proc/self/fd/8`), change its mode, or make files below it. So each is opened
//! again in the world, by its name, at the same number and place. Files that are open for writing, pipes, terminals and sockets
//! stay what they are: somebody waits at the other end.

use std::{
    ffi::CString,
    fs, io,
    os::{
        fd::{AsFd as _, RawFd},
        unix::fs::MetadataExt as _,
    },
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, FdFlag, OFlag, fcntl, open},
    sys::stat::{Mode, fstat},
    unistd::{AccessFlags, Whence, access, geteuid, lseek},
};

use crate::{plan::c_path, sys};

/// What the next program is given, as it is now.
#[derive(Debug)]
pub(crate) struct Inherited {
    given: Vec<Given>,
    /// Where they may be when the program starts: one may be given as its standard input.
    numbers: Vec<RawFd>,
}

/// A folder, or a file that is open for reading.
#[derive(Debug)]
struct Given {
    number: RawFd,
    /// Its disk, and its number there.
    file: (u64, u64),
    /// Nothing where it has none any more.
    name: Option<CString>,
    /// It may stay if it cannot be opened again: nobody sees what is written there, or the command may not write there.
    is_harmless: bool,
}

impl Inherited {
    /// Looks at our own descriptors. What we opened ourselves is closed when the program starts.
    pub(crate) fn look() -> Inherited {
        let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
        let numbers = entries.filter_map(|it| it.file_name().to_str()?.parse().ok());
        let given: Vec<Given> = numbers.filter_map(given).collect();
        let mut numbers: Vec<RawFd> = given.iter().map(|it| it.number).chain(0..=2).collect();
        numbers.sort_unstable();
        numbers.dedup();
        Inherited { given, numbers }
    }

    /// Opens them again where we are by now. Runs after a fork: it allocates nothing.
    pub(crate) fn open_again(&self) -> io::Result<()> {
        for number in &self.numbers {
            let fd = sys::borrow(*number);
            let (Ok(meta), Ok(flags)) = (fstat(fd), fcntl(fd, FcntlArg::F_GETFL)) else { continue };
            let is_it = |it: &&Given| it.file == (meta.st_dev, meta.st_ino);
            let same_number = self.given.iter().filter(|it| it.number == *number).find(is_it);
            let Some(given) = same_number.or_else(|| self.given.iter().find(is_it)) else {
                continue;
            };
            let flags = OFlag::from_bits_truncate(flags);
            if !reads_only(flags) {
                continue;
            }
            let how = flags & (OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NONBLOCK);
            let again = given.name.as_deref().ok_or(Errno::ENOENT).and_then(|name| {
                open(name, how | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())
            });
            match again {
                Ok(again) => {
                    // Where it had come to; what has no place has none here either.
                    if let Ok(at) = lseek(fd, 0, Whence::SeekCur) {
                        let _ = lseek(again.as_fd(), at, Whence::SeekSet);
                    }
                    sys::replace(*number, &again)?;
                }
                Err(_) if given.is_harmless => (),
                // Something that can be neither read nor written to, nor be gone below of.
                Err(_) => {
                    let nothing =
                        open(c"/dev/null", OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?;
                    sys::replace(*number, &nothing)?;
                }
            }
        }
        Ok(())
    }
}

fn given(number: RawFd) -> Option<Given> {
    let fd = sys::borrow(number);
    let own = FdFlag::from_bits_truncate(fcntl(fd, FcntlArg::F_GETFD).ok()?);
    let flags = OFlag::from_bits_truncate(fcntl(fd, FcntlArg::F_GETFL).ok()?);
    if own.contains(FdFlag::FD_CLOEXEC) || !reads_only(flags) {
        return None;
    }
    let link = format!("/proc/self/fd/{number}");
    let meta = fs::metadata(&link).ok().filter(|it| it.is_dir() || it.is_file())?;
    let file = (meta.dev(), meta.ino());
    let name = fs::read_link(&link).ok()?;
    let is_there = fs::symlink_metadata(&name).is_ok_and(|it| (it.dev(), it.ino()) == file);
    let name = is_there.then(|| c_path(&name)).transpose().ok()?;
    let me = geteuid();
    let may_change = me.is_root()
        || me.as_raw() == meta.uid()
        || access(link.as_str(), AccessFlags::W_OK).is_ok();
    let is_harmless = meta.nlink() == 0 || (meta.is_file() && !may_change);
    Some(Given { number, file, name, is_harmless })
}

fn reads_only(flags: OFlag) -> bool {
    flags.contains(OFlag::O_PATH) || !flags.intersects(OFlag::O_WRONLY | OFlag::O_RDWR)
}
