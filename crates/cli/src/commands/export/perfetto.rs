//! `--to perfetto`: memory over time, as a trace for ui.perfetto.dev.

use plimsoll_core::views::perfetto;

use super::target::{Content, Made, Target};
use crate::{files::recordings::Process, options::cli::ExportArgs, output};

pub(super) const TARGET: Target =
    Target { word: "perfetto", ending: ".perfetto.json", is_folder: false, make };

fn make(process: &Process, args: &ExportArgs) -> anyhow::Result<Made> {
    let made = perfetto::perfetto(&process.recording, args.device, &process.name)?;
    Ok(Made {
        content: Content::File(output::json(&made.json).into_owned().into_bytes()),
        notes: made.notes,
    })
}
