//! Which mounts make a world of its own: worked out before the process is forked that makes them, because
//! that one may no longer allocate. Everything that is not covered by an overlay is there read-only: a
//! place that was overlooked refuses to be written and is not harmed.

use std::{
    collections::BTreeSet,
    ffi::{CString, OsStr, OsString},
    fs, io,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, symlink},
    },
    path::{Path, PathBuf},
};

use nix::unistd::{AccessFlags, access, getegid, geteuid};

use crate::mounts::{Mounts, SETTINGS};

/// One mount to be made.
#[derive(Debug)]
pub(crate) enum Step {
    /// The folder `source` seen at `target`, what is written to it in `upper`. What is in `above`, too, hides what `source` has.
    /// `work` is overlayfs's own. Where the kernel refuses it, the folder is there read-only; or as it is, if it `is_optional`.
    Overlay {
        source: CString,
        above: Option<CString>,
        target: CString,
        upper: CString,
        work: CString,
        is_optional: bool,
    },
    /// `source` itself at `target`.
    Bind { source: CString, target: CString, recursive: bool, read_only: bool },
    /// A socket or a pipe of somebody's, as it is. It may have gone since it was seen.
    Reach { source: CString, target: CString },
    /// What is at `place`, to be read only.
    Settings { place: CString, target: CString, recursive: bool },
    /// The message queues of the world (mq_overview(7)) at `target`.
    Queues { target: CString },
}

/// Whose mounts may be covered how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Mounts as a whole, each with an overlay: needs to be root of the machine.
    Mounts,
    /// The largest folders that have no mount below them: in a user namespace the mounts below a folder
    /// are locked to it, and the kernel refuses to take the folder without them (mount_namespaces(7)).
    Folders,
}

/// A folder with an overlay, and where what was written into it lies.
#[derive(Clone, Debug)]
pub(crate) struct Covered {
    pub(crate) place: PathBuf,
    pub(crate) upper: PathBuf,
}

/// A folder that was built anew, because other things are mounted below it: its own files are copies.
#[derive(Clone, Debug)]
pub(crate) struct Rebuilt {
    pub(crate) place: PathBuf,
    pub(crate) copy: PathBuf,
}

/// The mounts, in the order in which they are made, and where the new root is put together.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) root: CString,
    pub(crate) steps: Vec<Step>,
    pub(crate) covered: Vec<Covered>,
    pub(crate) rebuilt: Vec<Rebuilt>,
}

/// Where files in memory lie (shm_overview(7)).
pub(crate) const SHARED_MEMORY: &str = "/dev/shm";

/// So many entries of a folder are looked at.
pub(crate) const LOOKED_AT: usize = 1000;

/// Files up to this size are copied into a folder that is built anew; larger ones are there read-only.
const COPIED_BYTES: u64 = 1 << 20;

impl Plan {
    /// `layer` is an empty folder of ours, `shared` another one where shared memory lies; `through` are the folders that the
    /// world writes to in truth. `kept` has files that are to be seen, each at its full path, in these places.
    pub(crate) fn make(
        layer: &Path,
        shared: Option<&Path>,
        kept: Option<(&Path, &[PathBuf])>,
        through: &[PathBuf],
        depth: Depth,
    ) -> io::Result<Plan> {
        let mounts = Mounts::read()?;
        let root = layer.join("root");
        fs::create_dir(&root)?;
        let mut it = Planner {
            mounts: &mounts,
            layer,
            plan: Plan {
                root: c_path(&root)?,
                steps: Vec::new(),
                covered: Vec::new(),
                rebuilt: Vec::new(),
            },
            root,
        };
        match depth {
            Depth::Mounts => it.all_mounts()?,
            Depth::Folders => {
                it.bind(Path::new("/"), true, true)?;
                it.folder(Path::new("/"), true)?;
            }
        }
        it.settings(depth)?;
        if let Some(shared) = shared {
            it.shared_memory(shared)?;
        }
        if let Some((kept, places)) = kept {
            for place in places {
                it.kept(place, &kept.join(place.strip_prefix("/").unwrap_or(place)))?;
            }
        }
        for path in through {
            it.bind(path, false, false)?;
        }
        it.hide(&[Some(layer), shared].into_iter().flatten().collect::<Vec<_>>())?;
        for path in sockets().into_iter().chain(pipes()) {
            let is_reached =
                mounts.is_no_files(&path) || through.iter().any(|it| path.starts_with(it));
            if !is_reached {
                let (source, target) = (c_path(&path)?, it.target(&path)?);
                it.plan.steps.push(Step::Reach { source, target });
            }
        }
        if depth == Depth::Folders {
            for place in
                [std::env::current_dir().ok(), std::env::home_dir(), Some(std::env::temp_dir())]
            {
                it.take_over(&place.unwrap_or_default())?;
            }
            for place in it.own_in_folders_of_others() {
                it.take_over(&place)?;
            }
        }
        Ok(it.plan)
    }
}

