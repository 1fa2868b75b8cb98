//! Which files are read, and what was found in each.

use std::{
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use anyhow::bail;
use plimsoll_lint::{Diagnosis, Selection};

use crate::reason::reason;

/// Folders whose files are somebody else's.
const NOT_OURS: [&str; 9] = [
    "__pycache__",
    "node_modules",
    "site-packages",
    "build",
    "dist",
    "venv",
    "env",
    "target",
    "wandb",
];

/// One file.
#[derive(Debug)]
pub(super) struct Linted {
    /// None of standard input.
    pub(super) path: Option<PathBuf>,
    /// As it was named.
    pub(super) shown: String,
    pub(super) text: String,
    pub(super) found: Vec<Diagnosis>,
    /// Why it could not be read: `path:line:column: ...`.
    pub(super) error: Option<String>,
}

/// Reads all of them, in order.
pub(super) fn read(paths: &[PathBuf], selection: &Selection) -> anyhow::Result<Vec<Linted>> {
    let mut files = Vec::new();
    for path in paths {
        if path == Path::new("-") {
            let mut text = String::new();
            io::stdin().read_to_string(&mut text)?;
            files.push(linted(None, "-".to_owned(), text, selection));
            continue;
        }
        if !path.exists() {
            bail!("there is no file {}", path.display());
        }
        let mut found = Vec::new();
        if path.is_dir() {
            walk(path, &mut found);
            if found.is_empty() {
                bail!("there is no Python file in {}", path.display());
            }
        } else {
            found.push(path.clone());
        }
        for path in found {
            let shown = path.display().to_string();
            match fs::read(&path) {
                Ok(bytes) => {
                    let text = String::from_utf8_lossy(&bytes);
                    let text = text.strip_prefix('\u{feff}').unwrap_or(&text).to_owned();
                    files.push(linted(Some(path), shown, text, selection));
                }
                Err(error) => files.push(Linted {
                    path: Some(path),
                    error: Some(format!("{shown}: cannot be read: {}", reason(&error))),
                    shown,
                    text: String::new(),
                    found: Vec::new(),
                }),
            }
        }
    }
    Ok(files)
}

fn linted(path: Option<PathBuf>, shown: String, text: String, selection: &Selection) -> Linted {
    let is_notebook =
        path.as_ref().is_some_and(|it| it.extension().is_some_and(|it| it == "ipynb"));
    let result = if is_notebook {
        plimsoll_lint::lint_notebook(&text, selection)
    } else {
        plimsoll_lint::lint(&text, selection)
    };
    let (found, error) = match result {
        Ok(found) => (found, None),
        Err(error) => {
            let place = format!("{shown}:{}:{}", error.at.line, error.at.column);
            (Vec::new(), Some(format!("{place}: this is not Python: {}", error.message)))
        }
    };
    Linted { path, shown, text, found, error }
}

fn walk(folder: &Path, acc: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|it| it.path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_link = path.symlink_metadata().is_ok_and(|it| it.is_symlink());
        if path.is_dir() {
            if !name.starts_with('.')
                && !NOT_OURS.contains(&name.as_str())
                && !is_link
                && !path.join("pyvenv.cfg").exists()
            {
                walk(&path, acc);
            }
        } else if path.extension().is_some_and(|it| it == "py" || it == "ipynb") {
            acc.push(path);
        }
    }
}
