//! A recording as one file: a zip of what the session folder held, with a manifest that says what it is
//! (docs/recording-format.md).

use std::{
    ffi::OsString,
    io::{Cursor, Write as _},
};

use plimsoll_core::recording::contract::{MANIFEST, PHANTOM_CONF, ProcessFile, process_folder};
use serde_json::json;
use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

use crate::{
    engine::launch::{End, Ended},
    files::{process_folder::ProcessFolder, requested_file::RequestedFile},
    output::Output,
};

/// The version of the layout of the zip file; the notes in it have their own.
const FORMAT: u32 = 1;

/// What was run, and on what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct What<'a> {
    /// `predict` or `run`.
    pub(crate) mode: &'a str,
    pub(crate) command: &'a [OsString],
    /// What the phantom was; none on a real GPU.
    pub(crate) phantom_conf: Option<&'a str>,
}

pub(crate) fn write(
    what: What<'_>,
    ended: &Ended,
    folders: &[ProcessFolder],
    file: RequestedFile,
    out: &mut Output,
) -> anyhow::Result<()> {
    let command: Vec<_> = what.command.iter().map(|it| it.to_string_lossy()).collect();
    let (exit_code, signal) = match ended.end {
        End::Code(code) => (Some(code), None),
        End::Signal(number) => (None, Some(number)),
    };
    let manifest = json!({
        "format": FORMAT,
        "plimsoll": env!("CARGO_PKG_VERSION"),
        "mode": what.mode,
        "command": command,
        "exit_code": exit_code,
        "signal": signal,
        "seconds": ended.seconds,
    });
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    // No time of day: the same recording is the same file.
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .large_file(true);
    let mut add = |name: String, bytes: &[u8]| -> anyhow::Result<()> {
        zip.start_file(name, options)?;
        zip.write_all(bytes)?;
        Ok(())
    };
    add(MANIFEST.to_owned(), serde_json::to_string_pretty(&manifest)?.as_bytes())?;
    if let Some(conf) = what.phantom_conf {
        add(PHANTOM_CONF.to_owned(), conf.as_bytes())?;
    }
    for ProcessFolder { pid, notes, snapshot, phantom_log } in folders {
        let files = [
            (ProcessFile::Notes, Some(notes.as_slice()).filter(|it| !it.is_empty())),
            (ProcessFile::Snapshot, snapshot.as_deref()),
            (ProcessFile::PhantomLog, phantom_log.as_deref()),
        ];
        for (file, bytes) in files {
            if let Some(bytes) = bytes {
                add(format!("{}/{file}", process_folder(*pid)), bytes)?;
            }
        }
    }
    let bytes = zip.finish()?.into_inner();
    file.bytes(&bytes, out)
}
