//! A file or a folder that is there whole or not at all: written under another name beside its place, and
//! renamed when it is complete. Ctrl-C in between leaves nothing.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;

use crate::{
    files::{bounded_file, reason::reason},
    signals::Signals,
};

/// A place to write to.
#[derive(Debug)]
pub(crate) struct AtomicOutput {
    target: PathBuf,
    replaces: bool,
    /// Until everything is written, Ctrl-C waits.
    signals: Signals,
}

impl AtomicOutput {
    /// Refuses what can be known to fail before anything is made.
    pub(crate) fn check(target: &Path) -> anyhow::Result<()> {
        let parent = parent(target);
        anyhow::ensure!(
            parent.is_dir(),
            "cannot write {}: there is no folder {}",
            target.display(),
            parent.display()
        );
        Ok(())
    }

    /// Unless it `replaces` what is at `target`, only what is equal to it will be written there, which changes nothing.
    pub(crate) fn open(target: &Path, replaces: bool) -> anyhow::Result<AtomicOutput> {
        AtomicOutput::check(target)?;
        let signals = Signals::hold().context("cannot hold signals")?;
        Ok(AtomicOutput { target: target.to_owned(), replaces, signals })
    }

    /// An error when somebody wants us to stop.
    pub(crate) fn go_on(&self) -> anyhow::Result<()> {
        let arrived = self.signals.next(Duration::ZERO).context("cannot read signals")?;
        anyhow::ensure!(arrived.is_none(), "interrupted; nothing was written");
        Ok(())
    }

    /// Writes a file.
    pub(crate) fn file(self, bytes: &[u8]) -> anyhow::Result<()> {
        let error = |error: &std::io::Error| self.error(error);
        // A pipe or a terminal is no file that could be renamed onto.
        if self.target.metadata().is_ok_and(|it| !it.is_file() && !it.is_dir()) {
            return fs::write(&self.target, bytes).map_err(|it| error(&it));
        }
        anyhow::ensure!(!self.target.is_dir(), "{} is a folder", self.target.display());
        if !self.replaces && self.target.symlink_metadata().is_ok() {
            return self.must_be_equal(
                bounded_file::bytes(&self.target, bytes.len() as u64).is_ok_and(|it| it == bytes),
            );
        }
        let mut file = tempfile::Builder::new()
            .prefix(".plimsoll-")
            .permissions(fs::Permissions::from_mode(0o666))
            .tempfile_in(parent(&self.target))
            .map_err(|it| error(&it))?;
        for part in bytes.chunks(16 << 20) {
            self.go_on()?;
            file.write_all(part).map_err(|it| error(&it))?;
        }
        let renamed = match self.replaces {
            true => file.persist(&self.target),
            false => file.persist_noclobber(&self.target),
        };
        renamed.map_err(|it| error(&it.error))?;
        Ok(())
    }

    /// Writes a folder of files with `fill`. Replaces only a folder that has nothing but files whose names
    /// end in `ending`.
    pub(crate) fn folder(
        self,
        ending: &str,
        fill: impl FnOnce(&AtomicOutput, &Path) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let shown = self.target.display();
        if self.replaces && self.target.symlink_metadata().is_ok() {
            let entries = fs::read_dir(&self.target).map_err(|it| self.error(&it))?;
            for entry in entries.filter_map(Result::ok) {
                let name = entry.file_name();
                let is_file = entry.file_type().is_ok_and(|it| it.is_file());
                anyhow::ensure!(
                    is_file && name.to_string_lossy().ends_with(ending),
                    "{shown} has other files ({}), so plimsoll does not replace it; choose another folder with -o",
                    name.display()
                );
            }
        }
        let make = |prefix: &str| {
            tempfile::Builder::new()
                .prefix(prefix)
                .permissions(fs::Permissions::from_mode(0o777))
                .tempdir_in(parent(&self.target))
                .map_err(|it| self.error(&it))
        };
        let folder = make(".plimsoll-")?;
        fill(&self, folder.path())?;
        self.go_on()?;
        if !self.replaces && self.target.symlink_metadata().is_ok() {
            return self.must_be_equal(are_equal(folder.path(), &self.target).unwrap_or(false));
        }
        // Removed with what was there before, when this returns.
        let old = make(".plimsoll-old-")?;
        if self.target.symlink_metadata().is_ok() {
            fs::rename(&self.target, old.path()).map_err(|it| self.error(&it))?;
        }
        let made = folder.keep();
        fs::rename(&made, &self.target).map_err(|error| {
            let _ = fs::remove_dir_all(&made);
            let _ = fs::rename(old.path(), &self.target);
            self.error(&error)
        })
    }

