//! Which system calls stop at the tracer, as a seccomp program (seccomp(2), `SECCOMP_RET_TRACE`): those that
//! name files, or change what they are. All others run as they always do. What could go around it is refused.

use libc::c_long;

use super::{
    objects::MAKING,
    scratch::{CHANGING, UPPER_HALF},
    strangers::{MEANS_ITSELF_BY_0, REACHING},
};
use crate::gate::{AFTER, GATE};

/// They name a file, or change one that is open.
pub(super) const TRACED: [c_long; 60] = [
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
    libc::SYS_getpeername,
    libc::SYS_getsockname,
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
const NOT_THERE: [c_long; 5] = [
    libc::SYS_openat2,
    libc::SYS_clone3,
    libc::SYS_io_uring_setup,
    libc::SYS_name_to_handle_at,
    libc::SYS_process_madvise,
];

/// The first number that is newer than what was looked at here: `setxattrat`. Programs do without.
const NEWER: u32 = 463;

/// What changes the world for others, or leads out of it (`EPERM`).
const REFUSED: [c_long; 30] = [
    libc::SYS_acct,
    libc::SYS_adjtimex,
    libc::SYS_chroot,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_ioperm,
    libc::SYS_iopl,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_pivot_root,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
];

/// `ioctl`s of file systems, which change a file or a folder that need not be open for writing: by the letter that they begin with
/// (Documentation/userspace-api/ioctl/ioctl-number.rst). Those that only tell (`_IOR`) are let go; the others are refused (`EPERM`).
const OF_FILE_SYSTEMS: [u32; 14] = [
    0x15, // linux/fs.h
    0x58, // X: XFS and linux/fs.h
    0x66, // f: ext4, fscrypt, fsverity, Lustre and linux/fs.h
    0x68, // h: HFS+
    0x6E, // n: NILFS
    0x6F, // o: OCFS2
    0x72, // r: FAT
    0x76, // v: versions of ext4
    0x83, // ZFS
    0x94, // btrfs and linux/fs.h
    0x97, // Ceph
    0xBC, // bcachefs
    0xCF, // CIFS
    0xF5, // F2FS
];

/// Of these some are no harm: FS_IOC_FIEMAP, FICLONE and FICLONERANGE, which want the target to be open for writing, and Lustre's
/// LL_IOC_LOV_GETSTRIPE.
const HARMLESS_IOCTLS: [u32; 4] = [0xC020_660B, 0x4004_9409, 0x4020_940D, 0x4008_669B];

/// And some look as if they told something: FS_IOC_SET_ENCRYPTION_POLICY and FS_IOC_SHUTDOWN.
const REFUSED_IOCTLS: [u32; 2] = [0x800C_6613, 0x8004_587D];

/// The program of a world that is kept by overlays: renames stop, and what reaches other processes.
pub(super) fn program_of_renames() -> Vec<libc::sock_filter> {
    let mut it = Program::default();
    it.load(ARCH);
    it.unless_equal(AUDIT_ARCH_X86_64, libc::SECCOMP_RET_ALLOW);
    it.load(NUMBER);
    for number in [libc::SYS_rename, libc::SYS_renameat, libc::SYS_renameat2] {
        it.if_equal(low(number), libc::SECCOMP_RET_TRACE);
    }
    it.stop_what_reaches_others();
    it.end(libc::SECCOMP_RET_ALLOW)
}

/// What a container's filter says to those who may not mount, for this process and all that it starts: the first
/// way does not hold any more, nor does Landlock. For tests, and to see what a user of such a machine sees.
pub fn refuse_namespaces() -> std::io::Result<()> {
    let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();
    let mut it = Program::default();
    it.load(NUMBER);
    for number in [libc::SYS_unshare, libc::SYS_mount, libc::SYS_setns, libc::SYS_pivot_root] {
        it.if_equal(low(number), refused);
    }
    it.with_argument((low(libc::SYS_clone), 0), libc::SECCOMP_RET_ALLOW, |call| {
        let spaces = libc::CLONE_NEWNS | libc::CLONE_NEWUSER;
        call.if_any_of(spaces.unsigned_abs(), refused);
    });
    it.if_equal(low(libc::SYS_landlock_create_ruleset), refused);
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
    for number in TRACED.into_iter().chain(MAKING) {
        it.if_equal(low(number), libc::SECCOMP_RET_TRACE);
    }
    it.stop_what_reaches_others();
    it.stop_what_changes_our_memory(refused);
    it.with_argument((low(libc::SYS_ioctl), 1), libc::SECCOMP_RET_ALLOW, |call| {
        for command in REFUSED_IOCTLS {
            call.if_equal(command, refused);
        }
        for command in HARMLESS_IOCTLS {
            call.if_equal(command, libc::SECCOMP_RET_ALLOW);
        }
        // linux/ioctl.h: two bits say in which direction data goes, and bits 8 to 15 are the letter.
        call.compute(libc::BPF_AND, 3 << 30);
        call.if_equal(2 << 30, libc::SECCOMP_RET_ALLOW);
        call.load(argument(1));
        call.compute(libc::BPF_RSH, 8);
        call.compute(libc::BPF_AND, 0xFF);
        for letter in OF_FILE_SYSTEMS {
            call.if_equal(letter, refused);
        }
    });
    it.with_argument((low(libc::SYS_clone), 0), libc::SECCOMP_RET_ALLOW, |call| {
        let spaces = libc::CLONE_NEWNS | libc::CLONE_NEWUSER;
        call.if_any_of(spaces.unsigned_abs(), refused);
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

    fn compute(&mut self, operation: u32, value: u32) {
        self.push(libc::BPF_ALU | operation | libc::BPF_K, value, (0, 0));
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

    fn unless_any_of(&mut self, bits: u32, answer: u32) {
        self.push(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, bits, (1, 0));
        self.answer(answer);
    }

    /// Calls that reach another process stop, but for those that can mean their own by 0 and do: libc asks for limits often.
    fn stop_what_reaches_others(&mut self) {
        for number in REACHING {
            if MEANS_ITSELF_BY_0.contains(&number) {
                self.with_argument((low(number), 0), libc::SECCOMP_RET_TRACE, |call| {
                    call.if_equal(0, libc::SECCOMP_RET_ALLOW);
                });
            } else {
                self.if_equal(low(number), libc::SECCOMP_RET_TRACE);
            }
        }
    }

    /// Calls that may change the tracer's part of a program's memory stop: those that begin there, or begin below and may reach it.
    /// Nearly all memory lies above.
    fn stop_what_changes_our_memory(&mut self, refused: u32) {
        let (from, length) = (argument(0) + 4, argument(1) + 4);
        for number in CHANGING {
            let mut inner = Program::default();
            match number {
                // Of these only some take the place of what is there.
                libc::SYS_mmap => {
                    inner.load(argument(3));
                    inner.unless_any_of(libc::MAP_FIXED.unsigned_abs(), libc::SECCOMP_RET_ALLOW);
                }
                libc::SYS_mremap => {
                    inner.load(argument(3));
                    inner.if_any_of(libc::MREMAP_FIXED.unsigned_abs(), libc::SECCOMP_RET_TRACE);
                }
                _ => (),
            }
            inner.load(from);
            inner.if_at_least(UPPER_HALF + 1, libc::SECCOMP_RET_ALLOW);
            inner.if_at_least(UPPER_HALF - 1, libc::SECCOMP_RET_TRACE);
            inner.load(length);
            inner.if_at_least(1, libc::SECCOMP_RET_TRACE);
            self.of_call(low(number), inner, libc::SECCOMP_RET_ALLOW);
        }
        self.with_argument((low(libc::SYS_shmat), 2), libc::SECCOMP_RET_ALLOW, |call| {
            call.if_any_of(libc::SHM_REMAP.unsigned_abs(), refused);
        });
        // As root it can shrink what is not the heap.
        self.with_argument((low(libc::SYS_prctl), 0), libc::SECCOMP_RET_ALLOW, |call| {
            call.if_equal(libc::PR_SET_MM.unsigned_abs(), refused);
        });
    }

    /// For the system call of this number: what is said of its argument of that number, then nothing more but `answer`.
    fn with_argument(
        &mut self,
        (number, n): (u32, u32),
        answer: u32,
        say: impl FnOnce(&mut Program),
    ) {
        let mut inner = Program::default();
        inner.load(argument(n));
        say(&mut inner);
        self.of_call(number, inner, answer);
    }

    /// For the system call of this number: this, then nothing more but `answer`.
    fn of_call(&mut self, number: u32, mut inner: Program, answer: u32) {
        inner.answer(answer);
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
        calls.with_argument((low(libc::SYS_openat), 2), libc::SECCOMP_RET_ALLOW, |call| {
            let writing = libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC;
            call.if_any_of(writing.unsigned_abs(), libc::SECCOMP_RET_TRACE);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What the program answers to a system call with these arguments, as the kernel works it out.
    fn answer(program: &[libc::sock_filter], number: c_long, arguments: [u64; 6]) -> u32 {
        let mut data = [0u8; 64];
        data[..4].copy_from_slice(&low(number).to_ne_bytes());
        data[4..8].copy_from_slice(&AUDIT_ARCH_X86_64.to_ne_bytes());
        for (n, it) in arguments.iter().enumerate() {
            data[16 + 8 * n..24 + 8 * n].copy_from_slice(&it.to_ne_bytes());
        }
        let (mut at, mut value) = (0, 0u32);
        loop {
            let it = program[at];
            at += 1;
            let jump = |holds: bool| usize::from(if holds { it.jt } else { it.jf });
            match u32::from(it.code) {
                code if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => {
                    let from = usize::try_from(it.k).unwrap();
                    value = u32::from_ne_bytes(*data[from..].first_chunk().unwrap());
                }
                code if code == libc::BPF_ALU | libc::BPF_AND | libc::BPF_K => value &= it.k,
                code if code == libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K => value >>= it.k,
                code if code == libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K => {
                    at += jump(value == it.k);
                }
                code if code == libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K => {
                    at += jump(value >= it.k);
                }
                code if code == libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K => {
                    at += jump(value & it.k != 0);
                }
                code => {
                    assert_eq!(code, libc::BPF_RET | libc::BPF_K);
                    return it.k;
                }
            }
        }
    }

    #[test]
    fn ioctls_that_change_a_file_are_refused_and_others_are_not() {
        let program = program();
        let ioctl =
            |command: u32| answer(&program, libc::SYS_ioctl, [3, command.into(), 0, 0, 0, 0]);
        let changing = [
            0x4008_6602, // FS_IOC_SETFLAGS
            0x4004_6602, // FS_IOC32_SETFLAGS
            0x401C_5820, // FS_IOC_FSSETXATTR
            0x4100_9432, // FS_IOC_SETFSLABEL
            0x4008_7602, // FS_IOC_SETVERSION
            0x4008_6604, // EXT4_IOC_SETVERSION
            0x4080_6685, // FS_IOC_ENABLE_VERITY
            0x800C_6613, // FS_IOC_SET_ENCRYPTION_POLICY
            0x8004_587D, // FS_IOC_SHUTDOWN
            0xC004_5877, // FIFREEZE
            0xC018_5879, // FITRIM
            0x0000_6609, // EXT4_IOC_MIGRATE
            0xC028_660F, // EXT4_IOC_MOVE_EXT
            0x4020_5829, // XFS_IOC_UNRESVSP
            0x5000_940F, // BTRFS_IOC_SNAP_DESTROY
            0x5000_9418, // BTRFS_IOC_SUBVOL_CREATE_V2
            0xC018_9436, // FIDEDUPERANGE
            0x4004_F50D, // F2FS_IOC_SET_PIN_FILE
            0x4004_7211, // FAT_IOCTL_SET_ATTRIBUTES
            0x4008_8302, // ZFS_IOC_SETDOSFLAGS
        ];
        let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();
        for it in changing {
            assert_eq!(ioctl(it), refused, "{it:#x}");
        }
        let others = [
            0x0000_5401, // TCGETS
            0x0000_541B, // FIONREAD
            0x0000_8912, // SIOCGIFCONF
            0xC020_462A, // of NVIDIA's driver
            0xC018_1B01, // RDMA_VERBS_IOCTL
            0x8008_6601, // FS_IOC_GETFLAGS
            0x801C_581F, // FS_IOC_FSGETXATTR
            0x8008_7601, // FS_IOC_GETVERSION
            0x8100_9431, // FS_IOC_GETFSLABEL
            0xC020_660B, // FS_IOC_FIEMAP
            0x4004_9409, // FICLONE
        ];
        for it in others {
            assert_eq!(ioctl(it), libc::SECCOMP_RET_ALLOW, "{it:#x}");
        }
        assert_eq!(answer(&program, libc::SYS_read, [0; 6]), libc::SECCOMP_RET_ALLOW);
        for number in [libc::SYS_kill, libc::SYS_prlimit64] {
            assert_eq!(answer(&program, number, [1; 6]), libc::SECCOMP_RET_TRACE);
        }
        assert_eq!(answer(&program, libc::SYS_kill, [0; 6]), libc::SECCOMP_RET_TRACE);
        assert_eq!(answer(&program, libc::SYS_prlimit64, [0; 6]), libc::SECCOMP_RET_ALLOW);
    }
}
