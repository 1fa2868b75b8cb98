//! One file for each subcommand, each with one `run`.

pub(crate) mod agent;
pub(crate) mod calibrate;
pub(crate) mod cards;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod fit;
pub(crate) mod fix;
pub(crate) mod glossary;
pub(crate) mod man;
pub(crate) mod predict;
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod verify;
pub(crate) mod view;

use std::io::Write;

use anyhow::Context as _;

use crate::exit;

/// Writes to standard output. A reader that goes away, as `head` does, is no error.
fn write(out: &mut dyn Write, text: &str) -> anyhow::Result<()> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if !exit::is_broken_pipe(&error) => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}
