//! What a run has written: read from what lies in the layer when the run is over, compared with what is there
//! in truth.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
};

use crate::{
    namespaces::World,
    plan::{Covered, Rebuilt},
    sys,
};

/// What became of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// It was not there before.
    Created,
    /// It was there, and has other contents, another mode or another time now.
    Changed,
    /// It is not there any more.
    Deleted,
    /// A file or a folder that was there, under this new name; the old name is among the deleted.
    Renamed,
}

impl Kind {
    /// As reports and `--json` say it.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Created => "created",
            Kind::Changed => "changed",
            Kind::Deleted => "deleted",
            Kind::Renamed => "renamed",
        }
    }
}

/// One file, link or folder that a run has written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Written {
    /// Where the run saw it.
    pub path: PathBuf,
    /// What became of it.
    pub kind: Kind,
    /// Its length, holes included; 0 for what is deleted and for folders.
    pub bytes: u64,
    /// Where its contents lie as long as the layer lives; none for what is deleted.
    pub(crate) lies_at: Option<PathBuf>,
}

impl Written {
    /// Whether it is a folder now.
    pub fn is_folder(&self) -> bool {
        let ours = self.lies_at.as_deref().map(fs::symlink_metadata);
        ours.is_some_and(|it| it.is_ok_and(|it| it.is_dir()))
    }
}

/// Everything that was written in this world, sorted by path.
pub(crate) fn of_world(world: &World) -> Vec<Written> {
    let mut res = Vec::new();
    for Covered { place, upper } in &world.covered {
        walk_upper(place, upper, false, &mut res);
    }
    // Folders that were made so that something could be mounted in them.
    res.retain(|entry| {
        entry.kind != Kind::Created
            || !world.covered.iter().any(|cover| cover.place.starts_with(&entry.path))
    });
    for Rebuilt { place, copy } in &world.rebuilt {
        walk_copy(place, copy, &mut res);
    }
    res.sort();
    res
}

/// An upper layer holds only what was written (overlayfs.rst, "Whiteouts and opaque directories").
fn walk_upper(place: &Path, upper: &Path, is_new: bool, res: &mut Vec<Written>) {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(upper).into_iter().flatten().flatten() {
        let (path, ours) = (place.join(entry.file_name()), entry.path());
        names.insert(entry.file_name());
        let Ok(meta) = fs::symlink_metadata(&ours) else { continue };
        let before = fs::symlink_metadata(&path).ok().filter(|_| !is_new);
        if is_whiteout(&meta) {
            if before.is_some() {
                res.push(Written { path, kind: Kind::Deleted, bytes: 0, lies_at: None });
            }
            continue;
        }
        if !meta.is_dir() {
            res.extend(of_file(path, ours, &meta, before.as_ref()));
            continue;
        }
        let was_folder = before.as_ref().is_some_and(fs::Metadata::is_dir);
        if mark(&ours, "redirect").is_some() {
            let lies_at = Some(ours.clone());
            res.push(Written { path: path.clone(), kind: Kind::Renamed, bytes: 0, lies_at });
            walk_upper(&path, &ours, false, res);
        } else if !was_folder {
            let lies_at = Some(ours.clone());
            res.push(Written { path: path.clone(), kind: Kind::Created, bytes: 0, lies_at });
            walk_upper(&path, &ours, true, res);
        } else {
            walk_upper(&path, &ours, false, res);
            // A folder that was deleted and made again hides all that it had.
            if mark(&ours, "opaque").is_some_and(|it| it == b"y") {
                deleted_in(&path, &ours, res);
            }
        }
    }
}

/// What is in the folder `place` and not in `ours`.
fn deleted_in(place: &Path, ours: &Path, res: &mut Vec<Written>) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let path = entry.path();
        if fs::symlink_metadata(ours.join(entry.file_name())).is_err() {
            res.push(Written { path, kind: Kind::Deleted, bytes: 0, lies_at: None });
        }
    }
}

/// A folder that was built anew holds everything, as it is or as copies.
fn walk_copy(place: &Path, copy: &Path, res: &mut Vec<Written>) {
    deleted_in(place, copy, res);
    for entry in fs::read_dir(copy).into_iter().flatten().flatten() {
        let (path, ours) = (place.join(entry.file_name()), entry.path());
        let Ok(meta) = fs::symlink_metadata(&ours) else { continue };
        let before = fs::symlink_metadata(&path).ok();
        match &before {
            // A mount point of ours.
            Some(before) if before.is_dir() == meta.is_dir() && meta.is_dir() => (),
            Some(before) if is_mount_point(before, &meta) => (),
            None if meta.is_dir() => {
                let lies_at = Some(ours.clone());
                res.push(Written { path: path.clone(), kind: Kind::Created, bytes: 0, lies_at });
                walk_upper(&path, &ours, true, res);
            }
            before => res.extend(of_file(path, ours, &meta, before.as_ref())),
        }
    }
}

/// An empty file over which the true one was mounted.
fn is_mount_point(before: &fs::Metadata, ours: &fs::Metadata) -> bool {
    ours.is_file() && ours.len() == 0 && (before.len() != 0 || !before.is_file())
}

pub(crate) fn of_file(
    path: PathBuf,
    ours: PathBuf,
    meta: &fs::Metadata,
    before: Option<&fs::Metadata>,
) -> Option<Written> {
    let look = |metadata: &fs::Metadata| {
        let length = if metadata.is_dir() { 0 } else { metadata.len() };
        (metadata.mode(), length, metadata.mtime(), metadata.mtime_nsec(), metadata.rdev())
    };
    let (kind, is_same) = match before {
        None => (Kind::Created, false),
        Some(before) => {
            let is_link = meta.is_symlink() && before.is_symlink();
            let same_link = is_link && fs::read_link(&path).ok() == fs::read_link(&ours).ok();
            (Kind::Changed, same_link || look(before) == look(meta))
        }
    };
    // Opened for writing, and not written to.
    let written = Written { path, kind, bytes: meta.len(), lies_at: Some(ours) };
    (!is_same).then_some(written)
}

fn is_whiteout(meta: &fs::Metadata) -> bool {
    let is_device = meta.mode() & libc::S_IFMT == libc::S_IFCHR;
    is_device && meta.rdev() == 0
}

/// What overlayfs noted of a folder; in a user namespace it does so where users may.
fn mark(path: &Path, name: &str) -> Option<Vec<u8>> {
    ["trusted", "user"].iter().find_map(|space| {
        let name = format!("{space}.overlay.{name}");
        sys::attribute(path.as_os_str().as_bytes(), &name)
    })
}