    fn must_be_equal(&self, is_equal: bool) -> anyhow::Result<()> {
        let shown = self.target.display();
        anyhow::ensure!(
            is_equal,
            "{shown} exists with other contents; replace it with --force, or choose another name"
        );
        Ok(())
    }

    fn error(&self, error: &std::io::Error) -> anyhow::Error {
        anyhow::anyhow!("cannot write {}: {}", self.target.display(), reason(error))
    }
}

/// Whether two folders have the same files.
fn are_equal(a: &Path, b: &Path) -> std::io::Result<bool> {
    let n_files = fs::read_dir(b)?.count();
    let mut n_equal = 0;
    for entry in fs::read_dir(a)? {
        let entry = entry?;
        let read = |path: &Path| bounded_file::bytes(path, bounded_file::RECORDING);
        if read(&entry.path())? != read(&b.join(entry.file_name()))? {
            return Ok(false);
        }
        n_equal += 1;
    }
    Ok(n_equal == n_files)
}

fn parent(target: &Path) -> &Path {
    match target.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_leaves_nothing_and_what_is_there_stays() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("out.svg");
        AtomicOutput::open(&target, false).unwrap().file(b"one").unwrap();
        let again = |text: &[u8]| AtomicOutput::open(&target, false).unwrap().file(text);
        let written = fs::metadata(&target).unwrap().modified().unwrap();
        again(b"one").unwrap();
        assert_eq!(fs::metadata(&target).unwrap().modified().unwrap(), written);
        let refused = again(b"two").unwrap_err().to_string();
        assert!(refused.contains("with other contents; replace it with --force"), "{refused}");
        assert_eq!(fs::read(&target).unwrap(), b"one");
        AtomicOutput::open(&target, true).unwrap().file(b"two").unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"two");

        let target = folder.path().join("tables");
        let failing =
            AtomicOutput::open(&target, false).unwrap().folder(".parquet", |_, folder| {
                fs::write(folder.join("a.parquet"), "half")?;
                anyhow::bail!("the disk is full")
            });
        assert_eq!(failing.unwrap_err().to_string(), "the disk is full");
        let fill = |text: &'static str| {
            AtomicOutput::open(&folder.path().join("out"), false)
                .unwrap()
                .folder(".parquet", move |_, folder| Ok(fs::write(folder.join("a.parquet"), text)?))
        };
        fill("one").unwrap();
        fill("one").unwrap();
        assert!(fill("two").unwrap_err().to_string().contains("out exists with other contents"));
        fs::remove_dir_all(folder.path().join("out")).unwrap();
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn an_interrupt_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let whole = AtomicOutput::open(&folder.path().join("tables"), false).unwrap();
        let interrupted = whole.folder(".parquet", |whole, folder| {
            fs::write(folder.join("a.parquet"), "half")?;
            // To this thread, which holds it back.
            nix::sys::signal::raise(nix::sys::signal::Signal::SIGINT)?;
            whole.go_on()
        });
        assert!(interrupted.unwrap_err().to_string().contains("interrupted"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_of_other_files_is_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("tables");
        let fill = |_: &AtomicOutput, folder: &Path| Ok(fs::write(folder.join("a.parquet"), "x")?);
        AtomicOutput::open(&target, false).unwrap().folder(".parquet", fill).unwrap();
        AtomicOutput::open(&target, true).unwrap().folder(".parquet", fill).unwrap();
        fs::write(target.join("thesis.tex"), "").unwrap();
        let refused =
            AtomicOutput::open(&target, true).unwrap().folder(".parquet", fill).unwrap_err();
        assert!(refused.to_string().contains("thesis.tex"), "{refused}");
        assert!(target.join("thesis.tex").exists());
        // Nor one of folders, whatever they are called.
        fs::remove_file(target.join("thesis.tex")).unwrap();
        fs::create_dir(target.join("years.parquet")).unwrap();
        let refused =
            AtomicOutput::open(&target, true).unwrap().folder(".parquet", fill).unwrap_err();
        assert!(refused.to_string().contains("years.parquet"), "{refused}");
        assert!(target.join("years.parquet").exists());
    }
}
