//! A place for a test to run programs in, under each way and as each kind of user: a small tree of files, and what it looks like.

use std::{
    fs,
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _, symlink},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// How the kinds of users on a machine are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum As {
    Root,
    User,
    /// Where namespaces are refused, as in a container.
    RootInContainer,
    UserInContainer,
}

/// Not a way: the program as it is.
pub(crate) const PLAIN: &str = "plain";

const NOBODY: u32 = 65534;

pub(crate) struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    /// `tree`, `out` and a cache, which belong to `user`.
    pub(crate) fn new(user: As) -> Place {
        let folder = tempfile::Builder::new().prefix("writes-").tempdir().unwrap();
        let it = Place { folder };
        let tree = it.tree();
        for dir in ["tree/d/deep", "tree/empty", "tree/shut", "out", "cache", "bin"] {
            fs::create_dir_all(it.path().join(dir)).unwrap();
        }
        for (file, text) in [
            ("a", "one\n"),
            ("b", "two\n"),
            ("d/x", "ex\n"),
            ("d/deep/y", "why\n"),
            ("shut/f", "shut\n"),
        ] {
            fs::write(tree.join(file), text).unwrap();
        }
        fs::write(tree.join("locked"), "locked\n").unwrap();
        fs::write(it.path().join("out/far"), "far\n").unwrap();
        for (target, link) in [("a", "link"), ("d", "linked"), ("../out", "out")] {
            symlink(target, tree.join(link)).unwrap();
        }
        // By another process: one that a test starts meanwhile would have ours open for writing, and it could not be run.
        let layer = it.path().join("bin/in-a-layer");
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_in-a-layer")).arg(layer).status();
        assert!(copied.unwrap().success());
        let mode = |path: &str, mode| {
            fs::set_permissions(it.path().join(path), fs::Permissions::from_mode(mode)).unwrap();
        };
        if matches!(user, As::User | As::UserInContainer) && is_root() {
            let owner = format!("{NOBODY}:{NOBODY}");
            let status = Command::new("chown").args(["-hR", &owner]).arg(it.path()).status();
            assert!(status.unwrap().success());
        }
        mode("tree/locked", 0o444);
        mode("tree/shut", 0o555);
        mode("", 0o755);
        it
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn tree(&self) -> PathBuf {
        self.path().join("tree")
    }

    /// Everything below, each with its kind, mode, times and contents; not what the ways themselves write.
    pub(crate) fn picture(&self) -> Vec<String> {
        let mut res = Vec::new();
        for it in ["tree", "out"] {
            look(&self.path().join(it), &mut res);
        }
        res
    }

    /// The command as this user runs it, with standard input closed to it; `before` is what a shell does first, such as to open
    /// files for it.
    pub(crate) fn command(&self, user: As, way: &str, before: &str, command: &[&str]) -> Command {
        let mut res = Command::new("/bin/sh");
        res.args(["-c", &format!("{before}\nexec \"$@\""), "sh"]);
        if way != PLAIN {
            res.arg(self.path().join("bin/in-a-layer"));
            res.args(["--way", way, "--cache"]).arg(self.path().join("cache"));
            if matches!(user, As::RootInContainer | As::UserInContainer) {
                res.arg("--no-namespaces");
            }
            res.arg("--");
        }
        res.args(command);
        res.current_dir(self.tree())
            .env("OUT", self.path().join("out"))
            .env("HOME", self.path())
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::null());
        if matches!(user, As::User | As::UserInContainer) && is_root() {
            res.uid(NOBODY).gid(NOBODY);
        }
        res
    }

    pub(crate) fn run(&self, user: As, way: &str, command: &[&str]) -> (String, String) {
        printed(&mut self.command(user, way, "", command))
    }
}

/// What it prints, to its output and about its errors.
pub(crate) fn printed(command: &mut Command) -> (String, String) {
    let output = command.output().unwrap();
    let text = |it: Vec<u8>| String::from_utf8_lossy(&it).into_owned();
    (text(output.stdout), text(output.stderr))
}

pub(crate) fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

fn look(path: &Path, res: &mut Vec<String>) {
    let meta = fs::symlink_metadata(path).unwrap();
    let contents = if meta.is_file() {
        fs::read(path).unwrap_or_default()
    } else if meta.is_symlink() {
        fs::read_link(path).unwrap().into_os_string().into_encoded_bytes()
    } else {
        Vec::new()
    };
    let (mode, owner) = (meta.mode(), meta.uid());
    let times = (meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec());
    res.push(format!("{} {mode:o} {times:?} {owner} {contents:?}", path.display()));
    if meta.is_dir() {
        let mut below: Vec<_> = fs::read_dir(path).unwrap().map(|it| it.unwrap().path()).collect();
        below.sort();
        below.iter().for_each(|it| look(it, res));
    }
}

/// Whether this machine has the way at all, which is not ours to judge here.
pub(crate) fn has_way(user: As, way: &str) -> bool {
    let place = Place::new(user);
    let (out, err) = place.run(user, way, &["echo", "yes"]);
    assert!(out == "yes\n" || err.contains("cannot separate the script's writes"), "{err}");
    out == "yes\n"
}
