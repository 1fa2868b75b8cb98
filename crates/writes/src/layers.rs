//! Layers: which way this machine has to keep writes apart, and one layer of it.

use std::{
    ffi::OsString,
    fmt, fs, io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
    time::Duration,
};

use nix::{
    sys::{
        statfs::{FsType, statfs},
        statvfs::statvfs,
    },
    unistd::{AccessFlags, access},
};
use tempfile::TempDir;

use crate::{
    namespaces::World,
    plan::is_foreign,
    traced::Tracer,
    tree,
    written::{self, Written},
};

/// The first argument by which this program, started again, is to call [`crate::trace`].
pub const TRACER: &str = "__trace-writes";

/// How writes are kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A mount namespace with overlays. Costs some 10 ms, and nothing while the command runs.
    Mounts,
    /// The same inside a user namespace, for those who may not mount.
    UserNamespace,
    /// The system calls that name files are answered by us (ptrace and seccomp).
    Traced,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Mounts => "a mount namespace",
            Way::UserNamespace => "a user namespace",
            Way::Traced => "tracing",
        })
    }
}

/// No way holds on this machine: each with why not.
#[derive(Clone, Debug)]
pub struct NoWay(pub Vec<(Way, String)>);

impl fmt::Display for NoWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whys: Vec<String> = self.0.iter().map(|(way, why)| format!("{way}: {why}")).collect();
        let whys = whys.join("; ");
        write!(
            f,
            "cannot keep what the script writes apart from your files ({whys}); \
             `--writes through` runs it all the same, and lets it write"
        )
    }
}

impl std::error::Error for NoWay {}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Ask {
    cache: PathBuf,
    through: Vec<PathBuf>,
    max_bytes: Option<u64>,
    ways: Vec<Way>,
    tracer: Vec<OsString>,
}

impl Ask {
    /// Layers below `cache`, a folder of ours, which is also written through.
    pub fn new(cache: &Path) -> Ask {
        let ways = vec![Way::Mounts, Way::UserNamespace, Way::Traced];
        let tracer = vec!["/proc/self/exe".into(), TRACER.into()];
        let cache = cache.to_owned();
        Ask { through: vec![cache.clone()], cache, max_bytes: None, ways, tracer }
    }

    /// A folder that the command writes to in truth.
    #[must_use]
    pub fn through(mut self, folder: &Path) -> Ask {
        self.through.push(folder.to_owned());
        self
    }

    /// What a layer may take on the disk; else a fifth of what is free there.
    #[must_use]
    pub fn max_bytes(mut self, bytes: u64) -> Ask {
        self.max_bytes = Some(bytes);
        self
    }

    /// Only these ways, in this order.
    #[must_use]
    pub fn ways(mut self, ways: &[Way]) -> Ask {
        self.ways = ways.to_vec();
        self
    }
}

/// The way that this machine has, tried and found to hold.
#[derive(Debug)]
pub struct Layers {
    ask: Ask,
    way: Way,
    passed_over: Vec<(Way, String)>,
    place: PathBuf,
    /// The one that was made to try the way.
    first: Mutex<Option<Layer>>,
}

/// File systems that can be the upper layer of an overlay (`overlayfs.rst`, "Upper and Lower"): local ones that keep
/// extended attributes and say of what type an entry is.
const CAN_BE_WRITTEN: [i64; 7] = [
    0xEF53,      // ext4
    0x5846_5342, // xfs
    0x9123_683E, // btrfs
    0xF2F5_2010, // f2fs
    0x0102_1994, // tmpfs
    0x2FC1_2FC1, // zfs
    0xCA45_1A4E, // bcachefs
];

