//! Rules about the code that the compiler does not know.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod bench;
mod circles;
mod codes;
mod contract;
mod modules;
mod readers;

use std::{
    fs,
    path::{Path, PathBuf},
};

/// What each folder of `plimsoll-core` may use. Data flows down this table; imports point up it.
const MAY_USE: [(&str, &[&str]); 18] = [
    ("units", &[]),
    ("spelling", &[]),
    ("codes", &[]),
    ("printable", &[]),
    ("trace", &["printable", "units"]),
    ("recording", &["codes", "trace", "units"]),
    ("replay", &["trace", "units"]),
    ("failures", &["recording", "replay", "units"]),
    ("printed", &["codes", "units"]),
    ("sources", &["codes", "failures", "printable", "printed", "recording", "trace", "units"]),
    ("cards", &["printable", "spelling", "units"]),
    ("prediction", &["cards", "codes", "recording", "replay", "trace", "units"]),
    ("findings", &["codes", "prediction", "recording", "replay", "trace", "units"]),
    (
        "explanation",
        &[
            "cards",
            "codes",
            "failures",
            "findings",
            "prediction",
            "printed",
            "recording",
            "replay",
            "trace",
            "units",
        ],
    ),
    ("plan", &["recording", "spelling", "units"]),
    (
        "scene",
        &[
            "explanation",
            "failures",
            "findings",
            "prediction",
            "recording",
            "replay",
            "trace",
            "units",
        ],
    ),
    ("verification", &["cards", "prediction", "recording", "units"]),
    (
        "views",
        &[
            "codes",
            "scene",
            "verification",
            "explanation",
            "failures",
            "findings",
            "plan",
            "prediction",
            "printable",
            "printed",
            "cards",
            "recording",
            "replay",
            "trace",
            "units",
        ],
    ),
];

/// What each folder of `plimsoll-fit` may use of the others.
const FIT_MAY_USE: [(&str, &[&str]); 7] = [
    ("change", &[]),
    ("cost", &[]),
    ("search", &["change", "cost"]),
    ("serving", &[]),
    ("speculate", &["search"]),
    ("trials", &["search"]),
    ("views", &["change", "cost", "search", "serving"]),
];

#[test]
fn imports_point_one_way() {
    let mut wrong = wrong_imports("crates/core", &MAY_USE);
    wrong.extend(wrong_imports("crates/fit", &FIT_MAY_USE));
    assert!(wrong.is_empty(), "see `MAY_USE`:\n{}", wrong.join("\n"));
}

fn wrong_imports(name: &str, table: &[(&str, &[&str])]) -> Vec<String> {
    let folder = |path: &Path| path.iter().nth(3).unwrap().to_string_lossy().replace(".rs", "");
    let mut wrong = Vec::new();
    for ((from, to), names) in circles::arrows_of(name).iter() {
        let (own, used) = (folder(from), folder(to));
        let row = table.iter().find(|(it, _)| *it == own);
        let Some((_, may_use)) = row else {
            wrong.push(format!("{}: {own} is not in the table", from.display()));
            continue;
        };
        if used != own && !may_use.contains(&used.as_str()) {
            wrong.push(format!("{}: {own} may not use {used}: {names:?}", from.display()));
        }
    }
    wrong
}

#[test]
fn only_the_wire_serializes() {
    for (path, text) in rust_files("crates/core/src") {
        let is_wire = path.ends_with("views/wire.rs");
        assert!(is_wire || !text.contains("Serialize"), "{}: belongs in wire.rs", path.display());
    }
}

/// Data leaves as a type that is declared in wire.rs, or as an object that its own view writes; a plan writes its own file.
#[test]
fn only_views_and_plans_write_json() {
    for (path, text) in rust_files("crates/core/src") {
        let writes =
            path.starts_with("crates/core/src/views") || path.starts_with("crates/core/src/plan");
        let shipped = text.split("#[cfg(test)]").next().unwrap();
        assert!(writes || !shipped.contains("json!"), "{}: belongs in a view", path.display());
    }
    for (path, text) in rust_files("crates/fit/src") {
        let writes = path.starts_with("crates/fit/src/views");
        let shipped = text.split("#[cfg(test)]").next().unwrap();
        let is_test = path.iter().any(|it| it == "tests" || it == "tests.rs");
        assert!(
            writes || is_test || !shipped.contains("json!"),
            "{}: belongs in a view",
            path.display()
        );
    }
}

