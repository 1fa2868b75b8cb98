//! The system calls that have no safe wrapper, and the three places where a process is forked or
//! prepared for its program. All `unsafe` of the crate is here.
#![expect(unsafe_code, reason = "this is the one file for it")]

use std::{
    ffi::{CStr, CString},
    io,
    os::{
        fd::{AsRawFd, BorrowedFd, FromRawFd as _, OwnedFd, RawFd},
        unix::{ffi::OsStrExt as _, process::CommandExt as _},
    },
    path::Path,
    process::Command,
};

use nix::{
    errno::Errno,
    unistd::{ForkResult, Pid, fork},
};

/// Forks; the child runs `work` and ends, whatever comes of it.
///
/// `work` must not allocate, nor take a lock that another thread may hold: the other threads are gone.
pub(crate) fn fork_to(work: impl FnOnce()) -> io::Result<Pid> {
    // SAFETY: the child does system calls on values that were made before, which is what `work` promises,
    // and never returns from here.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            work();
            // SAFETY: ends this process without running anything of the parent's.
            unsafe { libc::_exit(0) }
        }
    }
}

/// Runs `work` in the child between fork and exec. The same promise.
pub(crate) fn before_exec(
    command: &mut Command,
    work: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
) {
    // SAFETY: `work` makes system calls on values that were made before.
    unsafe {
        command.pre_exec(work);
    }
}

/// Makes a mount read-only, with those below it if `recursive` (mount_setattr(2), Linux 5.12).
pub(crate) fn set_read_only(target: &CStr, recursive: bool) -> io::Result<()> {
    let attr = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_RDONLY,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    let flags = if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path ends in a zero byte and `attr` is of the size that is said.
    let res = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            target.as_ptr(),
            flags,
            &raw const attr,
            size_of::<libc::mount_attr>(),
        )
    };
    if res == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A descriptor of this process that its owner keeps open for as long as the program runs.
pub(crate) fn borrow<'a>(fd: RawFd) -> BorrowedFd<'a> {
    debug_assert!(0 <= fd);
    // SAFETY: every caller holds the owner in the value from which it took the number.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// The number of a descriptor, for a closure that must not own it.
pub(crate) fn number(fd: &impl AsRawFd) -> RawFd {
    fd.as_raw_fd()
}

/// Sends any signal, also one without a name; 0 is none. Whether it could be sent.
pub(crate) fn signal(pid: Pid, signal: i32) -> bool {
    // SAFETY: takes numbers only.
    0 == unsafe { libc::kill(pid.as_raw(), signal) }
}

/// Objects that have a number (sysvipc(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Memory,
    Semaphores,
    Messages,
}

/// Whether there is one with this key, whoever may use it.
pub(crate) fn has_object(kind: Kind, key: i32) -> bool {
    // SAFETY: these calls take numbers only.
    let res = unsafe {
        match kind {
            Kind::Memory => libc::shmget(key, 0, 0),
            Kind::Semaphores => libc::semget(key, 0, 0),
            Kind::Messages => libc::msgget(key, 0),
        }
    };
    0 <= res || Errno::last() != Errno::ENOENT
}

/// Removes one; it may be gone already.
pub(crate) fn remove_object(kind: Kind, number: i32) {
    // SAFETY: to remove one takes no structure.
    unsafe {
        match kind {
            Kind::Memory => libc::shmctl(number, libc::IPC_RMID, std::ptr::null_mut()),
            Kind::Semaphores => libc::semctl(number, 0, libc::IPC_RMID),
            Kind::Messages => libc::msgctl(number, libc::IPC_RMID, std::ptr::null_mut()),
        };
    }
}

/// The file's number of the message queue that the kernel knows by this name, if there is one that we may open.
pub(crate) fn queue(name: &Path) -> Option<u64> {
    let name = CString::new(name.as_os_str().as_bytes()).ok()?;
    // SAFETY: the name ends in a zero byte; no queue is made, so no more is read.
    let open = |how: i32| unsafe {
        libc::syscall(libc::SYS_mq_open, name.as_ptr(), how | libc::O_CLOEXEC, 0, 0usize)
    };
    let fd = [libc::O_RDONLY, libc::O_WRONLY].into_iter().map(open).find(|it| 0 <= *it)?;
    let fd = received(i32::try_from(fd).ok()?);
    nix::sys::stat::fstat(&fd).ok().map(|it| it.st_ino)
}

