//! A folder of ranks: which files are in it, and which rank each is, by the names that people and
//! launchers give.

use std::{
    fs,
    path::{Path, PathBuf},
};

use plimsoll_core::explanation::Explanation;

use crate::{files::reason::reason, output};

/// How deep a folder of ranks goes: `torchrun --log-dir` makes `run/attempt_0/3/stdout.log`.
const DEEPEST: u32 = 4;
/// More than this are no ranks.
const MOST: usize = 4096;

/// The files in `folder` and the folders below it, in order of their ranks, then of their names.
pub(crate) fn files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut res = Vec::new();
    collect(folder, 0, &mut res)?;
    anyhow::ensure!(
        !res.is_empty(),
        "{} is an empty folder; name a file, or a folder that has recordings, snapshots or logs",
        folder.display()
    );
    anyhow::ensure!(
        res.len() <= MOST,
        "{} has more than {MOST} files: name the folder that has only the ranks",
        folder.display()
    );
    res.sort_by_cached_key(|path| {
        let own = path.strip_prefix(folder).unwrap_or(path);
        (of_path(own).unwrap_or(u32::MAX), natural(&own.to_string_lossy()))
    });
    Ok(res)
}

fn collect(folder: &Path, depth: u32, res: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let entries = fs::read_dir(folder)
        .map_err(|error| anyhow::anyhow!("cannot read {}: {}", folder.display(), reason(&error)))?;
    let is_hidden =
        |it: &Path| it.file_name().is_some_and(|it| it.to_string_lossy().starts_with('.'));
    for path in entries.filter_map(|it| Some(it.ok()?.path())).filter(|it| !is_hidden(it)) {
        if path.is_file() {
            res.push(path);
        } else if path.is_dir() && !path.is_symlink() && depth < DEEPEST && res.len() <= MOST {
            collect(&path, depth + 1, res)?;
        }
    }
    Ok(())
}

/// The rank that the name of a file says, or that of the folder that a launcher made for it.
///
/// `rank0.pickle`, `snapshot_rank_3.pickle.xz`, `ddp.rank1.pickle`, `r0-s1.pickle`, `7.pickle`,
/// `gpu_2.pickle`, `rank3/snapshot.pickle`, `attempt_0/3/stdout.log`.
pub(crate) fn of_path(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_string_lossy().to_ascii_lowercase();
    let folder = path.parent().and_then(Path::file_name).unwrap_or_default();
    let folder = folder.to_string_lossy().to_ascii_lowercase();
    after_word(&name, &["rank", "global_rank"])
        .or_else(|| after_word(&folder, &["rank"]))
        .or_else(|| after_word(&name, &["r"]))
        .or_else(|| after_word(&name, &["gpu", "device", "cuda", "local"]))
        .or_else(|| whole(name.split('.').next()?))
        .or_else(|| whole(&folder))
}

/// What to call a file: with its folder, where only that says the rank.
pub(crate) fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    let folder = path.parent().and_then(Path::file_name);
    match folder.filter(|_| of_path(Path::new(name)).is_none() && of_path(path).is_some()) {
        Some(folder) => output::shown(&Path::new(folder).join(name)),
        None => output::shown(Path::new(name)),
    }
}

/// `explanations` of the file `path`, each with a rank: what its own notes say, or else the file's name.
pub(crate) fn named(mut explanations: Vec<Explanation>, path: &Path) -> Vec<Explanation> {
    if let [one] = &mut explanations[..] {
        one.rank = one.rank.or_else(|| of_path(path));
    }
    explanations
}

/// The number after one of `words`, where the word is a word of its own: `rank_3`, `rank=3`, `r3`.
fn after_word(text: &str, words: &[&str]) -> Option<u32> {
    for word in words {
        for (at, _) in text.match_indices(word) {
            let begins = text[..at].chars().next_back().is_none_or(|it| !it.is_ascii_alphabetic());
            let rest = text[at + word.len()..].trim_start_matches(['_', '-', '=', '.', ' ', ':']);
            let digits = rest.find(|it: char| !it.is_ascii_digit()).unwrap_or(rest.len());
            if let Some(rank) = rest[..digits].parse().ok().filter(|_| begins) {
                return Some(rank);
            }
        }
    }
    None
}

/// `text` as a number, when it is nothing else. A long one is a date or a process.
fn whole(text: &str) -> Option<u32> {
    let is_rank = text.len() <= 5 && text.bytes().all(|it| it.is_ascii_digit());
    text.parse().ok().filter(|_| is_rank)
}

/// Sorts `x2` before `x10`.
fn natural(name: &str) -> Vec<(String, u64)> {
    let mut res = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let at = rest.find(|it: char| it.is_ascii_digit()).unwrap_or(rest.len());
        let end = rest[at..].find(|it: char| !it.is_ascii_digit()).map_or(rest.len(), |it| at + it);
        res.push((rest[..at].to_owned(), rest[at..end].parse().unwrap_or(0)));
        rest = &rest[end..];
    }
    res
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_named_in_many_ways() {
        let rank = |it: &str| of_path(Path::new(it));
        for (name, expected) in [
            ("rank0.pickle", Some(0)),
            ("snapshot_rank_3.pickle", Some(3)),
            ("ddp-gpt2.rank1.pickle.xz", Some(1)),
            ("mem.rank-12.pickle.gz", Some(12)),
            ("rank=7_step100.pickle", Some(7)),
            ("r0-s1.pickle", Some(0)),
            ("r15-s1.pickle", Some(15)),
            ("snap_r2.pickle", Some(2)),
            ("Rank5.log", Some(5)),
            ("gpu_2.pickle", Some(2)),
            ("7.pickle", Some(7)),
            ("host_3.snapshot.rank4.pickle", Some(4)),
            ("rank3/snapshot.pickle", Some(3)),
            ("attempt_0/3/stdout.log", Some(3)),
            ("iteration_10/rank0_memory_snapshot.pickle", Some(0)),
            ("snapshot.pickle", None),
            ("crankshaft2.pickle", None),
            ("franke_20261121.pickle", None),
            ("Aug_01_12_30_05.pickle", None),
            ("20261121.pickle", None),
        ] {
            assert_eq!(rank(name), expected, "{name}");
        }
    }

    #[test]
    fn a_folder_is_read_in_order_of_ranks() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["rank10.pickle", "rank2.pickle", "notes.txt", ".hidden"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        fs::create_dir_all(folder.path().join("attempt_0/1")).unwrap();
        fs::write(folder.path().join("attempt_0/1/stderr.log"), "").unwrap();
        let found: Vec<String> = files(folder.path())
            .unwrap()
            .iter()
            .map(|it| it.strip_prefix(folder.path()).unwrap().display().to_string())
            .collect();
        assert_eq!(found, ["attempt_0/1/stderr.log", "rank2.pickle", "rank10.pickle", "notes.txt"]);
        let empty = tempfile::tempdir().unwrap();
        assert!(files(empty.path()).unwrap_err().to_string().contains("is an empty folder"));
    }
}
