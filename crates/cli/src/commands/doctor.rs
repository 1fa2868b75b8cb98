//! `plimsoll doctor`: is this environment able to predict, and if not, what is missing? The last check is
//! the whole way: a tensor on the phantom.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use plimsoll_core::{
    printable::printable,
    units::Bytes,
    views::text::{Style, Styles},
};
use plimsoll_writes::Way;
use serde_json::json;

use crate::{
    cache::{
        Cache,
        bundle::{self, Bundle},
        wheel,
    },
    engine::{
        launch::{self, Device, End, Ranks, ScriptCommand, ScriptOutput, Signals, Stop},
        phantom_run::{self, Run, Runner},
        python::{self, Package, Probe, Standing, Torch},
    },
    exit::Exit,
    options::{
        cli::{DoctorArgs, WorldArgs},
        ghost_weights::GhostWeights,
    },
    output::Output,
    shell::shown,
};

/// What the last check runs. It needs nothing of the user's.
const TRY_OUT: &str = "import torch; torch.ones(1, device='cuda').add_(1)";

/// One thing that was looked at.
struct Check {
    name: &'static str,
    found: Found,
}

enum Found {
    Good(String),
    /// Works, and is worth knowing.
    Note(String),
    /// What is wrong, and what to do.
    Bad(String),
}

pub(crate) fn run(args: &DoctorArgs, out: &mut Output) -> anyhow::Result<Exit> {
    let checks = examine();
    let is_able = !checks.iter().any(|it| matches!(it.found, Found::Bad(_)));
    match args.json {
        true => out.json(&wire(&checks, is_able))?,
        false => out.text(&show(&checks, is_able, out.styles()))?,
    }
    Ok(if is_able { Exit::Fits } else { Exit::CouldNotTell })
}

fn examine() -> Vec<Check> {
    let mut res = vec![Check { name: "system", found: system() }];
    let mut add = |name, found| res.push(Check { name, found });
    let cache = match Cache::open() {
        Ok(cache) => {
            add("cache", describe_cache(&cache));
            Some(cache)
        }
        Err(error) => {
            add("cache", Found::Bad(format!("{error:#}")));
            None
        }
    };
    let python = match launch::python() {
        Ok(python) => python,
        Err(error) => {
            add("python", Found::Bad(format!("{error:#}")));
            return res;
        }
    };
    let bundle = cache.as_ref().and_then(|it| Bundle::unpack(it).ok());
    let agent = bundle.as_ref().map(Bundle::agent);
    let probe = match python::probe(&python, agent.as_deref()) {
        Ok(probe) => probe,
        Err(error) => {
            add("python", Found::Bad(format!("{error:#}; set PLIMSOLL_PYTHON to a Python 3")));
            return res;
        }
    };
    let Probe { executable, version, implementation, libc, torch, package } = &probe;
    add("python", Found::Good(format!("{executable} ({implementation} {version}, {libc})")));
    if let Some(bundle) = &bundle {
        add("package", describe_package(package.as_ref(), executable, bundle));
    }
    let Some(torch) = torch else {
        add(
            "torch",
            Found::Bad(format!(
                "{executable} has no torch; activate the environment that has torch, set PLIMSOLL_PYTHON, or install it: {executable} -m pip install torch"
            )),
        );
        return res;
    };
    let version = torch.version.as_deref().unwrap_or("of unknown version");
    let built_for = torch
        .cuda
        .as_ref()
        .map_or_else(|| "without CUDA".to_owned(), |it| format!("for CUDA {it}"));
    let from = if torch.is_condas { " by conda" } else { "" };
    add("torch", Found::Good(format!("{version}, built{from} {built_for} ({})", torch.path)));
    if let Some(it) = &torch.support {
        let text = format!("{}: {}", it.standing.name(), it.why);
        let found = match it.standing {
            Standing::Supported => Found::Good(text),
            Standing::Experimental | Standing::Unknown => Found::Note(text),
            Standing::Unsupported => Found::Bad(text),
        };
        let is_refused = matches!(found, Found::Bad(_));
        add("support", found);
        if is_refused {
            return res;
        }
    }
    if let Some(cache) = cache {
        let runner = Runner::new(cache, &WorldArgs::default());
        let runner = match runner {
            Ok(runner) => {
                add("writes", describe_writes(&runner));
                runner
            }
            Err(error) => {
                add("writes", Found::Bad(format!("{error:#}")));
                return res;
            }
        };
        let tried = try_out(&runner, python, torch);
        add("phantom", tried.unwrap_or_else(|error| Found::Bad(format!("{error:#}"))));
    }
    res
}

fn system() -> Found {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut text = format!("Linux {} on x86-64", kernel.trim());
    if Path::new("/proc/driver/nvidia/version").exists() {
        text += "; scripts on the phantom do not see this machine's own GPU";
    }
    Found::Good(text)
}

