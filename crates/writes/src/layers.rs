//! Layers: which way this machine has to keep writes apart, and one layer of it.

use std::{
    ffi::OsString,
    fmt, fs,
    io::{self, Write as _},
    os::fd::BorrowedFd,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, OnceLock},
    time::Duration,
};

use nix::{
    sys::statfs::{FsType, statfs},
    unistd::{AccessFlags, access},
};

use crate::{
    downloads::{Download, Downloads},
    folder::Folder,
    guard::{Guard, Guarded},
    inherited::Inherited,
    namespaces::{Guest, Terms, UserSpace, World},
    own_folder::OwnFolder,
    plan::{self, LOOKED_AT, SHARED_MEMORY, is_foreign},
    sys,
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
            "cannot separate the script's writes from your files ({whys}); `--writes through` runs the script without a layer: it then writes into your files, checkpoints of zeros included"
        )
    }
}

impl std::error::Error for NoWay {}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Ask {
    own: OwnFolder,
    through: Vec<PathBuf>,
    max_bytes: Option<u64>,
    ways: Vec<Way>,
    tracer: Vec<OsString>,
    is_offline: bool,
    keeps_downloads: bool,
}

impl Ask {
    /// Layers in `own`, which the command does not write to in truth either.
    pub fn new(own: &OwnFolder) -> Ask {
        let ways = vec![Way::Mounts, Way::UserNamespace, Way::Traced];
        let tracer = vec!["/proc/self/exe".into(), TRACER.into()];
        let (own, through) = (own.clone(), Vec::new());
        let (is_offline, keeps_downloads) = (false, false);
        Ask { own, through, max_bytes: None, ways, tracer, is_offline, keeps_downloads }
    }

    /// A folder that every command writes to in truth.
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

    /// Without a network: nobody is reached but the command's own processes. Tracing cannot do it.
    #[must_use]
    pub fn offline(mut self) -> Ask {
        self.is_offline = true;
        self.ways.retain(|it| *it != Way::Traced);
        self
    }

