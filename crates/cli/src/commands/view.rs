//! `plimsoll view`: recordings as a page to look at, served on loopback or written as one file.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

use anyhow::Context as _;
use plimsoll_core::{
    printable::printable,
    recording::Recording,
    scene::Scenes,
    sources::{ReadError, chrome_trace},
};

#[cfg(feature = "phantom")]
use crate::{cache::Cache, server::live::Live};
use crate::{
    exit::Exit,
    files::{
        atomic_output::AtomicOutput,
        open::{self, Opened},
        recordings::{self, Process},
    },
    options::cli::ViewArgs,
    output::{Output, say},
    server::{
        Server, Shown,
        answers::{Companions, Gallery},
        assets,
    },
    signals::Signals,
};

/// A recording and what belongs to it.
struct Loaded {
    name: String,
    recording: Recording,
    told: Companions,
}

pub(crate) fn run(args: &ViewArgs, out: &mut Output) -> anyhow::Result<Exit> {
    let file = args.html.as_deref().filter(|it| *it != Path::new("-"));
    if let Some(file) = file {
        AtomicOutput::check(file)?;
    }
    #[cfg(feature = "phantom")]
    if args.live {
        follow((args.port, args.token.as_deref()), !args.no_open, out)?;
        return Ok(Exit::Fits);
    }
    let loaded = load_all(&args.files)?;
    let is_whole = !loaded.iter().any(|it| it.told.is_damaged);
    for it in loaded.iter().filter(|it| it.told.is_damaged) {
        let why = it.told.notes.first().map(String::as_str).unwrap_or_default();
        say(&format!(
            "{} is cut off or damaged: {why}. The page shows the part before that",
            it.name
        ));
    }
    if args.html.is_some() {
        check(&loaded)?;
        let page = assets::one_file(&Gallery::new(&scenes(&loaded), told(&loaded)));
        match file {
            Some(file) => AtomicOutput::open(file, args.force)?.file(page.as_bytes())?,
            None => out.bytes(page.as_bytes())?,
        }
    } else {
        serve(&loaded, (args.port, args.token.as_deref()), !args.no_open, out)?;
    }
    Ok(if is_whole { Exit::Fits } else { Exit::CouldNotTell })
}

/// What `plimsoll view` of `files` does, for `explain --open`.
pub(super) fn open_files(files: &[PathBuf], out: &mut Output) -> anyhow::Result<()> {
    serve(&load_all(files)?, (0, None), true, out)
}

/// The same of recordings that were made just now, for `predict --open`.
pub(super) fn open_recordings(
    name: &str,
    recordings: Vec<Recording>,
    out: &mut Output,
) -> anyhow::Result<()> {
    let used = recordings.into_iter().filter(|it| it.trace.is_some());
    let loaded: Vec<Loaded> = used
        .map(|recording| {
            let messages = recordings::messages(&recording);
            let told = Companions { messages, ..Companions::default() };
            Loaded { name: name.to_owned(), recording, told }
        })
        .collect();
    serve(&loaded, (0, None), true, out)
}

/// Fails where there is nothing to show.
fn check(loaded: &[Loaded]) -> anyhow::Result<()> {
    anyhow::ensure!(
        loaded.iter().any(|it| Scenes::are_in(&it.recording)),
        "nothing to show: the input has no memory of any device"
    );
    Ok(())
}

fn scenes(loaded: &[Loaded]) -> Vec<Scenes<'_>> {
    loaded.iter().map(|it| Scenes::new(&it.name, &it.recording)).collect()
}

fn told(loaded: &[Loaded]) -> Vec<Companions> {
    loaded.iter().map(|it| it.told.clone()).collect()
}