/// Removes it.
pub(crate) fn remove_queue(name: &Path) {
    if let Ok(name) = CString::new(name.as_os_str().as_bytes()) {
        // SAFETY: the name ends in a zero byte.
        unsafe {
            libc::syscall(libc::SYS_mq_unlink, name.as_ptr());
        }
    }
}

/// A descriptor that somebody has just sent us.
pub(crate) fn received(number: RawFd) -> OwnedFd {
    // SAFETY: the kernel has made it for us, and nobody else knows of it.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// Of this process's descriptors the next program has standard input, output and errors only (close_range(2), Linux 5.11).
pub(crate) fn close_at_exec() {
    // SAFETY: takes numbers only.
    unsafe {
        libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
    }
}

/// Kills a process of which `is_it` holds, and no other one that got its number meanwhile (pidfd_open(2), Linux 5.3). Whether
/// it was killed.
pub(crate) fn kill_if(pid: Pid, is_it: impl Fn() -> bool) -> bool {
    // SAFETY: takes numbers only.
    let held = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) };
    let held = i32::try_from(held).ok().filter(|it| 0 <= *it).map(received);
    if !is_it() {
        return false;
    }
    let Some(held) = held else {
        return nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).is_ok();
    };
    let (fd, none) = (held.as_raw_fd(), std::ptr::null::<libc::siginfo_t>());
    // SAFETY: without a `siginfo_t` the kernel makes one.
    0 == unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, libc::SIGKILL, none, 0) }
}

/// From now on this process, and all that it starts, can send signals to each other and to nobody else, nor follow or trace others
/// (landlock(7), Linux 6.12). Where the kernel does not know it, it does not hold.
pub(crate) fn keep_signals_inside() {
    // `struct landlock_ruleset_attr`: what of files and of the network is handled, which is nothing, and that signals stay inside.
    let attr: [u64; 3] = [0, 0, 1 << 1];
    let (attr, size) = (attr.as_ptr(), size_of_val(&attr));
    // SAFETY: no more is read than `size` says.
    let rules = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, attr, size, 0) };
    let Some(rules) = i32::try_from(rules).ok().filter(|it| 0 <= *it).map(received) else {
        return;
    };
    // SAFETY: takes numbers only.
    let restrict =
        || unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0) };
    // Who has no rights may do it once no program can give it any.
    if restrict() != 0 && nix::sys::prctl::set_no_new_privs().is_ok() {
        restrict();
    }
}

/// Makes `number` a descriptor of what `by` is, for the next program, too.
pub(crate) fn replace(number: RawFd, by: &impl AsRawFd) -> io::Result<()> {
    // SAFETY: the number stays open, and whoever has it is about to be replaced by another program.
    Errno::result(unsafe { libc::dup3(by.as_raw_fd(), number, 0) })?;
    Ok(())
}

/// An extended attribute of a file (getxattr(2)), if it has it.
pub(crate) fn attribute(path: &[u8], name: &str) -> Option<Vec<u8>> {
    let (path, name) = (CString::new(path).ok()?, CString::new(name).ok()?);
    let mut res = vec![0u8; 4096];
    // SAFETY: both texts end in a zero byte, and no more than the buffer is written.
    let n = unsafe {
        libc::lgetxattr(path.as_ptr(), name.as_ptr(), res.as_mut_ptr().cast(), res.len())
    };
    res.truncate(usize::try_from(n).ok()?);
    Some(res)
}

/// Why a traced task stands still (ptrace(2), "Stopped states").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It has ended.
    Gone,
    /// Before a system call that the filter picked.
    Call,
    /// After a system call.
    CallDone,
    /// It has started this process, with its own memory or a copy.
    Forked(Pid),
    /// It runs another program; it had this number until now.
    Executed(Pid),
    /// It was asked to stop, by Ctrl-Z or SIGSTOP.
    Held,
    /// It is new.
    Began,
    /// It is about to get a signal.
    Signal(i32),
    Other,
}

