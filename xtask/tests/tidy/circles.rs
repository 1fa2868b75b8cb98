//! No files of a crate use each other in a circle, and in `core`, `fit` and `cli` no folders do either.
//!
//! What counts as a use is told in [`modules`](crate::modules). A folder is its files and a `mod.rs`, and what lies beside
//! it under its name (`cli.rs` and `cli/`) is one with it. Two entries of a folder use each other when files in them do.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock},
};

use petgraph::{algo::tarjan_scc, graphmap::DiGraphMap};

use crate::{
    modules::{Arrows, Files, arrows},
    root_folder, rust_files,
};

/// How many files of a crate, and how many entries of its folders, stand in circles still. Only ever lowered; a crate
/// that is not named has none.
const KNOWN: [(&str, usize, usize); 0] = [];

#[test]
fn no_files_use_each_other_in_a_circle() {
    let mut wrong = String::new();
    for name in crates() {
        let known = KNOWN.iter().find(|(it, ..)| *it == name).map_or(0, |(_, it, _)| *it);
        compare(&mut wrong, &format!("{name}, files"), known, &[&arrows_of(&name)]);
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn no_folders_use_each_other_in_a_circle() {
    let mut wrong = String::new();
    for name in ["crates/core", "crates/fit", "crates/cli"] {
        let known = KNOWN.iter().find(|(it, ..)| *it == name).map_or(0, |(.., it)| *it);
        let between = between_entries(&arrows_of(name));
        let between: Vec<&Arrows> = between.values().collect();
        compare(&mut wrong, &format!("{name}, entries of folders"), known, &between);
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[expect(clippy::print_stdout, reason = "with `--nocapture`, what is known is told, too")]
fn compare(wrong: &mut String, what: &str, known: usize, graphs: &[&Arrows]) {
    let mut n_found = 0;
    let mut told = String::new();
    for arrows in graphs {
        for circle in circles(arrows) {
            n_found += circle.len();
            tell(&mut told, &circle, arrows);
        }
    }
    println!("\n{what}: {n_found} in circles\n{told}");
    if known < n_found {
        writeln!(wrong, "\n{what}: {n_found} in circles, {known} of them known\n{told}").unwrap();
    }
}

/// The folder of every crate, the fuzzer's and this one's included.
fn crates() -> Vec<String> {
    let mut res = vec!["fuzz".to_owned(), "xtask".to_owned()];
    for it in std::fs::read_dir(root_folder().join("crates")).unwrap() {
        res.push(format!("crates/{}", it.unwrap().file_name().display()));
    }
    res.sort();
    res
}

/// The arrows of a crate, by its folder. It is read once, whichever tests ask.
pub(crate) fn arrows_of(name: &str) -> Arc<Arrows> {
    static READ: Mutex<BTreeMap<String, Arc<OnceLock<Arc<Arrows>>>>> = Mutex::new(BTreeMap::new());
    let place = Arc::clone(READ.lock().unwrap().entry(name.to_owned()).or_default());
    let read = || {
        let files: Files = rust_files(name).into_iter().collect();
        let roots = ["src/lib.rs", "src/main.rs"].map(|it| Path::new(name).join(it));
        let roots = roots.iter().filter(|it| files.contains_key(*it));
        Arc::new(roots.flat_map(|it| arrows(&files, it)).collect())
    };
    Arc::clone(place.get_or_init(read))
}

/// The arrows between what lies in a folder, for every folder: two files are told by the entries of the last folder
/// that holds both.
fn between_entries(arrows: &Arrows) -> BTreeMap<PathBuf, Arrows> {
    let mut res: BTreeMap<PathBuf, Arrows> = BTreeMap::new();
    for ((from, to), names) in arrows {
        let (from, to) = (from.with_extension(""), to.with_extension(""));
        let folder: PathBuf =
            from.iter().zip(to.iter()).take_while(|(a, b)| a == b).map(|(it, _)| it).collect();
        let entry = |it: &Path| {
            let next = it.strip_prefix(&folder).unwrap().iter().next();
            next.map(|next| folder.join(next))
        };
        if let (Some(from), Some(to)) = (entry(&from), entry(&to)) {
            let arrows = res.entry(folder).or_default();
            arrows.entry((from, to)).or_default().extend(names.iter().cloned());
        }
    }
    res
}

/// The sets of files that reach each other.
fn circles(arrows: &Arrows) -> Vec<BTreeSet<&Path>> {
    let mut graph: DiGraphMap<&Path, ()> = DiGraphMap::new();
    for (from, to) in arrows.keys() {
        graph.add_edge(from, to, ());
    }
    let mut res: Vec<BTreeSet<&Path>> = tarjan_scc(&graph)
        .into_iter()
        .filter(|it| 1 < it.len())
        .map(|it| it.into_iter().collect())
        .collect();
    res.sort();
    res
}

fn tell(acc: &mut String, circle: &BTreeSet<&Path>, arrows: &Arrows) {
    writeln!(acc, "a circle of {}:", circle.len()).unwrap();
    for ((from, to), names) in arrows {
        if circle.contains(from.as_path()) && circle.contains(to.as_path()) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            writeln!(acc, "  {} -> {}: {}", from.display(), to.display(), names.join(", "))
                .unwrap();
        }
    }
}
