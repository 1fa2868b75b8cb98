//! A place for a test to run the real binary in: a cache of its own, an empty home, fake training
//! scripts in shell that leave the notes that the agent would.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// The first line of every agent.
pub(crate) const BEGIN: &str = r#"{"kind":"begin","format":1,"pid":1,"argv":["train.py"],"cwd":"/","python":"3.11.7","torch":"2.11.0+cu130","script":"/train.py","rank":null,"world_size":null}"#;

pub(crate) struct Place {
    folder: tempfile::TempDir,
}

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Place {
    pub(crate) fn new() -> Place {
        Place { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn cache(&self) -> PathBuf {
        self.path().join("cache")
    }

    /// Where in it all of plimsoll's lies.
    pub(crate) fn own(&self) -> PathBuf {
        self.cache().join("plimsoll-cache")
    }

    /// A folder, `$MARKS`, into which a script of [`Place::marking`] writes in truth.
    pub(crate) fn marks(&self) -> PathBuf {
        self.path().join("marks")
    }

    /// `plimsoll predict -- COMMAND`
    pub(crate) fn marking(&self, command: &str) -> Command {
        fs::create_dir_all(self.marks()).unwrap();
        self.plimsoll(&["predict", "--through", "marks", "--", command])
    }

    /// Where the bundle was unpacked; there is one.
    pub(crate) fn bundle(&self) -> PathBuf {
        let bundles: Vec<PathBuf> = names(&self.own())
            .into_iter()
            .filter(|it| it.starts_with("bundle-"))
            .map(|it| self.own().join(it))
            .collect();
        assert_eq!(bundles.len(), 1, "{bundles:?}");
        bundles.into_iter().next().unwrap()
    }

    /// An executable shell script.
    pub(crate) fn script(&self, name: &str, body: &str) -> PathBuf {
        let path = self.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// A script that leaves `notes` as an agent would, then goes on with `rest`.
    pub(crate) fn noting_script(&self, name: &str, notes: &[&str], rest: &str) -> PathBuf {
        let notes = notes.join("\n");
        self.script(
            name,
            &format!(
                "p=$PLIMSOLL_SESSION/process-$$\nmkdir -p $p\ncat >> $p/agent.jsonl <<'END'\n{notes}\nEND\n{rest}"
            ),
        )
    }

    /// `plimsoll` with a clean environment, and with Ctrl-C in force: what a shell starts in the background inherits that
    /// it is ignored.
    pub(crate) fn plimsoll(&self, arguments: &[&str]) -> Command {
        let mut res = Command::new("/usr/bin/env");
        res.args(["--default-signal=INT", env!("CARGO_BIN_EXE_plimsoll")])
            .args(arguments)
            .current_dir(self.path())
            .env("PLIMSOLL_CACHE", self.cache())
            .env("HOME", self.path().join("home"))
            .env("MARKS", self.marks())
            .env_remove("CUDA_VISIBLE_DEVICES")
            .env_remove("NO_COLOR")
            .env_remove("PLIMSOLL_PYTHON")
            .env_remove("XDG_CACHE_HOME");
        res
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        self.plimsoll(arguments).output().unwrap().into()
    }

    /// `plimsoll predict -- COMMAND`
    pub(crate) fn predict(&self, command: &[&str]) -> Ran {
        let arguments: Vec<&str> = ["predict", "--"].iter().chain(command).copied().collect();
        self.run(&arguments)
    }

    /// Nothing of a run is left in the cache.
    pub(crate) fn assert_no_session(&self) {
        for folder in ["sessions", "layers"] {
            let left = names(&self.own().join(folder));
            assert!(left.is_empty(), "{folder}: {left:?}");
        }
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ran {
            code: output.status.code(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        }
    }
}

impl Ran {
    /// It ended with "could not tell", and this one sentence says why.
    #[track_caller]
    pub(crate) fn assert_sentence(&self, expected: &str) {
        assert_eq!(self.code, Some(2), "{self:?}");
        let sentences: Vec<&str> =
            self.stderr.lines().filter_map(|it| it.strip_prefix("plimsoll: ")).collect();
        let [sentence] = sentences[..] else { panic!("not one sentence: {self:?}") };
        assert!(sentence.contains(expected), "{sentence}\ndoes not contain\n{expected}");
        assert!(!self.stderr.contains("panicked"), "{self:?}");
    }
}

/// The names in a folder, sorted.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut res: Vec<String> =
        entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    res.sort();
    res
}

/// Whether a process lives (and is no zombie).
pub(crate) fn is_running(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}