    /// Downloads are kept in the cache, and later layers show them; see [`Layer::keep_downloads`].
    #[must_use]
    pub fn keep_downloads(mut self) -> Ask {
        self.keeps_downloads = true;
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
    place: Place,
    /// The user namespace of all layers.
    user: OnceLock<Arc<UserSpace>>,
    /// Who ends what is left in their mount namespaces.
    guard: OnceLock<Arc<Guard>>,
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
        for Place { folder, prefix } in places(&ask.own, Way::Mounts) {
            Folder::sweep(&folder, &prefix);
        }
        Folder::sweep(Path::new(SHARED_MEMORY), &shared_prefix());
        let mut passed_over = Vec::new();
        for way in ask.ways.clone() {
            for place in places(&ask.own, way) {
                let (none, user, guard) = (Vec::new(), OnceLock::new(), OnceLock::new());
                let ask = ask.clone();
                let layers = Layers { ask, way, passed_over: none, place, user, guard };
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
        let layer = self.fresh(&[]).map_err(|error| error.to_string())?;
        let here = std::env::current_dir().unwrap_or_default();
        if let Some((place, why)) = layer.refused().iter().find(|(it, _)| here.starts_with(it)) {
            return Err(format!("{} cannot be covered: {why}", place.display()));
        }
        if let Keeper::World(world, _) = &layer.keeper
            && world.is_alone()
            && let Some(path) = shared_with_others(&here)
        {
            return Err(format!("{} belongs to other users, too", path.display()));
        }
        match &layer.keeper {
            Keeper::Tracer(it) => it.try_out(&self.ask.tracer),
            Keeper::World(..) => Ok(()),
        }
    }

    /// A new layer: the world as it is now, and nothing written. Commands in it write to the folders `through`, which exist, in
    /// truth.
    pub fn fresh(&self, through: &[&Path]) -> io::Result<Layer> {
        let through: Vec<PathBuf> = through
            .iter()
            .copied()
            .chain(self.ask.through.iter().map(PathBuf::as_path))
            .map(|folder| fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned()))
            .collect();
        let through = through.as_slice();
        let folder = self.place.make()?;
        let downloads = self.ask.keeps_downloads.then(|| Downloads::new(self.ask.own.downloads()));
        let kept = match &downloads {
            Some(it) => {
                let folder = self.place.make()?;
                let places = it.lay_out(folder.path());
                (!places.is_empty()).then_some((folder, places))
            }
            None => None,
        };
        let seen_again = kept.as_ref().map(|(folder, places)| (folder.path(), places.as_slice()));
        // Where there is none, or no room in it, what is there is shared as it is.
        let shared = Folder::make(Path::new(SHARED_MEMORY), &shared_prefix()).ok();
        let in_memory = shared.as_ref().map(Folder::path);
        let made = match self.way {
            Way::Traced => {
                let kept = seen_again.map(|it| it.0);
                let pipes = plan::pipes();
                Tracer::start(folder.path(), in_memory, kept, through, &pipes, &self.ask.tracer)
                    .map(Keeper::Tracer)
            }
            Way::Mounts => {
                World::make(folder.path(), in_memory, seen_again, through, &self.terms(None))
                    .and_then(|world| {
                        let beside = self.guard(&world).map_err(|error| error.to_string())?;
                        Ok(Keeper::World(world, beside))
                    })
            }
            Way::UserNamespace => {
                let user = Some(self.user.get().cloned());
                let terms = self.terms(user);
                World::make(folder.path(), in_memory, seen_again, through, &terms).map(|world| {
                    if let Some(user) = world.user() {
                        self.user.get_or_init(|| Arc::clone(user));
                    }
                    let program = self.ask.tracer.clone();
                    Keeper::World(world, Beside::Renames { program, helper: OnceLock::new() })
                })
            }
        };
        let keeper = match made {
            Ok(keeper) => keeper,
            Err(why) => return Err(io::Error::other(why)),
        };
        let free = tree::free_bytes(folder.path()).unwrap_or(0);
        let max_bytes = self.ask.max_bytes.unwrap_or(free / 5);
        let kept = kept.map(|it| it.0);
        Ok(Layer {
            way: self.way,
            own: self.ask.own.clone(),
            keeper,
            folder,
            _shared: shared,
            downloads,
            _kept: kept,
            max_bytes,
            free_before: free,
            is_offline: self.ask.is_offline,
        })
    }

    fn guard(&self, world: &World) -> io::Result<Beside> {
        let guard = match self.guard.get() {
            Some(it) => Arc::clone(it),
            None => {
                let started = Arc::new(Guard::start(&self.ask.tracer)?);
                Arc::clone(self.guard.get_or_init(|| started))
            }
        };
        let _guarded = guard.watch(world.mounts())?;
        Ok(Beside::Guard { _guarded, guard })
    }

    fn terms(&self, user: Option<Option<Arc<UserSpace>>>) -> Terms {
        Terms { user, is_offline: self.ask.is_offline }
    }

    /// Whether a process that was [ushered](Layer::usher) into one layer can go into another.
    pub fn can_be_changed(&self) -> bool {
        self.way != Way::Traced
    }
}

/// The folder or something in it that we may write to though it is not ours alone, as folders of a group are. A user
/// namespace could not.
fn shared_with_others(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(LOOKED_AT);
    let mut all = entries.map(|it| it.path());
    all.find(|path| {
        let meta = fs::symlink_metadata(path);
        meta.is_ok_and(|it| is_foreign(&it) && !it.is_symlink())
            && access(path, AccessFlags::W_OK).is_ok()
    })
}

/// How often a layer is looked at before it is called full, and the time between two looks: on a busy machine a program that
/// has written a file of zeros may not come to close it for a while.
const LOOKS: u32 = 25;
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// Shared memory has at least this, or is no place for layers: containers have 64 MiB of it. In bytes.
const ENOUGH: u64 = 1 << 30;

/// Where layers can lie.
#[derive(Clone, Debug)]
struct Place {
    /// Absolute, and no link is in it.
    folder: PathBuf,
    /// How the names of layers begin there.
    prefix: String,
}

impl Place {
    fn make(&self) -> io::Result<Folder> {
        Folder::make(&self.folder, &self.prefix)
    }
}

/// Best first.
fn places(own: &OwnFolder, way: Way) -> Vec<Place> {
    let first = Place { folder: own.layers(), prefix: "layer-".to_owned() };
    if way == Way::Traced {
        return vec![first];
    }
    // Everybody's places.
    let shared = [std::env::temp_dir(), "/var/tmp".into(), SHARED_MEMORY.into()];
    let shared = shared.into_iter().filter_map(|folder| {
        let prefix = format!("plimsoll-layer-{}-", nix::unistd::geteuid());
        Some(Place { folder: fs::canonicalize(folder).ok()?, prefix })
    });
    let is_able = |Place { folder, .. }: &Place| {
        statfs(folder).is_ok_and(|it| CAN_BE_WRITTEN.map(FsType).contains(&it.filesystem_type()))
            && (folder != Path::new(SHARED_MEMORY)
                || tree::free_bytes(folder).is_some_and(|it| ENOUGH <= it))
    };
    std::iter::once(first).chain(shared).filter(is_able).collect()
}

#[derive(Debug)]
enum Keeper {
    World(World, Beside),
    Tracer(Tracer),
}

/// A process of ours beside a world.
#[derive(Debug)]
enum Beside {
    /// It ends what is left in a mount namespace once this is dropped, or we are gone.
    Guard { _guarded: Guarded, guard: Arc<Guard> },
    /// In a user namespace it helps with renames, from the first command on. Without it some renames fail, and nothing else does.
    Renames { program: Vec<OsString>, helper: OnceLock<Option<Tracer>> },
}

impl Beside {
    fn start_helper(&self, world: &World) -> Option<&Tracer> {
        match self {
            Beside::Guard { .. } => None,
            Beside::Renames { program, helper } => {
                helper.get_or_init(|| Tracer::of_renames(world, program).ok()).as_ref()
            }
        }
    }

