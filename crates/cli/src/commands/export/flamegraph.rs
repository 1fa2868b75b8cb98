//! `--to flamegraph`: who holds the bytes at a moment, as an SVG.

use plimsoll_core::views::flamegraph;

use super::{Made, Target};
use crate::{cli::ExportArgs, recordings::Process};

pub(super) const TARGET: Target =
    Target { word: "flamegraph", ending: ".flamegraph.svg", is_folder: false, make };

fn make(process: &Process, args: &ExportArgs) -> anyhow::Result<(Made, Vec<String>)> {
    let made = flamegraph::flamegraph(&process.recording, args.device, args.at, &process.name)?;
    Ok((Made::File(made.svg.into_bytes()), made.notes))
}
