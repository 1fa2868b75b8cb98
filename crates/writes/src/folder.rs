//! A folder of ours that lives as long as its owner.

use std::{
    fs::{self, File},
    io,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use nix::fcntl::{Flock, FlockArg};

use crate::tree;

/// A new folder that nobody else may enter; removed with everything in it when dropped. One that was left behind by a
/// program that was killed goes at the next [`Folder::sweep`].
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    _lock: Flock<File>,
}

/// Held for as long as the folder lives; the kernel lets go of it when its owner dies.
const LOCK: &str = "lock";
/// A folder younger than this may be one whose lock is about to be taken.
const SETTLED: Duration = Duration::from_secs(60);
/// How often it is tried to remove a folder, and the time between two tries.
const TRIES: u32 = 5;
const BETWEEN_TRIES: Duration = Duration::from_millis(20);

impl Folder {
    /// A folder of mode 0700 in `place`, which exists. Its name is `prefix` and some letters.
    pub fn make(place: &Path, prefix: &str) -> io::Result<Folder> {
        let made = tempfile::Builder::new()
            .prefix(prefix)
            .rand_bytes(12)
            .permissions(fs::Permissions::from_mode(0o700))
            .tempdir_in(place)?;
        let lock = File::create_new(made.path().join(LOCK))?;
        let lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock)
            .map_err(|(_, error)| io::Error::from(error))?;
        Ok(Folder { path: made.keep(), _lock: lock })
    }

    /// Where it is, absolute if `place` was.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes those in `place` that nobody holds any more.
    pub fn sweep(place: &Path, prefix: &str) {
        for entry in fs::read_dir(place).into_iter().flatten().flatten() {
            let is_ours = entry.file_name().as_bytes().starts_with(prefix.as_bytes());
            let meta = entry.metadata().ok();
            let meta = meta.filter(|it| it.is_dir() && it.uid() == nix::unistd::geteuid().as_raw());
            let age = meta.and_then(|it| it.modified().ok()?.elapsed().ok());
            if !is_ours || age.is_none_or(|it| it < SETTLED) {
                continue;
            }
            let is_left = match File::open(entry.path().join(LOCK)) {
                Ok(file) => Flock::lock(file, FlockArg::LockExclusiveNonblock).is_ok(),
                Err(error) => error.kind() == io::ErrorKind::NotFound,
            };
            if is_left {
                let _ = tree::remove(&entry.path());
            }
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A process that is just being killed can still make a file between our listing and our removing.
        for _ in 0..TRIES {
            if tree::remove(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(BETWEEN_TRIES);
        }
    }
}

/// Makes `place` if it is not there, for us alone. One that somebody else made, or may look into, is refused: in a place
/// such as `/tmp` they could be first.
pub(crate) fn own(place: &Path) -> io::Result<()> {
    fs::create_dir_all(place.parent().unwrap_or(place))?;
    match fs::DirBuilder::new().mode(0o700).create(place) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => (),
    }
    let meta = fs::symlink_metadata(place)?;
    if meta.is_dir() && meta.uid() == nix::unistd::geteuid().as_raw() && meta.mode() & 0o077 == 0 {
        return Ok(());
    }
    Err(io::Error::other(format!("{} is not ours alone", place.display())))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn nobody_else_may_enter_and_it_goes_with_its_owner() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::make(place.path(), "a-").unwrap();
        let path = folder.path().to_owned();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        fs::write(path.join("file"), "").unwrap();
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn a_place_that_others_made_or_may_look_into_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let ours = place.path().join("ours");
        own(&ours).unwrap();
        own(&ours).unwrap();
        symlink(&ours, place.path().join("link")).unwrap();
        assert!(own(&place.path().join("link")).is_err());
        fs::set_permissions(&ours, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(own(&ours).unwrap_err().to_string().ends_with("/ours is not ours alone"));
    }
}
