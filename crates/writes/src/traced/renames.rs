//! What an overlay in a user namespace cannot do: rename a folder that was there before, or carry a file from one overlay
//! to another that lies on the same disk in truth. Both fail with `EXDEV` ("overlayfs.rst", "renaming directories"), which
//! scripts do not expect inside their own folder. The tracer, which lives in the world too, then copies and removes. When a
//! task has gone to another world, the tracer goes there first.

use std::{
    fs,
    os::{fd::AsFd as _, unix::fs::MetadataExt as _},
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    sched::{CloneFlags, setns},
    unistd::Pid,
};

use super::{
    arguments::{After, Names, Verdict},
    place::errno,
};
use crate::tree;

/// The covered folders, each with the number of the disk that it lies on in truth; they are the same in every world.
#[derive(Debug)]
pub(super) struct Disks {
    places: Vec<(PathBuf, u64)>,
    /// The mount namespace that we are in, as `/proc` calls it.
    here: Option<PathBuf>,
}

impl Disks {
    pub(super) fn new(places: Vec<(PathBuf, u64)>) -> Disks {
        Disks { places, here: fs::read_link("/proc/self/ns/mnt").ok() }
    }

    /// Goes to the world of a task; whether we are there.
    pub(super) fn go_to(&mut self, task: Pid) -> bool {
        let path = format!("/proc/{task}/ns/mnt");
        let Ok(theirs) = fs::read_link(&path) else { return false };
        if self.here.as_ref() == Some(&theirs) {
            return true;
        }
        let entered = fs::File::open(&path)
            .is_ok_and(|it| setns(it.as_fd(), CloneFlags::CLONE_NEWNS).is_ok());
        if entered {
            self.here = Some(theirs);
        }
        entered
    }

    fn of(&self, path: &Path) -> Option<u64> {
        let holding = self.places.iter().filter(|it| path.starts_with(&it.0));
        Some(holding.max_by_key(|it| it.0.as_os_str().len())?.1)
    }

    /// A rename is let go, and looked at afterwards if the kernel could have refused what a disk would do.
    pub(super) fn decide(&self, names: &Names) -> Verdict {
        let Some((from, to)) = names.of_rename() else { return Verdict::Go };
        let here = |it: &Path| self.of(&fs::canonicalize(it.parent()?).ok()?);
        match (here(&from), here(&to)) {
            (Some(a), Some(b)) if a == b => {
                Verdict::Instead(Box::new(names.registers), After::Renamed { from, to })
            }
            _ => Verdict::Go,
        }
    }
}

/// The answer of a rename that the kernel answered with `res`.
pub(super) fn rename_by_copy(from: &Path, to: &Path, res: i64) -> i64 {
    if res != -i64::from(Errno::EXDEV as i32) {
        return res;
    }
    match copy_and_remove(from, to) {
        Ok(()) => 0,
        Err(error) => -i64::from(errno(&error) as i32),
    }
}

fn copy_and_remove(from: &Path, to: &Path) -> std::io::Result<()> {
    let source = fs::symlink_metadata(from)?;
    if let Ok(target) = fs::symlink_metadata(to) {
        // The kernel looks at these first on one disk.
        match (source.is_dir(), target.is_dir()) {
            (true, true) => fs::remove_dir(to)?,
            (true, false) => return Err(Errno::ENOTDIR.into()),
            (false, true) => return Err(Errno::EISDIR.into()),
            (false, false) if source.ino() == target.ino() => return Ok(()),
            (false, false) => fs::remove_file(to)?,
        }
    }
    tree::copy(from, to)?;
    tree::remove(from)
}
