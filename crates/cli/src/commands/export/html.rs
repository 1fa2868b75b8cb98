//! `--to html`: the page of `plimsoll view` in one file, which opens without a server.

use std::slice;

use plimsoll_core::scene::Scenes;

use super::target::{Content, Made, Target};
use crate::{
    files::recordings::{self, Process},
    options::cli::ExportArgs,
    server::{
        answers::{Companions, Gallery},
        assets,
    },
};

pub(super) const TARGET: Target = Target { word: "html", ending: ".html", is_folder: false, make };

fn make(process: &Process, args: &ExportArgs) -> anyhow::Result<Made> {
    let scenes = Scenes::of_device(&process.name, &process.recording, args.device)?;
    let told = vec![Companions {
        messages: recordings::messages(&process.recording),
        notes: process.warnings.clone(),
        is_damaged: process.is_damaged,
    }];
    let gallery = Gallery::new(slice::from_ref(&scenes), told);
    let page = assets::one_file(&gallery);
    Ok(Made { content: Content::File(page.into_bytes()), notes: Vec::new() })
}
