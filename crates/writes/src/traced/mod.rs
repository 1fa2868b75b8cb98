//! The second way, for machines where nobody may mount: every system call that names a file stops at a tracer,
//! which gives it another name. No program can go around it, whatever it is written in and linked with: the
//! filter is the kernel's, is passed on to children, and cannot be taken off.
//!
//! Why not a preloaded library: about 150 functions of libc name files, many more call them from within where no
//! library can step between (`fopen`, `opendir`, `posix_spawn`), and static programs, Go and a cleared environment
//! go around it; Landlock would have to catch what slips through, and does not know `chmod` or `utime`. Here it is 58
//! system calls, and one process knows the state of the layer, so none of it is on the disk and locked.
//! Why not seccomp's notifications: they can hand out descriptors, but change neither a folder nor a
//! program's name. Containers allow what this needs: Docker's filter has `ptrace` since kernel 4.8, `seccomp` always.
//!
//! What it costs: some microseconds for each such call. What it does not allow: a debugger inside the run, and
//! programs that gain rights when they start (`sudo`).

mod after;
mod arguments;
mod calls;
mod copies;
mod filter;
mod memory;
mod objects;
mod paths;
mod place;
mod renames;
mod report;
mod scratch;
mod sockets;
mod strangers;
mod view;
mod watch;

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Read as _, Write as _},
    os::{fd::AsFd as _, unix::fs::MetadataExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
};

use nix::unistd::Pid;

pub use self::filter::refuse_namespaces;
use self::{
    objects::Objects,
    renames::Disks,
    view::{Through, View},
    watch::{Doors, Gate, Job, REMOVE, REPORT, Watcher},
};
use crate::{
    gate,
    guard::{GUARD, guard},
    namespaces::{Guest, World},
    sys,
    written::Written,
};

/// The argument of a tracer's command that says: try whether you hold.
const TRY: &str = "--try";
/// And: help with renames. The disks and places follow in pairs.
const RENAMES: &str = "--renames";

/// Behind the folders that are written through: named pipes follow that somebody waits at.
const PIPES: &str = "--pipes";

/// The file by which processes see whether something was written.
const UNTOUCHED_FILE: &str = "untouched";

/// The folder of a layer that has what was written, and an empty one that is seen in its place.
const UP: &str = "up";
const NOTHING: &str = "nothing";

/// How long an order may wait before it is said again, in milliseconds.
const PATIENCE_MS: u16 = 5;

/// The process that answers, seen from its parent.
#[derive(Debug)]
pub(crate) struct Tracer {
    process: Child,
    doors: Arc<Mutex<Handles>>,
    report: PathBuf,
    filter: fn() -> Vec<libc::sock_filter>,
    /// Says whether something was written, for those who can read it.
    untouched: Option<PathBuf>,
}

#[derive(Debug)]
struct Handles {
    orders: File,
    answers: File,
}

impl Tracer {
    /// `layer` is an empty folder of ours, and so is `shared`, where shared memory lies; `kept` is one with files that are to be seen, each at its full path; somebody waits at the
    /// named `pipes`; `program` and its arguments are this program, which then calls
    /// [`trace`].
    pub(crate) fn start(
        layer: &Path,
        shared: Option<&Path>,
        kept: Option<&Path>,
        through: &[PathBuf],
        pipes: &[PathBuf],
        program: &[OsString],
    ) -> Result<Tracer, String> {
        fs::create_dir(layer.join(UP)).map_err(|error| error.to_string())?;
        let mut command = again(program)?;
        let shared = shared.map(|it| it.join(UP));
        if let Some(shared) = &shared {
            fs::create_dir(shared).map_err(|error| error.to_string())?;
        }
        let or_none = |it: Option<&Path>| it.unwrap_or(Path::new("")).to_owned();
        command.arg(layer).arg(or_none(shared.as_deref())).arg(or_none(kept));
        command.args(through).arg(PIPES).args(pipes).current_dir("/");
        let mut res = Tracer::spawn(command, layer.join("written"), filter::program)?;
        res.untouched = Some(layer.join(UNTOUCHED_FILE));
        Ok(res)
    }

    /// Where lies what is written into this folder.
    pub(crate) fn upper_of(layer: &Path, folder: &Path) -> PathBuf {
        layer.join(UP).join(folder.strip_prefix("/").unwrap_or(folder))
    }

