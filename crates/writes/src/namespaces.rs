//! The first way: a mount namespace in which every file system is seen through an overlay, made by a
//! process that ends at once; the command and its siblings enter it. A user who may not mount does it in a
//! user namespace, in which nothing else changes: everybody keeps their own number.
//!
//! Sources: mount_namespaces(7), user_namespaces(7), pivot_root(2), setns(2), and the kernel's
//! `Documentation/filesystems/overlayfs.rst` (`userxattr`, `volatile`, `redirect_dir`).

use std::{
    ffi::{CStr, CString},
    fs::{self, File},
    io::{self, Read as _, Write as _},
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, open},
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, setns, unshare},
    sys::{stat::Mode, wait::waitpid},
    unistd::{Pid, chdir, fchdir, getegid, geteuid, pipe2, pivot_root, read, write},
};

use crate::{
    plan::{Covered, Depth, Plan, Rebuilt, Step, c_path},
    sys,
};

/// A mount namespace whose writes go into a layer, and the user namespace that it belongs to.
#[derive(Debug)]
pub(crate) struct World {
    entrance: Arc<Entrance>,
    pub(crate) covered: Vec<Covered>,
    pub(crate) rebuilt: Vec<Rebuilt>,
    /// Folders that overlayfs refused: they are there, read-only.
    pub(crate) refused: Vec<(PathBuf, String)>,
}

/// A user namespace in which everybody keeps their own number. Worlds share one, so that a process can go from one
/// world to the next.
#[derive(Debug)]
pub(crate) struct UserSpace {
    namespace: OwnedFd,
    /// Only the user themselves is known in there.
    is_alone: bool,
}

/// What a world is to be made of.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    /// In a user namespace, because we may not mount outside: this one, or a new one.
    pub(crate) user: Option<Option<Arc<UserSpace>>>,
    /// With a network of its own, in which there is nobody else.
    pub(crate) is_offline: bool,
}

#[derive(Debug)]
struct Entrance {
    user: Option<Arc<UserSpace>>,
    network: Option<OwnedFd>,
    /// None where the kernel has none to give.
    objects: Option<OwnedFd>,
    mounts: OwnedFd,
}

/// Who goes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guest {
    /// A command.
    Command,
    /// A process that starts others in other worlds of the same kind, or follows them there.
    Usher,
}

/// How far the process that makes the world has come; two words through a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
enum Said {
    NeedsMaps = 1,
    Refused,
    Failed,
    Done,
}

/// Where it stopped, beside the number of a step.
const AT_USER: i32 = -1;
const AT_MOUNTS: i32 = -2;
const AT_ROOT: i32 = -3;
const AT_NETWORK: i32 = -4;

/// What overlayfs is asked for, best first. `index`: two names of one file stay one file, which the kernel can do for root
/// only, and only on disks that have file handles. `redirect_dir`: folders that were there can be renamed; `volatile`
/// (Linux 5.10): nothing has to reach the disk.
const AS_ROOT: [&str; 4] = [
    "index=on,redirect_dir=on,volatile",
    "index=off,redirect_dir=on,volatile",
    "index=off,redirect_dir=on",
    "index=off",
];
const AS_USER: [&str; 2] = ["userxattr,volatile", "userxattr"];

impl World {
    /// `layer` is an empty folder of ours, and `shared` one where shared memory lies. `kept` is a folder with files that are to be
    /// seen, each at its full path, in these places.
    pub(crate) fn make(
        layer: &Path,
        shared: Option<&Path>,
        kept: Option<(&Path, &[PathBuf])>,
        through: &[PathBuf],
        terms: &Terms,
    ) -> Result<World, String> {
        let depth = if terms.user.is_some() { Depth::Folders } else { Depth::Mounts };
        let plan = Plan::make(layer, shared, kept, through, depth)
            .map_err(|error| format!("cannot prepare the layer: {error}"))?;
        let (entrance, refused) = build(&plan, terms)?;
        let Plan { covered, rebuilt, steps, .. } = plan;
        let place = |number: i32| -> Option<PathBuf> {
            match steps.get(usize::try_from(number).ok()?)? {
                Step::Overlay { source, .. } => Some(PathBuf::from(source.to_str().ok()?)),
                Step::Bind { .. }
                | Step::Reach { .. }
                | Step::Settings { .. }
                | Step::Queues { .. } => None,
            }
        };
        let refused = refused
            .into_iter()
            .filter_map(|(number, error)| Some((place(number)?, error.desc().to_lowercase())))
            .collect();
        Ok(World { entrance: Arc::new(entrance), covered, rebuilt, refused })
    }

    /// The user namespace that it is in.
    pub(crate) fn user(&self) -> Option<&Arc<UserSpace>> {
        self.entrance.user.as_ref()
    }

