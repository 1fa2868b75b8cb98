//! The file system as a traced command sees it: folders and files of the layer before those of the disk.
//!
//! A folder that nothing was written into is the disk's. One that was is *complete*: `up` holds a folder for it
//! with every name that it has. A name in there is either ours, or it *stands for* something on the disk: an empty
//! file or folder whose contents are looked for there. So listing is the kernel's work, deleting is deleting, and
//! renaming what is on the disk is renaming what stands for it. Links are copied at once.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs::{self, File, Metadata},
    io,
    os::unix::fs::{
        DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _,
        PermissionsExt as _, symlink,
    },
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    sys::stat::Mode,
    unistd::{AccessFlags, access, geteuid},
};

use super::{
    copies::Copies,
    place::{Found, Place, errno},
};
use crate::{plan::SHARED_MEMORY, tree};

/// Folders of the machine, not of its users; shared memory among them has a layer of its own.
const OF_THE_MACHINE: [&str; 4] = ["/dev", "/proc", "/run", "/sys"];

/// Where the run reads and writes in truth.
#[derive(Debug)]
pub(super) struct Through {
    pub(super) folders: Vec<PathBuf>,
    /// Named pipes that somebody waits at.
    pub(super) pipes: Vec<PathBuf>,
}

/// The layer and what is known of it. One per layer; the tracer's.
#[derive(Debug)]
pub(super) struct View {
    up: PathBuf,
    /// The same for [`SHARED_MEMORY`], and in memory, too. None: it is written through.
    shared: Option<PathBuf>,
    /// Empty, and seen in place of these two, which lie on the disk as well: what is done to them would go on for ever.
    nothing: PathBuf,
    through: Through,
    /// Names in `up` without contents of their own, by the command's path, and what they stand for.
    pub(super) stands_for: BTreeMap<PathBuf, PathBuf>,
    /// What was renamed, by the disk's path, and the command's.
    renamed: BTreeMap<PathBuf, PathBuf>,
    /// Folders of the disk that became complete, and how they looked.
    grown: BTreeMap<PathBuf, Metadata>,
    /// Copies of files of the disk that have several names there.
    copies: Copies,
    /// Complete but for what cannot be listed: whoever may enter a folder may not always read it.
    unlisted: BTreeMap<PathBuf, PathBuf>,
    /// What stands for a file that the disk does not have there, by the command's path.
    pub(super) shown: BTreeSet<PathBuf>,
    /// Folders of the disk that are known to be no links.
    pub(super) plain: BTreeSet<PathBuf>,
    /// Folders that have a short name, which is a link of ours.
    short: BTreeMap<PathBuf, PathBuf>,
    /// Of each socket with a name, by its address in the layer: the address that the program gave it.
    sockets: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl View {
    /// `up` is a folder of ours, empty, and so are `shared` and `nothing`.
    pub(super) fn new(
        up: &Path,
        shared: Option<PathBuf>,
        nothing: PathBuf,
        through: Through,
    ) -> View {
        let itself = |it: &str| (PathBuf::from(it), PathBuf::from(it));
        let mut stands_for = BTreeMap::from([itself("/")]);
        stands_for.extend(shared.as_ref().map(|_| itself(SHARED_MEMORY)));
        View {
            up: up.to_owned(),
            shared,
            nothing,
            through,
            stands_for,
            copies: Copies::new(up),
            renamed: BTreeMap::new(),
            grown: BTreeMap::new(),
            unlisted: BTreeMap::new(),
            shown: BTreeSet::new(),
            plain: BTreeSet::new(),
            short: BTreeMap::new(),
            sockets: BTreeMap::new(),
        }
    }

    /// Nothing was written yet.
    pub(super) fn is_untouched(&self) -> bool {
        !self.is_complete("/") && !self.is_complete(SHARED_MEMORY)
    }

    /// Whether a name was made or taken away in this topmost folder of a layer, or below it.
    pub(super) fn is_complete(&self, top: &str) -> bool {
        let has_layer = top == "/" || self.shared.is_some();
        has_layer && !self.stands_for.contains_key(Path::new(top))
    }

    /// A path that was said, or its other name if it is the kernel's for something in the layer: an interpreter is told so which
    /// script it runs. The layer's own folder is none of these: nothing is seen in there.
    pub(super) fn meant(&self, said: &Path) -> PathBuf {
        let below = |folder: &Path| {
            let rest = said.strip_prefix(folder).ok();
            rest.filter(|it| !it.as_os_str().is_empty()).map(Path::to_owned)
        };
        let in_memory = || Some(Path::new(SHARED_MEMORY).join(below(self.shared.as_ref()?)?));
        let in_layer = below(&self.up).map(|it| Path::new("/").join(it));
        in_layer.or_else(in_memory).unwrap_or_else(|| said.to_owned())
    }

    /// How the command would name what the kernel names so.
    pub(super) fn named(&self, real: &Path) -> PathBuf {
        if let Ok(rest) = real.strip_prefix(&self.up) {
            return Path::new("/").join(rest);
        }
        if let Some(Ok(rest)) = self.shared.as_ref().map(|it| real.strip_prefix(it)) {
            return Path::new(SHARED_MEMORY).join(rest);
        }
        for folder in real.ancestors() {
            if let Some(to) = self.renamed.get(folder) {
                return match real.strip_prefix(folder) {
                    Ok(rest) if !rest.as_os_str().is_empty() => to.join(rest),
                    _ => to.clone(),
                };
            }
        }
        real.to_owned()
    }

    /// Whether the kernel's name for it is the command's.
    pub(super) fn is_disks_own(&self, real: &Path) -> bool {
        !self.is_in_layer(real) && self.named(real) == real
    }

    pub(super) fn is_in_layer(&self, real: &Path) -> bool {
        real.starts_with(&self.up) || self.shared.as_ref().is_some_and(|it| real.starts_with(it))
    }

    fn is_through(&self, path: &Path) -> bool {
        let is_shared = self.shared.is_some() && path.starts_with(SHARED_MEMORY);
        (OF_THE_MACHINE.iter().any(|it| path.starts_with(it)) && !is_shared)
            || self.through.folders.iter().any(|it| path.starts_with(it))
    }

    /// Whether somebody may wait at this named pipe.
    pub(super) fn is_awaited(&self, pipe: &Path) -> bool {
        self.through.pipes.iter().any(|it| it == pipe)
    }

    fn root(&self) -> Place {
        match self.stands_for.get(Path::new("/")) {
            Some(_) => Place::Theirs("/".into()),
            None => Place::Ours(self.up.clone()),
        }
    }

    pub(super) fn child(&self, folder: &Place, path: &Path, name: &OsStr) -> Place {
        match (folder, &self.shared) {
            (_, Some(shared)) if path == Path::new(SHARED_MEMORY) => {
                match self.stands_for.get(path) {
                    Some(it) => Place::Theirs(it.clone()),
                    None => Place::Ours(shared.clone()),
                }
            }
            _ => self.child_of(folder, path, name),
        }
    }

    fn child_of(&self, folder: &Place, path: &Path, name: &OsStr) -> Place {
        match folder {
            Place::Through(_) => folder.join(name),
            _ if self.is_through(path) => Place::Through(path.to_owned()),
            Place::Theirs(it) => self.theirs(it.join(name)),
            Place::Ours(_) => match self.stands_for.get(path) {
                Some(real) => self.theirs(real.clone()),
                None => {
                    let ours = folder.join(name);
                    let unlisted = path.parent().and_then(|it| self.unlisted.get(it));
                    match unlisted.filter(|_| fs::symlink_metadata(ours.path()).is_err()) {
                        Some(theirs) => Place::Theirs(theirs.join(name)),
                        None => ours,
                    }
                }
            },
        }
    }

    fn theirs(&self, real: PathBuf) -> Place {
        let is_layer = real == self.up || self.shared.as_ref() == Some(&real);
        Place::Theirs(if is_layer { self.nothing.clone() } else { real })
    }

    /// Whether it is a folder that is written through as a whole. As a mount point, it can be neither removed nor renamed.
    pub(super) fn is_door(&self, path: &Path) -> bool {
        self.through.folders.iter().any(|it| it == path)
    }

    /// Where `path`, which has no links in it, lies.
    pub(super) fn place_of(&self, path: &Path) -> Place {
        let mut at = PathBuf::from("/");
        let mut place = self.root();
        for name in path.iter().skip(1) {
            at.push(name);
            place = self.child(&place, &at, name);
        }
        place
    }

    /// Makes the folder of `path` complete, if a name in it may be made or taken away; where that name is then.
    pub(super) fn open_folder_of(&mut self, path: &Path) -> Result<PathBuf, Errno> {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Errno::EBUSY);
        };
        if let Place::Theirs(it) = self.place_of(folder) {
            access(&it, AccessFlags::W_OK | AccessFlags::X_OK)?;
        }
        Ok(self.complete(folder)?.join(name))
    }

    /// Makes a folder complete: where it is in the layer.
    pub(super) fn complete(&mut self, folder: &Path) -> Result<PathBuf, Errno> {
        if let Place::Ours(it) = self.place_of(folder) {
            return Ok(it);
        }
        let ours = match (folder.parent(), &self.shared) {
            (None, _) => self.up.clone(),
            (_, Some(shared)) if folder == Path::new(SHARED_MEMORY) => shared.clone(),
            (Some(parent), _) => {
                let name = folder.file_name().ok_or(Errno::EINVAL)?;
                self.complete(parent)?.join(name)
            }
        };
        let theirs = match self.stands_for.get(folder) {
            Some(it) => it.clone(),
            None => match self.place_of(folder) {
                Place::Theirs(it) => {
                    fs::create_dir(&ours).map_err(|it| errno(&it))?;
                    self.stands_for.insert(folder.to_owned(), it.clone());
                    it
                }
                Place::Ours(it) => return Ok(it),
                Place::Through(_) => return Err(Errno::EXDEV),
            },
        };
        let filled = self.fill(folder, &ours, &theirs);
        filled.map_err(|it| errno(&it))?;
        self.stands_for.remove(folder);
        Ok(ours)
    }

    fn fill(&mut self, folder: &Path, ours: &Path, theirs: &Path) -> io::Result<()> {
        let meta = fs::metadata(theirs)?;
        fs::set_permissions(ours, fs::Permissions::from_mode(0o700))?;
        let entries = match fs::read_dir(theirs) {
            Ok(it) => Some(it),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.unlisted.insert(folder.to_owned(), theirs.to_owned());
                None
            }
            Err(error) => return Err(error),
        };
        for entry in entries.into_iter().flatten() {
            let entry = entry?;
            let (path, new) = (folder.join(entry.file_name()), ours.join(entry.file_name()));
            let kind = entry.file_type()?;
            if folder == Path::new(SHARED_MEMORY) && ours.starts_with(entry.path()) {
                continue; // The layer itself.
            }
            if kind.is_symlink() {
                symlink(fs::read_link(entry.path())?, &new)?;
                if let Ok(meta) = entry.metadata() {
                    let _ = std::os::unix::fs::lchown(&new, Some(meta.uid()), Some(meta.gid()));
                }
                continue;
            }
            if kind.is_dir() {
                fs::DirBuilder::new().mode(0o700).create(&new)?;
            } else {
                fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
            }
            self.stands_for.insert(path, entry.path());
        }
        // Ours by owner: it must not allow us more than theirs does.
        tree::dress(&meta, ours)?;
        if !geteuid().is_root() && access(theirs, AccessFlags::W_OK).is_err() {
            fs::set_permissions(ours, fs::Permissions::from_mode(meta.mode() & 0o7555))?;
        }
        self.grown.insert(folder.to_owned(), meta);
        Ok(())
    }

    /// Shows the files below `kept` at their full paths, where the disk has none; `folder` is where we are.
    pub(super) fn show(&mut self, kept: &Path, folder: &Path) -> io::Result<()> {
        for entry in fs::read_dir(kept)? {
            let entry = entry?;
            let (kept, path) = (entry.path(), folder.join(entry.file_name()));
            if entry.file_type()?.is_dir() {
                self.show(&kept, &path)?;
                continue;
            }
            let ours = self.make_folders(folder)?.join(entry.file_name());
            fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(ours)?;
            self.renamed.insert(kept.clone(), path.clone());
            self.shown.insert(path.clone());
            self.stands_for.insert(path, kept);
        }
        Ok(())
    }

    fn make_folders(&mut self, folder: &Path) -> Result<PathBuf, Errno> {
        let is_there = fs::symlink_metadata(self.place_of(folder).path()).is_ok();
        let parent = folder.parent().filter(|_| !is_there);
        let Some(parent) = parent else { return self.complete(folder) };
        let ours = self.make_folders(parent)?.join(folder.file_name().unwrap_or_default());
        fs::DirBuilder::new().mode(0o755).create(&ours).map_err(|it| errno(&it))?;
        Ok(ours)
    }

    /// Makes something on the disk ours, to be changed; `with_contents` if they will be looked at.
    pub(super) fn copy_up(&mut self, path: &Path, with_contents: bool) -> Result<PathBuf, Errno> {
        let theirs = match self.place_of(path) {
            Place::Ours(it) => return Ok(it),
            Place::Through(it) => return Ok(it),
            Place::Theirs(it) => it,
        };
        let meta = fs::symlink_metadata(&theirs).map_err(|it| errno(&it))?;
        if meta.is_dir() {
            return self.complete(path);
        }
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Errno::EBUSY);
        };
        let ours = self.complete(folder)?.join(name);
        let kind = meta.file_type();
        if kind.is_symlink() {
            return Ok(ours); // It was copied with its folder.
        }
        if !kind.is_file() && !kind.is_fifo() {
            return Err(Errno::EROFS); // Only its owner has the other end.
        }
        let copied = (|| {
            if kind.is_fifo() {
                return pipe_like(&meta, &ours);
            }
            let to = fs::OpenOptions::new().write(true).open(&ours)?;
            if with_contents {
                tree::copy_bytes(&File::open(&theirs)?, &to)?;
            }
            tree::dress(&meta, &ours)
        })();
        if let Err(error) = copied {
            // It stands for theirs again.
            let _ = File::create(&ours);
            return Err(errno(&error));
        }
        self.stands_for.remove(path);
        self.copies.made(&meta, &ours);
        Ok(ours)
    }

    /// Where a file of the disk lies by now, if it has other names and was copied by one of them: this name is given to the
    /// copy, too.
    pub(super) fn copied_by_another_name(
        &mut self,
        path: &Path,
        meta: &Metadata,
    ) -> Option<PathBuf> {
        if !self.copies.has(meta) {
            return None;
        }
        let ours = self.complete(path.parent()?).ok()?.join(path.file_name()?);
        self.copies.name(meta, &ours).ok()?;
        self.stands_for.remove(path);
        Some(ours)
    }

    /// Removes a file or an empty folder.
    pub(super) fn remove(&mut self, found: &Found, is_folder: bool) -> Result<(), Errno> {
        match (is_folder, found.is_folder()) {
            (true, false) => return Err(Errno::ENOTDIR),
            (false, true) => return Err(Errno::EISDIR),
            _ => (),
        }
        if is_folder {
            self.must_be_empty(found)?;
        }
        let ours = self.open_folder_of(&found.path)?;
        let removed = if is_folder { fs::remove_dir(&ours) } else { self.copies.remove(&ours) };
        removed.map_err(|it| errno(&it))?;
        self.forget(&found.path);
        Ok(())
    }

    fn must_be_empty(&self, found: &Found) -> Result<(), Errno> {
        match &found.place {
            Place::Theirs(it) if found.is_folder() => {
                let is_empty = fs::read_dir(it).map_err(|it| errno(&it))?.next().is_none();
                if is_empty { Ok(()) } else { Err(Errno::ENOTEMPTY) }
            }
            _ => Ok(()),
        }
    }

    /// Nothing of what was known of `path` and below holds any more.
    fn forget(&mut self, path: &Path) {
        let below = below(&self.stands_for, path);
        for it in below {
            if let Some(theirs) = self.stands_for.remove(&it) {
                self.renamed.remove(&theirs);
            }
        }
        for it in below_all(&self.grown, path) {
            self.grown.remove(&it);
        }
    }

    /// rename(2), and renameat2(2) with `RENAME_NOREPLACE` and `RENAME_EXCHANGE`.
    pub(super) fn rename(&mut self, from: &Found, to: &Found, flags: u32) -> Result<(), Errno> {
        let exchange = flags & libc::RENAME_EXCHANGE != 0;
        if from.meta.is_none() || (exchange && to.meta.is_none()) {
            return Err(Errno::ENOENT);
        }
        if flags & libc::RENAME_NOREPLACE != 0 && to.meta.is_some() {
            return Err(Errno::EEXIST);
        }
        if from.path == to.path {
            return Ok(());
        }
        if to.path.starts_with(&from.path) {
            return Err(Errno::EINVAL);
        }
        if !exchange && from.is_folder() && to.is_folder() {
            self.must_be_empty(to)?;
        }
        let ours_from = self.open_folder_of(&from.path)?;
        let ours_to = self.open_folder_of(&to.path)?;
        if exchange {
            nix::fcntl::renameat2(
                nix::fcntl::AT_FDCWD,
                &ours_from,
                nix::fcntl::AT_FDCWD,
                &ours_to,
                nix::fcntl::RenameFlags::RENAME_EXCHANGE,
            )?;
            let (a, b) = (self.take(&from.path), self.take(&to.path));
            self.put(&from.path, &to.path, a);
            self.put(&to.path, &from.path, b);
            return Ok(());
        }
        if to.is_file() && !from.is_folder() {
            self.copies.park(&ours_to);
        }
        fs::rename(&ours_from, &ours_to).map_err(|it| errno(&it))?;
        self.forget(&to.path);
        let known = self.take(&from.path);
        self.put(&from.path, &to.path, known);
        Ok(())
    }

    fn take(&mut self, path: &Path) -> Known {
        let stands_for = below(&self.stands_for, path)
            .into_iter()
            .filter_map(|it| self.stands_for.remove_entry(&it));
        let stands_for = stands_for.collect();
        let grown =
            below_all(&self.grown, path).into_iter().filter_map(|it| self.grown.remove_entry(&it));
        Known { stands_for, grown: grown.collect() }
    }

    fn put(&mut self, from: &Path, to: &Path, known: Known) {
        let moved = |path: &Path| match path.strip_prefix(from) {
            Ok(rest) if !rest.as_os_str().is_empty() => to.join(rest),
            _ => to.to_owned(),
        };
        for (path, theirs) in known.stands_for {
            let path = moved(&path);
            if path == theirs {
                self.renamed.remove(&theirs);
            } else {
                self.renamed.insert(theirs.clone(), path.clone());
            }
            self.stands_for.insert(path, theirs);
        }
        for (path, meta) in known.grown {
            self.grown.insert(moved(&path), meta);
        }
    }

    /// A name for a folder that fits into a socket's address.
    pub(super) fn short_name(&mut self, folder: &Path) -> Option<PathBuf> {
        if let Some(it) = self.short.get(folder) {
            return Some(it.clone());
        }
        let beside = self.shared.as_ref().unwrap_or(&self.up).parent()?;
        let link = beside.join(format!("s{}", self.short.len()));
        symlink(folder, &link).ok()?;
        self.short.insert(folder.to_owned(), link.clone());
        Some(link)
    }

    /// A socket is bound to `ours`, where the program said `given`.
    pub(super) fn address_is_given(&mut self, ours: Vec<u8>, given: Vec<u8>) {
        self.sockets.insert(ours, given);
    }

    /// What the program said where the kernel says `ours`.
    pub(super) fn address_given(&self, ours: &[u8]) -> Option<&[u8]> {
        self.sockets.get(ours).map(Vec::as_slice)
    }

    /// How a complete folder looked on the disk.
    pub(super) fn looked(&self, path: &Path) -> Option<&Metadata> {
        self.grown.get(path)
    }

    /// Its mode or owner was set: it looks as ours does from now on.
    pub(super) fn has_own_looks(&mut self, path: &Path) {
        self.grown.remove(path);
    }
}

