//! What a target of an export is, and what it makes.

use std::path::Path;

use crate::{
    files::{atomic_output::AtomicOutput, recordings::Process},
    options::cli::ExportArgs,
};

/// What a target makes of a recording, and sentences for people.
pub(super) struct Made {
    pub(super) content: Content,
    pub(super) notes: Vec<String>,
}

pub(super) enum Content {
    /// One file.
    File(Vec<u8>),
    /// A folder of files, which are written when it is known where.
    Folder(Fill),
}

pub(super) type Fill = Box<dyn FnOnce(&Process, &AtomicOutput, &Path) -> anyhow::Result<()>>;

/// A target: the ending of its file, and what it makes.
pub(super) struct Target {
    pub(super) word: &'static str,
    pub(super) ending: &'static str,
    pub(super) is_folder: bool,
    pub(super) make: fn(&Process, &ExportArgs) -> anyhow::Result<Made>,
}
