//! A file that the user asked for (`--json`, `--record`): opened before the run, so that a path that
//! cannot be written costs nobody a run, and written after it.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use crate::{
    output::{self, Output},
    reason::reason,
};

/// Where it goes.
#[derive(Debug)]
pub(crate) struct RequestedFile {
    path: PathBuf,
    target: Target,
}

#[derive(Debug)]
enum Target {
    Stdout,
    /// It was there before.
    Open(fs::File),
    /// It was not, and could be made. It is made when there is something to write, so that whatever
    /// ends us before leaves nothing.
    New,
}

impl RequestedFile {
    /// Makes sure that `path` can be written, without changing what is there; `-` is standard output.
    pub(crate) fn open(path: &Path) -> anyhow::Result<RequestedFile> {
        let target = if path == Path::new("-") {
            Target::Stdout
        } else {
            let is_new = !path.exists();
            let file = fs::OpenOptions::new().write(true).create(true).truncate(false).open(path);
            let file = file.map_err(|error| {
                let shown = path.display();
                anyhow::anyhow!("cannot write {shown}: {}; nothing was run", reason(&error))
            })?;
            if is_new && fs::remove_file(path).is_ok() { Target::New } else { Target::Open(file) }
        };
        Ok(RequestedFile { path: path.to_owned(), target })
    }

    pub(crate) fn is_stdout(&self) -> bool {
        matches!(self.target, Target::Stdout)
    }

    /// Writes JSON, in place of what was there.
    pub(crate) fn json(self, document: &str, out: &mut Output) -> anyhow::Result<()> {
        self.bytes(output::json(document).as_bytes(), out)
    }

    /// Writes everything, in place of what was there.
    pub(crate) fn bytes(mut self, bytes: &[u8], out: &mut Output) -> anyhow::Result<()> {
        let result = match &mut self.target {
            Target::Stdout => return out.bytes(bytes),
            Target::Open(file) => replace(file, bytes),
            Target::New => fs::write(&self.path, bytes).inspect_err(|_| {
                // Half a report is none.
                let _ = fs::remove_file(&self.path);
            }),
        };
        result.map_err(|error| {
            anyhow::anyhow!("cannot write {}: {}", self.path.display(), reason(&error))
        })
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
