//! Puts the phantom, the agent and the Python package into the binary, so that one file installs everything. What the agent has to know of
//! each remedy is written here, from the table that core reads.
//!
//! The phantom is a library for somebody else's process, so it is built here as a release whatever the
//! profile of the command is, with a target folder of its own (cargo holds a lock on the outer one). It is beside
//! the profiles' folders, so that clippy, the tests and a release share one build of it.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use plimsoll_remedies::{Point, Takes, Values};

/// What is loaded into the script's process; the first one is the CUDA driver.
const LIBRARIES: [&str; 4] = [
    "libplimsoll_phantom.so",
    "libplimsoll_nvrtc.so",
    "libplimsoll_writes_preload.so",
    "libplimsoll_writes_looks.so",
];

fn main() {
    if let Err(problem) = run() {
        // Cargo shows this as it is; a panic would add a backtrace.
        println!("cargo::error={problem}");
    }
}

fn run() -> Result<(), String> {
    let manifest = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let workspace = manifest.join("../..");
    let phantom = workspace.join("crates/phantom");
    let agent = workspace.join("agent");
    let out = PathBuf::from(variable("OUT_DIR")?);
    let nvrtc = workspace.join("crates/nvrtc");
    let addresses = workspace.join("crates/addresses");
    let values = workspace.join("crates/values");
    let holes = workspace.join("crates/writes/preload");
    let looks = workspace.join("crates/writes/looks");
    let gate = workspace.join("crates/writes/src/gate.rs");
    let lock = workspace.join("Cargo.lock");
    let package = workspace.join("python");
    let read =
        [&phantom, &nvrtc, &addresses, &values, &holes, &looks, &gate, &agent, &lock, &package];
    for path in read {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    println!("cargo::rerun-if-changed=build.rs");

    println!("cargo::rustc-env=BUILD_FACTS={}", facts(&workspace));
    // What only reads recordings carries nothing.
    if env::var_os("CARGO_FEATURE_PHANTOM").is_none() {
        return Ok(());
    }

    // (the path in the cache, the file here)
    let mut files = Vec::new();
    // Elsewhere `main.rs` refuses to compile with a sentence of its own.
    if variable("CARGO_CFG_TARGET_OS")? == "linux" && variable("CARGO_CFG_TARGET_ARCH")? == "x86_64"
    {
        let built = build_libraries(&workspace, &out)?;
        files.push(("lib/libcuda.so.1".to_owned(), built.join(LIBRARIES[0])));
        for name in &LIBRARIES[1..] {
            files.push((format!("lib/{name}"), built.join(name)));
        }
    }
    files.extend(below(&agent, "agent/")?);
    let table = out.join("table.py");
    fs::write(&table, remedies())
        .map_err(|error| format!("cannot write {}: {error}", table.display()))?;
    files.push(("agent/plimsoll_agent/remedies/table.py".to_owned(), table));
    let work = out.join("work.py");
    fs::write(&work, kinds_of_work())
        .map_err(|error| format!("cannot write {}: {error}", work.display()))?;
    files.push(("agent/plimsoll_agent/run/work.py".to_owned(), work));
    // With it the agent looks at a torch that nobody has tried.
    let answers = phantom.join("entry_points.txt");
    files.push(("agent/plimsoll_agent/entry_points.txt".to_owned(), answers));
    write_table(&out.join("bundle.rs"), &files, &below(&package, "")?)
        .map_err(|error| format!("cannot write the table of bundled files: {error}"))
}

/// What `--version` adds. The commit is a release's only: a build would otherwise be made again after each.
fn facts(workspace: &Path) -> String {
    let said = |program: &str, words: &[&str]| {
        let ran = Command::new(program).args(words).current_dir(workspace).output().ok()?;
        let text = String::from_utf8(ran.stdout).ok()?.trim().to_owned();
        Some(text).filter(|it| ran.status.success() && !it.is_empty())
    };
    let profile = variable("PROFILE").unwrap_or_default();
    let mut res = format!(" ({profile} build");
    if profile == "release" && workspace.join(".git").exists() {
        if let Some(log) = said("git", &["rev-parse", "--git-path", "logs/HEAD"]) {
            println!("cargo::rerun-if-changed={}", workspace.join(log).display());
        }
        if let Some(commit) = said("git", &["log", "-1", "--format=%h of %cs"]) {
            res += &format!(", {commit}");
        }
    }
    let compiler = variable("RUSTC").ok().and_then(|it| said(&it, &["--version"]));
    if let Some(compiler) = compiler.as_deref().and_then(|it| it.split(' ').nth(1)) {
        res += &format!(", Rust {compiler}");
    }
    if let Ok(target) = variable("TARGET") {
        res += &format!(", {target}");
    }
    res + ")"
}

/// Builds what is loaded into the script's process, and copies it to `out`: the folder of the libraries.
fn build_libraries(workspace: &Path, out: &Path) -> Result<PathBuf, String> {
    // OUT_DIR is TARGET/PROFILE/build/plimsoll-HASH/out.
    let target_dir = out.ancestors().nth(4).unwrap_or(out).join("libraries");
    let is_published = out.ancestors().nth(3).is_some_and(|it| it.ends_with("dist"));
    // Every kernel that a script launches goes through several of these crates.
    let lto = if is_published { "thin" } else { "off" };
    let mut cargo = Command::new(variable("CARGO")?);
    cargo
        .current_dir(workspace)
        .args(["build", "--quiet", "--package", "plimsoll-phantom", "--package", "plimsoll-nvrtc"])
        .args(["--package", "plimsoll-writes-preload", "--package", "plimsoll-writes-looks"])
        .args(["--release", "--target-dir"])
        .arg(&target_dir)
        // What is embedded is what users load: no debugging sections.
        .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
        .env("CARGO_PROFILE_RELEASE_STRIP", "debuginfo")
        .env("CARGO_PROFILE_RELEASE_LTO", lto);
    // The outer build's settings are for the command, not for a library inside somebody's Python:
    // clippy's driver, coverage flags, another target.
    for name in [
        "CARGO_BUILD_TARGET",
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_TARGET_DIR",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTFLAGS",
    ] {
        cargo.env_remove(name);
    }
    let output = cargo.output().map_err(|error| format!("cannot run cargo: {error}"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        for line in text.lines() {
            println!("cargo::warning={line}");
        }
        return Err(
            "the phantom (crates/phantom, crates/nvrtc, crates/writes/preload, crates/writes/looks) does not build; see the warnings above"
                .to_owned(),
        );
    }
    // A build of another profile may replace what lies there while this one is still read.
    for name in LIBRARIES {
        let built = target_dir.join("release").join(name);
        fs::copy(&built, out.join(name))
            .map_err(|error| format!("cannot copy {}: {error}", built.display()))?;
    }
    Ok(out.to_owned())
}

/// The files of Python below `folder`, each with its path in there behind `prefix`.
fn below(folder: &Path, prefix: &str) -> Result<Vec<(String, PathBuf)>, String> {
    let mut found = Vec::new();
    files_of_python(folder, &mut found)
        .map_err(|error| format!("cannot list {}: {error}", folder.display()))?;
    let name =
        |path: &Path| path.strip_prefix(folder).map(|it| format!("{prefix}{}", it.display()));
    let named = found.into_iter().map(|path| name(&path).map(|it| (it, path)));
    named.collect::<Result<_, _>>().map_err(|error| error.to_string())
}

/// The files of Python below `folder`, sorted, without what Python leaves there: packages, and data.
fn files_of_python(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|it| it.map(|it| it.path())).collect::<io::Result<_>>()?;
    paths.sort();
    for path in paths {
        if path.is_dir() {
            files_of_python(&path, found)?;
        } else if path.extension().is_some_and(|it| it == "py" || it == "json" || it == "typed") {
            found.push(path);
        }
    }
    Ok(())
}

/// What the agent knows of the remedies, as a Python module.
fn remedies() -> String {
    let mut rows = String::new();
    for it in plimsoll_remedies::inwards() {
        let (id, is_applied) = (it.id, if it.is_applied() { "True" } else { "False" });
        let takes: Vec<String> =
            it.takes.iter().map(|it| format!("{:?}: {}", it.name, takes(it))).collect();
        rows += &format!(
            "    {id:?}: Kind({is_applied}, \"{:?}\", \"{:?}\", \"{:?}\", \"{:?}\", {{{}}}),\n",
            it.devices,
            it.bears,
            it.of,
            it.untrained,
            takes.join(", ")
        );
    }
    format!(
        "\"\"\"Every remedy, from the outermost inwards where they meet at the same call.\n\n\
         Made when the binary is built, from crates/remedies, which says what the words mean.\n\"\"\"\n\n\
         from collections import namedtuple\n\n\
         Kind = namedtuple(\"Kind\", \"is_applied devices bears of untrained takes\")\n\
         Takes = namedtuple(\"Takes\", \"kind least most words is_needed expected\")\n\n\
         REMEDIES = {{\n{rows}}}\n"
    )
}

/// The words for kinds of work in a step, as a Python module.
fn kinds_of_work() -> String {
    let words = plimsoll_remedies::Op::ALL.map(plimsoll_remedies::Op::word);
    let rows: String =
        words.iter().map(|word| format!("{} = {word:?}\n", word.to_uppercase())).collect();
    format!(
        "\"\"\"Kinds of work in a step.\n\n\
         Made when the binary is built, from crates/remedies, which says what they are.\n\"\"\"\n\n{rows}"
    )
}

/// What a parameter can be, in Python.
fn takes(it: &Takes) -> String {
    let words = Point::ALL.map(|it| format!("{:?}", it.word())).join(", ");
    let (kind, least, most, words) = match it.values {
        Values::Number(least, u64::MAX, _) => ("number", least, "None".to_owned(), ""),
        Values::Number(least, most, _) => ("number", least, most.to_string(), ""),
        Values::Numbers(least, _) => ("numbers", least, "None".to_owned(), ""),
        Values::Point(_) => ("word", 0, "None".to_owned(), words.as_str()),
        Values::Text(_) => ("text", 0, "None".to_owned(), ""),
    };
    let is_needed = if it.is_needed { "True" } else { "False" };
    let expected = it.values.expected();
    format!("Takes({kind:?}, {least}, {most}, [{words}], {is_needed}, {expected:?})")
}

fn write_table(
    path: &Path,
    files: &[(String, PathBuf)],
    package: &[(String, PathBuf)],
) -> io::Result<()> {
    let mut hash = Fnv::new();
    let mut table = |files: &[(String, PathBuf)]| -> io::Result<String> {
        let mut rows = String::new();
        for (name, file) in files {
            hash.add(name.as_bytes());
            hash.add(&fs::read(file)?);
            let file = file.canonicalize()?;
            rows += &format!("    File {{ path: {name:?}, bytes: include_bytes!({file:?}) }},\n");
        }
        Ok(rows)
    };
    let (files, package) = (table(files)?, table(package)?);
    let hash = hash.0;
    fs::write(
        path,
        format!(
            "const HASH: &str = \"{hash:032x}\";\n\
             const FILES: &[File] = &[\n{files}];\n\
             /// The Python package.\n\
             pub(super) const PACKAGE: &[File] = &[\n{package}];\n"
        ),
    )
}

fn variable(name: &str) -> Result<String, String> {
    env::var(name).map_err(|error| format!("{name}: {error}"))
}

/// FNV-1a, 128 bits. It only names a folder whose files are compared with ours byte for byte before
/// they are used, so a cryptographic hash would buy nothing.
struct Fnv(u128);

impl Fnv {
    fn new() -> Fnv {
        Fnv(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    fn add(&mut self, bytes: &[u8]) {
        let length = bytes.len().to_le_bytes();
        for byte in length.iter().chain(bytes) {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013b);
        }
    }
}