    /// Whether only the user themselves is known in there.
    pub(crate) fn is_alone(&self) -> bool {
        self.user().is_some_and(|it| it.is_alone)
    }

    /// Its mounts, for a process that is an usher of a world of the same kind.
    pub(crate) fn mounts(&self) -> BorrowedFd<'_> {
        self.entrance.mounts.as_fd()
    }

    /// The folders that have an overlay, or were built anew.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Path> {
        let rebuilt = self.rebuilt.iter().map(|it| it.place.as_path());
        self.covered.iter().map(|it| it.place.as_path()).chain(rebuilt)
    }

    /// Where lies what is written into this folder.
    pub(crate) fn upper_of(&self, folder: &Path) -> Option<PathBuf> {
        let of = self.covered.iter().filter(|it| folder.starts_with(&it.place));
        let covered = of.max_by_key(|it| it.place.as_os_str().len())?;
        Some(covered.upper.join(folder.strip_prefix(&covered.place).ok()?))
    }

    /// The command, and all that it starts, will run in here, in the folder that it would have run in.
    pub(crate) fn attach(&self, command: &mut Command, guest: Guest) -> io::Result<()> {
        let entrance = Arc::clone(&self.entrance);
        let folder = match command.get_current_dir() {
            Some(it) => Some(it.to_owned()),
            None => std::env::current_dir().ok(),
        };
        let folder: Option<CString> = folder.as_deref().map(c_path).transpose()?;
        // A folder that is deleted has no name to come back by.
        let as_it_is = File::open(".").ok();
        sys::before_exec(command, move || {
            if let Some(user) = &entrance.user {
                setns(user.namespace.as_fd(), CloneFlags::CLONE_NEWUSER)?;
            }
            if let Some(network) = &entrance.network {
                setns(network.as_fd(), CloneFlags::CLONE_NEWNET)?;
            }
            if let Some(objects) = &entrance.objects {
                setns(objects.as_fd(), CloneFlags::CLONE_NEWIPC)?;
            }
            setns(entrance.mounts.as_fd(), CloneFlags::CLONE_NEWNS)?;
            match (&folder, &as_it_is) {
                (Some(folder), _) => chdir(folder.as_c_str())?,
                (None, Some(file)) => fchdir(file.as_fd())?,
                (None, None) => (),
            }
            match guest {
                _ if entrance.user.is_none() => sys::keep_root_inside(guest == Guest::Usher),
                // Root keeps its rights from program to program; they are of the namespace.
                _ if geteuid().is_root() => (),
                Guest::Usher => sys::keep_rights_to_enter()?,
                // Its next program would not have them anyway.
                Guest::Command => sys::give_up_rights()?,
            }
            Ok(())
        });
        Ok(())
    }
}

/// The way in, and the steps that were refused.
type Built = (Entrance, Vec<(i32, Errno)>);

/// Forks the process that makes the world, and takes what it has made from `/proc`.
fn build(plan: &Plan, terms: &Terms) -> Result<Built, String> {
    let pipes = || -> io::Result<_> { Ok((pipe2(OFlag::O_CLOEXEC)?, pipe2(OFlag::O_CLOEXEC)?)) };
    let ((said, say), (heard, tell)) = pipes().map_err(|error| error.to_string())?;
    let (say_fd, heard_fd) = (sys::number(&say), sys::number(&heard));
    let tell_fd = sys::number(&tell);
    let child = sys::fork_to(|| {
        // Ours would keep it from seeing that the parent is gone.
        let _ = nix::unistd::close(tell_fd);
        let _ = in_child(plan, terms, Pipes { say: say_fd, heard: heard_fd });
    })
    .map_err(|error| format!("cannot fork: {error}"))?;
    drop((say, heard));
    let res = converse(child, plan, terms, File::from(said), File::from(tell));
    let _ = waitpid(child, None);
    res
}

