//! A file that the user asked for (`--json`, `--record`): opened before the run, so that a path that
//! cannot be written costs nobody a run, and written after it.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use crate::{cache::reason, exit};

/// Where it goes.
#[derive(Debug)]
pub(crate) struct Sink {
    path: PathBuf,
    /// None for standard output.
    file: Option<fs::File>,
    /// The file was not there before us: if nothing is written, it goes again.
    is_new: bool,
    is_written: bool,
}

impl Sink {
    /// Opens `path` for writing without changing what is there; `-` is standard output.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Sink> {
        let is_new = !path.exists();
        let file = if path == Path::new("-") {
            None
        } else {
            let file = fs::OpenOptions::new().write(true).create(true).truncate(false).open(path);
            Some(file.map_err(|error| {
                let shown = path.display();
                anyhow::anyhow!("cannot write {shown}: {}; nothing was run", reason(&error))
            })?)
        };
        Ok(Sink { path: path.to_owned(), file, is_new, is_written: false })
    }

    pub(crate) fn is_stdout(&self) -> bool {
        self.file.is_none()
    }

    /// Writes everything, in place of what was there. A reader of our standard output that goes away is
    /// no error.
    pub(crate) fn write(mut self, bytes: &[u8], stdout: &mut dyn Write) -> anyhow::Result<()> {
        let result = match &mut self.file {
            None => match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
                Err(error) if exit::is_broken_pipe(&error) => Ok(()),
                other => other,
            },
            Some(file) => replace(file, bytes),
        };
        self.is_written = result.is_ok();
        result.map_err(|error| anyhow::anyhow!("{}", reason(&error))).with_context(|| {
            format!(
                "cannot write {}",
                if self.is_stdout() {
                    "standard output".into()
                } else {
                    self.path.display().to_string()
                }
            )
        })
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        if self.is_new && !self.is_written && self.file.is_some() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn replace(file: &mut fs::File, bytes: &[u8]) -> io::Result<()> {
    // A terminal, a pipe and /dev/null have no length to set.
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    file.write_all(bytes)?;
    file.flush()
}
