//! Whom a program reaches: what it connects to, where it sends datagrams, and where it listens itself, a line each in a file of
//! the session. plimsoll reads there whom the run reached outside of itself; nothing is held back here.
//!
//! A connection counts once it stands. A program that does not wait for it asks for `SO_ERROR` when it does. Names come from what
//! `getaddrinfo` answered before. Calls from within libc (look-ups of names, of users) do not come through here.
//!
//! ```text
//! own 127.0.0.1:29500                        it listens there
//! stream 93.184.216.34:443 hooks.slack.com   a connection, with its name if that is known
//! stream-here 127.0.0.1:5432 localhost       one to this machine
//! datagram 10.0.0.3:8125                     the first one of this process to there
//! ```

use std::{
    ffi::{CStr, c_char, c_void},
    fmt::Write as _,
    mem,
    net::IpAddr,
    ptr,
    sync::atomic::{AtomicPtr, AtomicU32, Ordering},
};

use libc::{addrinfo, c_int, c_uint, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t};

use crate::{
    address::{self, Address},
    table::Table,
};

const SESSION: &CStr = c"PLIMSOLL_SESSION";
/// In the session's folder.
const FILE: &str = "network";
/// Lines that one process writes.
const MOST_LINES: u32 = 10_000;
/// Answers that are remembered of one question for a name.
const MOST_ANSWERS: usize = 16;

static LINES: AtomicU32 = AtomicU32::new(0);
/// Who was asked for by name.
static NAMES: Table<(IpAddr, Vec<u8>)> = Table::new(256);
/// Sockets that are being connected.
static ON_THEIR_WAY: Table<(c_int, Address)> = Table::new(256);
/// Sockets of datagrams that lead somewhere. To connect one sends nothing.
static LEADING: Table<(c_int, Address)> = Table::new(256);
/// Where datagrams were sent to.
static SENT_TO: Table<Address> = Table::new(256);

/// What would be called without us: the next function of this name.
macro_rules! next {
    ($name:literal, $kind:ty) => {{
        static FOUND: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
        let mut found = FOUND.load(Ordering::Relaxed);
        if found.is_null() {
            // SAFETY: the name ends in a zero byte.
            found = unsafe { libc::dlsym(libc::RTLD_NEXT, $name.as_ptr()) };
            FOUND.store(found, Ordering::Relaxed);
        }
        // SAFETY: it is C's function of that name, which has this type, or null.
        unsafe { mem::transmute::<*mut c_void, Option<$kind>>(found) }
    }};
}

/// connect(2).
///
/// # Safety
/// As of connect(2): `address` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    type Own = unsafe extern "C" fn(c_int, *const sockaddr, socklen_t) -> c_int;
    let Some(own) = next!(c"connect", Own) else { return unknown() };
    // SAFETY: the caller's promise, handed on.
    let answer = unsafe { own(fd, address, length) };
    beside(|errno| {
        // SAFETY: the caller's promise.
        let Some(to) = (unsafe { Address::read(address, length) }) else { return };
        connected(fd, to, (answer != 0).then_some(errno));
    });
    answer
}

/// Of `connect`; `error`: it failed.
fn connected(fd: c_int, to: Address, error: Option<c_int>) {
    if !is_stream(fd) {
        if error.is_none() {
            LEADING.put(|it| it.0 == fd, (fd, to));
        }
        return;
    }
    LEADING.forget(|it| it.0 == fd);
    match error {
        None => stands(fd, &to),
        Some(libc::EISCONN) => stands_at_last(fd),
        Some(libc::EINPROGRESS | libc::EINTR) => ON_THEIR_WAY.put(|it| it.0 == fd, (fd, to)),
        Some(libc::EALREADY) => (),
        Some(_) => ON_THEIR_WAY.forget(|it| it.0 == fd),
    }
}

/// getsockopt(2).
///
/// # Safety
/// As of getsockopt(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    type Own = unsafe extern "C" fn(c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int;
    let Some(own) = next!(c"getsockopt", Own) else { return unknown() };
    // SAFETY: the caller's promise, handed on.
    let answer = unsafe { own(fd, level, name, value, length) };
    if answer == 0 && (level, name) == (libc::SOL_SOCKET, libc::SO_ERROR) {
        beside(|_| stands_at_last(fd));
    }
    answer
}

