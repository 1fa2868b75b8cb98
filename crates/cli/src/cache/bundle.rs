//! The phantom and the agent, which this binary carries, as files that the dynamic loader and Python can
//! find. Many starts may unpack at once, and what is found on the disk is compared byte for byte with
//! what we carry before it is used: a damaged file is replaced.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use nix::unistd::geteuid;
use plimsoll_writes::Layer;

use crate::{
    cache::{Cache, reason},
    files::bounded_file,
};

/// Bytecode of more than this is thrown away: that of torch, transformers and their like takes some 0.1 GiB an environment.
const BYTECODE_BYTES: u64 = 1 << 30;
/// How the folder of a bundle is called; the hash of its contents follows.
const PREFIX: &str = "bundle-";
const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A file that the binary carries.
pub(super) struct File {
    /// Where it goes, below the folder named by the content's hash or in the wheel.
    pub(super) path: &'static str,
    pub(super) bytes: &'static [u8],
}

include!(concat!(env!("OUT_DIR"), "/bundle.rs"));

/// (the link, where it points to), beside the files. Triton links what it compiles with `-lcuda`.
const LINKS: &[(&str, &str)] =
    &[("lib/libnvidia-ml.so.1", "libcuda.so.1"), ("lib/libcuda.so", "libcuda.so.1")];

/// The unpacked bundle.
#[derive(Debug)]
pub(crate) struct Bundle {
    root: PathBuf,
}

impl Bundle {
    /// Makes sure that the bundle is on the disk, complete and as we carry it.
    pub(crate) fn unpack(cache: &Cache) -> anyhow::Result<Bundle> {
        let root = cache.path().join(format!("{PREFIX}{HASH}"));
        put(cache.path(), &root).map_err(|error| {
            anyhow::anyhow!(
                "cannot unpack into {}: {}; free some space there, or set PLIMSOLL_CACHE to another folder",
                root.display(),
                reason(&error),
            )
        })?;
        let res = Bundle { root };
        res.bound_bytecode();
        Ok(res)
    }

    /// The phantom: the file to preload, which is the CUDA driver too.
    pub(crate) fn phantom(&self) -> PathBuf {
        self.root.join("lib/libcuda.so.1")
    }

    /// Preloaded too: it makes holes of the zeros that the script writes.
    pub(crate) fn holes(&self) -> PathBuf {
        self.root.join("lib/libplimsoll_writes_preload.so")
    }

    /// Preloaded under tracing: calls that only look do not stop until something is written.
    pub(crate) fn looks(&self) -> PathBuf {
        self.root.join("lib/libplimsoll_writes_looks.so")
    }

    /// The folder where `dlopen("libcuda.so.1")` finds the phantom.
    pub(crate) fn lib(&self) -> PathBuf {
        self.root.join("lib")
    }

    /// Where Python's bytecode of installed packages and of the agent is kept from run to run.
    pub(crate) fn bytecode(&self) -> PathBuf {
        self.root.join("bytecode")
    }

    /// Keeps the bytecode that a run has compiled: the agent wrote it there, and that went into the run's layer.
    pub(crate) fn keep_bytecode(&self, layer: &Layer) {
        let folder = self.bytecode();
        if let Some(upper) = layer.upper_of(&folder) {
            // What is not kept is compiled again.
            let _ = keep_bytecode(&upper, &folder);
        }
    }

    /// Once a day it is measured; when it has grown too large it goes, and is compiled anew.
    fn bound_bytecode(&self) {
        let folder = self.bytecode();
        let measured = folder.join("measured");
        let age = fs::metadata(&measured).and_then(|it| it.modified()).map(|it| it.elapsed());
        let is_due = !age.is_ok_and(|it| it.is_ok_and(|it| it < A_DAY));
        if !is_due || !is_folder(&folder) {
            return;
        }
        if BYTECODE_BYTES < size_of_tree(&folder) {
            let _ = fs::remove_dir_all(&folder);
        } else {
            let _ = fs::write(measured, "");
        }
    }

    /// Puts a file of these bytes into the bundle's folder, unless it is there.
    pub(super) fn put(&self, name: &str, bytes: &[u8]) -> io::Result<PathBuf> {
        let (path, folder) = clear_way(&self.root, Path::new(name))?;
        put_file(&path, &folder, bytes)?;
        Ok(path)
    }

    /// The folder of the agent's Python.
    pub(crate) fn agent(&self) -> PathBuf {
        self.root.join("agent")
    }
}

/// Bundles that other versions of plimsoll left in the cache: how many, and their bytes together.
pub(crate) fn others(cache: &Cache) -> anyhow::Result<(usize, u64)> {
    let entries = fs::read_dir(cache.path()).with_context(|| cache.path().display().to_string())?;
    let mut res = (0, 0);
    for entry in entries.flatten() {
        let name = entry.file_name();
        let hash = name.to_str().and_then(|it| it.strip_prefix(PREFIX));
        if hash.is_some_and(|it| it != HASH) {
            res.0 += 1;
            res.1 += size_of_tree(&entry.path());
        }
    }
    Ok(res)
}

