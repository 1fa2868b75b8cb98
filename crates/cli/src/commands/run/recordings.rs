//! The recordings of a run as files: one, or one for each rank of a distributed job.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use plimsoll_core::recording::Recording;

use crate::{
    engine::{launch::Ended, record},
    files::{process_folder::ProcessFolder, requested_file::RequestedFile},
    output::Output,
};

/// Where a recording goes that nobody asked for, because memory ran out.
const AFTER_OOM: &str = "plimsoll-oom.zip";

/// The file that `--record` names, with the rank in it where a launcher has started us once for each.
pub(super) fn asked_for(path: &Path) -> PathBuf {
    let number = |name: &str| env::var(name).ok()?.parse::<u32>().ok();
    match (number("RANK"), number("WORLD_SIZE")) {
        (Some(rank), Some(2..)) => of_rank(path, rank),
        _ => path.to_owned(),
    }
}

/// A name that nothing has yet: an earlier recording is worth keeping too.
pub(super) fn after_oom() -> PathBuf {
    let first = asked_for(Path::new(AFTER_OOM));
    let stem = first.with_extension("");
    let numbered = (2..).map(|n| PathBuf::from(format!("{}-{n}.zip", stem.display())));
    // A link has the name, too, wherever it leads.
    let is_free = |it: &PathBuf| fs::symlink_metadata(it).is_err();
    std::iter::once(first.clone()).chain(numbered).find(is_free).unwrap_or(first)
}

/// Writes the recordings, and says where. `sink` is that of `path`.
pub(super) fn write(
    (path, sink): (&Path, RequestedFile),
    command: &[OsString],
    ended: &Ended,
    folders: Vec<ProcessFolder>,
    recordings: &[Recording],
    out: &mut Output,
) -> anyhow::Result<Vec<PathBuf>> {
    let what = record::What { mode: "run", command, phantom_conf: None };
    let ranks: Vec<Option<u32>> = recordings.iter().map(rank).collect();
    if ranks.iter().flatten().count() < 2 {
        record::write(what, ended, &folders, sink, out)?;
        return Ok(vec![path.to_owned()]);
    }
    let mut res = Vec::new();
    let mut others = Vec::new();
    for (folder, rank) in folders.into_iter().zip(ranks) {
        match rank {
            Some(rank) => {
                let path = of_rank(path, rank);
                record::write(what, ended, &[folder], RequestedFile::open(&path)?, out)?;
                res.push(path);
            }
            // A launcher has nothing to tell; another process that used a GPU has.
            None if folder.snapshot.is_some() => others.push(folder),
            None => (),
        }
    }
    if !others.is_empty() {
        record::write(what, ended, &others, sink, out)?;
        res.push(path.to_owned());
    }
    Ok(res)
}

/// The rank of a process of a distributed job that used a device.
fn rank(it: &Recording) -> Option<u32> {
    let begin = it.notes.begin.as_ref()?;
    let several = begin.world_size.is_some_and(|it| 1 < it);
    let used = it.trace.is_some() || !it.notes.first_steps.is_empty() || !it.notes.ooms.is_empty();
    begin.rank.filter(|_| several && used)
}

/// `run.zip` as `run-rank3.zip`.
fn of_rank(path: &Path, rank: u32) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let extension = path.extension().map_or_else(String::new, |it| format!(".{}", it.display()));
    path.with_file_name(format!("{stem}-rank{rank}{extension}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_stands_before_the_extension() {
        let name = |path: &str| of_rank(Path::new(path), 12).display().to_string();
        assert_eq!(name("out/run.zip"), "out/run-rank12.zip");
        assert_eq!(name("run.v2.zip"), "run.v2-rank12.zip");
        assert_eq!(name("run"), "run-rank12");
        assert_eq!(crate::files::ranks::of_path(Path::new(&name("run.zip"))), Some(12));
    }
}