/// bind(2).
///
/// # Safety
/// As of bind(2): `address` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    type Own = unsafe extern "C" fn(c_int, *const sockaddr, socklen_t) -> c_int;
    let Some(own) = next!(c"bind", Own) else { return unknown() };
    // SAFETY: the caller's promise, handed on.
    let answer = unsafe { own(fd, address, length) };
    if answer == 0 {
        beside(|_| {
            // SAFETY: the caller's promise.
            let given = unsafe { Address::read(address, length) };
            // The kernel chooses a port where none was given, and under tracing a path leads elsewhere.
            let found = Address::of(fd).filter(|it| given.as_ref() != Some(it));
            let given = given.filter(|it| it.ip().is_none() || found.is_none());
            for it in given.iter().chain(&found) {
                tell("own", it, None);
            }
        });
    }
    answer
}

/// send(2).
///
/// # Safety
/// As of send(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn send(
    fd: c_int,
    buffer: *const c_void,
    n: size_t,
    flags: c_int,
) -> ssize_t {
    type Own = unsafe extern "C" fn(c_int, *const c_void, size_t, c_int) -> ssize_t;
    let Some(own) = next!(c"send", Own) else { return unknown() as ssize_t };
    // SAFETY: the caller's promise, handed on.
    let answer = unsafe { own(fd, buffer, n, flags) };
    if 0 <= answer {
        sent(fd, None);
    }
    answer
}

/// sendto(2).
///
/// # Safety
/// As of sendto(2): `address` is null or has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendto(
    fd: c_int,
    buffer: *const c_void,
    n: size_t,
    flags: c_int,
    address: *const sockaddr,
    length: socklen_t,
) -> ssize_t {
    type Own = unsafe extern "C" fn(
        c_int,
        *const c_void,
        size_t,
        c_int,
        *const sockaddr,
        socklen_t,
    ) -> ssize_t;
    let Some(own) = next!(c"sendto", Own) else { return unknown() as ssize_t };
    // SAFETY: the caller's promise, handed on.
    let answer = unsafe { own(fd, buffer, n, flags, address, length) };
    if 0 <= answer {
        // SAFETY: the caller's promise.
        sent(fd, unsafe { Address::read(address, length) });
    }
    answer
}

/// sendmsg(2).
///
/// # Safety
/// As of sendmsg(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    type Own = unsafe extern "C" fn(c_int, *const msghdr, c_int) -> ssize_t;
    let Some(own) = next!(c"sendmsg", Own) else { return unknown() as ssize_t };
    // SAFETY: the caller's promise, handed on.
    let answer = unsafe { own(fd, message, flags) };
    if 0 <= answer {
        // SAFETY: the kernel has read the message, so it is one.
        sent(fd, unsafe { Address::read((*message).msg_name.cast(), (*message).msg_namelen) });
    }
    answer
}

/// sendmmsg(2).
///
/// # Safety
/// As of sendmmsg(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    n: c_uint,
    flags: c_int,
) -> c_int {
    type Own = unsafe extern "C" fn(c_int, *mut mmsghdr, c_uint, c_int) -> c_int;
    let Some(own) = next!(c"sendmmsg", Own) else { return unknown() };
    // SAFETY: the caller's promise, handed on.
    let answer = unsafe { own(fd, messages, n, flags) };
    for k in 0..usize::try_from(answer).unwrap_or(0) {
        // SAFETY: the kernel has read so many of them.
        let to = unsafe {
            let header = &(*messages.add(k)).msg_hdr;
            Address::read(header.msg_name.cast(), header.msg_namelen)
        };
        sent(fd, to);
    }
    answer
}

/// getaddrinfo(3).
///
/// # Safety
/// As of getaddrinfo(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const addrinfo,
    found: *mut *mut addrinfo,
) -> c_int {
    type Own = unsafe extern "C" fn(
        *const c_char,
        *const c_char,
        *const addrinfo,
        *mut *mut addrinfo,
    ) -> c_int;
    let Some(own) = next!(c"getaddrinfo", Own) else { return libc::EAI_SYSTEM };
    // SAFETY: the caller's promise, handed on.
    let answer = unsafe { own(node, service, hints, found) };
    if answer == 0 && !node.is_null() {
        // SAFETY: a text of C's, and what it was answered with: a list whose addresses have as many bytes as it says.
        unsafe {
            let name = CStr::from_ptr(node).to_bytes();
            let mut entry = *found;
            for _ in 0..MOST_ANSWERS {
                let Some(it) = entry.as_ref() else { break };
                if let Some(ip) = Address::read(it.ai_addr, it.ai_addrlen).and_then(|it| it.ip()) {
                    NAMES.put(|known| known.0 == ip, (ip, name.to_owned()));
                }
                entry = it.ai_next;
            }
        }
    }
    answer
}

