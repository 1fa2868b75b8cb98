//! What a run of a script starts from. Every run on a phantom, and every one that is measured, gets a world of its own
//! from [`Runner::world`] and leaves it through [`Runner::output`]: the files as they are now, and a layer that takes what is
//! written and goes with the run. So none sees what another one did, and nothing of the user's changes.

use std::{
    cell::RefCell,
    env, fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use nix::unistd::Pid;
use plimsoll_core::{
    prediction::{Writes, WrittenFile},
    recording::Reached,
    units::Bytes,
};
use plimsoll_writes::{Ask, Download, Layer, Layers, NoWay, Way};

use crate::{
    cache::{Cache, bundle::Bundle, session::Session},
    contract,
    engine::{
        launch::{self, Ended, Signals, Watch},
        phantom_run::Run,
    },
    files::process_folder::ProcessFolder,
    options::cli::{self, WorldArgs},
    output::{self, say},
};

/// Less room than this on the disk, and what was written last is missing.
const FULL: u64 = 1 << 20;

/// What runs have in common: the folder for their sessions, the phantom and the agent, unpacked, and how their writes are
/// kept apart.
#[derive(Debug)]
pub(crate) struct Runner {
    cache: Cache,
    bundle: Bundle,
    /// None: they write where they say.
    layers: Option<Layers>,
    /// Whom the script reached, in all runs.
    reached: RefCell<Reached>,
    /// Where its runs find Triton's kernels of others of them; none if each compiles everything.
    compiled: Option<Session>,
}

/// The world of one run: its session folder, with what the phantom is told, and its layer. It goes with this value.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) session: Session,
    pub(crate) layer: Option<Layer>,
}

/// What a run left.
#[derive(Debug)]
pub(crate) struct RunOutput {
    pub(crate) ended: Ended,
    /// One for each process.
    pub(crate) folders: Vec<ProcessFolder>,
    /// The last line that it printed, if that was kept from the user.
    pub(crate) last_words: Option<String>,
    /// What it wrote.
    layer: Option<Layer>,
    /// What of that later runs find again.
    downloads: Vec<Download>,
}

impl Runner {
    /// Finds the way in which this machine keeps writes apart, by going it.
    pub(crate) fn new(cache: Cache, args: &WorldArgs) -> anyhow::Result<Runner> {
        if let cli::Writes::Keep(folder) = &args.writes {
            let is_taken = match fs::read_dir(folder) {
                Ok(mut entries) => entries.next().is_some(),
                Err(error) => error.kind() != io::ErrorKind::NotFound,
            };
            let shown = folder.display();
            ensure!(
                !is_taken,
                "{shown} exists and is not an empty folder; --writes keep=DIR needs a new or an empty folder"
            );
        }
        let bundle = Bundle::unpack(&cache)?;
        let layers = match args.writes {
            cli::Writes::Through => {
                ensure!(!args.offline, "--offline needs a layer: remove --writes through");
                None
            }
            cli::Writes::Layer | cli::Writes::Keep(_) => Some(layers(&cache, args)?),
        };
        Ok(Runner { cache, bundle, layers, reached: RefCell::default(), compiled: None })
    }

    /// From now on each run finds the Triton kernels of the others, which are runs of one command. What Inductor compiles it does not find: a
    /// run that does measures less.
    pub(crate) fn share_what_is_compiled(&mut self) -> anyhow::Result<()> {
        let session = Session::create(&self.cache)?;
        session.share_what_is_compiled().context("cannot make a folder for what is compiled")?;
        self.compiled = Some(session);
        Ok(())
    }

    /// The phantom and the agent.
    pub(crate) fn bundle(&self) -> &Bundle {
        &self.bundle
    }

    /// How writes are kept apart; none if they are not.
    pub(crate) fn layers(&self) -> Option<&Layers> {
        self.layers.as_ref()
    }

    /// Whom the script reached outside of its own processes, in all its runs so far.
    pub(crate) fn reached(&self) -> Reached {
        self.reached.borrow().clone()
    }

    /// The same in a sentence on standard error, for whoever shows no report of one script.
    pub(crate) fn say_whom_it_reached(&self) {
        if let Some(it) = self.reached.borrow().sentence() {
            say(&it);
        }
    }

    /// A world in which nothing has happened yet; `conf` is what the phantom is told. The run writes into its session's folder in
    /// truth, and into those of `shared`, which are other sessions' of the same command.
    pub(crate) fn world(&self, conf: &str, shared: &[PathBuf]) -> anyhow::Result<World> {
        let session = Session::create(&self.cache)?;
        session.configure(conf)?;
        let through: Vec<&Path> =
            shared.iter().map(PathBuf::as_path).chain([session.path()]).collect();
        let layer = self.layers.as_ref().map(|it| it.fresh(&through)).transpose();
        let layer = layer.context("cannot create a layer for the script's writes")?;
        Ok(World { session, layer })
    }

