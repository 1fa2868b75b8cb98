//! What cargo cannot do: `cargo xtask torch 2.16` looks at a release of PyTorch. The tests of this crate hold the rules
//! about the code.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a tool for a terminal")]

mod sentences;
mod torch;
#[cfg(test)]
mod words;

use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask torch 2.16 [--python PYTHON] [--scratch FOLDER]
    downloads the wheels of that release, says what is new in it for the phantom, and writes
    agent/plimsoll_agent/releases/2.16.json; PYTHON's pip downloads them (python3). About 1.5 GB, thrown away at the
    end unless a FOLDER is named for them.

cargo xtask torch
    writes the table of docs/pytorch-versions.md from the files of all releases

cargo xtask sentences
    prints every sentence that people can see, to be read
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.split_first() {
        Some((&"torch", rest)) => torch::run(rest),
        Some((&"sentences", [])) => sentences::run(),
        _ => Err(anyhow::anyhow!("expected a task:\n\n{USAGE}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}
