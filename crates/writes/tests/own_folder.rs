//! What is ours and what is not: layers, downloads and the folders that are written through, beside and below files of the user's.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::{
    fs,
    path::Path,
    process::{Command, Output},
    time::{Duration, SystemTime},
};

const WAYS: [&str; 3] = ["mounts", "user", "traced"];

/// Runs a shell's script in `dir/tree`, its cache in `dir/cache`; none if the machine has not got this way.
fn run(dir: &Path, way: &str, options: &[&str], script: &str) -> Option<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_in-a-layer"));
    command.args(["--way", way, "--cache"]).arg(dir.join("cache")).args(options);
    let tree = dir.join("tree");
    fs::create_dir_all(&tree).unwrap();
    let command = command.args(["--", "sh", "-c", script]).current_dir(tree).env("HOME", dir);
    let output = command.env_remove("XDG_CACHE_HOME").env_remove("TORCH_HOME").output().unwrap();
    let says = String::from_utf8_lossy(&output.stderr);
    let has_way = !says.contains("cannot separate the script's writes");
    // A kernel without ptrace and seccomp is not one that we know.
    assert!(has_way || way != "traced", "{says}");
    has_way.then_some(output)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn age(path: &Path) {
    let an_hour_ago = SystemTime::now() - Duration::from_secs(3600);
    fs::File::open(path).unwrap().set_modified(an_hour_ago).unwrap();
}

#[test]
fn layers_of_nobody_are_nobodys_to_remove() {
    for way in WAYS {
        let dir = tempfile::tempdir().unwrap();
        let Some(_) = run(dir.path(), way, &[], "true") else { continue };
        let layers = dir.path().join("cache/plimsoll-cache/layers");
        let shared = tempfile::Builder::new().prefix("plimsoll-0-mine").tempdir_in("/dev/shm");
        let shared = shared.unwrap();
        let theirs = [
            dir.path().join("cache/layers/layer-mine"),
            dir.path().join("cache/layers/layer-abcdefghijkl"),
            layers.join("layer-mine"),
            layers.join("layer-abcdefghijkl"),
            shared.path().to_owned(),
        ];
        for it in &theirs {
            fs::create_dir_all(it).unwrap();
            fs::write(it.join("lock"), "").unwrap();
            fs::write(it.join("weights.bin"), "mine").unwrap();
            age(it);
        }
        run(dir.path(), way, &[], "true").unwrap();
        for it in &theirs {
            assert_eq!(fs::read(it.join("weights.bin")).unwrap(), b"mine", "{way}: {it:?}");
        }
        assert_eq!(fs::read_dir(layers).unwrap().count(), 2, "{way}");
    }
}

/// A run that fills and empties its view of the cache, and what it is given to write to in truth.
#[test]
fn a_layer_in_what_it_covers_is_neither_seen_nor_reached() {
    const SCRIPT: &str = "echo n > new; ls -A ../cache/plimsoll-cache/layers/*; mkdir ../through/made && rmdir ../through/made; \
        echo said > ../through/mark; rmdir ../through 2>&1; mv ../through ../elsewhere 2>&1; \
        cd /; rm -rf $HOME 2>/dev/null; ls -A $HOME; echo n > $HOME/again; cat $HOME/again";
    for way in WAYS {
        let dir = tempfile::tempdir().unwrap();
        let through = dir.path().join("through");
        fs::create_dir(&through).unwrap();
        fs::write(through.join("kept"), "").unwrap();
        let options = ["--list", "--through", through.to_str().unwrap()];
        let Some(output) = run(dir.path(), way, &options, SCRIPT) else { continue };
        let (out, told) = (text(&output.stdout), text(&output.stderr));
        let busy: Vec<&str> =
            out.lines().filter(|it| it.ends_with("Device or resource busy")).collect();
        assert_eq!(busy.len(), 2, "{way}: {out}\n{told}");
        assert!(!out.contains("upper-0") && out.ends_with("through\nn\n"), "{way}: {out}\n{told}");
        // What `rm -rf` can reach in truth is what was given.
        assert_eq!(fs::read_dir(&through).unwrap().count(), 0, "{way}: {out}\n{told}");
        let cache = dir.path().join("cache/plimsoll-cache");
        let mut names: Vec<_> =
            fs::read_dir(&cache).unwrap().map(|it| it.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["CACHEDIR.TAG", "downloads", "layers", "sessions"], "{way}");
        assert!(dir.path().join("tree").is_dir());
        assert!(
            !told.contains("plimsoll-cache/"),
            "what is ours is not told as written, {way}: {told}"
        );
    }
}

