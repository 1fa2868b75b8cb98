//! What a run of a script starts from. Every run on a phantom, and every one that is measured, gets a world of its own
//! from [`Runner::world`] and leaves it through [`Runner::left`], so that none sees what another one did.

use crate::{
    cache::{
        Cache,
        bundle::Bundle,
        session::{ProcessFolder, Session},
    },
    launch::{self, Ended, Signals, Watch},
    phantom_run::Run,
};

/// Less room than this on the disk, and what was written last is missing.
const FULL: u64 = 1 << 20;

/// What runs have in common: the folder for their sessions, and the phantom and the agent, unpacked.
#[derive(Debug)]
pub(crate) struct Runner {
    cache: Cache,
    bundle: Bundle,
}

/// The world of one run: its session folder, with what the phantom is told. It goes with this value.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) session: Session,
}

/// What a run left.
#[derive(Debug)]
pub(crate) struct Left {
    pub(crate) ended: Ended,
    /// One for each process.
    pub(crate) folders: Vec<ProcessFolder>,
    /// The last line that it printed, if that was kept from the user.
    pub(crate) last_words: Option<String>,
}

impl Runner {
    pub(crate) fn new(cache: Cache) -> anyhow::Result<Runner> {
        let bundle = Bundle::unpack(&cache)?;
        Ok(Runner { cache, bundle })
    }

    /// The phantom and the agent.
    pub(crate) fn bundle(&self) -> &Bundle {
        &self.bundle
    }

    /// A world in which nothing has happened yet; `conf` is what the phantom is told.
    pub(crate) fn world(&self, conf: &str) -> anyhow::Result<World> {
        let session = Session::create(&self.cache)?;
        session.configure(conf)?;
        Ok(World { session })
    }

    /// What is left of a world after its run. The world is gone then.
    pub(crate) fn left(&self, world: World, ended: Ended) -> anyhow::Result<Left> {
        let folders = world.session.read();
        // Nothing else would say so.
        if self.cache.free_bytes().is_some_and(|it| it < FULL) {
            anyhow::bail!(
                "no space left on the disk of {} while the script ran, so the recording is not complete; free some, \
                 or set PLIMSOLL_CACHE to a folder on another disk",
                self.cache.root.display(),
            );
        }
        let last_words = world.session.last_words();
        Ok(Left { ended, folders, last_words })
    }

    /// Runs a script once, as a process of its own.
    pub(crate) fn run(
        &self,
        run: Run<'_>,
        signals: &Signals,
        watch: Option<&mut dyn Watch>,
    ) -> anyhow::Result<Left> {
        let world = self.world(run.conf)?;
        let launch = launch::Launch {
            command: run.command,
            bundle: &self.bundle,
            session: &world.session,
            stop: run.stop,
            ranks: run.ranks,
            ghost_weights: run.ghost_weights,
            output: run.output,
            settings: run.settings,
            device: run.device,
        };
        let ended = launch::run(launch, signals, watch)?;
        self.left(world, ended)
    }
}