/// What a wait for traced tasks ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Stop(Pid, Stop),
    /// Somebody has an order.
    Interrupted,
    /// Nothing is traced.
    Nobody,
}

/// Makes SIGUSR1 end a wait, and do nothing else.
pub(crate) fn let_orders_interrupt() -> io::Result<()> {
    use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
    extern "C" fn nothing(_: libc::c_int) {}
    let action = SigAction::new(SigHandler::Handler(nothing), SaFlags::empty(), SigSet::empty());
    // SAFETY: the handler does nothing.
    unsafe { sigaction(Signal::SIGUSR1, &action) }?;
    Ok(SigSet::from(Signal::SIGUSR1).thread_unblock()?)
}

/// Waits for the next traced task that stands still.
pub(crate) fn next_stop() -> io::Result<Next> {
    let mut status = 0;
    // SAFETY: `status` is where one number is written.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL) };
    if pid < 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::ECHILD) => Ok(Next::Nobody),
            Some(libc::EINTR) => Ok(Next::Interrupted),
            _ => Err(error),
        };
    }
    let pid = Pid::from_raw(pid);
    if !libc::WIFSTOPPED(status) {
        return Ok(Next::Stop(pid, Stop::Gone));
    }
    let message = || nix::sys::ptrace::getevent(pid).ok().and_then(|it| i32::try_from(it).ok());
    let process = || message().map_or(pid, Pid::from_raw);
    let signal = libc::WSTOPSIG(status);
    let stop = match status >> 16 {
        libc::PTRACE_EVENT_SECCOMP => Stop::Call,
        libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK => Stop::Forked(process()),
        libc::PTRACE_EVENT_EXEC => Stop::Executed(process()),
        libc::PTRACE_EVENT_STOP => match signal {
            libc::SIGTRAP => Stop::Began,
            _ => Stop::Held,
        },
        0 if signal == libc::SIGTRAP | 0x80 => Stop::CallDone,
        0 => Stop::Signal(signal),
        _ => Stop::Other,
    };
    Ok(Next::Stop(pid, stop))
}

/// Lets a task go on until the filter picks a call, with this signal.
pub(crate) fn go_on(task: Pid, signal: Option<i32>) -> Result<(), Errno> {
    resume(libc::PTRACE_CONT, task, signal.unwrap_or(0))
}

/// Lets a task go on until its system call is done.
pub(crate) fn go_on_to_end_of_call(task: Pid) -> Result<(), Errno> {
    resume(libc::PTRACE_SYSCALL, task, 0)
}

/// Leaves a task stopped, as it was asked to be, until it is asked to go on.
pub(crate) fn stay(task: Pid) -> Result<(), Errno> {
    resume(libc::PTRACE_LISTEN, task, 0)
}

fn resume(request: libc::c_uint, task: Pid, signal: i32) -> Result<(), Errno> {
    // SAFETY: these requests read and write no memory of ours.
    let res = unsafe { libc::ptrace(request, task.as_raw(), 0usize, i64::from(signal)) };
    Errno::result(res).map(drop)
}

/// Where only parents may trace (Yama), this process may be traced by that one.
pub(crate) fn allow_tracing_by(tracer: Pid) {
    // SAFETY: sets a number. Where there is no Yama it fails, and need not succeed.
    unsafe {
        libc::prctl(libc::PR_SET_PTRACER, i64::from(tracer.as_raw()), 0, 0, 0);
    }
}

/// A process that is killed when its parent ends.
pub(crate) fn end_with_parent() -> io::Result<()> {
    Ok(nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?)
}

/// This process, and all that it starts, has the filter from now on (seccomp(2)). Programs that gain rights when they
/// start do not: else the filter could be used against them.
pub(crate) fn install_filter(program: &[libc::sock_filter]) -> io::Result<()> {
    nix::sys::prctl::set_no_new_privs()?;
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(io::Error::other)?,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the kernel reads as many instructions as `len` says, and keeps no pointer.
    let res = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program)
    };
    if res == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Takes back what makes a file immutable, for who may (FS_IOC_SETFLAGS in ioctl_iflags(2)).