fn converse(
    child: Pid,
    plan: &Plan,
    terms: &Terms,
    mut said: File,
    mut tell: File,
) -> Result<Built, String> {
    let mut is_alone = false;
    let mut refused = Vec::new();
    loop {
        let mut words = [0; 12];
        said.read_exact(&mut words)
            .map_err(|_| "the process that makes the layer died".to_owned())?;
        let word = |at: usize| {
            words[at..].first_chunk::<4>().map(|it| i32::from_ne_bytes(*it)).unwrap_or_default()
        };
        let (what, step, error) = (word(0), word(4), Errno::from_raw(word(8)));
        if what == Said::NeedsMaps as i32 {
            is_alone = write_maps(child).map_err(|error| {
                format!("the kernel refuses to map users into a user namespace: {error}")
            })?;
            tell.write_all(&[0]).map_err(|error| error.to_string())?;
        } else if what == Said::Refused as i32 {
            refused.push((step, error));
        } else if what == Said::Failed as i32 {
            return Err(sentence(plan, step, error));
        } else {
            let open = |name: &str| {
                File::open(format!("/proc/{child}/ns/{name}"))
                    .map(OwnedFd::from)
                    .map_err(|error| format!("cannot open the namespace: {error}"))
            };
            let user = match &terms.user {
                None => None,
                Some(Some(shared)) => Some(Arc::clone(shared)),
                Some(None) => Some(Arc::new(UserSpace { namespace: open("user")?, is_alone })),
            };
            let network = terms.is_offline.then(|| open("net")).transpose()?;
            let name = |of: &str| fs::read_link(format!("/proc/{of}/ns/ipc")).ok();
            let has_objects = name("self") != name(&child.to_string());
            let objects = has_objects.then(|| open("ipc")).transpose()?;
            return Ok((Entrance { user, network, objects, mounts: open("mnt")? }, refused));
        }
    }
}

/// Everybody is who they were. Only who may set user ids may map others than themselves: else true comes back.
fn write_maps(child: Pid) -> io::Result<bool> {
    let folder = PathBuf::from(format!("/proc/{child}"));
    let own = |map: &str| -> io::Result<String> {
        let text = fs::read_to_string(format!("/proc/self/{map}"))?;
        let first = |line: &str| {
            let mut words = line.split_ascii_whitespace();
            Some(format!("{0} {0} {1}\n", words.next()?, words.nth(1)?))
        };
        Ok(text.lines().filter_map(first).collect())
    };
    let mut is_alone = false;
    if fs::write(folder.join("uid_map"), own("uid_map")?).is_err() {
        is_alone = true;
        let id = geteuid();
        fs::write(folder.join("uid_map"), format!("{id} {id} 1"))?;
    }
    if fs::write(folder.join("gid_map"), own("gid_map")?).is_err() {
        is_alone = true;
        let id = getegid();
        fs::write(folder.join("setgroups"), "deny")?;
        fs::write(folder.join("gid_map"), format!("{id} {id} 1"))?;
    }
    Ok(is_alone)
}

fn sentence(plan: &Plan, step: i32, error: Errno) -> String {
    let why = error.desc().to_lowercase();
    match step {
        AT_USER => format!("the kernel refuses a user namespace: {why}"),
        AT_MOUNTS => format!("the kernel refuses a mount namespace: {why}"),
        AT_NETWORK => format!("the kernel refuses a network namespace: {why}"),
        AT_ROOT => format!("cannot enter the new root: {why}"),
        _ => {
            let target = usize::try_from(step).ok().and_then(|it| plan.steps.get(it));
            let source = match target {
                Some(
                    Step::Overlay { source, .. }
                    | Step::Bind { source, .. }
                    | Step::Reach { source, .. },
                ) => source.to_string_lossy(),
                Some(Step::Settings { .. } | Step::Queues { .. }) | None => "/".into(),
            };
            format!("cannot mount {source}: {why}")
        }
    }
}

/// The two ends that the child has.
#[derive(Clone, Copy)]
struct Pipes {
    say: i32,
    heard: i32,
}

