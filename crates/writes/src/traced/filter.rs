//! Which system calls stop at the tracer, as a seccomp program (seccomp(2), `SECCOMP_RET_TRACE`): those that
//! name files, or change what they are. All others run as they always do. What could go around it is refused.

use libc::c_long;

use crate::gate::{AFTER, GATE};

/// They name a file, or change one that is open.
pub(super) const TRACED: [c_long; 58] = [
    libc::SYS_access,
    libc::SYS_bind,
    libc::SYS_chdir,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_connect,
    libc::SYS_creat,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchmodat2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_fremovexattr,
    libc::SYS_fsetxattr,
    libc::SYS_fstat,
    libc::SYS_futimesat,
    libc::SYS_getcwd,
    libc::SYS_getxattr,
    libc::SYS_inotify_add_watch,
    libc::SYS_lchown,
    libc::SYS_lgetxattr,
    libc::SYS_link,
    libc::SYS_linkat,
    libc::SYS_listxattr,
    libc::SYS_llistxattr,
    libc::SYS_lremovexattr,
    libc::SYS_lsetxattr,
    libc::SYS_lstat,
    libc::SYS_mkdir,
    libc::SYS_mkdirat,
    libc::SYS_mknod,
    libc::SYS_mknodat,
    libc::SYS_newfstatat,
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_readlink,
    libc::SYS_readlinkat,
    libc::SYS_removexattr,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_rmdir,
    libc::SYS_setxattr,
    libc::SYS_stat,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_symlink,
    libc::SYS_symlinkat,
    libc::SYS_truncate,
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    libc::SYS_utime,
    libc::SYS_utimensat,
    libc::SYS_utimes,
];

/// Another way to the same, which programs ask for first and do without (`ENOSYS`).
const NOT_THERE: [c_long; 4] =
    [libc::SYS_openat2, libc::SYS_clone3, libc::SYS_io_uring_setup, libc::SYS_name_to_handle_at];

/// The first number that is newer than what was looked at here: `setxattrat`. Programs do without.
const NEWER: u32 = 463;

/// What changes the world for others, or leads out of it (`EPERM`).
const REFUSED: [c_long; 19] = [
    libc::SYS_acct,
    libc::SYS_chroot,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_pivot_root,
    libc::SYS_quotactl,
    libc::SYS_setns,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
];

/// `ioctl`s that change a file that need not be open for writing (`EPERM`): FS_IOC_SETFLAGS in two widths,
/// FS_IOC_FSSETXATTR, and those that make and remove subvolumes (BTRFS_IOC_SNAP_CREATE, _SUBVOL_CREATE,
/// _SNAP_DESTROY and their second versions).
const REFUSED_IOCTLS: [u32; 9] = [
    0x4008_6602,
    0x4004_6602,
    0x401C_5820,
    0x5000_9401,
    0x5000_940E,
    0x5000_940F,
    0x5000_9417,
    0x5000_9418,
    0x5000_943F,
];

/// The program of a world that is kept by overlays: only renames stop.
pub(super) fn program_of_renames() -> Vec<libc::sock_filter> {
    let mut it = Program::default();
    it.load(ARCH);
    it.unless_equal(AUDIT_ARCH_X86_64, libc::SECCOMP_RET_ALLOW);
    it.load(NUMBER);
    for number in [libc::SYS_rename, libc::SYS_renameat, libc::SYS_renameat2] {
        it.if_equal(low(number), libc::SECCOMP_RET_TRACE);
    }
    it.end(libc::SECCOMP_RET_ALLOW)
}

/// What a container's filter says to those who may not mount, for this process and all that it starts: the first
/// way does not hold any more. For tests, and to see what a user of such a machine sees.
pub fn refuse_namespaces() -> std::io::Result<()> {
    let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();
    let mut it = Program::default();
    it.load(NUMBER);
    for number in [libc::SYS_unshare, libc::SYS_mount, libc::SYS_setns, libc::SYS_pivot_root] {
        it.if_equal(low(number), refused);
    }
    it.with_argument(low(libc::SYS_clone), 0, |it| {
        let spaces = libc::CLONE_NEWNS | libc::CLONE_NEWUSER;
        it.if_any_of(spaces.unsigned_abs(), refused);
    });
    it.if_equal(low(libc::SYS_clone3), libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs());
    crate::sys::install_filter(&it.end(libc::SECCOMP_RET_ALLOW))
}

