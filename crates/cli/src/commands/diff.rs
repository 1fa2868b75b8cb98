//! `plimsoll diff`: what differs between two recordings, or between two steps, moments, devices or ranks.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use plimsoll_core::{
    explanation::{self, At, Difference, Side},
    views,
};

use crate::{
    exit::Exit,
    files::{
        recordings::{self, Process},
        requested_file::RequestedFile,
    },
    options::cli::DiffArgs,
    output::Output,
    ticker::Ticker,
};

/// Widths that a table is made for, and where the width is not known.
const WIDTHS: (u16, u16) = (70, 140);
const USUAL: u16 = 100;

pub(crate) fn run(args: &DiffArgs, out: &mut Output) -> anyhow::Result<Exit> {
    let json = args.json.as_deref().map(RequestedFile::open).transpose()?;
    let wanted = wanted(args)?;
    let _ticker = Ticker::start("comparing".to_owned());
    let (difference, ranks) = match &wanted[..] {
        [one] => among(one)?,
        [a, b] => (between(a, b)?, None),
        _ => anyhow::bail!("expected one or two inputs, found {}", wanted.len()),
    };
    let is_quiet = json.as_ref().is_some_and(RequestedFile::is_stdout);
    if let Some(sink) = json {
        sink.json(&views::diff::wire(&difference, ranks.as_ref()), out)?;
    }
    if !is_quiet {
        let styles = out.styles();
        let width = out.width(WIDTHS, USUAL);
        if let Some(ranks) = &ranks {
            out.text(&format!("{}\n", views::ranks::text(ranks, styles, width)))?;
        }
        out.text(&views::diff::text(&difference, styles, width).to_string())?;
    }
    Ok(Exit::Fits)
}

/// What one argument names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Wanted {
    path: PathBuf,
    at: Option<At>,
    rank: Option<u32>,
    device: Option<usize>,
}

fn wanted(args: &DiffArgs) -> anyhow::Result<Vec<Wanted>> {
    let mut res =
        args.inputs.iter().map(|it| Wanted::parse(it)).collect::<anyhow::Result<Vec<_>>>()?;
    if let Some((a, b)) = args.steps {
        let [one] = &res[..] else {
            anyhow::bail!(
                "--steps compares two steps of one recording; to compare steps of two recordings: plimsoll diff A@step:3 B@step:4"
            );
        };
        anyhow::ensure!(
            one.at.is_none(),
            "{} names a moment, and --steps names two others: remove one of them",
            one.path.display()
        );
        res = [a, b].map(|step| Wanted { at: Some(At::Step(step)), ..one.clone() }).into();
    }
    let stdin = res.iter().filter(|it| it.path == Path::new("-")).count();
    anyhow::ensure!(
        stdin < 2 || args.steps.is_some() || args.inputs.len() < 2 || res[0].path == res[1].path,
        "`-` is given twice, and standard input can be read only once"
    );
    Ok(res)
}

impl Wanted {
    /// `run.zip@step:3,device:1`; a file whose own name has an `@` is that file.
    fn parse(given: &OsStr) -> anyhow::Result<Wanted> {
        let whole = || Wanted { path: PathBuf::from(given), ..Wanted::default() };
        let Some((path, what)) = given.to_str().and_then(|it| it.rsplit_once('@')) else {
            return Ok(whole());
        };
        if path.is_empty() || Path::new(given).exists() {
            return Ok(whole());
        }
        let mut res = Wanted { path: PathBuf::from(path), ..Wanted::default() };
        for part in what.split(',') {
            let number = |word: &str| {
                part.strip_prefix(word)
                    .and_then(|it| it.trim_start_matches([':', '=']).parse().ok())
            };
            if let Some(rank) = number("rank") {
                res.rank = Some(rank);
            } else if let Some(device) = number("device") {
                res.device = usize::try_from(device).ok();
            } else {
                let at = part.parse::<At>().with_context(|| {
                    format!(
                        "cannot read {:?}: expected rank:N or device:N",
                        given.to_string_lossy()
                    )
                })?;
                res.at = Some(at);
            }
        }
        Ok(res)
    }
}

