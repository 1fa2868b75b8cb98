//! What a layer says of a run: what was written, kept, and when it is full.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Output},
};

const SCRIPT: &str = "echo longer > a; rm b; rm -r gone; mkdir new; echo n > new/n; ln -s a l2; \
                      mv d moved; touch -r same same; chmod 600 mode; : >> opened; rm l; ln -s b l; cp /dev/null d";

/// The ways that this machine has for this user.
fn ways() -> Vec<&'static str> {
    let dir = tempfile::tempdir().unwrap();
    let has = |way: &&str| run(dir.path(), way, &[], "true").status.success();
    let res: Vec<_> = ["mounts", "user", "traced"].into_iter().filter(has).collect();
    assert!(res.contains(&"traced"), "{res:?}");
    res
}

fn run(dir: &Path, way: &str, options: &[&str], script: &str) -> Output {
    let cache = dir.join("cache");
    let mut command = Command::new(env!("CARGO_BIN_EXE_in-a-layer"));
    command
        .args(["--way", way, "--cache"])
        .arg(cache)
        .args(options)
        .args(["--", "sh", "-c", script]);
    let tree = dir.join("tree");
    fs::create_dir_all(&tree).unwrap();
    command.current_dir(tree).output().unwrap()
}

fn tree_in(dir: &Path) {
    let tree = dir.join("tree");
    for it in ["d", "gone/deep"] {
        fs::create_dir_all(tree.join(it)).unwrap();
    }
    for it in ["a", "b", "d/x", "gone/y", "same", "mode", "opened"] {
        fs::write(tree.join(it), it).unwrap();
    }
    symlink("a", tree.join("l")).unwrap();
}

#[test]
#[ignore = "part of `make soak`: minutes, and the rights to make namespaces or to trace"]
fn says_what_was_written() {
    for way in ways() {
        let dir = tempfile::tempdir().unwrap();
        tree_in(dir.path());
        let output = run(dir.path(), way, &["--list"], SCRIPT);
        let text = String::from_utf8(output.stderr).unwrap();
        let tree = format!("{}/", dir.path().join("tree").display());
        let mut lines: Vec<String> =
            text.lines().filter(|it| it.contains(&tree)).map(|it| it.replace(&tree, "")).collect();
        // A folder's length is the disk's; how a rename is told is each way's own.
        let renamed = lines.extract_if(.., |it| it.contains("moved")).collect::<Vec<_>>();
        assert!(
            matches!(&*renamed[0], it if it.starts_with("renamed") || it.starts_with("created")),
            "{renamed:?}"
        );
        let gone = lines.extract_if(.., |it| it.contains("gone")).collect::<Vec<_>>();
        assert_eq!(gone, ["deleted 0 gone"], "{way}");
        lines.sort();
        let expected = [
            "changed 0 d",
            "changed 1 l",
            "changed 4 mode",
            "changed 7 a",
            "created 0 new",
            "created 1 l2",
            "created 2 new/n",
            "deleted 0 b",
        ];
        assert_eq!(lines, expected, "{way}: {text}");
    }
}

#[test]
#[ignore = "part of `make soak`: minutes, and the rights to make namespaces or to trace"]
fn keeps_what_was_written() {
    for way in ways() {
        let dir = tempfile::tempdir().unwrap();
        tree_in(dir.path());
        let kept = dir.path().join("kept");
        let output = run(dir.path(), way, &["--keep", kept.to_str().unwrap()], SCRIPT);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let tree = dir.path().join("tree");
        let of = |name: &str| kept.join(tree.strip_prefix("/").unwrap()).join(name);
        assert_eq!(fs::read_to_string(of("a")).unwrap(), "longer\n", "{way}");
        assert_eq!(fs::read_to_string(of("new/n")).unwrap(), "n\n", "{way}");
        assert_eq!(fs::read_link(of("l2")).unwrap(), Path::new("a"), "{way}");
        let deleted = fs::read_to_string(kept.join("deleted.txt")).unwrap();
        assert!(deleted.contains(&format!("{}\n", tree.join("b").display())), "{way}: {deleted}");
        assert_eq!(fs::read_to_string(tree.join("a")).unwrap(), "a");
    }
}

