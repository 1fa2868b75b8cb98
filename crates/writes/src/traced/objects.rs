//! Objects of the kernel that outlive whoever made them: shared memory, semaphores and queues of the System V kind
//! (sysvipc(7)), and POSIX's message queues (mq_overview(7)). A run makes them in truth; those that it made are removed with
//! its layer.

use std::{fs, os::unix::fs::MetadataExt as _, path::PathBuf};

use libc::{c_long, user_regs_struct};
use nix::unistd::Pid;

use super::{
    arguments::{After, Object, Verdict, low_half},
    memory,
};
use crate::sys::{self, Kind};

/// Calls that may make one.
pub(super) const MAKING: [c_long; 4] =
    [libc::SYS_mq_open, libc::SYS_msgget, libc::SYS_semget, libc::SYS_shmget];

/// What the run has made.
#[derive(Debug, Default)]
pub(super) struct Objects {
    numbered: Vec<(Kind, i32)>,
    /// By its name, and its file's number.
    queues: Vec<(PathBuf, u64)>,
}

impl Objects {
    /// What becomes of such a call; nothing if it is another one.
    pub(super) fn decide(task: Pid, registers: &user_regs_struct) -> Option<Verdict> {
        let number = i64::from_ne_bytes(registers.orig_rax.to_ne_bytes());
        let (kind, flags) = match number {
            libc::SYS_shmget => (Kind::Memory, registers.rdx),
            libc::SYS_semget => (Kind::Semaphores, registers.rdx),
            libc::SYS_msgget => (Kind::Messages, registers.rsi),
            libc::SYS_mq_open => return Some(open_queue(task, registers)),
            _ => return None,
        };
        let key = low_half(registers.rdi);
        let makes = key == libc::IPC_PRIVATE
            || (low_half(flags) & libc::IPC_CREAT != 0 && !sys::has_object(kind, key));
        Some(verdict(makes.then_some(Object::Numbered(kind)), registers))
    }

    /// The call has made this, and given it to `task` as `res`.
    pub(super) fn made(&mut self, task: Pid, object: &Object, res: i64) {
        let Some(res) = i32::try_from(res).ok().filter(|it| 0 <= *it) else { return };
        match object {
            Object::Numbered(kind) => self.numbered.push((*kind, res)),
            Object::Queue(name) => {
                if let Ok(meta) = fs::metadata(format!("/proc/{task}/fd/{res}")) {
                    self.queues.push((name.clone(), meta.ino()));
                }
            }
        }
    }

    /// Removes all that is still there.
    pub(super) fn remove(&mut self) {
        for (kind, number) in self.numbered.drain(..) {
            sys::remove_object(kind, number);
        }
        for (name, file) in self.queues.drain(..) {
            // Another one may have got its name.
            if sys::queue(&name) == Some(file) {
                sys::remove_queue(&name);
            }
        }
    }
}

fn open_queue(task: Pid, registers: &user_regs_struct) -> Verdict {
    let creates = low_half(registers.rsi) & libc::O_CREAT != 0;
    let name = memory::read_path(task, registers.rdi).ok().filter(|_| creates);
    let name = name.filter(|it| sys::queue(it).is_none());
    verdict(name.map(Object::Queue), registers)
}

fn verdict(made: Option<Object>, registers: &user_regs_struct) -> Verdict {
    made.map_or(Verdict::Go, |it| Verdict::Instead(Box::new(*registers), After::Made(it)))
}
