//! Downloads that outlive the run that made them: else a model that is not on this machine yet would be downloaded by every run
//! and every trial anew. They are seen again at the same place, below what is on the disk, in a lower layer.
//!
//! Each run begins with the same world, so nothing is kept by which one run could tell another something: a file is kept only
//! if its name says the SHA-256 of its contents, below the folders of Hugging Face's hub (`blobs/<sha256>`) and of torch.hub
//! (`resnet50-0676ba61.pth`). A download that was broken off does not have that name's contents, and a file that a script
//! made has another name.
//!
//! What is kept has an ending of ours. What has not, and what a link leads to, was put there by somebody else: it is not shown, not
//! counted, and not removed.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, Read as _},
    os::unix::{
        ffi::OsStrExt as _,
        fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

use crate::{sys, tree};

/// Fewer digits of a hash are no promise; torch.hub's file names have eight.
const FEWEST_DIGITS: usize = 8;
/// What stands behind the name of a file that is kept.
const ENDING: &str = ".plimsoll-kept";

/// Where the downloads of earlier runs lie, and the folders that they were made in.
#[derive(Clone, Debug)]
pub(crate) struct Downloads {
    /// Ours; a file lies below it at its full path, with [`ENDING`].
    store: PathBuf,
    /// Absolute; the part that exists has no links in it.
    places: Vec<PathBuf>,
}

/// A download that will be there in the next run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Download {
    /// Where the run saw it.
    pub path: PathBuf,
    /// Its length.
    pub bytes: u64,
}

impl Downloads {
    /// `store` is ours; the folders of the libraries are those that our environment says.
    pub(crate) fn new(store: PathBuf) -> Downloads {
        Downloads { store, places: places(|name| std::env::var_os(name).map(PathBuf::from)) }
    }

    /// Puts links to what was kept into `folder`, each at its full path; what the disk has by now is forgotten. The folders in
    /// which there is something, or none where files of the store cannot have a second name in `folder`.
    pub(crate) fn lay_out(&self, folder: &Path) -> Vec<PathBuf> {
        let has_some = |place: &&PathBuf| {
            let kept = folder_in(&self.store, relative(place), false);
            let laid_out = kept.and_then(|it| lay_out(&it, place, &folder.join(relative(place))));
            0 < laid_out.unwrap_or(0)
        };
        self.places.iter().filter(has_some).cloned().collect()
    }

    /// Keeps the downloads that a run has made; `upper` says where lies what it wrote into a folder.
    pub(crate) fn keep(&self, upper: impl Fn(&Path) -> Option<PathBuf>) -> Vec<Download> {
        let mut res = Vec::new();
        for place in &self.places {
            if let Some(upper) = upper(place) {
                self.keep_below(&upper, place, &mut res);
            }
        }
        if !res.is_empty() {
            self.make_room();
        }
        res
    }

    fn keep_below(&self, ours: &Path, path: &Path, res: &mut Vec<Download>) {
        for entry in fs::read_dir(ours).into_iter().flatten().flatten() {
            let (ours, path) = (entry.path(), path.join(entry.file_name()));
            let Ok(meta) = fs::symlink_metadata(&ours) else { continue };
            if meta.is_dir() {
                self.keep_below(&ours, &path, res);
                continue;
            }
            let is_new = meta.is_file() && fs::symlink_metadata(&path).is_err();
            if is_new && says_its_contents(&ours) && self.keep_one(&ours, &path).is_ok() {
                res.push(Download { path, bytes: meta.len() });
            }
        }
    }

    /// Fails for what is kept already.
    fn keep_one(&self, ours: &Path, path: &Path) -> io::Result<()> {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let mut name = name.to_owned();
        name.push(ENDING);
        fs::hard_link(ours, folder_in(&self.store, relative(folder), true)?.join(name))
    }

    /// At most a fifth of what is free on the disk: those go that no run has seen for longest. A run that sees one links
    /// it, and that is a change of its status.
    fn make_room(&self) {
        let mut all = Vec::new();
        list(&self.store, &mut all);
        let mut total: u64 = all.iter().map(|it| it.1).sum();
        let free = tree::free_bytes(&self.store).unwrap_or(0);
        let most = (free + total) / 5;
        all.sort_by_key(|it| it.2);
        for (path, bytes, _) in all {
            if total <= most {
                break;
            }
            if fs::remove_file(path).is_ok() {
                total -= bytes;
            }
        }
    }
}

/// (path, bytes on the disk, time of the last change of status) of the files that are kept below a folder.
fn list(folder: &Path, res: &mut Vec<(PathBuf, u64, (i64, i64))>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        // Of a link: that of the link.
        let Ok(meta) = entry.metadata() else { continue };
        if meta.is_dir() {
            list(&entry.path(), res);
        } else if meta.is_file() && kept_name(&entry.file_name()).is_some() {
            res.push((entry.path(), 512 * meta.blocks(), (meta.ctime(), meta.ctime_nsec())));
        }
    }
}