/// Whether overlayfs can copy this up in a user namespace in which only we are somebody: it refuses what belongs
/// to others, also to another group (`ovl_copy_up_one`: "Value too large for defined data type").
pub(crate) fn is_foreign(meta: &fs::Metadata) -> bool {
    meta.uid() != geteuid().as_raw() || meta.gid() != getegid().as_raw()
}

struct Planner<'a> {
    mounts: &'a Mounts,
    layer: &'a Path,
    root: PathBuf,
    plan: Plan,
}

impl Planner<'_> {
    fn all_mounts(&mut self) -> io::Result<()> {
        let mounts = self.mounts;
        let mut whole: Option<&Path> = None;
        for mount in mounts.iter() {
            let place = mount.place.as_path();
            if whole.is_some_and(|it| place.starts_with(it)) {
                continue;
            }
            // Hidden by what was mounted above it later.
            let Ok(meta) = fs::symlink_metadata(place) else { continue };
            if mounts.is_no_files(place) {
                self.bind(place, true, false)?;
                whole = Some(place);
            } else if mount.read_only || !meta.is_dir() {
                self.bind(place, false, true)?;
            } else {
                self.overlay(place)?;
            }
        }
        Ok(())
    }

    /// The machine's settings can be read only, and the names of message queues are those of the world.
    fn settings(&mut self, depth: Depth) -> io::Result<()> {
        let mounts = self.mounts;
        let mut settings = |place: &Path, recursive| -> io::Result<()> {
            let (source, target) = (c_path(place)?, self.target(place)?);
            self.plan.steps.push(Step::Settings { place: source, target, recursive });
            Ok(())
        };
        for place in SETTINGS.map(Path::new).into_iter().filter(|it| it.exists()) {
            match depth {
                Depth::Folders => settings(place, true)?,
                // One by one: before Linux 5.12 a mount cannot be made read-only with those below it.
                Depth::Mounts => {
                    let below = mounts.iter().map(|it| it.place.as_path());
                    let below = below.filter(|it| it.starts_with(place) && *it != place);
                    [place].into_iter().chain(below).try_for_each(|it| settings(it, false))?;
                }
            }
        }
        if let Some(queues) = mounts.iter().find(|it| it.kind == "mqueue") {
            let target = self.target(&queues.place)?;
            self.plan.steps.push(Step::Queues { target });
        }
        Ok(())
    }

    /// Covers `dir` and all below it. `is_there`: the new root shows it already, read-only.
    fn folder(&mut self, dir: &Path, is_there: bool) -> io::Result<()> {
        let mounts = self.mounts;
        if dir != Path::new("/") && mounts.is_no_files(dir) {
            return self.bind(dir, true, false);
        }
        let read_only = mounts.of(dir).is_some_and(|it| it.read_only);
        if !mounts.has_below(dir) {
            return if read_only { self.bind_if(!is_there, dir) } else { self.overlay(dir) };
        }
        let Ok(entries) = fs::read_dir(dir) else { return self.bind_if(!is_there, dir) };
        let mut entries: Vec<_> = entries.flatten().collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        if read_only || access(dir, AccessFlags::W_OK).is_err() {
            self.bind_if(!is_there, dir)?;
            for entry in entries {
                if entry.file_type().is_ok_and(|it| it.is_dir()) {
                    self.folder(&entry.path(), true)?;
                }
            }
            return Ok(());
        }
        self.rebuild(dir, &entries)
    }

    fn bind_if(&mut self, condition: bool, dir: &Path) -> io::Result<()> {
        if condition { self.bind(dir, true, true) } else { Ok(()) }
    }

    /// A folder that can be written to and has mounts below it.
    fn rebuild(&mut self, dir: &Path, entries: &[fs::DirEntry]) -> io::Result<()> {
        let copy = self.layer.join(format!("rebuilt-{}", self.plan.rebuilt.len()));
        fs::create_dir(&copy)?;
        let (source, target) = (c_path(&copy)?, self.target(dir)?);
        self.plan.steps.push(Step::Bind { source, target, recursive: false, read_only: false });
        self.plan.rebuilt.push(Rebuilt { place: dir.to_owned(), copy: copy.clone() });
        for entry in entries {
            let (path, new) = (entry.path(), copy.join(entry.file_name()));
            let Ok(meta) = fs::symlink_metadata(&path) else { continue };
            let kind = meta.file_type();
            if kind.is_symlink() {
                symlink(fs::read_link(&path)?, &new)?;
            } else if kind.is_dir() {
                fs::create_dir(&new)?;
                self.folder(&path, false)?;
            } else {
                let is_mount = self.mounts.iter().any(|it| it.place == path);
                let is_small = kind.is_file() && meta.len() <= COPIED_BYTES && !is_mount;
                if !is_small || copy_file(&path, &new, &meta).is_err() {
                    fs::File::create(&new)?;
                    self.bind(&path, false, kind.is_file())?;
                }
            }
        }
        like(dir, &copy)
    }

    fn overlay(&mut self, dir: &Path) -> io::Result<()> {
        let number = self.plan.covered.len();
        let (upper, work) =
            (self.layer.join(format!("upper-{number}")), self.layer.join(format!("work-{number}")));
        self.cover(dir, None, upper, &work, false)
    }

    /// Files that earlier runs have downloaded are seen in `place`, which need not be there.
    fn kept(&mut self, place: &Path, kept: &Path) -> io::Result<()> {
        let of = self.plan.covered.iter().filter(|it| place.starts_with(&it.place));
        let Some(covered) = of.max_by_key(|it| it.place.as_os_str().len()) else { return Ok(()) };
        if !place.exists() {
            let mut made = vec![(covered.place.clone(), covered.upper.clone())];
            for name in place.strip_prefix(&covered.place).unwrap_or(Path::new("")) {
                let Some((theirs, ours)) = made.last() else { break };
                made.push((theirs.join(name), ours.join(name)));
            }
            make_all(&made)?;
        }
        let number = self.plan.covered.len();
        let (upper, work) =
            (self.layer.join(format!("upper-{number}")), self.layer.join(format!("work-{number}")));
        self.cover(place, Some(kept), upper, &work, true)
    }

    /// Files in memory that processes share: those that are there are seen, and those that are made stay in memory.
    fn shared_memory(&mut self, shared: &Path) -> io::Result<()> {
        let (upper, work) = (shared.join("upper"), shared.join("work"));
        self.cover(Path::new(SHARED_MEMORY), None, upper, &work, true)
    }

    fn cover(
        &mut self,
        dir: &Path,
        above: Option<&Path>,
        upper: PathBuf,
        work: &Path,
        is_optional: bool,
    ) -> io::Result<()> {
        fs::create_dir(&upper)?;
        fs::create_dir(work)?;
        // What is not on the disk is only what was kept.
        let (source, above) = match above {
            Some(it) if !dir.exists() => (it, None),
            above => (dir, above),
        };
        like(source, &upper)?;
        let step = Step::Overlay {
            source: c_path(source)?,
            above: above.map(c_path).transpose()?,
            target: self.target(dir)?,
            upper: c_path(&upper)?,
            work: c_path(work)?,
            is_optional,
        };
        self.plan.steps.push(step);
        self.plan.covered.push(Covered { place: dir.to_owned(), upper });
        Ok(())
    }

    /// Folders that we may write to in folders of others, such as `/data/me` and `/var/tmp`: two steps below what is covered, as
    /// people lay them out.
    fn own_in_folders_of_others(&self) -> Vec<PathBuf> {
        let folders = |place: &Path| {
            let entries = fs::read_dir(place).into_iter().flatten().flatten().take(LOOKED_AT);
            entries.filter(|it| it.file_type().is_ok_and(|it| it.is_dir())).map(|it| it.path())
        };
        let is_anothers = |it: &Path| fs::symlink_metadata(it).is_ok_and(|it| is_foreign(&it));
        let covered = self.plan.covered.iter().map(|it| it.place.clone());
        let first: Vec<PathBuf> = covered
            .filter(|it| it != Path::new(SHARED_MEMORY))
            .flat_map(|it| folders(&it).collect::<Vec<_>>())
            .filter(|it| is_anothers(it))
            .collect();
        let second = first.iter().flat_map(|it| folders(it).collect::<Vec<_>>());
        let may_write = |it: &PathBuf| access(it, AccessFlags::W_OK | AccessFlags::X_OK).is_ok();
        second.chain(first.iter().cloned()).filter(may_write).collect()
    }

    /// Folders of others on the way to `place` have a folder of ours in the upper layer from the start.
    fn take_over(&mut self, place: &Path) -> io::Result<()> {
        let of = self.plan.covered.iter().filter(|it| place.starts_with(&it.place));
        let Some(covered) = of.max_by_key(|it| it.place.as_os_str().len()) else { return Ok(()) };
        let Ok(rest) = place.strip_prefix(&covered.place) else { return Ok(()) };
        let (mut theirs, mut ours) = (covered.place.clone(), covered.upper.clone());
        let mut folders = Vec::new();
        for name in rest {
            theirs.push(name);
            ours.push(name);
            match fs::symlink_metadata(&theirs) {
                Ok(meta) if meta.is_dir() => {
                    folders.push((theirs.clone(), ours.clone(), is_foreign(&meta)));
                }
                _ => break,
            }
        }
        while folders.pop_if(|it| !it.2).is_some() {}
        let mut made = vec![(covered.place.clone(), covered.upper.clone())];
        made.extend(folders.into_iter().map(|(theirs, ours, _)| (theirs, ours)));
        make_all(&made)
    }

    /// An empty folder is seen in place of these. The layer lies below what it covers: overlayfs refuses to look at its own upper
    /// folder (`ELOOP`), and a program that goes through all files would meet that.
    fn hide(&mut self, folders: &[&Path]) -> io::Result<()> {
        let nothing = self.layer.join("nothing");
        fs::create_dir(&nothing)?;
        for folder in folders {
            let (source, target) = (c_path(&nothing)?, self.target(folder)?);
            self.plan.steps.push(Step::Bind { source, target, recursive: false, read_only: false });
        }
        Ok(())
    }

    fn bind(&mut self, place: &Path, recursive: bool, read_only: bool) -> io::Result<()> {
        let (source, target) = (c_path(place)?, self.target(place)?);
        self.plan.steps.push(Step::Bind { source, target, recursive, read_only });
        Ok(())
    }

    /// Where `place` is while the new root is put together.
    fn target(&self, place: &Path) -> io::Result<CString> {
        c_path(&self.root.join(place.strip_prefix("/").unwrap_or(place)))
    }
}