impl Layers {
    /// Tries the ways by really going them.
    pub fn find(ask: Ask) -> Result<Layers, NoWay> {
        // It is bound into the world: it has to be there.
        let _ = fs::DirBuilder::new().recursive(true).mode(0o700).create(&ask.cache);
        let through =
            ask.through.iter().map(|it| fs::canonicalize(it).unwrap_or_else(|_| it.clone()));
        let ask = Ask { through: through.collect(), ..ask };
        let mut passed_over = Vec::new();
        for way in ask.ways.clone() {
            for place in places(&ask.cache, way) {
                let (ask, first) = (ask.clone(), Mutex::new(None));
                let layers = Layers { ask, way, passed_over: Vec::new(), place, first };
                match layers.try_out() {
                    Ok(()) => return Ok(Layers { passed_over, ..layers }),
                    // Often the same for each place that it was tried in.
                    Err(why) if passed_over.contains(&(way, why.clone())) => (),
                    Err(why) => passed_over.push((way, why)),
                }
            }
        }
        Err(NoWay(passed_over))
    }

    /// The way that holds.
    pub fn way(&self) -> Way {
        self.way
    }

    /// The ways that were tried before, each with why it does not hold.
    pub fn passed_over(&self) -> &[(Way, String)] {
        &self.passed_over
    }

    fn try_out(&self) -> Result<(), String> {
        let layer = self.make().map_err(|error| error.to_string())?;
        let here = std::env::current_dir().unwrap_or_default();
        if let Some((place, why)) = layer.refused().iter().find(|(it, _)| here.starts_with(it)) {
            return Err(format!("{} cannot be covered: {why}", place.display()));
        }
        if let Keeper::World(World { is_alone: true, .. }, _) = &layer.keeper
            && let Some(path) = shared_with_others(&here)
        {
            return Err(format!("{} belongs to others, too", path.display()));
        }
        if let Keeper::Tracer(it) = &layer.keeper {
            return it.try_out(&self.ask.tracer);
        }
        if let Ok(mut first) = self.first.lock() {
            *first = Some(layer);
        }
        Ok(())
    }

    /// A new layer: the world as it is now, and nothing written.
    pub fn fresh(&self) -> io::Result<Layer> {
        let first = self.first.lock().ok().and_then(|mut it| it.take());
        first.map_or_else(|| self.make(), Ok)
    }

    fn make(&self) -> io::Result<Layer> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.place)?;
        let folder = tempfile::Builder::new().prefix("layer-").tempdir_in(&self.place)?;
        let through = &self.ask.through;
        let made = match self.way {
            Way::Traced => {
                Tracer::start(folder.path(), through, &self.ask.tracer).map(Keeper::Tracer)
            }
            Way::Mounts => {
                World::make(folder.path(), through, false).map(|it| Keeper::World(it, None))
            }
            Way::UserNamespace => World::make(folder.path(), through, true).map(|it| {
                // Without it some renames fail, and nothing else does.
                let renames = Tracer::of_renames(&it, &self.ask.tracer).ok();
                Keeper::World(it, renames)
            }),
        };
        let keeper = match made {
            Ok(keeper) => keeper,
            Err(why) => {
                let _ = tree::remove(folder.path());
                return Err(io::Error::other(why));
            }
        };
        let free = free_bytes(&self.place).unwrap_or(0);
        let max_bytes = self.ask.max_bytes.unwrap_or(free / 5);
        Ok(Layer { keeper, folder: Some(folder), max_bytes })
    }
}

/// So many entries of the folder are looked at.
const LOOKED_AT: usize = 1000;

/// The folder or something in it that we may write to though it is not ours alone, as folders of a group are. A user
/// namespace could not.
fn shared_with_others(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(LOOKED_AT);
    let mut all = entries.map(|it| it.path());
    all.find(|it| {
        let meta = fs::symlink_metadata(it);
        meta.is_ok_and(|it| is_foreign(&it) && !it.is_symlink())
            && access(it, AccessFlags::W_OK).is_ok()
    })
}

/// How often a layer is looked at before it is called full, and the time between two looks.
const LOOKS: u32 = 5;
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// Where layers can lie, best first.
fn places(cache: &Path, way: Way) -> Vec<PathBuf> {
    let first = cache.join("layers");
    if way == Way::Traced {
        return vec![first];
    }
    let own = format!("plimsoll-layers-{}", nix::unistd::getuid());
    let mut res = vec![(cache.to_owned(), first)];
    for shared in [std::env::temp_dir(), "/var/tmp".into(), "/dev/shm".into()] {
        res.push((shared.clone(), shared.join(&own)));
    }
    let is_able = |folder: &Path| {
        statfs(folder).is_ok_and(|it| CAN_BE_WRITTEN.map(FsType).contains(&it.filesystem_type()))
    };
    res.into_iter().filter(|(folder, _)| is_able(folder)).map(|(_, place)| place).collect()
}

