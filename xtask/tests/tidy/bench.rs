//! What the bench says of itself: programs and rows of the manifest are the same, each table of results names what makes it, and what is
//! named is there.

use std::{collections::BTreeSet, fs, path::Path};

use crate::{files, root_folder};

const PROGRAMS: &str = "bench/programs";

#[test]
fn each_program_has_a_row_and_each_row_a_program() {
    let there: BTreeSet<String> = files(PROGRAMS)
        .into_iter()
        .map(|(path, _)| path.strip_prefix(PROGRAMS).unwrap().display().to_string())
        .filter(|name| name != "manifest.toml")
        .collect();
    let mut named = BTreeSet::new();
    for group in groups() {
        let folder = group["folder"].as_str().unwrap();
        for key in ["source", "stands_for", "came_of_it"] {
            assert!(!group[key].as_str().unwrap().is_empty(), "{folder}: {key}");
        }
        assert!(group["first_tried"].is_datetime(), "{folder}: first_tried is no date");
        let programs = names(&group, "programs");
        for name in names(&group, "wrong_at_first") {
            assert!(
                programs.contains(&name),
                "{folder}: {name} was wrong, and is no program of the row"
            );
        }
        for name in programs.into_iter().chain(names(&group, "helpers")) {
            let ending = if name.contains('.') { "" } else { ".py" };
            let path = Path::new(folder).join(name + ending).display().to_string();
            assert!(named.insert(path.clone()), "{path} is in two rows");
        }
    }
    let only_there: Vec<_> = there.difference(&named).collect();
    let only_named: Vec<_> = named.difference(&there).collect();
    assert!(only_there.is_empty(), "in no row of {PROGRAMS}/manifest.toml: {only_there:?}");
    assert!(only_named.is_empty(), "in {PROGRAMS}/manifest.toml, and not there: {only_named:?}");
}

/// Rows are measured in a checkout somewhere, and are about the programs, not about that folder.
#[test]
fn no_row_names_where_the_checkout_was() {
    for (path, text) in files("bench/results/raw") {
        let has_one = String::from_utf8_lossy(&text).contains("/bench/programs/");
        assert!(!has_one, "{} has the path of a checkout", path.display());
    }
}

#[test]
fn each_table_of_results_names_its_command() {
    for (name, text) in pages() {
        for section in text.split("\n## ").filter(|section| section.contains("\n|---|")) {
            let title = section.lines().next().unwrap();
            let says_how = section.contains("`cargo ") || !paths_of_the_bench(section).is_empty();
            assert!(says_how, "{name}: {title}: names no instrument, program or cargo command");
        }
    }
}

#[test]
fn what_the_bench_names_is_there() {
    for (name, text) in pages().into_iter().chain(instruments()) {
        for path in paths_of_the_bench(&text) {
            let is_there = root_folder().join(&path).exists();
            assert!(is_there, "{name} names {path}, which is not there");
        }
    }
}

#[test]
fn each_instrument_and_each_raw_number_is_of_use() {
    let texts: Vec<(String, String)> = pages().into_iter().chain(instruments()).collect();
    for (path, _) in files("bench/instruments").into_iter().chain(files("bench/results/raw")) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let folder = path.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
        // A module is imported by its bare name; of some files the folder is named.
        let words = match folder.as_str() {
            "instruments" | "raw" => {
                vec![name.clone(), format!("from {} ", name.replace(".py", ""))]
            }
            _ => vec![format!("raw/{folder}"), format!("\"{folder}\"")],
        };
        let uses = |(other, text): &(String, String)| {
            *other != name && words.iter().any(|word| text.contains(word.as_str()))
        };
        let is_used = texts.iter().any(uses);
        assert!(is_used, "{}: no page and no instrument names it", path.display());
    }
}

#[test]
fn all_results_are_one_page() {
    let text = fs::read_to_string(root_folder().join("bench/RESULTS.md")).unwrap();
    assert!(text.lines().count() <= 300, "bench/RESULTS.md has {} lines", text.lines().count());
}

fn groups() -> Vec<toml::Table> {
    let text = fs::read_to_string(root_folder().join(PROGRAMS).join("manifest.toml")).unwrap();
    let manifest: toml::Table = text.parse().unwrap();
    let rows = manifest["group"].as_array().unwrap();
    rows.iter().map(|row| row.as_table().unwrap().clone()).collect()
}

fn names(group: &toml::Table, key: &str) -> Vec<String> {
    let list = group.get(key).and_then(toml::Value::as_array).into_iter().flatten();
    list.map(|name| name.as_str().unwrap().to_owned()).collect()
}

/// File names and texts.
fn texts(folder: &str, ending: &str) -> Vec<(String, String)> {
    let chosen = files(folder)
        .into_iter()
        .filter(|(path, _)| path.extension().is_some_and(|it| it == ending));
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    chosen.map(|(path, bytes)| (name(&path), String::from_utf8(bytes).unwrap())).collect()
}

fn pages() -> Vec<(String, String)> {
    let mut res = texts("bench/results", "md");
    for name in ["RESULTS.md", "README.md"] {
        let text = fs::read_to_string(root_folder().join("bench").join(name)).unwrap();
        res.push((name.to_owned(), text));
    }
    res
}

fn instruments() -> Vec<(String, String)> {
    texts("bench/instruments", "py").into_iter().chain(texts("bench/instruments", "sh")).collect()
}

/// Files of the bench that a text names by their path from the root; not those with a part to fill in (`NAME.py`, `torch-X.json`).
fn paths_of_the_bench(text: &str) -> Vec<String> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || "/_.-".contains(letter);
    let mut res = Vec::new();
    for start in ["bench/instruments/", "bench/programs/", "bench/results/"] {
        for (at, _) in text.match_indices(start) {
            let rest = &text[at..];
            let end = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
            let path = rest[..end].trim_end_matches(['.', '/']);
            let is_to_fill_in = path.contains("NAME") || path.contains("-X.");
            if !is_to_fill_in {
                res.push(path.to_owned());
            }
        }
    }
    res
}