/// Makes folders of an upper layer, each in the one before, that look as theirs do; the first one is there.
fn make_all(folders: &[(PathBuf, PathBuf)]) -> io::Result<()> {
    // Made while all of them can be written to; what they allow is said from the innermost outwards.
    for (_, ours) in folders {
        if !ours.exists() {
            fs::create_dir(ours)?;
        }
        fs::set_permissions(ours, fs::Permissions::from_mode(0o700))?;
    }
    folders.iter().rev().try_for_each(|(theirs, ours)| match theirs.exists() {
        true => like(theirs, ours),
        false => fs::set_permissions(ours, fs::Permissions::from_mode(0o755)),
    })
}

/// Makes `ours` look as `dir` does, and allow no more to us: the topmost folder of an overlay is judged by its
/// upper layer, which belongs to us even where `dir` does not.
fn like(dir: &Path, ours: &Path) -> io::Result<()> {
    let meta = fs::metadata(dir)?;
    let mut mode = meta.mode() & 0o7777;
    if std::os::unix::fs::chown(ours, Some(meta.uid()), Some(meta.gid())).is_err() {
        for (flag, bits) in
            [(AccessFlags::R_OK, 0o444), (AccessFlags::W_OK, 0o222), (AccessFlags::X_OK, 0o111)]
        {
            if access(dir, flag).is_err() {
                mode &= !bits;
            }
        }
    }
    fs::set_permissions(ours, fs::Permissions::from_mode(mode))
}