const AUDIT_ARCH_X86_64: u32 = 0xC000_003E;

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const INSTRUCTION: u32 = 8;
const fn argument(n: u32) -> u32 {
    16 + 8 * n
}

/// The program.
pub(super) fn program() -> Vec<libc::sock_filter> {
    let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();
    let not_there = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs();
    let mut it = Program::default();
    it.load(ARCH);
    it.unless_equal(AUDIT_ARCH_X86_64, not_there);
    it.let_looks_pass();
    it.load(NUMBER);
    // The x32 kind has higher numbers still.
    it.if_at_least(NEWER, not_there);
    for number in NOT_THERE {
        it.if_equal(low(number), not_there);
    }
    for number in REFUSED {
        it.if_equal(low(number), refused);
    }
    for number in TRACED {
        it.if_equal(low(number), libc::SECCOMP_RET_TRACE);
    }
    it.with_argument(low(libc::SYS_ioctl), 1, |it| {
        for command in REFUSED_IOCTLS {
            it.if_equal(command, refused);
        }
    });
    it.with_argument(low(libc::SYS_clone), 0, |it| {
        let spaces = libc::CLONE_NEWNS | libc::CLONE_NEWUSER;
        it.if_any_of(spaces.unsigned_abs(), refused);
    });
    it.end(libc::SECCOMP_RET_ALLOW)
}

fn low(number: c_long) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// A program being written (Documentation/networking/filter.rst).
#[derive(Default)]
struct Program(Vec<libc::sock_filter>);

impl Program {
    fn push(&mut self, code: u32, k: u32, (jt, jf): (u8, u8)) {
        let code = u16::try_from(code).unwrap_or_default();
        self.0.push(libc::sock_filter { code, jt, jf, k });
    }

    fn load(&mut self, offset: u32) {
        self.push(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset, (0, 0));
    }

    fn answer(&mut self, answer: u32) {
        self.push(libc::BPF_RET | libc::BPF_K, answer, (0, 0));
    }

    fn if_equal(&mut self, value: u32, answer: u32) {
        self.push(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value, (0, 1));
        self.answer(answer);
    }

    fn unless_equal(&mut self, value: u32, answer: u32) {
        self.push(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value, (1, 0));
        self.answer(answer);
    }

    fn if_at_least(&mut self, value: u32, answer: u32) {
        self.push(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, value, (0, 1));
        self.answer(answer);
    }

    fn if_any_of(&mut self, bits: u32, answer: u32) {
        self.push(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, bits, (0, 1));
        self.answer(answer);
    }

    /// For the system call of this number: what is said of its argument, then nothing more.
    fn with_argument(&mut self, number: u32, n: u32, say: impl FnOnce(&mut Program)) {
        let mut inner = Program::default();
        inner.load(argument(n));
        say(&mut inner);
        inner.answer(libc::SECCOMP_RET_ALLOW);
        let length = u8::try_from(inner.0.len()).unwrap_or(u8::MAX);
        self.push(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, number, (0, length));
        self.0.extend(inner.0);
    }

    /// What comes through the gate and only looks does not stop.
    fn let_looks_pass(&mut self) {
        let half = |at: u64| u32::try_from(at & u64::from(u32::MAX)).unwrap_or_default();
        let from = GATE + AFTER;
        let mut calls = Program::default();
        calls.load(NUMBER);
        for number in [libc::SYS_newfstatat, libc::SYS_fstat, libc::SYS_access, libc::SYS_readlink]
        {
            calls.if_equal(low(number), libc::SECCOMP_RET_ALLOW);
        }
        calls.with_argument(low(libc::SYS_openat), 2, |it| {
            let writing = libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC;
            it.if_any_of(writing.unsigned_abs(), libc::SECCOMP_RET_TRACE);
        });
        for (offset, value) in [(INSTRUCTION + 4, half(from >> 32)), (INSTRUCTION, half(from))] {
            let mut rest = Program::default();
            rest.load(offset);
            let length = u8::try_from(calls.0.len()).unwrap_or(u8::MAX);
            rest.push(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value, (0, length));
            rest.0.extend(calls.0);
            calls = rest;
        }
        self.0.extend(calls.0);
    }

    fn end(mut self, answer: u32) -> Vec<libc::sock_filter> {
        self.answer(answer);
        self.0
    }
}