pub(crate) fn clear_flags(file: &std::fs::File) -> io::Result<()> {
    const SET_FLAGS: libc::Ioctl = 0x4008_6602;
    let none: libc::c_long = 0;
    // SAFETY: the number that is read is as long as the command says.
    let res = unsafe { libc::ioctl(file.as_raw_fd(), SET_FLAGS, &raw const none) };
    Errno::result(res).map(drop).map_err(Into::into)
}

/// Has a file to ourselves until it is closed; fails where somebody else has it open (fcntl(2), "Leases"). Who opens it
/// meanwhile waits, and we would be told by a signal, for which SIGURG does nothing.
pub(crate) fn lease(file: &std::fs::File) -> io::Result<()> {
    /// `asm-generic/fcntl.h`; not among libc's names.
    const F_SETSIG: libc::c_int = 10;
    let fd = file.as_raw_fd();
    // SAFETY: both calls take numbers only.
    let res = unsafe {
        libc::fcntl(fd, F_SETSIG, libc::SIGURG);
        libc::fcntl(fd, libc::F_SETLEASE, libc::F_WRLCK)
    };
    if res == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Keeps, of the rights that a process gets with a user namespace, those to enter a mount namespace (setns(2)), its
/// next program included (capabilities(7), "Ambient").
pub(crate) fn keep_rights_to_enter() -> io::Result<()> {
    let kept: u32 = 1 << CHROOT | 1 << ADMIN;
    // Effective, permitted and inheritable, of the first 32 rights; then of the others.
    set_rights([kept, kept, kept, 0, 0, 0])?;
    for right in [CHROOT, ADMIN] {
        // SAFETY: takes numbers only.
        let res =
            unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE, right, 0, 0) };
        Errno::result(res)?;
    }
    Ok(())
}

/// Rights of root that lead out of a layer: to enter other namespaces and mount, to follow `/proc/PID/root` of who has more rights,
/// to open files by number (capabilities(7); in Docker root has none of these either). And those over what outlives the run: the
/// network, the clock, the machine.
const LEADING_OUT: [libc::c_int; 7] = [
    2,  // CAP_DAC_READ_SEARCH
    12, // CAP_NET_ADMIN
    17, // CAP_SYS_RAWIO
    19, // CAP_SYS_PTRACE
    ADMIN, 22, // CAP_SYS_BOOT
    25, // CAP_SYS_TIME
];
const CHROOT: libc::c_int = 18;
const ADMIN: libc::c_int = 21;

/// The next program of root has fewer rights, and none that it starts can get them back; with `enters` it may still enter a
/// mount namespace.
pub(crate) fn keep_root_inside(enters: bool) {
    for right in LEADING_OUT.into_iter().filter(|it| !enters || *it != ADMIN) {
        // SAFETY: takes numbers only. Whoever may not give it up has not got it.
        unsafe {
            libc::prctl(libc::PR_CAPBSET_DROP, right, 0, 0, 0);
        }
    }
}

/// Gives up the rights that a process gets with a user namespace, which it would lose with its next program anyway
/// (capset(2), version 3).
pub(crate) fn give_up_rights() -> io::Result<()> {
    set_rights([0; 6])
}

fn set_rights(rights: [u32; 6]) -> io::Result<()> {
    const VERSION_3: u32 = 0x2008_0522;
    let header = [VERSION_3, 0];
    // SAFETY: the header asks for two sets of three words, and `rights` is as long.
    let res = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), rights.as_ptr()) };
    if res == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes 127.0.0.1 work in a network that was just made (netdevice(7)).
pub(crate) fn start_loopback() -> Result<(), Errno> {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    // SAFETY: all zeros are a request without a name.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l'.cast_signed();
    request.ifr_name[1] = b'o'.cast_signed();
    request.ifr_ifru.ifru_flags = i16::try_from(libc::IFF_UP).unwrap_or_default();
    // SAFETY: the request is of the type that this number asks for.
    let res = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    Errno::result(res).map(drop)
}
