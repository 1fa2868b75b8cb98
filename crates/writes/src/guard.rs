//! A process beside the runs that ends what they have left in their mount namespaces, also when we are killed and can do
//! nothing any more. A user namespace and tracing need none: their tracer's death is the end of all that it traces.
//!
//! It is this program, started again. Through its standard input, a socket, it gets a namespace and one end of a pipe for each
//! layer; when the other end is gone, whoever is still in that namespace is killed, and nobody else. When nobody can send any
//! more and all are gone, it ends.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, IoSlice, IoSliceMut},
    os::{
        fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd},
        unix::{fs::MetadataExt as _, net::UnixStream},
    },
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    cmsg_space,
    errno::Errno,
    fcntl::OFlag,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg},
    unistd::{Pid, pipe2},
};

use crate::sys;

/// The argument of a helper's command that says: guard.
pub(crate) const GUARD: &str = "--guard";

/// How long it looks again and again for who is left in a namespace. Who does not die of SIGKILL by then waits for a disk.
const PATIENCE: Duration = Duration::from_secs(30);
const BETWEEN_LOOKS_MS: u16 = 10;
/// A process may start another one while it is looked for: so many looks in a row have to find nobody.
const LOOKS: u32 = 2;

/// The process, seen from its parent. It is waited for when dropped.
#[derive(Debug)]
pub(crate) struct Guard {
    process: Child,
    socket: Option<UnixStream>,
}

/// Our end of a layer's pipe.
#[derive(Debug)]
pub(crate) struct Guarded(#[expect(dead_code, reason = "that it is open is what it says")] OwnedFd);

impl Guard {
    /// `program` and its arguments are this program, which then calls [`crate::trace`].
    pub(crate) fn start(program: &[OsString]) -> io::Result<Guard> {
        let [first, rest @ ..] = program else { return Err(io::ErrorKind::NotFound.into()) };
        let (socket, theirs) = UnixStream::pair()?;
        let mut command = Command::new(first);
        command.args(rest).arg(GUARD).current_dir("/");
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
        sys::before_exec(&mut command, || {
            // What ends us, such as Ctrl-C, must not end it; and it must not keep open what we were given.
            nix::unistd::setsid()?;
            sys::close_at_exec();
            Ok(())
        });
        Ok(Guard { process: command.spawn()?, socket: Some(socket) })
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Who is in this mount namespace is killed once what comes back is dropped, or we are gone.
    pub(crate) fn watch(&self, mounts: BorrowedFd<'_>) -> io::Result<Guarded> {
        let (theirs, ours) = pipe2(OFlag::O_CLOEXEC)?;
        let given = [mounts.as_raw_fd(), theirs.as_raw_fd()];
        let socket = self.socket.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let how = MsgFlags::MSG_NOSIGNAL;
        let given = [ControlMessage::ScmRights(&given)];
        sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(&[0])], &given, how, None)?;
        Ok(Guarded(ours))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.socket = None;
        let _ = self.process.wait();
    }
}

/// One layer, seen from the guard.
struct Place {
    mounts: (u64, u64),
    /// The namespace is held, so that no other one gets its number.
    _mounts: File,
    owner: OwnedFd,
    end: Option<End>,
}

/// The end of one that nobody owns any more.
struct End {
    began: Instant,
    looks: u32,
}

/// The guard's whole program.
pub(crate) fn guard() -> io::Result<()> {
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    let mut has_parent = true;
    let mut places: Vec<Place> = Vec::new();
    while has_parent || !places.is_empty() {
        let (may_send, owned): (Vec<_>, Vec<_>) = (
            has_parent.then_some(&socket).into_iter().collect(),
            places.iter().filter(|it| it.end.is_none()).map(|it| &it.owner).collect(),
        );
        let of = |fd: &&OwnedFd| sys::number(*fd);
        let watched: Vec<RawFd> = may_send.iter().chain(&owned).map(of).collect();
        let is_waiting = if owned.len() < places.len() {
            PollTimeout::from(BETWEEN_LOOKS_MS)
        } else {
            PollTimeout::NONE
        };
        let fds = watched.iter().map(|it| PollFd::new(sys::borrow(*it), PollFlags::POLLIN));
        let mut fds: Vec<PollFd<'_>> = fds.collect();
        match poll(&mut fds, is_waiting) {
            Ok(_) | Err(Errno::EINTR) => (),
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<RawFd> = fds
            .iter()
            .zip(&watched)
            .filter(|(it, _)| it.any().unwrap_or(false))
            .map(|(_, fd)| *fd)
            .collect();
        for it in places.iter_mut().filter(|it| ready.contains(&sys::number(&it.owner))) {
            it.end.get_or_insert(End { began: Instant::now(), looks: 0 });
        }
        if has_parent && ready.contains(&sys::number(&socket)) {
            match receive(&socket) {
                Ok(Some(place)) => places.push(place),
                Ok(None) => (),
                Err(_) => has_parent = false,
            }
        }
        places.retain_mut(|it| !is_over(it));
    }
    Ok(())
}

/// Whether nobody is left in a place whose owner is gone; who is left is killed.
fn is_over(place: &mut Place) -> bool {
    let Some(end) = &mut place.end else { return false };
    end.looks = if kill_all_in(place.mounts) { 0 } else { end.looks + 1 };
    LOOKS <= end.looks || PATIENCE <= end.began.elapsed()
}

/// What was sent; an error at the end of everything that will be.
fn receive(socket: &OwnedFd) -> io::Result<Option<Place>> {
    let mut byte = [0];
    let mut into = [IoSliceMut::new(&mut byte)];
    let mut space = cmsg_space!([RawFd; 2]);
    let how = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut into, Some(&mut space), how)?;
    if message.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut given = message.cmsgs()?.flat_map(|message| match message {
        ControlMessageOwned::ScmRights(fds) => fds,
        _ => Vec::new(),
    });
    let (Some(mounts), Some(owner)) = (given.next(), given.next()) else { return Ok(None) };
    let (mounts, owner) = (File::from(sys::received(mounts)), sys::received(owner));
    let meta = mounts.metadata()?;
    Ok(Some(Place { mounts: (meta.dev(), meta.ino()), _mounts: mounts, owner, end: None }))
}

/// Kills who is in this mount namespace; whether there was somebody.
fn kill_all_in(mounts: (u64, u64)) -> bool {
    let mut was_there = false;
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|it| it.parse().ok()).map(Pid::from_raw) else {
            continue;
        };
        let is_in_there = || {
            // A zombie is nowhere.
            let meta = fs::metadata(format!("/proc/{pid}/ns/mnt"));
            meta.is_ok_and(|it| (it.dev(), it.ino()) == mounts)
        };
        was_there |= is_in_there() && sys::kill_if(pid, is_in_there);
    }
    was_there
}