/// Shows `loaded` until Ctrl-C. The browser starts and gets the page while the scenes are made.
fn serve(
    loaded: &[Loaded],
    address: (u16, Option<&str>),
    opens: bool,
    out: &mut Output,
) -> anyhow::Result<()> {
    check(loaded)?;
    let (made, gallery) = (OnceLock::new(), OnceLock::new());
    let gallery =
        || gallery.get_or_init(|| Gallery::new(made.get_or_init(|| scenes(loaded)), told(loaded)));
    show(&gallery, address, opens, out)
}

/// Shows the run that is going on until Ctrl-C.
#[cfg(feature = "phantom")]
fn follow(address: (u16, Option<&str>), opens: bool, out: &mut Output) -> anyhow::Result<()> {
    let sessions = Cache::open()?.own.sessions();
    let gallery = Gallery::of_run(Live::of(sessions));
    show(&|| &gallery, address, opens, out)
}

fn show<'g>(
    gallery: &Shown<'g>,
    (port, token): (u16, Option<&str>),
    opens: bool,
    out: &mut Output,
) -> anyhow::Result<()> {
    let server = Server::listen(port, token)?;
    let url = server.url();
    if opens && has_display() {
        open_browser(&url);
    } else if opens {
        hint(&server);
    }
    // After the browser, which is to end by Ctrl-C as always; before the address is known, because
    // who reads it may press Ctrl-C at once.
    let signals = Signals::hold().context("cannot wait for signals")?;
    out.text(&format!("{url}\n"))?;
    server.serve(gallery, &signals).context("cannot wait for signals")
}

fn load_all(files: &[PathBuf]) -> anyhow::Result<Vec<Loaded>> {
    let mut res = Vec::new();
    let mut unread = Vec::new();
    for path in files {
        match recordings::of_path(path) {
            Ok((processes, left_out)) => {
                res.extend(processes.into_iter().map(loaded));
                unread.extend(left_out);
            }
            Err(error) => {
                let why = nothing_to_show(path, error);
                if files.len() == 1 {
                    return Err(why);
                }
                unread.push(printable(&format!("{why:#}")).into_owned());
            }
        }
    }
    anyhow::ensure!(!res.is_empty(), "{}", unread.join("; "));
    res[0].told.notes.extend(unread);
    Ok(res)
}

/// What is in `path` instead of blocks.
fn nothing_to_show(path: &Path, error: anyhow::Error) -> anyhow::Error {
    let is_file = path != Path::new("-");
    match is_file.then(|| open::read(path)) {
        Some(Ok(Opened::File(stream))) if chrome_trace::is_trace(stream.head()) => anyhow::anyhow!(
            "{}: a trace of torch's profiler has no blocks to draw; `plimsoll explain` reads it. For this page, record with torch.cuda.memory._record_memory_history()",
            path.display()
        ),
        // It was not even read, or something else is said of it.
        Some(Err(_)) => error,
        _ if error.downcast_ref::<ReadError>().is_none() => error,
        _ => error.context(
            "nothing to show (a log has no blocks to draw: `plimsoll explain` reads logs)",
        ),
    }
}

fn loaded(process: Process) -> Loaded {
    let messages = recordings::messages(&process.recording);
    let told = Companions { messages, notes: process.warnings, is_damaged: process.is_damaged };
    Loaded { name: process.name, recording: process.recording, told }
}

/// Whether a browser here would be seen by who started us.
fn has_display() -> bool {
    let is_set = |name: &str| env::var_os(name).is_some_and(|it| !it.is_empty());
    is_set("DISPLAY") || is_set("WAYLAND_DISPLAY")
}

/// A browser that cannot be started is no reason to end: the address was printed.
fn open_browser(url: &str) {
    let mut command = Command::new("xdg-open");
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let _ = command.spawn();
}

fn hint(server: &Server) {
    let port = server.port();
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { "this-machine" } else { host.trim() };
    say(&format!(
        "this machine has no display. On your own machine run: ssh -N -L {port}:127.0.0.1:{port} {host}, then open the address below there. Ctrl-C ends it"
    ));
}
