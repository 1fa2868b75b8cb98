//! Where the tracer writes the names that the kernel is to read instead of a program's: memory of each task that nobody but a tracer
//! can change. The program may only read it, and no call takes away, replaces or forgets anything in the part of its address space
//! where all such memory lies. Threads must not share one either: a name would be changed while the kernel reads it.

use libc::{c_long, user_regs_struct};
use nix::errno::Errno;

use super::{
    arguments::{Verdict, low_half},
    memory::Scratch,
};

/// Four GiB of addresses, where the kernel puts nothing by itself, by their upper half. The gate lies below.
pub(super) const UPPER_HALF: u32 = 0x2F5F;
const BEGIN: u64 = (UPPER_HALF as u64) << 32;
const END: u64 = BEGIN + (1 << 32);

/// Gives each task another place, so that tasks which share their memory have different ones.
#[derive(Debug)]
pub(super) struct Places {
    next: u64,
}

impl Default for Places {
    fn default() -> Places {
        Places { next: BEGIN }
    }
}

impl Places {
    /// The call that makes the next one, in place of the call in `registers`. It fails if something is there already.
    pub(super) fn get(&mut self, registers: &user_regs_struct) -> user_regs_struct {
        let mut res = *registers;
        let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        res.orig_rax = libc::SYS_mmap.unsigned_abs();
        (res.rdi, res.rsi) = (self.next, Scratch::SIZE);
        (res.rdx, res.r10) = (libc::PROT_READ.unsigned_abs().into(), how.unsigned_abs().into());
        (res.r8, res.r9) = (u64::MAX, 0);
        self.next = if self.next + Scratch::SIZE < END { self.next + Scratch::SIZE } else { BEGIN };
        res
    }
}

/// Calls that change what lies at an address, by their arguments: from where, and how long.
pub(super) const CHANGING: [c_long; 6] = [
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_pkey_mprotect,
];

/// What becomes of such a call; nothing if it is another one.
pub(super) fn decide(registers: &user_regs_struct) -> Option<Verdict> {
    let number = i64::from_ne_bytes(registers.orig_rax.to_ne_bytes());
    if !CHANGING.contains(&number) {
        return None;
    }
    let is_ours = |from: u64, length: u64| from < END && BEGIN < from.saturating_add(length);
    let flags = low_half(registers.r10);
    let at_new_place = number == libc::SYS_mremap && flags & libc::MREMAP_FIXED != 0;
    let changes = is_ours(registers.rdi, registers.rsi)
        || at_new_place && is_ours(registers.r8, registers.rdx);
    Some(if changes { Verdict::Return(-i64::from(Errno::EPERM as i32)) } else { Verdict::Go })
}

/// Whether the caller goes on beside the process that it makes by this call, with the same memory.
pub(super) fn is_shared_on(registers: &user_regs_struct) -> bool {
    let flags = low_half(registers.rdi);
    registers.orig_rax == libc::SYS_clone.unsigned_abs()
        && flags & libc::CLONE_VM != 0
        && flags & libc::CLONE_VFORK == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_refused(number: c_long, arguments: [u64; 5]) -> bool {
        // SAFETY: a struct of numbers.
        let mut it: user_regs_struct = unsafe { std::mem::zeroed() };
        it.orig_rax = number.unsigned_abs();
        [it.rdi, it.rsi, it.rdx, it.r10, it.r8] = arguments;
        matches!(decide(&it), Some(Verdict::Return(_)))
    }

    #[test]
    fn what_is_ours_is_not_changed() {
        let page = 4096;
        assert!(is_refused(libc::SYS_munmap, [BEGIN, page, 0, 0, 0]));
        assert!(is_refused(libc::SYS_munmap, [BEGIN - page, 2 * page, 0, 0, 0]));
        assert!(is_refused(libc::SYS_mprotect, [END - page, page, 3, 0, 0]));
        assert!(is_refused(libc::SYS_madvise, [page, u64::MAX - page, 4, 0, 0]));
        assert!(!is_refused(libc::SYS_munmap, [BEGIN - page, page, 0, 0, 0]));
        assert!(!is_refused(libc::SYS_munmap, [END, page, 0, 0, 0]));
        let (moves, fixed) = (1, 2);
        assert!(is_refused(libc::SYS_mremap, [END, page, page, moves | fixed, BEGIN]));
        assert!(!is_refused(libc::SYS_mremap, [END, page, page, moves, BEGIN]));
    }
}
