//! `plimsoll exporter`: what `top` shows, as numbers that a monitoring collects.

mod series;
mod serve;
mod text;

use std::{
    path::Path,
    sync::Mutex,
    time::{Duration, Instant},
};

use anyhow::Context as _;

use self::serve::Server;
use crate::{
    exit::Exit,
    files::bounded_file,
    gpu::machine::{Looker, snapshot::Snapshot},
    options::cli::ExporterArgs,
    output::{Output, say},
    signals::Signals,
};

/// Who asks more often is told the same again.
const FRESH: Duration = Duration::from_secs(1);
/// A token is shorter.
const LARGEST_TOKEN_FILE: u64 = 4096;

pub(crate) fn run(args: &ExporterArgs, out: &mut Output) -> anyhow::Result<Exit> {
    let token = match (&args.token, &args.token_file) {
        (Some(token), _) => Some(token.clone()),
        (None, Some(path)) => Some(token_of(path)?),
        (None, None) => None,
    };
    let server = Server::listen(args.listen, token)?;
    let machine = Machine::default();
    // Before the address is known: who reads it may press Ctrl-C at once.
    let signals = Signals::hold().context("cannot wait for signals")?;
    if let Some(why) = machine.look(|it| it.no_gpu.clone()) {
        say(&format!("no NVIDIA GPU here: {why}; the exporter still shows plimsoll's runs"));
    }
    out.text(&format!("{}\n", server.url()))?;
    let metrics =
        |format: text::Format| format.text(machine.look(|it| series::all(it, args.max_series)));
    server.serve(&metrics, &signals).context("cannot wait for signals")?;
    Ok(Exit::Fits)
}

/// The secret that stands in a file.
fn token_of(path: &Path) -> anyhow::Result<String> {
    let name = path.display();
    let text = bounded_file::text(path, LARGEST_TOKEN_FILE)
        .with_context(|| format!("cannot read the token, one line, in {name}"))?;
    crate::options::cli::token(text.trim())
        .map_err(|why| anyhow::anyhow!("the token in {name}: {why}"))
}

/// The machine, looked at when somebody asks.
#[derive(Default)]
struct Machine(Mutex<(Looker, Option<(Instant, Snapshot)>)>);

impl Machine {
    fn look<T>(&self, read: impl FnOnce(&Snapshot) -> T) -> T {
        // Who panicked while he looked left nothing half done that is used.
        let mut guard = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (looker, last) = &mut *guard;
        let fresh = last.take().filter(|(when, _)| when.elapsed() < FRESH);
        let (when, snapshot) = fresh.unwrap_or_else(|| (Instant::now(), looker.look()));
        let res = read(&snapshot);
        *last = Some((when, snapshot));
        res
    }
}
