//! Files that people or strangers name are read through `bounded_file.rs`, which opens regular files only and stops at a bound. Here stand
//! all the other readers, each with why it is none of those.

use crate::rust_files;

/// What opens or reads a file.
const WORDS: [&str; 6] = [
    "fs::read(",
    "fs::read_to_string(",
    "read_to_string(",
    "File::open(",
    "OpenOptions::new(",
    "File::options(",
];

/// (file, a part of the line, why it may).
const MAY: [(&str, &str, &str); 14] = [
    ("bounded_file.rs", "OpenOptions::new()", "is the reader"),
    ("bounded_file.rs", "OpenOptions::new()", "is the reader, for pipes of the shell"),
    ("cache/trust.rs", "/proc/self/uid_map", PROC),
    ("machine/mod.rs", "/proc/sys/kernel/hostname", PROC),
    ("machine/people.rs", "/proc/{pid}/", PROC),
    ("commands/doctor.rs", "/proc/sys/kernel/osrelease", PROC),
    ("engine/host_memory.rs", "/proc/meminfo", PROC),
    ("commands/view.rs", "/proc/sys/kernel/hostname", PROC),
    ("devices.rs", "/proc/{pid}/stat", PROC),
    ("launch/descendants.rs", "/proc/{pid}/", PROC),
    ("launch/mod.rs", "/proc/vmstat", PROC),
    ("launch/mod.rs", ".append(true).open(session.output())", APPENDS),
    ("alarms/", ".append(true).create(true).open(path)", APPENDS),
    ("requested_file.rs", "fs::OpenOptions::new()", "writes what was asked for, and reads nothing"),
];
const PROC: &str = "the kernel's, and short";
const APPENDS: &str = "appends, and reads nothing";

#[test]
fn files_are_read_with_a_bound() {
    let mut wrong = Vec::new();
    let mut used = [false; MAY.len()];
    let crates = ["crates/cli/src", "crates/core/src", "crates/lint/src"];
    for (path, text) in crates.into_iter().flat_map(rust_files) {
        let path = path.to_string_lossy().into_owned();
        // Where a file's tests begin, its program ends.
        for line in text.split("#[cfg(test)]\nmod tests").next().unwrap().lines() {
            if !WORDS.iter().any(|word| has_word(line, word)) {
                continue;
            }
            let mut may = false;
            for (n, (file, part, _)) in MAY.iter().enumerate() {
                if path.contains(file) && line.contains(part) {
                    (may, used[n]) = (true, true);
                }
            }
            if !may {
                wrong.push(format!("{path}: {}", line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "read through bounded_file.rs:\n{}", wrong.join("\n"));
    let unused: Vec<_> = MAY.iter().zip(used).filter(|it| !it.1).map(|it| it.0).collect();
    assert!(unused.is_empty(), "nobody reads so any more: {unused:?}");
}

/// `RequestedFile::open(` is not `File::open(`.
fn has_word(line: &str, word: &str) -> bool {
    let is_name = |it: char| it.is_alphanumeric() || it == '_' || it == '.';
    line.match_indices(word).any(|(at, _)| !line[..at].ends_with(is_name))
}