fn copy_file(from: &Path, to: &Path, meta: &fs::Metadata) -> io::Result<()> {
    fs::copy(from, to)?;
    let _ = std::os::unix::fs::chown(to, Some(meta.uid()), Some(meta.gid()));
    fs::set_permissions(to, fs::Permissions::from_mode(meta.mode() & 0o7777))?;
    let times = fs::FileTimes::new().set_modified(meta.modified()?);
    fs::OpenOptions::new().append(true).open(to).or_else(|_| fs::File::open(to))?.set_times(times)
}

/// Sockets of other programs that the run may want to reach: an overlay shows the file, but nobody listens behind it.
/// Those that somebody has bound (proc_net(5), "unix"), and those that a variable of the environment names.
fn sockets() -> Vec<PathBuf> {
    let is_socket = |it: &Path| fs::symlink_metadata(it).is_ok_and(|it| it.file_type().is_socket());
    let bound = fs::read("/proc/net/unix").unwrap_or_default();
    let lines = bound.split(|it| *it == b'\n').filter_map(bound_to);
    let named = std::env::vars_os().map(|(_, value)| PathBuf::from(value));
    // Of one that was bound by a relative name nobody says where: it may be here.
    let relative = bound.split(|it| *it == b'\n').filter_map(bound_here);
    let relative: BTreeSet<OsString> = relative.collect();
    let here = entries_here().filter(|it| it.file_name().is_some_and(|it| relative.contains(it)));
    let mut res: Vec<PathBuf> =
        lines.chain(named).chain(here).filter(|it| it.is_absolute() && is_socket(it)).collect();
    res.sort();
    res.dedup();
    res
}

