//! Two names of one file stay one file: a file of the disk that has several names is copied by one of them, and the others are
//! given to the copy when they are looked up.

use std::{
    collections::BTreeMap,
    fs::{self, File, Metadata},
    io,
    os::{
        fd::AsRawFd as _,
        unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
};

use nix::fcntl::{AT_FDCWD, AtFlags};

/// What was copied, by the disk's numbers for it.
#[derive(Debug)]
pub(super) struct Copies {
    of: BTreeMap<(u64, u64), HeldCopy>,
    /// A folder of ours, for copies that have no name left though the disk has one.
    parking: PathBuf,
}

#[derive(Debug)]
struct HeldCopy {
    /// The copy, whatever its names are.
    copy: File,
    parked: Option<PathBuf>,
}

impl Copies {
    /// `up` is the folder of the layer; ours is made beside it when there is something to park.
    pub(super) fn new(up: &Path) -> Copies {
        Copies { of: BTreeMap::new(), parking: up.with_file_name("parked") }
    }

    /// `theirs` was copied to `ours`.
    pub(super) fn made(&mut self, theirs: &Metadata, ours: &Path) {
        if theirs.nlink() < 2 {
            return;
        }
        let copy = File::options().read(true).custom_flags(libc::O_PATH).open(ours);
        if let Ok(copy) = copy {
            self.of.insert((theirs.dev(), theirs.ino()), HeldCopy { copy, parked: None });
        }
    }

    pub(super) fn has(&self, theirs: &Metadata) -> bool {
        1 < theirs.nlink() && self.of.contains_key(&(theirs.dev(), theirs.ino()))
    }

    /// Gives the copy the name `ours` instead of what stands there.
    pub(super) fn name(&mut self, theirs: &Metadata, ours: &Path) -> io::Result<()> {
        let kept = self.of.get_mut(&(theirs.dev(), theirs.ino()));
        let kept = kept.ok_or(io::ErrorKind::NotFound)?;
        if let Some(parked) = kept.parked.take() {
            return fs::rename(parked, ours);
        }
        let copy = format!("/proc/self/fd/{}", kept.copy.as_raw_fd());
        let new = ours.with_added_extension("plimsoll-link");
        nix::unistd::linkat(AT_FDCWD, copy.as_str(), AT_FDCWD, &new, AtFlags::AT_SYMLINK_FOLLOW)?;
        fs::rename(new, ours)
    }

    /// Removes a file of ours, but for a copy that the disk has more names of.
    pub(super) fn remove(&mut self, ours: &Path) -> io::Result<()> {
        if self.park(ours) { Ok(()) } else { fs::remove_file(ours) }
    }

    /// Takes a copy that is about to lose its last name away, to be given another one. Whether it was one.
    pub(super) fn park(&mut self, ours: &Path) -> bool {
        let Ok(meta) = fs::symlink_metadata(ours) else { return false };
        let place = self.parking.join(format!("{}-{}", meta.dev(), meta.ino()));
        let is_it = |held: &HeldCopy| {
            let copy = held.copy.metadata();
            copy.is_ok_and(|it| (it.dev(), it.ino()) == (meta.dev(), meta.ino()))
        };
        if !meta.is_file() || meta.nlink() != 1 {
            return false;
        }
        let Some(kept) = self.of.values_mut().find(|it| is_it(it)) else { return false };
        let is_parked =
            fs::create_dir_all(&self.parking).is_ok() && fs::rename(ours, &place).is_ok();
        kept.parked = is_parked.then_some(place);
        is_parked
    }
}
