//! The one folder in which everything of ours lies, below a folder that may be any of the user's. It is made whole, with a file that
//! says whose it is, and known again by that file: what merely lies where ours would lie is somebody's, and is neither used nor
//! changed.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    os::unix::fs::{
        DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
    },
    path::{Path, PathBuf},
};

/// The folder's name.
const NAME: &str = "plimsoll-cache";
/// What says whose it is. Programs that make copies of disks know it, too, and leave the folder out.
const TAG: &str = "CACHEDIR.TAG";
/// How that begins: with the words of the Cache Directory Tagging Specification (bford.info/cachedir), and ours.
const MARK: &str = "Signature: 8a477f597d28d172789f06886806bc55\n# This folder is plimsoll's.";
const REST: &str = " It may be deleted as a whole while no plimsoll runs.\n";
/// What lies in it.
const FOLDERS: [&str; 3] = ["sessions", "layers", "downloads"];

/// It is there, with the folders in it, is no link, is ours, and nobody else may write there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnFolder {
    path: PathBuf,
}

impl OwnFolder {
    /// That of `place`, which exists; made if it is not there.
    pub fn below(place: &Path) -> io::Result<OwnFolder> {
        // The kernel names what lies in it so.
        let place = fs::canonicalize(place)?;
        let path = place.join(NAME);
        if !is_marked(&path) {
            let made = put(&place, &path);
            // Who loses a race finds the winner's.
            if fs::symlink_metadata(&path).is_err() {
                made?;
            }
        }
        check(&path, NAME)?;
        if !is_marked(&path) {
            return Err(io::Error::other(format!(
                "{NAME} in it is not plimsoll's: it has no {TAG}"
            )));
        }
        for name in FOLDERS {
            let folder = path.join(name);
            match fs::DirBuilder::new().mode(0o700).create(&folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => check(&folder, &format!("{NAME}/{name}"))?,
            }
        }
        Ok(OwnFolder { path })
    }

    /// Absolute, and no link is in it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where runs leave what they saw, each in a [`Folder`](crate::Folder).
    pub fn sessions(&self) -> PathBuf {
        self.path.join("sessions")
    }

    /// Where what runs write lies.
    pub(crate) fn layers(&self) -> PathBuf {
        self.path.join("layers")
    }

    /// Where downloads are kept.
    pub(crate) fn downloads(&self) -> PathBuf {
        self.path.join("downloads")
    }
}

/// Complete under another name first: it never exists without its mark. What is in the way stays, but for an empty folder.
fn put(place: &Path, path: &Path) -> io::Result<()> {
    let unfinished = tempfile::Builder::new()
        .prefix(".plimsoll-cache-")
        .permissions(fs::Permissions::from_mode(0o700))
        .tempdir_in(place)?;
    fs::write(unfinished.path().join(TAG), format!("{MARK}{REST}"))?;
    fs::rename(unfinished.path(), path)?;
    let _ = unfinished.keep();
    Ok(())
}

fn is_marked(path: &Path) -> bool {
    let read = || -> io::Result<Vec<u8>> {
        let how = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = File::options().read(true).custom_flags(how).open(path.join(TAG))?;
        let mut res = Vec::new();
        file.take(MARK.len() as u64).read_to_end(&mut res)?;
        Ok(res)
    };
    read().is_ok_and(|it| it == MARK.as_bytes())
}

/// Whether `path`, which is there, is a folder of ours alone; `shown` is what it is called.
fn check(path: &Path, shown: &str) -> io::Result<()> {
    let meta = fs::symlink_metadata(path)?;
    let why = if meta.is_symlink() {
        "is a link, whose target may belong to another user"
    } else if !meta.is_dir() {
        "is no folder"
    } else if meta.uid() != nix::unistd::geteuid().as_raw() {
        "belongs to another user"
    } else if meta.mode() & 0o022 != 0 {
        "is writable by others"
    } else {
        return Ok(());
    };
    Err(io::Error::other(format!("{shown} in it {why}")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn refused(place: &Path) -> String {
        OwnFolder::below(place).unwrap_err().to_string()
    }

    #[test]
    fn it_is_made_with_its_mark_and_found_again() {
        let place = tempfile::tempdir().unwrap();
        symlink(place.path(), place.path().join("link")).unwrap();
        let own = OwnFolder::below(place.path()).unwrap();
        assert_eq!(own, OwnFolder::below(&place.path().join("link")).unwrap());
        assert_eq!(fs::metadata(own.path()).unwrap().mode() & 0o777, 0o700);
        let names = || fs::read_dir(place.path()).unwrap().count();
        assert_eq!(names(), 2, "nothing is beside it");
        // One that was just made by nobody in particular.
        fs::remove_dir_all(own.path()).unwrap();
        fs::create_dir(own.path()).unwrap();
        OwnFolder::below(place.path()).unwrap();
        assert_eq!(names(), 2);
    }

    #[test]
    fn what_is_not_ours_is_not_used_and_stays() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(NAME);
        fs::create_dir(&path).unwrap();
        fs::write(path.join("thesis.tex"), "mine").unwrap();
        assert!(refused(place.path()).contains("plimsoll-cache in it is not plimsoll's"));
        fs::write(path.join(TAG), "Signature: 8a477f597d28d172789f06886806bc55\n").unwrap();
        assert!(refused(place.path()).contains("is not plimsoll's"));
        let names = fs::read_dir(&path).unwrap().count();
        assert_eq!((names, fs::read(path.join("thesis.tex")).unwrap()), (2, b"mine".to_vec()));
        fs::rename(&path, place.path().join("elsewhere")).unwrap();
        symlink("elsewhere", &path).unwrap();
        assert!(refused(place.path()).contains("plimsoll-cache in it is a link"));
        fs::remove_file(&path).unwrap();
        fs::write(&path, "a file").unwrap();
        assert!(refused(place.path()).contains("plimsoll-cache in it is no folder"));
        fs::remove_file(&path).unwrap();
        let own = OwnFolder::below(place.path()).unwrap();
        for name in FOLDERS {
            let folder = own.path().join(name);
            fs::remove_dir(&folder).unwrap();
            symlink(place.path().join("elsewhere"), &folder).unwrap();
            let why = refused(place.path());
            assert!(why.contains(&format!("plimsoll-cache/{name} in it is a link")), "{why}");
            fs::remove_file(&folder).unwrap();
        }
        let open = OwnFolder::below(place.path()).unwrap().sessions();
        fs::set_permissions(open, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(refused(place.path()).contains("sessions in it is writable by others"));
    }
}