fn free_bytes(path: &Path) -> Option<u64> {
    let disk = statvfs(path).ok()?;
    Some(disk.blocks_available() * disk.fragment_size())
}

#[derive(Debug)]
enum Keeper {
    /// In a user namespace with one who helps with renames.
    World(World, Option<Tracer>),
    Tracer(Tracer),
}

/// What one run writes, or several that are to see each other's writes. Removed when dropped.
#[derive(Debug)]
pub struct Layer {
    keeper: Keeper,
    folder: Option<TempDir>,
    max_bytes: u64,
}

impl Layer {
    /// The command, once started, lives in this layer with all that it starts. May be said of several commands.
    pub fn attach(&self, command: &mut Command) -> io::Result<()> {
        match &self.keeper {
            Keeper::World(it, renames) => {
                it.attach(command)?;
                renames.as_ref().map_or(Ok(()), |it| it.attach(command))
            }
            Keeper::Tracer(it) => it.attach(command),
        }
    }

    /// A process of ours beside the run, which is not one that the run has left behind.
    pub fn helper(&self) -> Option<u32> {
        match &self.keeper {
            Keeper::World(_, it) => it.as_ref().map(Tracer::id),
            Keeper::Tracer(it) => Some(it.id()),
        }
    }

    /// Folders that can be read and not written to, each with why.
    pub fn refused(&self) -> &[(PathBuf, String)] {
        match &self.keeper {
            Keeper::World(it, _) => &it.refused,
            Keeper::Tracer(_) => &[],
        }
    }

    /// Everything that was written, sorted by path.
    pub fn written(&self) -> io::Result<Vec<Written>> {
        match &self.keeper {
            Keeper::World(it, _) => Ok(written::of_world(it)),
            Keeper::Tracer(it) => it.written(),
        }
    }

    /// What the layer takes on the disk, in bytes.
    pub fn disk_bytes(&self) -> u64 {
        self.path().map(tree::disk_bytes).unwrap_or_default()
    }

    /// Whether it has grown past what it may take, zeros not counted. Then the run is to be ended. To be asked
    /// some times a second.
    pub fn is_full(&self) -> bool {
        for _ in 0..LOOKS {
            if self.disk_bytes() <= self.max_bytes {
                return false;
            }
            // A file of zeros that is just being closed can be freed in a moment.
            if let Some(path) = self.path() {
                tree::free_zeros(path);
            }
            std::thread::sleep(BETWEEN_LOOKS);
        }
        self.max_bytes < self.disk_bytes()
    }

    /// What it may take, in bytes.
    pub fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    fn path(&self) -> Option<&Path> {
        self.folder.as_ref().map(TempDir::path)
    }

    /// Copies what was written into `folder`, each file below its full path, and the names of what was deleted into
    /// `deleted.txt` there.
    pub fn keep(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        let mut deleted = String::new();
        for it in self.written()? {
            match &it.lies_at {
                None => deleted += &format!("{}\n", it.path.display()),
                Some(ours) => {
                    let to = folder.join(it.path.strip_prefix("/").unwrap_or(&it.path));
                    if let Some(parent) = to.parent() {
                        fs::create_dir_all(parent)?;
                    }
                    // Folders come before what is in them.
                    if fs::symlink_metadata(ours)?.is_dir() {
                        fs::create_dir_all(&to)?;
                    } else {
                        tree::copy(ours, &to)?;
                    }
                }
            }
        }
        fs::write(folder.join("deleted.txt"), deleted)
    }
}

impl Drop for Layer {
    fn drop(&mut self) {
        if let Some(folder) = self.folder.take() {
            // A process that is just being killed can still make a file meanwhile.
            for _ in 0..5 {
                if tree::remove(folder.path()).is_ok() {
                    break;
                }
                std::thread::sleep(BETWEEN_LOOKS);
            }
            let _ = folder.keep();
        }
    }
}