/// Whether `import plimsoll` works, which notebooks and scripts need and the commands do not; else how to install it.
fn describe_package(package: Option<&Package>, executable: &str, bundle: &Bundle) -> Found {
    let ours = env!("CARGO_PKG_VERSION");
    let wrong = match package {
        Some(it) if !it.is_ours => {
            return Found::Note(format!(
                "{} is another project of this name; `import plimsoll` imports that one. To replace it: {executable} -m pip uninstall plimsoll, then plimsoll doctor again",
                it.path
            ));
        }
        Some(it) => match it.version.as_deref().filter(|it| *it != ours) {
            None => return Found::Good(format!("import plimsoll works ({})", it.path)),
            Some(other) => format!("{} has version {other}, and this program is {ours}", it.path),
        },
        None => {
            "this Python has no package plimsoll; notebooks and `import plimsoll` need it, the commands do not"
                .to_owned()
        }
    };
    match wheel::wheel(bundle) {
        Ok(wheel) => {
            let words =
                [executable.into(), "-m".into(), "pip".into(), "install".into(), wheel.into()];
            let command = shown(&words);
            Found::Note(format!("{wrong}. To install it: {command}{}", how_it_finds_us()))
        }
        Err(error) => Found::Note(format!("{wrong}; {error:#}")),
    }
}

/// What else the package needs to start this program.
fn how_it_finds_us() -> String {
    let Ok(ours) = env::current_exe().and_then(fs::canonicalize) else { return String::new() };
    let path = env::var_os("PATH").unwrap_or_default();
    let first = env::split_paths(&path).map(|it| it.join("plimsoll")).find(|it| it.is_file());
    if first.and_then(|it| fs::canonicalize(it).ok()).is_some_and(|it| it == ours) {
        return String::new();
    }
    let ours = shown(&[ours.into()]);
    format!(
        "; then, because this program is not the first `plimsoll` in PATH: export PLIMSOLL_BIN={ours}"
    )
}

fn describe_cache(cache: &Cache) -> Found {
    let mut text = cache.path().display().to_string();
    if let Ok((n @ 1.., bytes)) = bundle::others(cache) {
        let bytes = Bytes(bytes);
        text += &format!("; {n} bundle(s) of other versions in it use {bytes} and may be deleted");
    }
    if cache.passed_over.is_empty() {
        return Found::Good(text);
    }
    Found::Note(format!("{text}; not used: {}", cache.passed_over.join("; ")))
}

/// How this machine keeps apart what a script writes.
fn describe_writes(runner: &Runner) -> Found {
    let Some(layers) = runner.layers() else {
        return Found::Note("scripts write into your files".to_owned());
    };
    let text = format!("separated from your files by {}", layers.way());
    let why: Vec<String> =
        layers.passed_over().iter().map(|(way, why)| format!("{way}: {why}")).collect();
    match layers.way() {
        // Slower, and `fit` cannot keep a Python ready.
        Way::Traced => Found::Note(format!(
            "{text}, which makes each run some 1 s slower; better ways do not work here ({})",
            why.join("; ")
        )),
        Way::Mounts | Way::UserNamespace => Found::Good(text),
    }
}

/// Puts a tensor on the phantom, and reads what the agent says of it.
fn try_out(runner: &Runner, program: PathBuf, torch: &Torch) -> anyhow::Result<Found> {
    let card = phantom_run::largest_for(Some(torch));
    let signals = Signals::hold()?;
    let arguments = vec!["-c".into(), python::ours(TRY_OUT)];
    let environment = vec![(python::PATH.into(), python::path(None))];
    let command = ScriptCommand { program, arguments, environment };
    let run = Run {
        command: &command,
        conf: &card.phantom_conf(1),
        stop: Stop::UntilExit,
        ranks: &Ranks::All,
        ghost_weights: GhostWeights::Off,
        output: ScriptOutput::Nowhere,
        settings: &[],
        device: Device::Phantom,
    };
    let left = runner.run(run, &signals, None)?;
    let (ended, seconds) = (&left.ended, left.ended.seconds);
    let (recordings, _) = phantom_run::read(&left.folders);
    if let Some(it) = recordings.iter().find_map(|it| it.notes.unsupported.as_ref()) {
        return Ok(Found::Bad(it.text.clone()));
    }
    Ok(match ended.end {
        End::Code(0) if recordings.iter().any(|it| it.notes.begin.is_some()) => {
            Found::Good(format!("created a tensor on a phantom {} in {seconds:.1} s", card.name))
        }
        End::Code(0) => Found::Bad(
            "plimsoll's agent was not loaded; does this Python ignore PYTHONPATH?".to_owned(),
        ),
        _ => {
            let failure = crate::engine::diagnosis::diagnose(&command, ended, &recordings);
            Found::Bad(failure.unwrap_or_else(|| "cannot create a tensor on it".to_owned()))
        }
    })
}

fn show(checks: &[Check], is_able: bool, styles: Styles) -> String {
    let mut res = format!("plimsoll {}\n\n", env!("CARGO_PKG_VERSION"));
    for Check { name, found } in checks {
        let (Style { on, off }, mark, text) = match found {
            Found::Good(text) => (styles.good, "ok", text),
            Found::Note(text) => (styles.warn, "note", text),
            Found::Bad(text) => (styles.bad, "bad", text),
        };
        res += &format!("  {on}{mark:4}{off}  {name:8} {}\n", printable(text));
    }
    res += if is_able { "\nable to predict\n" } else { "\ncannot predict\n" };
    res
}

fn wire(checks: &[Check], is_able: bool) -> String {
    let checks: Vec<_> = checks
        .iter()
        .map(|Check { name, found }| {
            let (state, text) = match found {
                Found::Good(text) => ("good", text),
                Found::Note(text) => ("note", text),
                Found::Bad(text) => ("bad", text),
            };
            json!({ "name": name, "state": state, "text": text })
        })
        .collect();
    let document = json!({
        "version": 1,
        "plimsoll": env!("CARGO_PKG_VERSION"),
        "able": is_able,
        "checks": checks,
    });
    format!("{document:#}\n")
}
