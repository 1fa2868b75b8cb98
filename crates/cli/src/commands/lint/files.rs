//! Which files are read, and what was found in each.

use std::{
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use anyhow::bail;
use plimsoll_lint::{Diagnosis, Selection};

use crate::files::{bounded_file, reason::reason};

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
    /// Only of one that is to be run without its mistakes: a tree has more files than fit into memory.
    pub(super) text: String,
    pub(super) n_lines: usize,
    pub(super) found: Vec<Diagnosis>,
    /// Why it could not be read: `path:line:column: ...`.
    pub(super) error: Option<String>,
}

impl Linted {
    fn unread(path: PathBuf, error: &io::Error) -> Linted {
        let shown = path.display().to_string();
        Linted {
            path: Some(path),
            error: Some(format!("{shown}: cannot be read: {}", reason(error))),
            shown,
            text: String::new(),
            n_lines: 0,
            found: Vec::new(),
        }
    }
}

/// Reads all of them, in order. What one has that cannot be read keeps nobody from reading the others.
pub(super) fn read(
    paths: &[PathBuf],
    selection: &Selection,
    keeps_texts: bool,
) -> anyhow::Result<Vec<Linted>> {
    let mut files = Vec::new();
    let mut add = |path: Option<PathBuf>, bytes: io::Result<Vec<u8>>| {
        files.push(match (path, bytes) {
            (Some(path), Err(error)) => Linted::unread(path, &error),
            (None, Err(error)) => Linted::unread("-".into(), &error),
            (path, Ok(bytes)) => {
                let mut res = linted(path, &String::from_utf8_lossy(&bytes), selection);
                if !keeps_texts || res.found.is_empty() {
                    res.text = String::new();
                }
                res
            }
        });
    };
    for path in paths {
        if path == Path::new("-") {
            let mut text = Vec::new();
            let read = io::stdin().take(bounded_file::SOURCE + 1).read_to_end(&mut text);
            add(None, read.map(|_| text));
        } else if path.is_dir() {
            let found = walk(path);
            if found.is_empty() {
                bail!("there is no Python file in {}", path.display());
            }
            for found in found {
                match found {
                    Ok(path) => {
                        let bytes = bounded_file::bytes(&path, most(&path));
                        add(Some(path), bytes);
                    }
                    Err((path, error)) => add(Some(path), Err(error)),
                }
            }
        } else if path.exists() {
            let file = bounded_file::open_or_inherited(path);
            add(Some(path.clone()), file.and_then(|it| bounded_file::all(it, most(path))));
        } else {
            bail!("there is no file {}", path.display());
        }
    }
    Ok(files)
}

/// What is read of it: a notebook has pictures beside its code.
fn most(path: &Path) -> u64 {
    if is_notebook(path) { bounded_file::REPORT } else { bounded_file::SOURCE }
}

fn is_notebook(path: &Path) -> bool {
    path.extension().is_some_and(|it| it == "ipynb")
}

fn linted(path: Option<PathBuf>, text: &str, selection: &Selection) -> Linted {
    let shown = path.as_ref().map_or_else(|| "-".to_owned(), |it| it.display().to_string());
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).to_owned();
    let result = if path.as_deref().is_some_and(is_notebook) {
        plimsoll_lint::lint_notebook(&text, selection)
    } else {
        plimsoll_lint::lint(&text, selection)
    };
    let (found, error) = match result {
        Ok(found) => (found, None),
        Err(error) => (Vec::new(), Some(format!("{shown}:{error}"))),
    };
    Linted { path, shown, n_lines: text.lines().count(), text, found, error }
}

/// The Python files below a folder, in order, and the folders that cannot be read. No link to a folder is followed, so that each is
/// come to once.
fn walk(folder: &Path) -> Vec<Result<PathBuf, (PathBuf, io::Error)>> {
    let mut res = Vec::new();
    // What is still to be looked at, the next one last.
    let mut open = vec![(folder.to_owned(), true)];
    while let Some((path, is_folder)) = open.pop() {
        if !is_folder {
            res.push(Ok(path));
            continue;
        }
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) => {
                res.push(Err((path, error)));
                continue;
            }
        };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|it| it.path()).collect();
        paths.sort();
        for path in paths.into_iter().rev() {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                if !name.starts_with('.')
                    && !NOT_OURS.contains(&name.as_str())
                    && !path.is_symlink()
                    && !path.join("pyvenv.cfg").exists()
                {
                    open.push((path, true));
                }
            } else if path.extension().is_some_and(|it| it == "py" || it == "ipynb") {
                open.push((path, false));
            }
        }
    }
    res
}