    /// One that lives in `world` and helps with what its overlays cannot rename.
    pub(crate) fn of_renames(world: &World, program: &[OsString]) -> Result<Tracer, String> {
        let mut command = again(program)?;
        command.arg(RENAMES).current_dir("/");
        for place in world.places() {
            if let Ok(meta) = fs::metadata(place) {
                command.arg(meta.dev().to_string()).arg(place);
            }
        }
        // It goes where those go whom it helps.
        world.attach(&mut command, Guest::Usher).map_err(|error| error.to_string())?;
        let res = Tracer::spawn(command, PathBuf::new(), filter::program_of_renames)?;
        // Where it may not trace, the command could not start.
        let mut nothing = again(program)?;
        nothing.arg(TRY);
        world.attach(&mut nothing, Guest::Command).map_err(|error| error.to_string())?;
        res.attach(&mut nothing).map_err(|error| error.to_string())?;
        match nothing.status() {
            Ok(it) if it.success() => Ok(res),
            _ => Err("the kernel does not let plimsoll trace its own child processes".to_owned()),
        }
    }

    fn spawn(
        mut command: Command,
        report: PathBuf,
        filter: fn() -> Vec<libc::sock_filter>,
    ) -> Result<Tracer, String> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        sys::before_exec(&mut command, sys::end_with_parent);
        let mut process = command.spawn().map_err(|error| format!("cannot start it: {error}"))?;
        let (Some(orders), Some(answers)) = (process.stdin.take(), process.stdout.take()) else {
            return Err("it has no pipes".to_owned());
        };
        let orders = File::from(std::os::fd::OwnedFd::from(orders));
        let mut answers = File::from(std::os::fd::OwnedFd::from(answers));
        // Before it is ready, the signal that interrupts it would end it.
        answers
            .read_exact(&mut [0; 4])
            .map_err(|_| "plimsoll's second process did not become a tracer".to_owned())?;
        let doors = Arc::new(Mutex::new(Handles { orders, answers }));
        Ok(Tracer { process, doors, report, filter, untouched: None })
    }

    /// Runs a program that writes a file and reads it, and sees that the file is not there. The layer is
    /// not a fresh one afterwards.
    pub(crate) fn try_out(&self, program: &[OsString]) -> Result<(), String> {
        // The letters of the layer's name are nobody else's. It cannot lie in a new folder: where downloads are shown, the view of a
        // folder may be older than that.
        let layer = self.report.parent().and_then(Path::file_name).unwrap_or_default();
        let file = std::env::temp_dir().join(format!(".plimsoll-tries-{}", layer.display()));
        if fs::symlink_metadata(&file).is_ok() {
            return Err(format!("{} is there already", file.display()));
        }
        let mut command = again(program)?;
        command.arg(TRY).arg(&file).stdin(Stdio::null()).stdout(Stdio::null());
        self.attach(&mut command).map_err(|error| error.to_string())?;
        let status = command.status().map_err(|error| match error.raw_os_error() {
            Some(libc::EPERM) => {
                "the kernel does not let plimsoll trace its own child processes".to_owned()
            }
            Some(libc::EINVAL) => "the kernel has no seccomp filters".to_owned(),
            _ => error.to_string(),
        })?;
        let is_outside = fs::remove_file(&file).is_ok();
        if status.success() && !is_outside {
            return Ok(());
        }
        Err("the tracer did not separate a program's writes".to_owned())
    }

    pub(crate) fn attach(&self, command: &mut Command) -> io::Result<()> {
        use std::os::fd::AsRawFd as _;
        let doors = Arc::clone(&self.doors);
        let (orders, answers) = {
            let it = doors.lock().map_err(|_| io::Error::other("a thread has died"))?;
            (it.orders.as_raw_fd(), it.answers.as_raw_fd())
        };
        if let Some(path) = &self.untouched {
            command.env(gate::UNTOUCHED, path);
        }
        let tracer = self.pid()?;
        let program = (self.filter)();
        sys::before_exec(command, move || {
            // Held, not used: another thread may have it locked.
            let _ = &doors;
            sys::allow_tracing_by(tracer);
            let own = nix::unistd::getpid().as_raw();
            nix::unistd::write(sys::borrow(orders), &own.to_ne_bytes())?;
            let mut answer = [0; 4];
            wake(tracer, answers)?;
            if nix::unistd::read(sys::borrow(answers), &mut answer)? != answer.len() {
                return Err(io::Error::from_raw_os_error(libc::EPERM));
            }
            match i32::from_ne_bytes(answer) {
                0 => sys::install_filter(&program),
                error => Err(io::Error::from_raw_os_error(error)),
            }
        });
        Ok(())
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    fn pid(&self) -> io::Result<Pid> {
        Ok(Pid::from_raw(i32::try_from(self.process.id()).map_err(io::Error::other)?))
    }

    pub(crate) fn written(&self) -> io::Result<Vec<Written>> {
        self.order(REPORT)?;
        report::read_report(&self.report)
    }

    fn order(&self, order: i32) -> io::Result<()> {
        let doors = self.doors.lock().map_err(|_| io::Error::other("a thread has died"))?;
        (&doors.orders).write_all(&order.to_ne_bytes())?;
        let mut answer = [0; 4];
        wake(self.pid()?, sys::number(&doors.answers))?;
        (&doors.answers).read_exact(&mut answer)?;
        match i32::from_ne_bytes(answer) {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// This program, to be started again as a tracer.
fn again(program: &[OsString]) -> Result<Command, String> {
    let [first, rest @ ..] = program else { return Err("there is no tracer".to_owned()) };
    let mut command = Command::new(first);
    command.args(rest);
    Ok(command)
}

/// Makes the tracer look for orders until it answers: a single signal could come just before it waits.
fn wake(tracer: Pid, answers: std::os::fd::RawFd) -> io::Result<()> {
    use nix::{
        poll::{PollFd, PollFlags, poll},
        sys::signal::{Signal, kill},
    };
    loop {
        kill(tracer, Signal::SIGUSR1)?;
        let mut fds = [PollFd::new(sys::borrow(answers), PollFlags::POLLIN)];
        if 0 < poll(&mut fds, PATIENCE_MS)? {
            return Ok(());
        }
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        let _ = self.order(REMOVE);
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A helper's whole program, a tracer's or a guard's: `arguments` are those behind [`crate::TRACER`]. Its exit code.
pub fn trace(arguments: impl Iterator<Item = OsString>) -> u8 {
    let arguments: Vec<OsString> = arguments.collect();
    let done = match arguments.as_slice() {
        [first] if first == GUARD => guard(),
        [first] if first == TRY => Ok(()),
        [first, file] if first == TRY => try_writing(Path::new(file)),
        [first, disks @ ..] if first == RENAMES => watch_renames(disks),
        [layer, shared, kept, through @ ..] => {
            let given = |it: &OsString| Some(PathBuf::from(it)).filter(|it| it.is_absolute());
            watch(Path::new(layer), given(shared), given(kept).as_deref(), through)
        }
        [_, _] | [_] | [] => Err(io::Error::other("there is no layer")),
    };
    u8::from(done.is_err())
}

fn try_writing(file: &Path) -> io::Result<()> {
    fs::write(file, "written")?;
    let is_read_back = fs::read(file)? == b"written";
    if is_read_back { Ok(()) } else { Err(io::Error::other("it reads something else")) }
}

fn watch(
    layer: &Path,
    shared: Option<PathBuf>,
    kept: Option<&Path>,
    through: &[OsString],
) -> io::Result<()> {
    // Kept from the world's umask: folders of the layer are made with the modes that they are to have.
    nix::sys::stat::umask(nix::sys::stat::Mode::empty());
    let paths = |it: &[OsString]| it.iter().map(PathBuf::from).collect();
    let mut through = through.splitn(2, |it| it == PIPES);
    let (folders, pipes) = (through.next().unwrap_or_default(), through.next().unwrap_or_default());
    let through = Through { folders: paths(folders), pipes: paths(pipes) };
    let nothing = layer.join(NOTHING);
    fs::create_dir(&nothing)?;
    let mut view = View::new(&layer.join(UP), shared, nothing, through);
    if let Some(kept) = kept {
        view.show(kept, Path::new("/"))?;
    }
    let gate = Gate::of(&layer.join(UNTOUCHED_FILE), &view)?;
    let job = Job::Names(Box::new(view), gate, Objects::default());
    Watcher::new(job, doors()?).run(&layer.join("written"))
}

fn watch_renames(disks: &[OsString]) -> io::Result<()> {
    nix::sys::stat::umask(nix::sys::stat::Mode::empty());
    let of_pair = |pair: &[OsString]| match pair {
        [disk, place] => Some((PathBuf::from(place), disk.to_str()?.parse().ok()?)),
        _ => None,
    };
    let disks = Disks::new(disks.chunks(2).filter_map(of_pair).collect());
    Watcher::new(Job::Renames(disks), doors()?).run(Path::new(""))
}

#[expect(
    clippy::disallowed_methods,
    reason = "a pipe of ours, which nobody reads but who started us"
)]
fn doors() -> io::Result<Doors> {
    let duplicate = |it: std::os::fd::BorrowedFd<'_>| it.try_clone_to_owned().map(File::from);
    Ok(Doors { orders: duplicate(io::stdin().as_fd())?, answers: duplicate(io::stdout().as_fd())? })
}