/// Whether a folder is there, and no link to one.
fn is_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|it| it.is_dir())
}

/// Gives what is new in `upper` a name in `folder`, too. What a run changed, deleted or linked there is its own.
fn keep_bytecode(upper: &Path, folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(upper)? {
        let entry = entry?;
        let (new, kept, meta) = (entry.path(), folder.join(entry.file_name()), entry.metadata()?);
        if meta.is_dir() {
            keep_bytecode(&new, &kept)?;
            continue;
        }
        let is_bytecode = meta.is_file() && new.extension().is_some_and(|it| it == "pyc");
        if !is_bytecode || meta.len() == 0 || fs::symlink_metadata(&kept).is_ok() {
            continue;
        }
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        // Where the layer lies on another disk.
        if fs::hard_link(&new, &kept).is_err() {
            let mut copy = tempfile::Builder::new().prefix(".new-").tempfile_in(folder)?;
            let file = bounded_file::open_unlinked(&new)?;
            copy.write_all(&bounded_file::all(file, bounded_file::REPORT)?)?;
            copy.persist(&kept)?;
        }
    }
    Ok(())
}

fn size_of_tree(path: &Path) -> u64 {
    let Ok(meta) = fs::symlink_metadata(path) else { return 0 };
    if !meta.is_dir() {
        return meta.len();
    }
    let Ok(entries) = fs::read_dir(path) else { return 0 };
    entries.flatten().map(|it| size_of_tree(&it.path())).sum()
}

fn put(parent: &Path, root: &Path) -> io::Result<()> {
    if fs::symlink_metadata(root).is_err() {
        // Complete under another name first; the rename is the moment at which it exists. Who loses a
        // race finds the winner's folder and throws its own away.
        let unfinished = tempfile::Builder::new()
            .prefix("unpacking-")
            .permissions(fs::Permissions::from_mode(0o700))
            .tempdir_in(parent)?;
        complete(unfinished.path())?;
        match fs::rename(unfinished.path(), root) {
            Ok(()) => {
                let _ = unfinished.keep();
                return Ok(());
            }
            Err(_) if root.is_dir() => (),
            Err(error) => return Err(error),
        }
    }
    let meta = fs::symlink_metadata(root)?;
    if !meta.is_dir() || meta.uid() != geteuid().as_raw() {
        return Err(io::Error::other("it exists, but it is not a folder of your user"));
    }
    if meta.mode() & 0o777 != 0o700 {
        fs::set_permissions(root, fs::Permissions::from_mode(0o700))?;
    }
    complete(root)
}

/// Every file and link in place with the right bytes. Each is replaced by a rename, so a process that
/// has the old one open or mapped keeps it.
fn complete(root: &Path) -> io::Result<()> {
    for File { path, bytes } in FILES {
        let (path, folder) = clear_way(root, Path::new(path))?;
        put_file(&path, &folder, bytes)?;
    }
    for (path, target) in LINKS {
        let (path, folder) = clear_way(root, Path::new(path))?;
        if fs::read_link(&path).is_ok_and(|it| it == Path::new(target)) {
            continue;
        }
        clear(&path)?;
        let unfinished = tempfile::Builder::new().prefix(".new-").tempdir_in(&folder)?;
        let link = unfinished.path().join("link");
        symlink(target, &link)?;
        fs::rename(&link, &path)?;
    }
    Ok(())
}

fn put_file(path: &Path, folder: &Path, bytes: &[u8]) -> io::Result<()> {
    if !holds(path, bytes) {
        clear(path)?;
        let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(folder)?;
        file.write_all(bytes)?;
        file.persist(path)?;
    }
    Ok(())
}

fn holds(path: &Path, bytes: &[u8]) -> bool {
    let is_ours = fs::symlink_metadata(path).is_ok_and(|meta| {
        meta.is_file() && usize::try_from(meta.len()).is_ok_and(|it| it == bytes.len())
    });
    is_ours && bounded_file::bytes(path, bytes.len() as u64).is_ok_and(|it| it == bytes)
}

/// The file `path` of the bundle `root`, and its folder, made if need be. Each folder on the way is one: a link that stands there
/// leads elsewhere, and what is there is not ours to change.
fn clear_way(root: &Path, path: &Path) -> io::Result<(PathBuf, PathBuf)> {
    let mut folder = root.to_owned();
    for part in path.parent().into_iter().flat_map(Path::components) {
        folder.push(part);
        if !fs::symlink_metadata(&folder).is_ok_and(|it| it.is_dir()) {
            let _ = fs::remove_file(&folder);
            fs::DirBuilder::new().mode(0o700).create(&folder)?;
        }
    }
    Ok((root.join(path), folder))
}

/// Nothing is in the way that a rename could not replace.
fn clear(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path).is_ok_and(|it| it.is_dir()) {
        fs::remove_dir_all(path)?;
    }
    Ok(())
}
