//! `in-a-layer [--way mounts|user|traced] [--no-namespaces] [--downloads] [--max BYTES] [--cache DIR] [--through DIR] [--keep DIR] [--list] -- COMMAND...` runs a command
//! and throws away what it writes: to try the library by hand, and for its tests.

use std::{path::PathBuf, process::Command, process::ExitCode};

use plimsoll_writes::{Ask, Layers, OwnFolder, TRACER, Way};

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|it| it == TRACER) {
        return ExitCode::from(plimsoll_writes::trace(words));
    }
    match run() {
        Ok(code) => ExitCode::from(code),
        Err(problem) => {
            tell(&format!("in-a-layer: {problem}"));
            ExitCode::from(125)
        }
    }
}

#[expect(clippy::print_stderr, reason = "this is a program for people who try the library")]
fn tell(line: &str) {
    eprintln!("{line}");
}

fn run() -> Result<u8, Box<dyn std::error::Error>> {
    let mut words = std::env::args_os().skip(1).peekable();
    let mut cache: Option<PathBuf> = None;
    let mut keep: Option<PathBuf> = None;
    let mut through: Option<PathBuf> = None;
    let mut ways = Vec::new();
    let mut list = false;
    let mut max = None;
    let mut keeps_downloads = false;
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or("a value is missing");
        match word.to_str() {
            Some("--") => break,
            Some("--list") => list = true,
            Some("--downloads") => keeps_downloads = true,
            Some("--no-namespaces") => plimsoll_writes::refuse_namespaces()?,
            Some("--max") => {
                let bytes = value()?.to_str().and_then(|it| it.parse().ok());
                max = Some(bytes.ok_or("--max is a number of bytes")?);
            }
            Some("--cache") => cache = Some(value()?.into()),
            Some("--through") => through = Some(value()?.into()),
            Some("--keep") => keep = Some(value()?.into()),
            Some("--way") => ways.push(match value()?.to_str() {
                Some("mounts") => Way::Mounts,
                Some("user") => Way::UserNamespace,
                Some("traced") => Way::Traced,
                _ => return Err("--way is mounts, user or traced".into()),
            }),
            _ => return Err(format!("there is no option {}", word.display()).into()),
        }
    }
    let program = words.next().ok_or("no command was given")?;
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let cache = cache.unwrap_or_else(|| home.join(".cache/plimsoll"));
    std::fs::create_dir_all(&cache)?;
    let mut ask = Ask::new(&OwnFolder::below(&cache)?);
    if let Some(bytes) = max {
        ask = ask.max_bytes(bytes);
    }
    if keeps_downloads {
        ask = ask.keep_downloads();
    }
    if !ways.is_empty() {
        ask = ask.ways(&ways);
    }
    let layers = Layers::find(ask)?;
    let started = std::time::Instant::now();
    let layer = layers.fresh(through.as_deref().as_slice())?;
    let seconds = started.elapsed().as_secs_f64();
    let mut command = Command::new(program);
    command.args(words);
    layer.attach(&mut command)?;
    let mut child = command.spawn()?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if layer.is_full() {
            child.kill()?;
            tell(&format!("in-a-layer: it wrote more than {} bytes", layer.max_bytes()));
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    if list {
        tell(&format!("{}: made in {:.1} ms", layers.way(), 1e3 * seconds));
        for it in layer.written()? {
            tell(&format!("{} {} {}", it.kind.word(), it.bytes, it.path.display()));
        }
        for (place, why) in layer.refused() {
            tell(&format!("read-only: {}: {why}", place.display()));
        }
    }
    for it in layer.keep_downloads() {
        tell(&format!("kept {} {}", it.bytes, it.path.display()));
    }
    if let Some(folder) = keep {
        layer.keep(&folder)?;
    }
    Ok(u8::try_from(status.code().unwrap_or(1)).unwrap_or(1))
}
