//! A recording as one file: a zip of what the session folder held, with a manifest that says what it is
//! (docs/recording-format.md).

use std::io::{Cursor, Write as _};

use plimsoll_core::cards::Card;
use serde_json::json;
use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

use crate::{
    cache::session::ProcessFolder,
    cli::PredictArgs,
    commands::predict,
    launch::{End, Ended},
    sink::Sink,
};

/// The version of the layout of the zip file; the notes in it have their own.
const FORMAT: u32 = 1;

pub(crate) fn write(
    card: &Card,
    args: &PredictArgs,
    ended: &Ended,
    folders: &[ProcessFolder],
    sink: Sink,
) -> anyhow::Result<()> {
    let command: Vec<_> = args.command.iter().map(|it| it.to_string_lossy()).collect();
    let (exit_code, signal) = match ended.end {
        End::Code(code) => (Some(code), None),
        End::Signal(number) => (None, Some(number)),
    };
    let manifest = json!({
        "format": FORMAT,
        "plimsoll": env!("CARGO_PKG_VERSION"),
        "mode": "predict",
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
    add("manifest.json".to_owned(), serde_json::to_string_pretty(&manifest)?.as_bytes())?;
    add("phantom.conf".to_owned(), predict::phantom_conf(args, card).as_bytes())?;
    for ProcessFolder { pid, notes, snapshot, phantom_log } in folders {
        let files = [
            ("agent.jsonl", Some(notes.as_slice()).filter(|it| !it.is_empty())),
            ("snapshot.pickle", snapshot.as_deref()),
            ("phantom.jsonl", phantom_log.as_deref()),
        ];
        for (name, bytes) in files {
            if let Some(bytes) = bytes {
                add(format!("process-{pid}/{name}"), bytes)?;
            }
        }
    }
    let bytes = zip.finish()?.into_inner();
    sink.write(&bytes, &mut std::io::stdout())
}