    /// What is left of a world after its run. The world is gone then, but for what was written.
    pub(crate) fn output(&self, world: World, ended: Ended) -> anyhow::Result<RunOutput> {
        let World { session, layer } = world;
        anyhow::ensure!(
            session.is_there(),
            "the script removed {}, where plimsoll stores its notes, so this run has no result; set PLIMSOLL_CACHE to a folder that the script does not touch",
            session.path().display(),
        );
        let folders = session.read();
        self.reached.borrow_mut().add(&session.reached());
        // Nothing else would say so.
        if self.cache.free_bytes().is_some_and(|it| it < FULL) {
            anyhow::bail!(
                "the disk of {} was full while the script ran, so the recording is not complete; free some space, or set PLIMSOLL_CACHE to a folder on another disk",
                self.cache.path().display(),
            );
        }
        let last_words = session.last_words();
        let downloads = layer.as_ref().map(Layer::keep_downloads).unwrap_or_default();
        if let Some(layer) = &layer {
            self.bundle.keep_bytecode(layer);
        }
        Ok(RunOutput { ended, folders, last_words, layer, downloads })
    }

    /// Runs a script once, as a process of its own.
    pub(crate) fn run(
        &self,
        run: Run<'_>,
        signals: &Signals,
        watch: Option<&mut dyn Watch>,
    ) -> anyhow::Result<RunOutput> {
        self.run_beside(None, run, signals, watch)
    }

    /// The same beside a nursery that waits meanwhile.
    pub(crate) fn run_beside(
        &self,
        nursery: Option<Pid>,
        run: Run<'_>,
        signals: &Signals,
        watch: Option<&mut dyn Watch>,
    ) -> anyhow::Result<RunOutput> {
        let mut settings = run.settings.to_vec();
        settings.extend(self.compiled.iter().map(|it| launch::cache_of_kernels(it.path())));
        let shared: Vec<PathBuf> = self.compiled.iter().map(|it| it.path().to_owned()).collect();
        let world = self.world(run.conf, &shared)?;
        let launch = launch::Launch {
            command: run.command,
            bundle: &self.bundle,
            session: &world.session,
            layer: world.layer.as_ref(),
            stop: run.stop,
            ranks: run.ranks,
            ghost_weights: run.ghost_weights,
            output: run.output,
            settings: &settings,
            device: run.device,
            nursery,
        };
        let ended = launch::run(launch, signals, watch)?;
        self.output(world, ended)
    }
}

impl RunOutput {
    /// What the run wrote; copied into `folder`, if there is one.
    pub(crate) fn wrote(&self, folder: Option<&Path>) -> anyhow::Result<Writes> {
        let Some(layer) = &self.layer else { return Ok(Writes::through()) };
        let of_files = || "cannot read what the script wrote";
        let written = layer.written().with_context(of_files)?;
        if let Some(folder) = folder {
            let problem = || format!("cannot save the script's files in {}", folder.display());
            layer.keep(folder).with_context(problem)?;
        }
        let file = |written: &plimsoll_writes::Written| WrittenFile {
            path: written.path.display().to_string(),
            change: written.kind.word(),
            is_folder: written.is_folder(),
            bytes: Bytes(written.bytes),
        };
        let download = |it: &Download| (it.path.display().to_string(), Bytes(it.bytes));
        let read_only = layer.refused().iter();
        Ok(Writes {
            way: layer.way().to_string(),
            kept: folder.map(output::shown),
            max: Bytes(layer.max_bytes()),
            files: written.iter().map(file).collect(),
            downloads: self.downloads.iter().map(download).collect(),
            read_only: read_only.map(|(it, why)| (output::shown(it), why.clone())).collect(),
        })
    }
}

/// The first way that holds; a test or a curious person may name one.
fn layers(cache: &Cache, args: &WorldArgs) -> anyhow::Result<Layers> {
    let mut ask = Ask::new(&cache.own).keep_downloads();
    if let Some(way) = env::var_os(contract::WRITES_WAY) {
        let way = match way.to_str() {
            Some("mounts") => Way::Mounts,
            Some("user") => Way::UserNamespace,
            Some("traced") => Way::Traced,
            _ => anyhow::bail!(
                "{} is {:?}; expected `mounts`, `user` or `traced`",
                contract::WRITES_WAY,
                way.display(),
            ),
        };
        ask = ask.ways(&[way]);
    }
    for folder in &args.through {
        ask = ask.through(folder);
    }
    if let Some(max) = args.writes_max {
        ask = ask.max_bytes(max.0);
    }
    if !args.offline {
        return Ok(Layers::find(ask)?);
    }
    Layers::find(ask.offline()).map_err(|NoWay(whys)| {
        let whys: Vec<String> = whys.iter().map(|(way, why)| format!(" ({way}: {why})")).collect();
        anyhow::anyhow!(
            "--offline needs a mount or a user namespace, and this machine allows none{}; remove --offline",
            whys.concat(),
        )
    })
}