fn between(a: &Wanted, b: &Wanted) -> anyhow::Result<Difference> {
    let (first, mut unread) = recordings::of_path(&a.path)?;
    let second = if a.path == b.path {
        None
    } else {
        let (found, more) = recordings::of_path(&b.path)?;
        unread.extend(more);
        Some(found)
    };
    let (x, note) = recordings::choose(&first, a.rank)?;
    let (y, other) = recordings::choose(second.as_deref().unwrap_or(&first), b.rank)?;
    let side =
        |process, wanted: &Wanted| side(process, wanted.device, wanted.at.unwrap_or_default());
    let (mut before, mut after) = (side(x, a), side(y, b));
    if before.name == after.name && a.path != b.path {
        (before.name, after.name) = (recordings::shown(&a.path), recordings::shown(&b.path));
    }
    let mut res = explanation::difference(&before, &after)?;
    res.notes.extend(note.into_iter().chain(other).chain(unread));
    res.notes.extend([x, y].into_iter().flat_map(Process::said));
    res.notes.dedup();
    Ok(res)
}

fn side(process: &Process, device: Option<usize>, at: At) -> Side<'_> {
    Side { name: process.name.clone(), recording: &process.recording, device, at }
}

/// One input: of its ranks and devices, the one with the lowest peak against the one with the highest.
fn among(one: &Wanted) -> anyhow::Result<(Difference, Option<explanation::RankTable>)> {
    let (processes, mut unread) = recordings::of_path(&one.path)?;
    unread.extend(processes.iter().flat_map(Process::said));
    let table = explanation::RankTable::new(
        processes
            .iter()
            .flat_map(|it| explanation::rank_facts(&it.name, it.rank, &it.recording))
            .collect(),
        unread,
    );
    let chosen = |facts: &&explanation::RankFacts| {
        one.rank.is_none_or(|rank| facts.rank == Some(rank))
            && one.device.is_none_or(|device| facts.device == device)
    };
    let rows: Vec<_> = table.rows.iter().filter(chosen).collect();
    let shown = recordings::shown(&one.path);
    let low = rows.iter().min_by_key(|it| it.peak_allocated);
    let high = rows.iter().rev().max_by_key(|it| it.peak_allocated);
    let (Some(low), Some(high), true) = (low, high, 2 <= rows.len()) else {
        anyhow::bail!(
            "{shown} has one process on one device, so it has nothing to compare: name a second recording, two steps (--steps 3..4), or two moments ({shown}@after:2 {shown}@after:9)"
        );
    };
    // Ranks that are all alike: the first two.
    let (low, high) =
        if low.peak_allocated == high.peak_allocated { (&rows[0], &rows[1]) } else { (low, high) };
    let process = |row: &explanation::RankFacts| {
        processes.iter().find(|it| it.name == row.name && it.rank == row.rank)
    };
    let (a, b) = process(low).zip(process(high)).context("a rank that does not exist")?;
    let at = one.at.unwrap_or_default();
    let difference =
        explanation::difference(&side(a, Some(low.device), at), &side(b, Some(high.device), at))?;
    Ok((difference, Some(table)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_of_a_file_is_meant_stands_after_an_at() {
        let parse = |it: &str| Wanted::parse(OsStr::new(it)).unwrap();
        let file = |path: &str| Wanted { path: path.into(), ..Wanted::default() };
        assert_eq!(parse("a.pickle"), file("a.pickle"));
        assert_eq!(parse("a.pickle@end"), Wanted { at: Some(At::End), ..file("a.pickle") });
        let all = Wanted { at: Some(At::Step(3)), rank: Some(2), device: Some(1), ..file("dir/") };
        assert_eq!(parse("dir/@step:3,rank:2,device:1"), all);
        let error = format!("{:#}", Wanted::parse(OsStr::new("me@home.pickle")).unwrap_err());
        assert!(error.contains("expected peak, oom, end"), "{error}");
    }

    #[test]
    fn a_file_with_an_at_in_its_name_is_that_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("me@peak");
        std::fs::write(&path, "").unwrap();
        assert_eq!(Wanted::parse(path.as_os_str()).unwrap().path, path);
    }
}
