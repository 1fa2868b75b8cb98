//! `plimsoll export`: a recording in a form that other programs open. One target is one file below.

mod flamegraph;
mod html;
mod parquet;
mod perfetto;
mod target;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use plimsoll_core::explanation::At;

use self::target::{Content, Made, Target};
use crate::{
    exit::Exit,
    files::{atomic_output::AtomicOutput, recordings},
    options::cli::{ExportArgs, ExportTarget},
    output::{self, Output},
    ticker::Ticker,
};

fn target(of: ExportTarget) -> &'static Target {
    match of {
        ExportTarget::Flamegraph => &flamegraph::TARGET,
        ExportTarget::Html => &html::TARGET,
        ExportTarget::Parquet => &parquet::TARGET,
        ExportTarget::Perfetto => &perfetto::TARGET,
    }
}

pub(crate) fn run(args: &ExportArgs, out: &mut Output) -> anyhow::Result<Exit> {
    let targets: Vec<&Target> = args.to.iter().map(|it| target(*it)).collect();
    let places = places(args, &targets, out.is_terminal())?;
    if args.at != At::Peak && !args.to.contains(&ExportTarget::Flamegraph) {
        anyhow::bail!(
            "--at chooses the moment of a flame graph; the other targets contain all moments"
        );
    }
    anyhow::ensure!(
        !args.file.is_dir(),
        "{} is a folder; export one of its files (`plimsoll explain` and `plimsoll diff` compare them)",
        args.file.display()
    );
    let _ticker = Ticker::start(format!("exporting {}", recordings::file_name(&args.file)));
    let processes = recordings::of_file(&args.file)?;
    let (process, choice) = recordings::choose(&processes, args.rank)?;
    say_all(choice.iter().chain(&process.warnings));
    for (target, place) in targets.into_iter().zip(places) {
        let Made { content, notes } = (target.make)(process, args)
            .with_context(|| format!("cannot export {}", process.name))?;
        say_all(&notes);
        match (content, place) {
            (Content::File(bytes), None) => out.bytes(&bytes)?,
            (Content::File(bytes), Some(place)) => {
                AtomicOutput::open(&place, args.force)?.file(&bytes)?;
                out.text(&format!("{}\n", output::shown(&place)))?;
            }
            (Content::Folder(fill), Some(place)) => {
                let output = AtomicOutput::open(&place, args.force)?;
                output.folder(target.ending, |output, folder| fill(process, output, folder))?;
                out.text(&format!("{}\n", output::shown(&place)))?;
            }
            (Content::Folder(_), None) => anyhow::bail!("{} is a folder of files", target.word),
        }
    }
    Ok(Exit::Fits)
}

/// Where each target goes; none is standard output. Everything that can be known to fail fails here, before
/// a long file is read.
fn places(
    args: &ExportArgs,
    targets: &[&Target],
    is_terminal: bool,
) -> anyhow::Result<Vec<Option<PathBuf>>> {
    let piped = args.file == Path::new("-") && args.output.is_none();
    let to_stdout = piped || args.output.as_deref() == Some(Path::new("-"));
    if to_stdout {
        let [one] = targets else {
            anyhow::bail!(
                "standard output can take one target only; run one export for each target"
            );
        };
        anyhow::ensure!(
            !one.is_folder,
            "{} is a folder of files and cannot go to standard output: name it with -o FOLDER",
            one.word
        );
        anyhow::ensure!(
            !is_terminal,
            "{} is binary, and standard output is a terminal: redirect it, or name a file with -o",
            one.word
        );
        return Ok(vec![None]);
    }
    anyhow::ensure!(
        args.output.is_none() || targets.len() == 1,
        "-o names one file, and there are {} targets: remove -o, or run one export for each target",
        targets.len()
    );
    let mut res: Vec<Option<PathBuf>> = Vec::new();
    for target in targets {
        let place = args.output.clone().unwrap_or_else(|| {
            PathBuf::from(format!("{}{}", stem(&recordings::file_name(&args.file)), target.ending))
        });
        anyhow::ensure!(!res.contains(&Some(place.clone())), "{} is given twice", target.word);
        let same = |a: &Path, b: &Path| {
            a.canonicalize().ok().is_some_and(|a| b.canonicalize().is_ok_and(|b| a == b))
        };
        anyhow::ensure!(
            !same(&place, &args.file),
            "{} is the file that is read; choose another name with -o",
            place.display()
        );
        AtomicOutput::check(&place)?;
        res.push(Some(place));
    }
    Ok(res)
}

/// `run.pickle.xz` as `run`.
fn stem(name: &str) -> &str {
    let mut res = name;
    for ending in [".xz", ".zst", ".gz", ".pickle", ".pkl", ".zip"] {
        res = res.strip_suffix(ending).filter(|it| !it.is_empty()).unwrap_or(res);
    }
    res
}

fn say_all<'a>(notes: impl IntoIterator<Item = &'a String>) {
    for it in notes {
        output::say(&format!("note: {it}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_what_is_left_without_endings() {
        assert_eq!(stem("run.pickle.xz"), "run");
        assert_eq!(stem("run.zip"), "run");
        assert_eq!(stem("my.model.rank1.pkl"), "my.model.rank1");
        assert_eq!(stem(".pickle"), ".pickle");
    }
}