/// What was known of a path and all below it.
struct Known {
    stands_for: Vec<(PathBuf, PathBuf)>,
    grown: Vec<(PathBuf, Metadata)>,
}

/// A named pipe of ours in place of what stands for one of the disk.
fn pipe_like(meta: &Metadata, ours: &Path) -> io::Result<()> {
    let new = ours.with_added_extension("plimsoll-pipe");
    nix::unistd::mkfifo(&new, Mode::S_IRUSR | Mode::S_IWUSR)?;
    let _ = std::os::unix::fs::lchown(&new, Some(meta.uid()), Some(meta.gid()));
    fs::set_permissions(&new, fs::Permissions::from_mode(meta.mode() & 0o7777))?;
    fs::rename(new, ours)
}

fn below(map: &BTreeMap<PathBuf, PathBuf>, path: &Path) -> Vec<PathBuf> {
    map.range(path.to_owned()..)
        .map(|it| it.0)
        .take_while(|it| it.starts_with(path))
        .cloned()
        .collect()
}

fn below_all(map: &BTreeMap<PathBuf, Metadata>, path: &Path) -> Vec<PathBuf> {
    map.range(path.to_owned()..)
        .map(|it| it.0)
        .take_while(|it| it.starts_with(path))
        .cloned()
        .collect()
}