/// Nobody answers: there is no libc behind us.
fn unknown() -> c_int {
    // SAFETY: the thread's own number.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}

/// Does `work` between a call and its caller, who finds the `errno` that the call left, as `work` does.
fn beside(work: impl FnOnce(c_int)) {
    // SAFETY: the thread's own number.
    let errno = unsafe { *libc::__errno_location() };
    work(errno);
    // SAFETY: the thread's own number.
    unsafe { *libc::__errno_location() = errno };
}

/// Whether it is a socket of connections; any other is one of datagrams.
fn is_stream(fd: c_int) -> bool {
    let mut kind: c_int = 0;
    let Ok(mut length) = socklen_t::try_from(mem::size_of::<c_int>()) else { return false };
    let (level, name) = (libc::SOL_SOCKET, libc::SO_TYPE);
    // SAFETY: a number is asked for, and there is room for one.
    let answer = unsafe {
        libc::syscall(libc::SYS_getsockopt, fd, level, name, &raw mut kind, &raw mut length)
    };
    answer == 0 && matches!(kind, libc::SOCK_STREAM | libc::SOCK_SEQPACKET)
}

/// The connection of `fd` stands, if it was on its way and does.
fn stands_at_last(fd: c_int) {
    if let Some((_, to)) = ON_THEIR_WAY.find(|it| it.0 == fd)
        && Address::of_peer(fd).is_some_and(|it| it == to)
    {
        stands(fd, &to);
    }
}

fn stands(fd: c_int, to: &Address) {
    ON_THEIR_WAY.forget(|it| it.0 == fd);
    // Who is on this machine is reached from the same address.
    let is_here = to
        .ip()
        .is_some_and(|ip| ip.is_loopback() || Address::of(fd).and_then(|it| it.ip()) == Some(ip));
    tell(if is_here { "stream-here" } else { "stream" }, to, name_of(to).as_deref());
}

/// Something was sent by `fd`; `to`: as the call said.
fn sent(fd: c_int, to: Option<Address>) {
    if to.is_none() && LEADING.is_empty() {
        return;
    }
    beside(|_| {
        let to = match to {
            Some(to) if is_stream(fd) => return stands(fd, &to),
            Some(to) => Some(to),
            None => LEADING.find(|it| it.0 == fd).map(|it| it.1),
        };
        // A number of a file may be another one's by now.
        let is_still = |to: &Address| Address::of_peer(fd).is_none_or(|it| it == *to);
        if let Some(to) = to.filter(is_still)
            && SENT_TO.find(|it| *it == to).is_none()
        {
            tell("datagram", &to, name_of(&to).as_deref());
            SENT_TO.put(|_| false, to);
        }
    });
}

fn name_of(to: &Address) -> Option<Vec<u8>> {
    let ip = to.ip()?;
    NAMES.find(|it| it.0 == ip).map(|it| it.1)
}

/// Writes a line, whole, or nothing.
fn tell(what: &str, address: &Address, name: Option<&[u8]>) {
    if MOST_LINES <= LINES.fetch_add(1, Ordering::Relaxed) {
        return;
    }
    // SAFETY: the name ends in a zero byte.
    let session = unsafe { libc::getenv(SESSION.as_ptr()) };
    if session.is_null() {
        return;
    }
    // SAFETY: a text of C's, which stays where it is while nobody changes the environment.
    let mut path = unsafe { CStr::from_ptr(session) }.to_bytes().to_owned();
    path.extend_from_slice(b"/");
    path.extend_from_slice(FILE.as_bytes());
    path.push(0);
    let mut line = format!("{what} {address}");
    if let Some(name) = name {
        let _ = write!(line, " {}", address::Word(name));
    }
    line.push('\n');
    let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_CLOEXEC;
    // SAFETY: a path that ends in a zero byte, a text with its length, and a number that is ours.
    unsafe {
        let file = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0o600);
        if 0 <= file {
            libc::syscall(libc::SYS_write, file, line.as_ptr(), line.len());
            libc::syscall(libc::SYS_close, file);
        }
    }
}
