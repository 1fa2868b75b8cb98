//! A folder of ours that lives as long as its owner.

use std::{
    fs::{self, File},
    io,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
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

/// Held for as long as the folder lives; the kernel lets go of it when its owner dies. By this file we know a folder of ours again:
/// the name is nobody else's.
const LOCK: &str = ".plimsoll-lock";
/// So many letters and digits stand behind the prefix of a name.
const LETTERS: usize = 12;
/// A folder younger than this may be one whose lock is about to be taken.
const SETTLED: Duration = Duration::from_secs(60);
/// How often it is tried to remove a folder, and the time between two tries.
const TRIES: u32 = 50;
const BETWEEN_TRIES: Duration = Duration::from_millis(20);

impl Folder {
    /// A folder of mode 0700 in `place`, which exists. Its name is `prefix` and some letters.
    pub fn make(place: &Path, prefix: &str) -> io::Result<Folder> {
        let made = tempfile::Builder::new()
            .prefix(prefix)
            .rand_bytes(LETTERS)
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

    /// Whether it is still there: a program that may write in it may have removed it.
    pub fn is_there(&self) -> bool {
        self.path.join(LOCK).exists()
    }

    /// Removes those in `place` that nobody holds any more. What has not our name and our lock is not ours, and stays.
    pub fn sweep(place: &Path, prefix: &str) {
        for entry in fs::read_dir(place).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let letters = name.as_bytes().strip_prefix(prefix.as_bytes());
            let is_named = letters
                .is_some_and(|it| it.len() == LETTERS && it.iter().all(u8::is_ascii_alphanumeric));
            if !is_named {
                continue;
            }
            // Of a link: that of the link.
            let meta = entry.metadata().ok();
            let meta = meta.filter(|it| it.is_dir() && it.uid() == nix::unistd::geteuid().as_raw());
            let age = meta.and_then(|it| it.modified().ok()?.elapsed().ok());
            if age.is_some_and(|it| SETTLED <= it) {
                remove_if_left(&entry.path());
            }
        }
    }
}

fn remove_if_left(folder: &Path) {
    let how = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    match File::options().read(true).custom_flags(how).open(folder.join(LOCK)) {
        Ok(lock) => {
            let is_lock = lock.metadata().is_ok_and(|it| it.is_file());
            if is_lock && Flock::lock(lock, FlockArg::LockExclusiveNonblock).is_ok() {
                let _ = tree::remove(folder);
            }
        }
        // Its owner was killed before it had a lock. This removes nothing that has anything in it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let _ = fs::remove_dir(folder);
        }
        Err(_) => (),
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

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::symlink, time::SystemTime};

    use super::*;

    #[test]
    fn nobody_else_may_enter_and_it_goes_with_its_owner() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::make(place.path(), "a-").unwrap();
        let path = folder.path().to_owned();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        fs::write(path.join("file"), "").unwrap();
        assert!(folder.is_there());
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn what_was_left_goes_and_what_is_not_ours_stays() {
        let place = tempfile::tempdir().unwrap();
        let at = |path: &str| place.path().join(path);
        let elsewhere = tempfile::tempdir().unwrap();
        fs::create_dir(elsewhere.path().join("a-linkedfolder")).unwrap();
        fs::write(elsewhere.path().join("a-linkedfolder").join(LOCK), "").unwrap();
        for (folder, files) in [
            ("a-left00000000", &[LOCK, "file"][..]),
            ("a-killedatonce", &[]),
            ("a-fresh0000000", &[LOCK]),
            ("a-nolock000000", &["lock", "thesis.tex"]),
            ("a-notours", &[LOCK, "thesis.tex"]),
            ("a-of-somebody", &[LOCK]),
            ("b-othername000", &[LOCK]),
            ("experiment1", &["lock", "results.csv"]),
        ] {
            fs::create_dir(at(folder)).unwrap();
            files.iter().for_each(|it| fs::write(at(folder).join(it), "").unwrap());
        }
        fs::create_dir(at("a-lockisalink0")).unwrap();
        symlink(at("a-left00000000").join("file"), at("a-lockisalink0").join(LOCK)).unwrap();
        symlink(elsewhere.path().join("a-linkedfolder"), at("a-alink0000000")).unwrap();
        let held = Folder::make(place.path(), "a-").unwrap();
        let an_hour_ago = SystemTime::now() - Duration::from_secs(3600);
        for entry in fs::read_dir(place.path()).unwrap() {
            let path = entry.unwrap().path();
            if !path.ends_with("a-fresh0000000") {
                File::open(path).unwrap().set_modified(an_hour_ago).unwrap();
            }
        }
        Folder::sweep(place.path(), "a-");
        for gone in ["a-left00000000", "a-killedatonce"] {
            assert!(!at(gone).exists(), "{gone}");
        }
        for stays in [
            "a-fresh0000000",
            "a-nolock000000/thesis.tex",
            "a-notours/thesis.tex",
            "a-of-somebody",
            "b-othername000",
            "experiment1/results.csv",
            "a-lockisalink0",
            "a-alink0000000",
        ] {
            assert!(at(stays).exists(), "{stays}");
        }
        assert!(elsewhere.path().join("a-linkedfolder").join(LOCK).exists());
        assert!(held.is_there());
    }
}
