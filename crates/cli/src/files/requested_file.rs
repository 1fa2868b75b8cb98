//! A file that the user asked for (`--json`, `--record`): opened before the run, so that a path that
//! cannot be written costs nobody a run, and written after it.

use std::{
    fs,
    io::{self, Seek as _, Write as _},
    path::{Path, PathBuf},
};

use crate::{
    files::reason::reason,
    output::{self, Output},
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
            let refused = |error: io::Error| {
                let shown = path.display();
                anyhow::anyhow!("cannot write {shown}: {}; nothing was run", reason(&error))
            };
            match fs::File::create_new(path) {
                // What we made ourselves a moment ago, and nothing that was there: a link that leads to no file was.
                Ok(_) => {
                    fs::remove_file(path).map_err(refused)?;
                    Target::New
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    let mut how = fs::OpenOptions::new();
                    let how = how.write(true).create(true).truncate(false);
                    Target::Open(how.open(path).map_err(refused)?)
                }
                Err(error) => return Err(refused(error)),
            }
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

    /// Writes a JSON document of which a later one takes the place; nothing where both would stay, as in a pipe.
    pub(crate) fn json_so_far(&mut self, document: &str) -> anyhow::Result<()> {
        let is_file = match &self.target {
            Target::Stdout => false,
            Target::Open(file) => file.metadata().is_ok_and(|it| it.is_file()),
            Target::New => true,
        };
        if is_file { self.file(output::json(document).as_bytes()) } else { Ok(()) }
    }

    /// Writes everything, in place of what was there.
    pub(crate) fn bytes(mut self, bytes: &[u8], out: &mut Output) -> anyhow::Result<()> {
        if self.is_stdout() { out.bytes(bytes) } else { self.file(bytes) }
    }

    fn file(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let result = match &mut self.target {
            Target::Stdout => Ok(()),
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
        file.rewind()?;
    }
    file.write_all(bytes)?;
    file.flush()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::output::Color;

    #[test]
    fn what_was_there_before_stays_until_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("report.json"), "yesterday").unwrap();
        symlink(at("on-another-disk.json"), at("link.json")).unwrap();
        for name in ["new.json", "report.json", "link.json"] {
            drop(RequestedFile::open(&at(name)).unwrap());
        }
        assert!(!at("new.json").exists());
        assert_eq!(fs::read_to_string(at("report.json")).unwrap(), "yesterday");
        assert!(at("link.json").is_symlink());
        let file = RequestedFile::open(&at("link.json")).unwrap();
        let mut out = Output::open(Color::Never);
        file.bytes(b"today", &mut out).unwrap();
        assert!(at("link.json").is_symlink());
        assert_eq!(fs::read_to_string(at("on-another-disk.json")).unwrap(), "today");
        fs::remove_file(at("new.json")).unwrap_err();
        RequestedFile::open(&at("new.json")).unwrap().bytes(b"new", &mut out).unwrap();
        assert_eq!(fs::read_to_string(at("new.json")).unwrap(), "new");
    }
}