/// The kernel tells an interpreter where the script lies in truth.
#[test]
fn a_script_that_was_written_is_found_by_its_interpreter() {
    const SCRIPT: &str = "printf '#!/bin/sh\\necho $1 > ran; cat ran; cat \"$0\" | wc -l' > run; chmod +x run; ./run 1; mkdir b; mv run b; \
                          b/run 2; cat ran";
    for way in WAYS {
        let dir = tempfile::tempdir().unwrap();
        let Some(output) = run(dir.path(), way, &[], SCRIPT) else { continue };
        assert_eq!(text(&output.stdout), "1\n1\n2\n1\n2\n", "{way}: {output:?}");
        assert_eq!(fs::read_dir(dir.path().join("tree")).unwrap().count(), 0, "{way}");
    }
}

/// On a small disk, where what is kept has to be bounded: the oldest files of ours go, and whatever else lies beside them counts
/// for nothing.
#[test]
fn downloads_make_room_by_downloads_alone() {
    // 30 MB that differ; zeros might become holes, which are nothing to keep.
    const SCRIPT: &str = "d=$HOME/.cache/torch/hub/checkpoints; mkdir -p $d; \
        yes $N | head -c 30000000 > $d/part; \
        mv $d/part $d/net-$(sha256sum $d/part | head -c 8).pth";
    const ON_A_SMALL_DISK: &str = "mount -t tmpfs -o size=400m small \"$1\" && mkdir -p \"$1/cache\" \"$1/tree\" && shift && \
        exec \"$@\"";
    const ALL: &str = "set -e; cd $HOME; mkdir -p cache/downloads/photos cache/plimsoll-cache; rmdir cache/plimsoll-cache; \
        run() { (cd tree; N=$1 \"$LAYER\" --way $WAY --downloads --cache $HOME/cache -- sh -c \"$SCRIPT\") || exit 9; }; \
        head -c 90000000 /dev/zero > cache/downloads/photos/mydata-0676ba61.bin; \
        run 1; head -c 40000000 /dev/zero > cache/plimsoll-cache/downloads/mydata-0676ba61.bin; \
        ln -s $HOME/cache/downloads/photos/mydata-0676ba61.bin cache/plimsoll-cache/downloads/l-0676ba61.pth.plimsoll-kept; \
        run 2; run 3; run 4; \
        ls cache/downloads/photos cache/plimsoll-cache/downloads; find cache/plimsoll-cache -name 'net-*' | wc -l";
    for way in WAYS {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("unshare");
        let is_root = nix::unistd::geteuid().is_root();
        command.args(if is_root {
            &["--mount"][..]
        } else {
            &["--user", "--map-root-user", "--mount"]
        });
        command.args(["sh", "-c", ON_A_SMALL_DISK, "sh"]).arg(dir.path()).args(["sh", "-c", ALL]);
        command.env("HOME", dir.path()).env("LAYER", env!("CARGO_BIN_EXE_in-a-layer"));
        command.env_remove("XDG_CACHE_HOME").env_remove("TORCH_HOME");
        let output = command.env("WAY", way).env("SCRIPT", SCRIPT).output().unwrap();
        let (out, told) = (text(&output.stdout), text(&output.stderr));
        if told.contains("cannot separate the script's writes") || told.contains("unshare: ") {
            continue; // This machine has not got the way, or lets nobody mount a small disk.
        }
        let (names, n_kept) = out.trim().rsplit_once('\n').unwrap();
        for name in ["mydata-0676ba61.bin", "l-0676ba61.pth.plimsoll-kept"] {
            assert!(names.contains(name), "{way}: {out}{told}");
        }
        assert_eq!(names.matches("mydata-0676ba61.bin").count(), 2, "{way}: {out}{told}");
        // A fifth of some 270 MB that are free or kept: one of 30 MB.
        assert_eq!(n_kept, "1", "{way}: {out}{told}");
    }
}

/// Where a disk can have no layers, they lie on another one, and nothing of them stays.
#[test]
fn nothing_stays_where_layers_lie_when_they_cannot_lie_in_the_cache() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let lower = dir.path().join("lower");
    fs::create_dir_all(lower.join("cache")).unwrap();
    // An overlay cannot be the upper layer of another one.
    let mount = "d=$1; shift; mkdir $d/upper $d/work $d/all; mount -t overlay -o lowerdir=$d/lower,upperdir=$d/upper,workdir=$d/work \
                 all $d/all && cd $d/all && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", mount, "sh"]).arg(dir.path());
    command.arg(env!("CARGO_BIN_EXE_in-a-layer")).args(["--way", "mounts", "--cache", "cache"]);
    command
        .args(["--", "sh", "-c", "echo n > new; cat new; ls -A $TMPDIR/*"])
        .env("TMPDIR", temporary.path());
    let output = command.output().unwrap();
    if !output.status.success() {
        return; // Only root of a machine may.
    }
    let out = text(&output.stdout);
    assert!(out.starts_with("n\n") && !out.contains("upper-0"), "{output:?}");
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0, "{output:?}");
}
