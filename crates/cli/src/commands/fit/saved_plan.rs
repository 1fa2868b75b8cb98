//! The files of a plan, `plan.toml` and `plan.diff` beside it: never written over what is somebody else's. The plan has a line
//! that tells what both held when they were written, and for which script; who changes one of them makes it theirs.

use std::{
    fs, io,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::bail;

use crate::{cache::reason, engine::launch::ScriptCommand, files::bounded_file};

/// How the line begins.
const LINE: &str = "# Written for ";

/// Where a plan goes.
#[derive(Debug)]
pub(super) struct SavedPlan {
    plan: PathBuf,
    diff: PathBuf,
    /// What the plan is for: its name, and what tells it from others.
    name: String,
    script: String,
}

impl SavedPlan {
    /// Refuses files that are there and not this script's own, or changed since; with `force` it takes their place.
    pub(super) fn check(
        plan: &Path,
        command: &ScriptCommand,
        force: bool,
    ) -> anyhow::Result<SavedPlan> {
        let word = command.script_arguments().0.unwrap_or(&command.program);
        let script = std::path::absolute(word).unwrap_or_else(|_| word.to_owned());
        let res = SavedPlan {
            plan: plan.to_owned(),
            diff: plan.with_extension("diff"),
            name: command.name(),
            script: script.display().to_string(),
        };
        if !force {
            res.check_what_is_there()?;
        }
        Ok(res)
    }

    /// Beside the plan.
    pub(super) fn diff(&self) -> &Path {
        &self.diff
    }

    fn check_what_is_there(&self) -> anyhow::Result<()> {
        for path in [&self.plan, &self.diff] {
            // In a stranger's folder it may lead to where a file of theirs is executed.
            if fs::symlink_metadata(path).is_ok_and(|it| it.is_symlink()) {
                bail!(
                    "{} is a link, and nothing is written to where it leads; --force puts a file in its place, --plan FILE writes elsewhere",
                    path.display()
                );
            }
        }
        let plan = read(&self.plan)?;
        let (line, rest) = plan.as_deref().map(taken_apart).unwrap_or_default();
        let (of_plan, of_diff) = line.as_deref().map(told).unwrap_or_default();
        for (path, text, told) in [
            (&self.plan, plan.as_ref().map(|_| rest), of_plan),
            (&self.diff, read(&self.diff)?, of_diff),
        ] {
            let Some(text) = text else { continue };
            let shown = path.display();
            match told {
                None => bail!(
                    "{shown} is there already, and is not what `plimsoll fit` wrote; --force replaces it, --plan FILE writes elsewhere"
                ),
                Some(told) if told != self.mark(&text) => bail!(
                    "{shown} was changed since `plimsoll fit` wrote it, or belongs to another script than {}; --force \
                     replaces it, --plan FILE writes elsewhere",
                    self.name,
                ),
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Writes both; without a diff one that is left from another plan goes, which would be taken for this one's.
    pub(super) fn write(&self, plan: &str, diff: &str) -> anyhow::Result<()> {
        let line = format!(
            "{LINE}{} ({}, {}): `plimsoll fit` replaces this file and {} while nobody has changed them.\n",
            self.name,
            self.mark(plan),
            self.mark(diff),
            self.diff.file_name().unwrap_or_default().display(),
        );
        write(&self.plan, &(plan.to_owned() + &line))?;
        if !diff.is_empty() {
            write(&self.diff, diff)?;
        } else if fs::symlink_metadata(&self.diff).is_ok() {
            fs::remove_file(&self.diff).map_err(|it| error(&self.diff, &it))?;
        }
        Ok(())
    }

    /// Of a text that is this script's.
    fn mark(&self, text: &str) -> String {
        // FNV-1a: it has to tell an edit, not a forgery.
        let bytes = self.script.bytes().chain([0]).chain(text.bytes());
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, it| {
            (hash ^ u64::from(it)).wrapping_mul(0x0100_0000_01b3)
        });
        format!("{hash:016x}")
    }
}

/// Our line of a plan, if it has one, and the rest.
fn taken_apart(plan: &str) -> (Option<String>, String) {
    let is_ours = |it: &&str| it.starts_with(LINE);
    let line = plan.lines().find(is_ours).map(str::to_owned);
    (line, plan.split_inclusive('\n').filter(|it| !is_ours(it)).collect())
}

/// The marks of the plan and of the diff, as our line tells them.
fn told(line: &str) -> (Option<String>, Option<String>) {
    let marks = line.rsplit_once(')').and_then(|it| it.0.rsplit_once('('));
    let marks = marks.and_then(|it| it.1.split_once(", "));
    marks.map_or((None, None), |(plan, diff)| (Some(plan.to_owned()), Some(diff.to_owned())))
}

/// Its text; none if it is not there.
fn read(path: &Path) -> anyhow::Result<Option<String>> {
    match bounded_file::bytes(path, bounded_file::SOURCE) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(it) if it.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(it) => Err(anyhow::anyhow!("cannot read {}: {}", path.display(), reason(&it))),
    }
}

/// Puts a file there. What is a device or a pipe is written to; a link to a file is replaced, and where it leads nothing changes.
fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let put = || -> io::Result<()> {
        if path.metadata().is_ok_and(|it| !it.is_file()) {
            return fs::write(path, text);
        }
        let folder = path.parent().filter(|it| *it != Path::new("")).unwrap_or(Path::new("."));
        let mut file = tempfile::Builder::new()
            .prefix(".plimsoll-")
            .permissions(fs::Permissions::from_mode(0o666))
            .tempfile_in(folder)?;
        file.write_all(text.as_bytes())?;
        file.persist(path)?;
        Ok(())
    };
    put().map_err(|it| error(path, &it))
}

fn error(path: &Path, error: &io::Error) -> anyhow::Error {
    anyhow::anyhow!("cannot write {}: {}", path.display(), reason(error))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn nothing_is_written_to_where_a_link_leads() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let program = "/usr/bin/python3".into();
        let arguments = vec!["train.py".into()];
        let command = ScriptCommand { program, arguments, environment: Vec::new() };
        fs::write(path("profile"), "mine").unwrap();
        for (name, target) in [
            ("plan.toml", "profile"),
            ("plan.diff", "profile"),
            ("plan.toml", "new"),
            ("plan.diff", "new"),
        ] {
            symlink(path(target), path(name)).unwrap();
            let check = |force: bool| SavedPlan::check(&path("plan.toml"), &command, force);
            let refused = check(false).map(drop).unwrap_err().to_string();
            assert!(refused.contains(&format!("{name} is a link")), "{refused}");
            check(true).unwrap().write("version = 1\n", "--- a\n").unwrap();
            assert_eq!(fs::read_to_string(path("profile")).unwrap(), "mine");
            assert!(!path("new").exists());
            for name in ["plan.toml", "plan.diff"] {
                assert!(fs::symlink_metadata(path(name)).unwrap().is_file());
                fs::remove_file(path(name)).unwrap();
            }
        }
    }

    #[test]
    fn only_what_it_wrote_itself_for_the_same_script_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let check = |script: &str, force: bool| {
            let arguments = vec![script.into(), "--batch".into(), "8".into()];
            let (program, environment) = ("/usr/bin/python3".into(), Vec::new());
            let command = ScriptCommand { program, arguments, environment };
            SavedPlan::check(&path("plan.toml"), &command, force)
        };
        let refused = |script: &str| check(script, false).map(drop).unwrap_err().to_string();
        check("train.py", false).unwrap().write("version = 1\n", "--- a\n").unwrap();
        // With another plan for it, as often as one likes; and then without a change of the script.
        check("train.py", false).unwrap().write("version = 1\n# other\n", "--- b\n").unwrap();
        assert!(refused("other.py").contains("another script than other.py"));
        fs::write(path("plan.diff"), "--- b\n+++ by hand\n").unwrap();
        assert!(refused("train.py").contains("plan.diff was changed"));
        check("train.py", true).unwrap().write("version = 1\n", "").unwrap();
        assert!(!path("plan.diff").exists());
        check("train.py", false).unwrap();
        let by_hand = fs::read_to_string(path("plan.toml")).unwrap() + "# mine\n";
        fs::write(path("plan.toml"), by_hand).unwrap();
        assert!(refused("train.py").contains("plan.toml was changed"));
        fs::write(path("plan.toml"), "version = 1\n").unwrap();
        assert!(refused("train.py").contains("is not what `plimsoll fit` wrote"));
        fs::remove_file(path("plan.toml")).unwrap();
        fs::write(path("plan.diff"), "--- mine\n").unwrap();
        assert!(refused("train.py").contains("plan.diff is there already"));
    }
}