/// A file whose name says its contents is there again in the next run; nothing else is, nothing on the disk, and what one
/// run makes of it the next one does not see.
#[test]
#[ignore = "part of `make soak`: minutes, and the rights to make namespaces or to trace"]
fn downloads_are_found_again() {
    const FIRST: &str = "d=$HOME/.cache/huggingface/hub/models--a/blobs; t=$HOME/.cache/torch/hub/checkpoints; \
        mkdir -p $d $t; echo hello > $d/x.incomplete; mv $d/x.incomplete $d/$HASH; echo other > $d/other; \
        echo hello > $t/n-5891b5b5.pth; echo bad > $t/m-5891b5b5.pth; echo hello > $HOME/n-5891b5b5.pth";
    const AGAIN: &str = "cd $HOME; find . -type f | sort; for i in 1 2; do cat .cache/huggingface/hub/models--a/blobs/$HASH; \
        echo more >> .cache/huggingface/hub/models--a/blobs/$HASH; done; rm .cache/torch/hub/checkpoints/*; \
        find . -type f | wc -l; : > new; cat new";
    // sha256sum of "hello\n".
    const HASH: &str = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
    for way in ways() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("home");
        fs::create_dir_all(home.join(".cache")).unwrap();
        let run = |script: &str| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_in-a-layer"));
            command.args(["--way", way, "--downloads", "--list", "--cache"]);
            command.arg(dir.path().join("cache")).args(["--", "sh", "-c", script]);
            command.env_clear().env("PATH", "/usr/bin:/bin").env("HASH", HASH).env("HOME", &home);
            let output = command.current_dir(&home).output().unwrap();
            let text = |it: Vec<u8>| String::from_utf8(it).unwrap();
            (text(output.stdout), text(output.stderr))
        };
        let (_, told) = run(FIRST);
        let kept: Vec<_> = told.lines().filter(|it| it.starts_with("kept 6 ")).collect();
        assert_eq!(kept.len(), 2, "{way}: {told}");
        let blob = format!("./.cache/huggingface/hub/models--a/blobs/{HASH}");
        let expected = format!(
            "{blob}\n./.cache/torch/hub/checkpoints/n-5891b5b5.pth\nhello\nhello\nmore\n1\n"
        );
        for _ in 0..2 {
            let (out, told) = run(AGAIN);
            assert_eq!(out, expected, "{way}: {told}");
        }
        assert_eq!(fs::read_dir(home.join(".cache")).unwrap().count(), 0, "{way}");
        // What the disk has by now is the disk's.
        let real = home.join(&blob);
        fs::create_dir_all(real.parent().unwrap()).unwrap();
        fs::write(&real, "real\n").unwrap();
        assert_eq!(run(&format!("cat {blob}")).0, "real\n", "{way}");
    }
}

/// A pipe and a socket whose other end is outside of the run are no files of it.
#[test]
#[ignore = "part of `make soak`: minutes, and the rights to make namespaces or to trace"]
fn what_others_wait_at_is_reached() {
    const OUTSIDE: &str = "import socket, subprocess, sys, os\n\
        os.mkfifo('pipe'); os.mkfifo('left'); s = socket.socket(socket.AF_UNIX); s.bind('sock'); s.listen(); s.settimeout(20)\n\
        inside = 'import socket, os; c = socket.socket(socket.AF_UNIX); c.connect(\"sock\"); c.sendall(b\"hi\"); \
        os.unlink(\"left\"); os.mkfifo(\"left\"); open(\"pipe\", \"w\").write(\"through\")'\n\
        reader = subprocess.Popen(['cat', 'pipe'], stdout=subprocess.PIPE)\n\
        run = subprocess.Popen([*sys.argv[1:], '--', 'env', 'P=pipe', sys.executable, '-c', inside, 'pipe'])\n\
        print(s.accept()[0].recv(2), reader.communicate(timeout=20)[0], run.wait())";
    for way in ways() {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("python3");
        command.args(["-c", OUTSIDE, env!("CARGO_BIN_EXE_in-a-layer"), "--way", way, "--cache"]);
        let output = command.arg(dir.path().join("cache")).current_dir(&dir).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(
            text,
            "b'hi' b'through' 0\n",
            "{way}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

/// Zeros in files that are done with take no room; anything else fills the layer.
#[test]
#[ignore = "part of `make soak`: minutes, and the rights to make namespaces or to trace"]
fn a_full_layer_ends_the_run() {
    for way in ways() {
        let dir = tempfile::tempdir().unwrap();
        let max = ["--max", "8000000"];
        let zeros =
            "for i in 1 2 3 4; do head -c 5000000 /dev/zero > z$i; sleep 0.2; done; cat z? | wc -c";
        let output = run(dir.path(), way, &max, zeros);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "20000000\n", "{way}: {output:?}");
        let noise = "head -c 20000000 /dev/urandom > n; sleep 60; echo not reached";
        let output = run(dir.path(), way, &max, noise);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains("it wrote more than 8000000 bytes"), "{way}: {text}");
        assert!(!output.status.success() && output.stdout.is_empty());
        assert_eq!(
            fs::read_dir(dir.path().join("cache/plimsoll-cache/layers")).unwrap().count(),
            0,
            "{way}"
        );
    }
}
