//! `--to flamegraph`: who holds the bytes at a moment, as an SVG.

use plimsoll_core::views::flamegraph;

use super::target::{Content, Made, Target};
use crate::{files::recordings::Process, options::cli::ExportArgs};

pub(super) const TARGET: Target =
    Target { word: "flamegraph", ending: ".flamegraph.svg", is_folder: false, make };

fn make(process: &Process, args: &ExportArgs) -> anyhow::Result<Made> {
    let made = flamegraph::flamegraph(&process.recording, args.device, args.at, &process.name)?;
    Ok(Made { content: Content::File(made.svg.into_bytes()), notes: made.notes })
}
