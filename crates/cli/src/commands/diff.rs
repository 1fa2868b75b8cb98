//! `plimsoll diff`: what differs between two recordings at their peaks, by line.

use std::{io::Write, path::Path};

use anyhow::Context as _;
use plimsoll_core::{
    explanation,
    recording::Recording,
    sources::{self, ProcessFiles, snapshot},
    views::{explain_text, explain_wire},
};

use crate::{
    cli::DiffArgs,
    commands::explain::file_name,
    exit::Exit,
    open::{self, Opened},
    sink::Sink,
};

pub(crate) fn run(args: &DiffArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let json = args.json.as_deref().map(Sink::open).transpose()?;
    let (before, after) = (read(&args.before)?, read(&args.after)?);
    let differences = explanation::difference(&before, &after);
    let is_quiet = json.as_ref().is_some_and(Sink::is_stdout);
    if let Some(sink) = json {
        sink.write(explain_wire::differences(&differences).as_bytes(), out)?;
    }
    let names = (file_name(&args.before), file_name(&args.after));
    if !is_quiet {
        let text = match differences.is_empty() {
            true => format!("{} and {} have the same at their peaks, by line\n", names.0, names.1),
            false => explain_text::differences(&differences, (&names.0, &names.1), 80).to_string(),
        };
        super::write(out, &text)?;
    }
    Ok(if differences.is_empty() { Exit::DoesNotFit } else { Exit::Fits })
}

/// The recording in `path`; of several processes, the one with the most events.
fn read(path: &Path) -> anyhow::Result<Recording> {
    let shown = path.display();
    match open::read(path)? {
        Opened::File(stream) => {
            let (trace, _) = snapshot::read_from(stream.reader())
                .with_context(|| format!("cannot compare {shown}"))?;
            Ok(Recording { trace: Some(trace), ..Recording::default() })
        }
        Opened::Recording(processes) => {
            let readings = processes.iter().map(|it| {
                let files = ProcessFiles {
                    pid: it.pid,
                    notes: &it.notes,
                    snapshot: it.snapshot.as_deref(),
                    phantom_log: it.phantom_log.as_deref(),
                };
                sources::read_process(files).recording
            });
            let events = |it: &Recording| -> usize {
                it.trace.iter().flat_map(|it| &it.devices).map(|it| it.events.len()).sum()
            };
            readings
                .max_by_key(events)
                .filter(|it| it.trace.is_some())
                .with_context(|| format!("{shown}: no process of this recording used a GPU"))
        }
    }
}