    fn id(&self) -> Option<u32> {
        match self {
            Beside::Guard { guard, .. } => Some(guard.id()),
            Beside::Renames { helper, .. } => Some(helper.get()?.as_ref()?.id()),
        }
    }
}

/// What one run writes, or several that are to see each other's writes. Removed when dropped.
#[derive(Debug)]
pub struct Layer {
    way: Way,
    own: OwnFolder,
    keeper: Keeper,
    folder: Folder,
    _shared: Option<Folder>,
    downloads: Option<Downloads>,
    /// What earlier runs have downloaded, as this one sees it.
    _kept: Option<Folder>,
    max_bytes: u64,
    /// On its disk when it was made, in bytes.
    free_before: u64,
    is_offline: bool,
}

impl Layer {
    /// The command, once started, lives in this layer with all that it starts. May be said of several commands.
    pub fn attach(&self, command: &mut Command) -> io::Result<()> {
        self.let_in(command, Guest::Command)
    }

    /// The same; and the command may send processes of its own into the [mounts](Layer::mounts) of other layers of the same
    /// [`Layers`], with `setns(2)`, and is then to take the right to do so from them. Where layers
    /// [cannot be changed](Layers::can_be_changed) it is the same as [`Layer::attach`].
    pub fn usher(&self, command: &mut Command) -> io::Result<()> {
        self.let_in(command, Guest::Usher)
    }

    fn let_in(&self, command: &mut Command, guest: Guest) -> io::Result<()> {
        let inherited = Inherited::look();
        if let Keeper::World(it, _) = &self.keeper {
            it.attach(command, guest)?;
        }
        sys::before_exec(command, move || inherited.open_again());
        match &self.keeper {
            Keeper::World(it, beside) => {
                beside.start_helper(it).map_or(Ok(()), |helper| helper.attach(command))?;
            }
            Keeper::Tracer(it) => it.attach(command)?,
        }
        // Last: the tracer has to be told before.
        sys::before_exec(command, || {
            sys::keep_signals_inside();
            Ok(())
        });
        Ok(())
    }

    /// The layer's mount namespace, if it is kept by one.
    pub fn mounts(&self) -> Option<BorrowedFd<'_>> {
        match &self.keeper {
            Keeper::World(it, _) => Some(it.mounts()),
            Keeper::Tracer(_) => None,
        }
    }

    /// A process of ours beside the run, which is not one that the run has left behind.
    pub fn helper(&self) -> Option<u32> {
        match &self.keeper {
            Keeper::World(_, it) => it.id(),
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

    /// Everything that was written, sorted by path, but for what lies in our own folder.
    pub fn written(&self) -> io::Result<Vec<Written>> {
        let mut res = match &self.keeper {
            Keeper::World(it, _) => written::of_world(it),
            Keeper::Tracer(it) => it.written()?,
        };
        res.retain(|it| !it.path.starts_with(self.own.path()));
        Ok(res)
    }

    /// Where lies what was written into this folder, if anything was.
    pub fn upper_of(&self, folder: &Path) -> Option<PathBuf> {
        match &self.keeper {
            Keeper::World(it, _) => it.upper_of(folder),
            Keeper::Tracer(_) => Some(Tracer::upper_of(self.folder.path(), folder)),
        }
    }

    /// Keeps what the run has downloaded for later layers, if that was asked for: files in the folders of Hugging Face's hub and
    /// of torch.hub whose name says the SHA-256 of their contents, and no others. To be said when the run is over.
    pub fn keep_downloads(&self) -> Vec<Download> {
        self.downloads.as_ref().map(|it| it.keep(|it| self.upper_of(it))).unwrap_or_default()
    }

    /// What the layer takes on the disk, in bytes.
    pub fn disk_bytes(&self) -> u64 {
        tree::disk_bytes(self.folder.path())
    }

    /// The bytes by which its disk got fuller since it was made, whoever wrote them: known at once, however many files
    /// it has.
    pub fn disk_got_fuller_by(&self) -> u64 {
        let free = tree::free_bytes(self.folder.path()).unwrap_or(0);
        self.free_before.saturating_sub(free)
    }

    /// Whether it has grown past what it may take, zeros not counted. Then the run is to be ended. It looks at each of its files:
    /// a second for some hundred thousand.
    pub fn is_full(&self) -> bool {
        for _ in 0..LOOKS {
            if self.disk_bytes() <= self.max_bytes {
                return false;
            }
            // A file of zeros that is just being closed can be freed in a moment.
            tree::free_zeros(self.folder.path());
            std::thread::sleep(BETWEEN_LOOKS);
        }
        self.max_bytes < self.disk_bytes()
    }

    /// How it is kept apart.
    pub fn way(&self) -> Way {
        self.way
    }

    /// Whether those in it have no network.
    pub fn is_offline(&self) -> bool {
        self.is_offline
    }

    /// What it may take, in bytes.
    pub fn max_bytes(&self) -> u64 {
        self.max_bytes
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
        fs::File::create_new(folder.join("deleted.txt"))?.write_all(deleted.as_bytes())
    }
}

/// How the folders in shared memory begin: it is everybody's place.
fn shared_prefix() -> String {
    format!("plimsoll-{}-", nix::unistd::geteuid())
}