#[test]
fn only_sources_know_formats() {
    for (path, text) in
        rust_files("crates/core/src").into_iter().chain(rust_files("crates/fit/src"))
    {
        let knows = path.starts_with("crates/core/src/sources")
            || path.starts_with("crates/core/src/cards")
            || path.ends_with("views/wire.rs");
        let shipped = text.split("#[cfg(test)]").next().unwrap();
        for word in ["Deserialize", "serde_json::from"] {
            assert!(knows || !shipped.contains(word), "{}: {word}", path.display());
        }
    }
}

#[test]
fn neither_the_core_nor_the_search_does_io() {
    for (path, text) in
        rust_files("crates/core/src").into_iter().chain(rust_files("crates/fit/src"))
    {
        for word in [
            "std::fs",
            "std::env",
            "std::net",
            "std::process",
            "std::thread",
            "std::time",
            "io::stdin",
            "io::stdout",
            "io::stderr",
            "println!",
        ] {
            assert!(!text.contains(word), "{}: {word}", path.display());
        }
        // A source may be handed a reader that the caller opened: a file need not fit into memory.
        let may_read = path.starts_with("crates/core/src/sources");
        assert!(may_read || !text.contains("std::io"), "{}: std::io", path.display());
    }
}

#[test]
fn no_order_comes_from_a_hash() {
    for (path, text) in rust_files("crates") {
        for word in ["HashMap", "HashSet"] {
            assert!(!text.contains(word), "{}: use BTreeMap or an id-indexed Vec", path.display());
        }
    }
}

#[test]
fn every_long_test_is_a_test() {
    let root = root_folder();
    for line in fs::read_to_string(root.join("tests/long.txt")).unwrap().lines() {
        if line.starts_with('#') {
            continue;
        }
        let (file, test) = line.split_once("::").unwrap();
        let name = test.split_once('[').map_or(test, |it| it.0);
        let text = fs::read_to_string(root.join("tests").join(file)).unwrap();
        assert!(text.contains(&format!("def {name}(")), "tests/long.txt: no test {line}");
    }
}

#[test]
fn every_file_says_what_it_is_for() {
    for (path, text) in rust_files("crates").into_iter().chain(rust_files("xtask")) {
        assert!(text.starts_with("//! "), "{}: begins with no `//!` sentence", path.display());
    }
}

/// A source distribution has the crates that the program's manifest names, and build.rs builds more.
#[test]
fn the_manifest_names_what_build_rs_builds() {
    let read =
        |path: &str| fs::read_to_string(root_folder().join("crates/cli").join(path)).unwrap();
    let (script, manifest) = (read("build.rs"), read("Cargo.toml"));
    let built = script.split("\"--package\", \"").skip(1).map(|it| it.split('"').next().unwrap());
    let built: Vec<&str> = built.collect();
    assert!(!built.is_empty());
    for name in built {
        assert!(manifest.contains(&format!("\n{name} = {{ path = ")), "{name}");
    }
}

#[test]
fn no_file_names_the_machine_that_it_was_written_on() {
    // In pieces, or this file would name them itself.
    let words = [["/wo", "rk/"].concat(), ["/tm", "p/"].concat(), ["/ro", "ot/"].concat()];
    let folders = ["crates", "xtask", "fixtures"];
    // Other people's messages name other people's machines.
    let is_ours = |path: &Path| {
        !path.ends_with("oom-messages.jsonl") && !path.ends_with("oom-messages-unseen.jsonl")
    };
    let files = folders.iter().flat_map(|it| files(it)).filter(|(path, _)| is_ours(path));
    for (path, bytes) in files {
        for word in &words {
            let found = bytes.windows(word.len()).any(|it| it == word.as_bytes());
            assert!(!found, "{}: {word}", path.display());
        }
    }
}

fn rust_files(dir: &str) -> Vec<(PathBuf, String)> {
    let is_rust = |path: &Path| path.extension().is_some_and(|it| it == "rs");
    let files = files(dir).into_iter().filter(|(path, _)| is_rust(path));
    files.map(|(path, bytes)| (path, String::from_utf8(bytes).unwrap())).collect()
}

/// The root of the project.
fn root_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Every file below `dir`, or the file `dir`, by its path from the root of the project.
fn files(dir: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let root = root_folder();
    let mut res = Vec::new();
    go(&mut res, root, &root.join(dir));
    return res;

    fn go(acc: &mut Vec<(PathBuf, Vec<u8>)>, root: &Path, path: &Path) {
        if path.is_file() {
            acc.push((path.strip_prefix(root).unwrap().to_owned(), fs::read(path).unwrap()));
            return;
        }
        let mut paths: Vec<PathBuf> =
            fs::read_dir(path).unwrap().map(|it| it.unwrap().path()).collect();
        paths.sort();
        for path in paths {
            if !path.ends_with("target") && !path.ends_with("__pycache__") {
                go(acc, root, &path);
            }
        }
    }
}