impl Pipes {
    fn say(self, what: Said, step: i32, error: Errno) {
        let mut words = [0; 12];
        for (at, word) in [what as i32, step, error as i32].into_iter().enumerate() {
            words[4 * at..4 * at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        let _ = write(sys::borrow(self.say), &words);
    }

    /// Waits for the parent's word, or its end.
    fn wait(self) {
        let _ = read(sys::borrow(self.heard), &mut [0]);
    }
}

/// Everything below runs after a fork: it makes system calls and allocates nothing.
fn in_child(plan: &Plan, terms: &Terms, pipes: Pipes) -> Result<(), ()> {
    let or_say = |step: i32| move |error: Errno| pipes.say(Said::Failed, step, error);
    match &terms.user {
        None => (),
        Some(Some(shared)) => {
            setns(shared.namespace.as_fd(), CloneFlags::CLONE_NEWUSER).map_err(or_say(AT_USER))?
        }
        Some(None) => {
            unshare(CloneFlags::CLONE_NEWUSER).map_err(or_say(AT_USER))?;
            pipes.say(Said::NeedsMaps, 0, Errno::UnknownErrno);
            pipes.wait();
        }
    }
    if terms.is_offline {
        unshare(CloneFlags::CLONE_NEWNET).map_err(or_say(AT_NETWORK))?;
        sys::start_loopback().map_err(or_say(AT_NETWORK))?;
    }
    // Where the kernel has none to give, shared memory and queues of the System V kind are the machine's.
    let _ = unshare(CloneFlags::CLONE_NEWIPC);
    unshare(CloneFlags::CLONE_NEWNS).map_err(or_say(AT_MOUNTS))?;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&CStr>, c"/", None::<&CStr>, private, None::<&CStr>).map_err(or_say(AT_MOUNTS))?;
    for (number, step) in plan.steps.iter().enumerate() {
        let number = i32::try_from(number).unwrap_or(i32::MAX);
        match step {
            Step::Bind { source, target, recursive, read_only } => {
                bind(source, target, *recursive, *read_only).map_err(or_say(number))?;
            }
            Step::Reach { source, target } => match bind(source, target, false, false) {
                Err(Errno::ENOENT) => {}
                other => other.map_err(or_say(number))?,
            },
            // Where the kernel refuses it, only who owns them may change them, as ever.
            Step::Settings { place, target, recursive } => {
                let _ = bind(place, target, *recursive, true);
            }
            // Not there: then they have no names in the file system, and are the world's own all the same.
            Step::Queues { target } => {
                let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
                let _ = mount(
                    Some(c"mqueue"),
                    target.as_c_str(),
                    Some(c"mqueue"),
                    flags,
                    None::<&CStr>,
                );
            }
            Step::Overlay { source, above, target, upper, work, is_optional } => {
                let lower = (above.as_deref(), source.as_c_str());
                if let Err(error) = overlay(lower, target, upper, work, terms.user.is_some()) {
                    if *is_optional {
                        continue;
                    }
                    // Seen and not written to; the new root shows it read-only already in a user namespace.
                    if terms.user.is_none() {
                        bind(source, target, false, true).map_err(or_say(number))?;
                    }
                    pipes.say(Said::Refused, number, error);
                }
            }
        }
    }
    chdir(plan.root.as_c_str()).map_err(or_say(AT_ROOT))?;
    // The old root is mounted over the new one, and taken away (pivot_root(2), "pivot_root(".", ".")").
    pivot_root(c".", c".").map_err(or_say(AT_ROOT))?;
    umount2(c".", MntFlags::MNT_DETACH).map_err(or_say(AT_ROOT))?;
    pipes.say(Said::Done, 0, Errno::UnknownErrno);
    // The namespaces live on in the parent's descriptors.
    pipes.wait();
    Ok(())
}

fn bind(source: &CStr, target: &CStr, recursive: bool, read_only: bool) -> Result<(), Errno> {
    let deep = if recursive { MsFlags::MS_REC } else { MsFlags::empty() };
    mount(Some(source), target, None::<&CStr>, MsFlags::MS_BIND | deep, None::<&CStr>)?;
    if !read_only {
        return Ok(());
    }
    match sys::set_read_only(target, recursive) {
        Ok(()) => Ok(()),
        // Before Linux 5.12; a recursive one is asked for only in user namespaces, which need more anyway.
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) && !recursive => {
            let flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
            mount(None::<&CStr>, target, None::<&CStr>, flags, None::<&CStr>)
        }
        Err(error) => Err(Errno::from_raw(error.raw_os_error().unwrap_or_default())),
    }
}

/// `lower`: the folder, and one that is seen above it.
fn overlay(
    lower: (Option<&CStr>, &CStr),
    target: &CStr,
    upper: &CStr,
    work: &CStr,
    in_user_namespace: bool,
) -> Result<(), Errno> {
    let open = |path: &CStr| open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty());
    // By descriptor: a path may hold the commas and colons that separate options.
    let above = lower.0.map(open).transpose()?;
    let (source, upper, work) = (open(lower.1)?, open(upper)?, open(work)?);
    let variants: &[&str] = if in_user_namespace { &AS_USER } else { &AS_ROOT };
    let mut res = Err(Errno::EINVAL);
    for variant in variants {
        let mut text = [0u8; 256];
        let mut rest = &mut text[..];
        let mut written = write!(rest, "lowerdir=");
        if let Some(above) = &above {
            written = written.and_then(|()| write!(rest, "/proc/self/fd/{}:", above.as_raw_fd()));
        }
        let written = written.and_then(|()| {
            write!(
                rest,
                "/proc/self/fd/{},upperdir=/proc/self/fd/{},workdir=/proc/self/fd/{},{variant}\0",
                source.as_raw_fd(),
                upper.as_raw_fd(),
                work.as_raw_fd(),
            )
        });
        let Ok(options) = CStr::from_bytes_until_nul(&text) else {
            return Err(Errno::ENAMETOOLONG);
        };
        if written.is_err() {
            return Err(Errno::ENAMETOOLONG);
        }
        res = mount(Some(c"overlay"), target, Some(c"overlay"), MsFlags::empty(), Some(options));
        if res != Err(Errno::EINVAL) {
            break;
        }
    }
    res
}
