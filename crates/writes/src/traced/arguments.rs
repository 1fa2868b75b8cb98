//! A system call of a stopped task: its arguments, which are numbers, and names that are read from the task's memory and
//! replaced there; and what can become of it.

use std::{
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use libc::user_regs_struct;
use nix::{errno::Errno, unistd::Pid};

use super::{
    memory::{self, Scratch},
    place::Found,
    view::View,
};
use crate::sys::Kind;

/// What the kernel is to do.
#[derive(Debug)]
pub(super) enum Verdict {
    /// As asked.
    Go,
    /// Nothing; the program gets this.
    Return(i64),
    /// This instead; afterwards the program has its own registers again.
    Instead(Box<user_regs_struct>, After),
}

/// One system call of a task that is stopped.
pub(super) struct Call<'a> {
    pub(super) view: &'a mut View,
    pub(super) task: Pid,
    pub(super) registers: user_regs_struct,
    /// Memory of the task that is ours.
    pub(super) scratch: Scratch,
}

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
    /// A socket has the name that the program gave it. `capacity` is what its buffer holds, `length` the address of the length.
    Socket {
        buffer: u64,
        length: u64,
        capacity: usize,
    },
    /// An object of the kernel is the run's, if it was made.
    Made(Object),
    /// An overlay may have refused what a disk would do.
    Renamed {
        from: PathBuf,
        to: PathBuf,
    },
}

/// What a call makes of the kernel's objects if it succeeds.
#[derive(Clone, Debug)]
pub(super) enum Object {
    Numbered(Kind),
    /// A message queue of this name.
    Queue(PathBuf),
}

/// The form in which a file's looks are told.
#[derive(Clone, Copy, Debug)]
pub(super) enum Buffer {
    Stat,
    Statx,
}

/// A name among the arguments: of the folder from which it starts, and of the text.
#[derive(Clone, Copy)]
pub(super) struct Name {
    pub(super) from: Option<usize>,
    pub(super) text: usize,
    pub(super) follow: bool,
}

pub(super) const fn name(from: Option<usize>, text: usize, follow: bool) -> Name {
    Name { from, text, follow }
}

impl Call<'_> {
    pub(super) fn argument(&self, n: usize) -> u64 {
        let it = &self.registers;
        [it.rdi, it.rsi, it.rdx, it.r10, it.r8, it.r9][n]
    }

    pub(super) fn int(&self, n: usize) -> i32 {
        low_half(self.argument(n))
    }

    pub(super) fn has(&self, n: usize, flag: i32) -> bool {
        self.int(n) & flag != 0
    }

    /// Where the kernel says a folder is from which a path starts.
    pub(super) fn folder_of(&self, name: Name) -> Result<PathBuf, Errno> {
        let descriptor = name.from.map(|it| self.int(it)).filter(|it| *it != libc::AT_FDCWD);
        let link = match descriptor {
            None => format!("/proc/{}/cwd", self.task),
            Some(it) => format!("/proc/{}/fd/{it}", self.task),
        };
        std::fs::read_link(link).map_err(|_| Errno::EBADF)
    }

    pub(super) fn find(&mut self, name: Name) -> Result<Found, Errno> {
        let text = memory::read_path(self.task, self.argument(name.text))?;
        if text.is_absolute() {
            return self.view.resolve(self.task, Path::new("/"), &text, name.follow);
        }
        let folder = self.folder_of(name)?;
        let from = self.view.named(&folder);
        let mut res = self.view.resolve(self.task, &from, &text, name.follow)?;
        res.is_natural &= self.view.is_disks_own(&folder);
        Ok(res)
    }

    /// Whether an empty path means the descriptor itself, and it is given.
    pub(super) fn is_of_descriptor(&self, name: Name, flags: usize) -> Result<bool, Errno> {
        let address = self.argument(name.text);
        let means_it = self.has(flags, libc::AT_EMPTY_PATH);
        Ok(means_it
            && (address == 0 || memory::read_path(self.task, address)?.as_os_str().is_empty()))
    }

    /// The call with this path for that argument.
    pub(super) fn with_path(
        &mut self,
        argument: usize,
        path: &Path,
        after: After,
    ) -> Result<Verdict, Errno> {
        let mut registers = self.registers;
        self.put_path(&mut registers, argument, path, self.scratch)?;
        Ok(Verdict::Instead(Box::new(registers), after))
    }

    pub(super) fn put_path(
        &self,
        registers: &mut user_regs_struct,
        argument: usize,
        path: &Path,
        at: Scratch,
    ) -> Result<(), Errno> {
        let mut bytes = path.as_os_str().as_bytes().to_vec();
        bytes.push(0);
        if Scratch::PATH < bytes.len() {
            return Err(Errno::ENAMETOOLONG);
        }
        memory::write_ours(self.task, at, &bytes)?;
        let register = match argument {
            0 => &mut registers.rdi,
            1 => &mut registers.rsi,
            2 => &mut registers.rdx,
            _ => &mut registers.r10,
        };
        *register = at.0;
        Ok(())
    }
}

/// The names among the arguments of a call that is only looked at.
pub(super) struct Names {
    pub(super) task: Pid,
    pub(super) registers: user_regs_struct,
}

impl Names {
    /// From where to where, if it is a rename that says no more than that.
    pub(super) fn of_rename(&self) -> Option<(PathBuf, PathBuf)> {
        let it = &self.registers;
        let number = i64::from_ne_bytes(it.orig_rax.to_ne_bytes());
        if number == libc::SYS_renameat2 && it.r8 != 0 {
            return None;
        }
        let argument = |n: usize| [it.rdi, it.rsi, it.rdx, it.r10][n];
        let mut paths = texts(number)?.into_iter().map(|(folder, text)| {
            let folder = folder.map(|n| low_half(argument(n)));
            let text = memory::read_path(self.task, argument(text)).ok()?;
            Some(seen_from_here(self.task, folder, text))
        });
        Some((paths.next()??, paths.next()??))
    }
}

/// What the kernel looks at for an `int`.
pub(super) fn low_half(register: u64) -> i32 {
    let [a, b, c, d, ..] = register.to_ne_bytes();
    i32::from_ne_bytes([a, b, c, d])
}

/// The order of a rename's arguments, for each of the three calls.
fn texts(number: i64) -> Option<[(Option<usize>, usize); 2]> {
    match number {
        libc::SYS_rename => Some([(None, 0), (None, 1)]),
        libc::SYS_renameat | libc::SYS_renameat2 => Some([(Some(0), 1), (Some(2), 3)]),
        _ => None,
    }
}

/// How a task's path is named from outside of it.
fn seen_from_here(task: Pid, folder: Option<i32>, text: PathBuf) -> PathBuf {
    match folder.filter(|it| *it != libc::AT_FDCWD) {
        _ if text.is_absolute() => text,
        None => PathBuf::from(format!("/proc/{task}/cwd")).join(text),
        Some(it) => PathBuf::from(format!("/proc/{task}/fd/{it}")).join(text),
    }
}
