//! A setting that somebody made, and who.

use std::{
    env,
    path::{Path, PathBuf},
};

use crate::{
    output,
    settings::{rows::Row, value::Value},
};

/// A setting that somebody made.
#[derive(Clone, Debug)]
pub(crate) struct Set {
    pub(crate) row: &'static Row,
    pub(crate) value: Value,
    pub(crate) origin: Origin,
}

/// Who made it.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    Environment(String),
    File { path: PathBuf, line: usize },
}

impl Origin {
    pub(crate) fn shown(&self) -> String {
        match self {
            Origin::Environment(variable) => variable.clone(),
            Origin::File { path, line } => format!("{}:{line}", output::shown(shown(path))),
        }
    }
}

/// A path as short as the reader can still find it.
pub(super) fn shown(path: &Path) -> &Path {
    let here = env::current_dir().ok();
    here.and_then(|it| path.strip_prefix(it).ok()).unwrap_or(path)
}