/// What lies in the folder that the command starts in.
fn entries_here() -> impl Iterator<Item = PathBuf> {
    let entries = std::env::current_dir().and_then(fs::read_dir);
    entries.into_iter().flatten().flatten().take(LOOKED_AT).map(|it| it.path())
}

/// Named pipes whose other end another program may have: in an overlay nobody would be there. Those that the command or its
/// environment names, and those here that somebody has open; one that was only left behind stays a file like others.
pub(crate) fn pipes() -> Vec<PathBuf> {
    let is_pipe = |it: &Path| fs::symlink_metadata(it).is_ok_and(|it| it.file_type().is_fifo());
    let values = std::env::vars_os().map(|(_, value)| value);
    let named = values.chain(std::env::args_os()).map(PathBuf::from);
    let mut res: Vec<PathBuf> =
        named.filter_map(|it| std::path::absolute(it).ok()).filter(|it| is_pipe(it)).collect();
    let here: Vec<PathBuf> = entries_here().filter(|it| is_pipe(it)).collect();
    if !here.is_empty() {
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let files =
            processes.flat_map(|it| fs::read_dir(it.path().join("fd")).into_iter().flatten());
        let open: BTreeSet<PathBuf> =
            files.flatten().filter_map(|it| fs::read_link(it.path()).ok()).collect();
        res.extend(here.into_iter().filter(|it| open.contains(it)));
    }
    res.sort();
    res.dedup();
    res
}

/// The same for `s` or `./s`: the file's name.
fn bound_here(line: &[u8]) -> Option<OsString> {
    let words = line.split(|it| *it == b' ').filter(|it| !it.is_empty());
    let path = words.skip(7).collect::<Vec<_>>().join(&b' ');
    let path = Path::new(OsStr::from_bytes(&path));
    if path.is_absolute() { None } else { path.file_name().map(OsStr::to_owned) }
}

/// `ffff0000: 00000002 00000000 00010000 0001 01 19563 /run/user/1000/bus`
fn bound_to(line: &[u8]) -> Option<PathBuf> {
    let at = line.iter().position(|it| *it == b'/')?;
    Some(PathBuf::from(OsStr::from_bytes(line.get(at..)?)))
}

pub(crate) fn c_path(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_socket_has_a_path_that_may_hold_spaces() {
        let line = b"00000000dcda1476: 00000002 00000000 00010000 0001 01 19563 /srv/of me/a sock";
        assert_eq!(bound_to(line), Some("/srv/of me/a sock".into()));
        assert_eq!(bound_here(line), None);
        let here = b"00000000dcda1476: 00000002 00000000 00010000 0001 01 19563 ./of me";
        assert_eq!(
            (bound_to(here), bound_here(here)),
            (Some("/of me".into()), Some("of me".into()))
        );
        let nameless = b"00000000dcda1476: 00000003 00000000 00000000 0001 03 1019988";
        assert_eq!((bound_to(nameless), bound_here(nameless)), (None, None));
    }
}