/// Below `new` a link to each file that is kept below `kept` and not at `place` on the disk. How many.
fn lay_out(kept: &Path, place: &Path, new: &Path) -> io::Result<usize> {
    let mut res = 0;
    for entry in fs::read_dir(kept)? {
        let entry = entry?;
        let (kept, kind, name) = (entry.path(), entry.file_type()?, entry.file_name());
        if kind.is_dir() {
            res += lay_out(&kept, &place.join(&name), &new.join(&name))?;
            continue;
        }
        let Some(name) = kept_name(&name).filter(|_| kind.is_file()) else { continue };
        if fs::symlink_metadata(place.join(&name)).is_ok() {
            fs::remove_file(&kept)?;
        } else {
            fs::create_dir_all(new)?;
            fs::hard_link(&kept, new.join(&name))?;
            res += 1;
        }
    }
    // As the disk's folder looks; the files came first, as it may allow less.
    if 0 < res {
        let mode = fs::metadata(place).map_or(0o755, |it| it.mode() & 0o7777);
        fs::set_permissions(new, fs::Permissions::from_mode(mode))?;
    }
    Ok(res)
}

/// The name that a file had before it was kept; none if we did not keep it.
fn kept_name(name: &OsStr) -> Option<OsString> {
    let name = OsStr::from_bytes(name.as_bytes().strip_suffix(ENDING.as_bytes())?);
    said_hash(name.to_str()?).is_some().then(|| name.to_owned())
}

/// The folder `path` in `store`. Each on the way is a folder and no link, which would lead to what is not ours; one that is not there
/// is made, if `makes`.
fn folder_in(store: &Path, path: &Path, makes: bool) -> io::Result<PathBuf> {
    let mut res = store.to_owned();
    for name in path {
        res.push(name);
        if makes {
            // Where it fails, there is one or there is none.
            let _ = fs::DirBuilder::new().mode(0o700).create(&res);
        }
        if !fs::symlink_metadata(&res)?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
    }
    Ok(res)
}

/// Whether the name of a file that nobody writes any more is, or ends with, the SHA-256 of its contents.
fn says_its_contents(path: &Path) -> bool {
    let Some(said) = path.file_name().and_then(|it| it.to_str()).and_then(said_hash) else {
        return false;
    };
    let hash = || -> io::Result<String> {
        let mut file = File::options().read(true).write(true).open(path)?;
        // Nobody else has it open.
        sys::lease(&file)?;
        let mut hash = Sha256::new();
        let mut piece = vec![0; 1 << 20];
        loop {
            match file.read(&mut piece)? {
                0 => break,
                n => hash.update(&piece[..n]),
            }
        }
        Ok(hash.finalize().iter().map(|it| format!("{it:02x}")).collect())
    };
    hash().is_ok_and(|it| it.starts_with(said))
}

/// The digits of a hash in a file's name: all of it, or those between the last dash and the ending.
fn said_hash(name: &str) -> Option<&str> {
    let is_hash = |it: &str| it.bytes().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'));
    if name.len() == 64 && is_hash(name) {
        return Some(name);
    }
    let (_, after) = name.rsplit_once('-')?;
    let (digits, _ending) = after.split_once('.')?;
    ((FEWEST_DIGITS..=64).contains(&digits.len()) && is_hash(digits)).then_some(digits)
}

/// The folders of the hub and of torch.hub, as these libraries find them.
fn places(variable: impl Fn(&str) -> Option<PathBuf>) -> Vec<PathBuf> {
    let set = |name: &str| variable(name).filter(|it| it.is_absolute());
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    let of_cache = |name: &str| cache.as_ref().map(|it| it.join(name));
    let hub = set("HF_HUB_CACHE")
        .or_else(|| set("HUGGINGFACE_HUB_CACHE"))
        .or_else(|| Some(set("HF_HOME").or_else(|| of_cache("huggingface"))?.join("hub")));
    let torch =
        set("TORCH_HOME").or_else(|| of_cache("torch")).map(|it| it.join("hub/checkpoints"));
    [hub, torch].into_iter().flatten().filter_map(|it| without_links(&it)).collect()
}

/// The path with the links in its existing part followed.
fn without_links(path: &Path) -> Option<PathBuf> {
    let exists = path.ancestors().find(|it| it.exists())?;
    let rest = path.strip_prefix(exists).ok()?;
    let real = fs::canonicalize(exists).ok()?;
    Some(if rest.as_os_str().is_empty() { real } else { real.join(rest) })
}

fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_find_their_folders_so() {
        let of = |set: &[(&str, &str)]| {
            let set: Vec<_> =
                set.iter().map(|(a, b)| ((*a).to_owned(), PathBuf::from(b))).collect();
            places(|name| set.iter().find(|it| it.0 == name).map(|it| it.1.clone()))
        };
        let path = |it: &str| PathBuf::from(it);
        assert_eq!(
            of(&[("HOME", "/nobody/me")]),
            [
                path("/nobody/me/.cache/huggingface/hub"),
                path("/nobody/me/.cache/torch/hub/checkpoints")
            ]
        );
        assert_eq!(
            of(&[
                ("HOME", "/nobody/me"),
                ("XDG_CACHE_HOME", "/x"),
                ("HF_HOME", "/h"),
                ("TORCH_HOME", "t")
            ]),
            [path("/h/hub"), path("/x/torch/hub/checkpoints")]
        );
        assert_eq!(of(&[("HF_HUB_CACHE", "/c")]), [path("/c")]);
        assert!(of(&[]).is_empty());
    }

    #[test]
    fn a_name_says_its_contents_or_is_not_believed() {
        assert_eq!(said_hash("resnet50-0676ba61.pth"), Some("0676ba61"));
        assert_eq!(said_hash("resnet50-0676ba6.pth"), None);
        assert_eq!(said_hash("model-00001-of-00002.safetensors"), None);
        assert_eq!(said_hash("0676ba61"), None);
        let dir = tempfile::tempdir().unwrap();
        // sha256sum of "hello\n".
        let hash = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
        let is_kept = |name: &str, text: &str| {
            fs::write(dir.path().join(name), text).unwrap();
            says_its_contents(&dir.path().join(name))
        };
        assert!(is_kept(hash, "hello\n"));
        assert!(is_kept("net-5891b5b5.pth", "hello\n"));
        assert!(!is_kept("net-5891b5b6.pth", "hello\n"));
        assert!(!is_kept(hash, "hello"));
        assert!(!is_kept("hello", "hello\n"));
    }

    #[test]
    fn what_we_did_not_keep_is_not_shown_and_stays() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().unwrap();
        let at = |it: &str| dir.path().join(it);
        let (store, place) = (at("store"), at("home/hub"));
        let downloads = Downloads { store: store.clone(), places: vec![place.clone()] };
        let kept = folder_in(&store, relative(&place), true);
        assert!(kept.is_err(), "the store is not there");
        fs::create_dir(&store).unwrap();
        let kept = folder_in(&store, relative(&place), true).unwrap();
        let mine = at("mine");
        fs::create_dir(&mine).unwrap();
        fs::write(mine.join(format!("n-5891b5b5.pth{ENDING}")), "mine").unwrap();
        fs::write(kept.join("n-5891b5b5.pth"), "mine").unwrap();
        fs::write(kept.join(format!("notes{ENDING}")), "mine").unwrap();
        symlink(&mine, kept.join("linked")).unwrap();
        symlink(mine.join("a"), kept.join(format!("l-5891b5b5.pth{ENDING}"))).unwrap();
        let upper = at("upper");
        fs::create_dir(&upper).unwrap();
        assert!(downloads.lay_out(&at("new")).is_empty());
        // One of ours beside them.
        fs::write(upper.join("m-5891b5b5.pth"), "hello\n").unwrap();
        let said = downloads.keep(|_| Some(upper.clone()));
        assert_eq!(said, [Download { path: place.join("m-5891b5b5.pth"), bytes: 6 }]);
        assert!(downloads.keep(|_| Some(upper.clone())).is_empty(), "it is kept already");
        let mut all = Vec::new();
        list(&store, &mut all);
        assert_eq!(all.len(), 1, "{all:?}");
        assert_eq!(downloads.lay_out(&at("new")), std::slice::from_ref(&place));
        let shown = at("new").join(relative(&place));
        let names: Vec<_> = fs::read_dir(&shown).unwrap().map(|it| it.unwrap().path()).collect();
        assert_eq!(names, [shown.join("m-5891b5b5.pth")]);
        // What the disk has by now is forgotten, and nothing else.
        fs::create_dir_all(&place).unwrap();
        for name in ["m-5891b5b5.pth", "n-5891b5b5.pth", "l-5891b5b5.pth", "notes"] {
            fs::write(place.join(name), "").unwrap();
        }
        assert!(downloads.lay_out(&at("again")).is_empty());
        assert_eq!(fs::read_dir(&kept).unwrap().count(), 4);
        assert_eq!(fs::read_dir(&mine).unwrap().count(), 1);
        // A store that leads elsewhere is none.
        fs::rename(&store, at("moved")).unwrap();
        fs::create_dir(&store).unwrap();
        let first = relative(&place).iter().next().unwrap();
        symlink(at("moved").join(first), store.join(first)).unwrap();
        fs::remove_file(place.join("n-5891b5b5.pth")).unwrap();
        fs::rename(upper.join("m-5891b5b5.pth"), upper.join("n-5891b5b5.pth")).unwrap();
        assert!(downloads.lay_out(&at("third")).is_empty());
        assert!(downloads.keep(|_| Some(upper.clone())).is_empty());
    }
}
