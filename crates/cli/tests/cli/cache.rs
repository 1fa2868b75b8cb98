//! The cache: found, filled, shared, repaired, kept private.

use std::{
    fs::{self, File},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, SystemTime},
};

use crate::support::{Place, Ran, names};

/// Every file and link below `folder`, with its bytes.
fn tree(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut res = Vec::new();
    for name in names(folder) {
        let path = folder.join(name);
        if fs::symlink_metadata(&path).unwrap().is_dir() {
            res.extend(tree(&path));
        } else {
            let bytes = fs::read(&path).unwrap();
            res.push((path, bytes));
        }
    }
    res
}

#[test]
fn unpacks_private_and_complete() {
    let place = Place::new();
    place.predict(&["true"]);
    let bundle = place.bundle();
    let ours = ["layers", "sessions", "downloads"].map(|it| place.own().join(it));
    for folder in [place.cache(), place.own(), bundle.clone()].into_iter().chain(ours) {
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700, "{}", folder.display());
    }
    assert!(fs::metadata(bundle.join("lib/libcuda.so.1")).unwrap().len() > 1000);
    let link = fs::read_link(bundle.join("lib/libnvidia-ml.so.1")).unwrap();
    assert_eq!(link, Path::new("libcuda.so.1"));
    assert_eq!(names(&place.cache()), ["plimsoll-cache"]);
    let (_, rest) = parted(names(&place.own()));
    assert_eq!(rest, ["CACHEDIR.TAG", "downloads", "layers", "sessions"]);
}

/// The bundles, and the rest.
fn parted(names: Vec<String>) -> (Vec<String>, Vec<String>) {
    names.into_iter().partition(|it| it.starts_with("bundle-"))
}

#[test]
fn ten_at_once() {
    let place = Place::new();
    let children: Vec<_> = (0..10)
        .map(|_| {
            let mut command = place.plimsoll(&[
                "predict",
                "--",
                "sh",
                "-c",
                "for it in $(echo $LD_PRELOAD | tr : ' '); do test -s $it || exit 1; done; exit 7",
            ]);
            command.stderr(std::process::Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for child in children {
        let ran = Ran::from(child.wait_with_output().unwrap());
        ran.assert_sentence("exited with code 7");
    }
    place.assert_no_session();
    assert_eq!(names(&place.cache()), ["plimsoll-cache"]);
    assert_eq!(names(&place.own()).len(), 5, "{:?}", names(&place.own()));
    assert!(names(&place.bundle().join("lib")).iter().all(|it| !it.starts_with('.')));
}

#[test]
fn repairs_what_is_damaged() {
    let place = Place::new();
    place.predict(&["true"]);
    let bundle = place.bundle();
    let whole = tree(&bundle);

    let library = bundle.join("lib/libcuda.so.1");
    let damages: [&dyn Fn(); 7] = [
        &|| fs::write(&library, b"cut off").unwrap(),
        &|| {
            // The same length, one bit.
            let mut bytes = fs::read(&library).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(&library, bytes).unwrap();
        },
        &|| fs::remove_file(&library).unwrap(),
        &|| fs::remove_dir_all(bundle.join("lib")).unwrap(),
        &|| {
            fs::remove_dir_all(bundle.join("lib")).unwrap();
            fs::write(bundle.join("lib"), "a file").unwrap();
        },
        &|| {
            fs::remove_file(&library).unwrap();
            fs::create_dir(&library).unwrap();
        },
        &|| {
            let link = bundle.join("lib/libnvidia-ml.so.1");
            fs::remove_file(&link).unwrap();
            std::os::unix::fs::symlink("/etc/passwd", link).unwrap();
        },
    ];
    for (i, damage) in damages.iter().enumerate() {
        damage();
        place.predict(&["true"]).assert_sentence("no process of the command imported torch");
        assert!(tree(&bundle) == whole, "damage {i}");
    }
    fs::set_permissions(&bundle, fs::Permissions::from_mode(0o777)).unwrap();
    place.predict(&["true"]);
    assert_eq!(fs::metadata(&bundle).unwrap().mode() & 0o777, 0o700);
}

#[test]
fn repair_follows_no_link() {
    let place = Place::new();
    place.predict(&["true"]);
    let bundle = place.bundle();
    let elsewhere = place.path().join("elsewhere");
    fs::rename(bundle.join("lib"), &elsewhere).unwrap();
    fs::write(elsewhere.join("libcuda.so.1"), "mine").unwrap();
    std::os::unix::fs::symlink(&elsewhere, bundle.join("lib")).unwrap();
    place.predict(&["true"]).assert_sentence("no process of the command imported torch");
    assert_eq!(fs::read(elsewhere.join("libcuda.so.1")).unwrap(), b"mine");
    assert!(fs::symlink_metadata(bundle.join("lib")).unwrap().is_dir());
}

#[test]
fn sessions_of_somebody_else_are_not_used() {
    let place = Place::new();
    place.predict(&["true"]);
    let sessions = place.own().join("sessions");
    fs::set_permissions(&sessions, fs::Permissions::from_mode(0o777)).unwrap();
    place.predict(&["true"]).assert_sentence("sessions in it is writable by others");
}

#[test]
fn a_path_that_cannot_be_preloaded_is_not_used() {
    for name in ["a:b", "a b"] {
        let place = Place::new();
        let folder = place.path().join(name);
        let mut command = place.plimsoll(&["predict", "true"]);
        let ran = Ran::from(command.env("PLIMSOLL_CACHE", folder).output().unwrap());
        ran.assert_sentence("its path has a colon or a blank, which LD_PRELOAD does not accept");
    }
}

#[test]
fn home_that_cannot_be_written() {
    let place = Place::new();
    let temporary = place.path().join("tmp");
    fs::create_dir(&temporary).unwrap();
    // Nobody, not even root, makes folders in /proc.
    let run = |arguments: &[&str]| {
        let mut command = place.plimsoll(arguments);
        command.env_remove("PLIMSOLL_CACHE").env("HOME", "/proc").env("TMPDIR", &temporary);
        Ran::from(command.output().unwrap())
    };
    run(&["predict", "true"]).assert_sentence("no process of the command imported torch");
    let [folder] = &names(&temporary)[..] else { panic!("{:?}", names(&temporary)) };
    assert!(folder.starts_with("plimsoll-"), "{folder}");
    assert_eq!(fs::metadata(temporary.join(folder)).unwrap().mode() & 0o777, 0o700);
    assert_eq!(names(&temporary.join(folder)), ["plimsoll-cache"]);
    let doctor = run(&["doctor"]);
    assert!(doctor.stdout.contains("/proc/.cache/plimsoll: "), "{doctor:?}");
}

#[test]
fn no_home_at_all() {
    let place = Place::new();
    let mut command = place.plimsoll(&["predict", "true"]);
    command.env_remove("PLIMSOLL_CACHE").env_remove("HOME").env("TMPDIR", place.path());
    let ran = Ran::from(command.output().unwrap());
    ran.assert_sentence("no process of the command imported torch");
}

#[test]
fn nowhere_to_write() {
    let place = Place::new();
    let mut command = place.plimsoll(&["predict", "true"]);
    command.env_remove("PLIMSOLL_CACHE").env("HOME", "/proc").env("TMPDIR", "/proc");
    let ran = Ran::from(command.output().unwrap());
    ran.assert_sentence("found no folder to unpack into (/proc/.cache/plimsoll: no such file or directory; /proc/plimsoll-");

    let mut command = place.plimsoll(&["predict", "true"]);
    let ran = Ran::from(command.env("PLIMSOLL_CACHE", "/proc/mine").output().unwrap());
    ran.assert_sentence("set PLIMSOLL_CACHE to a folder that you may write to");
}

#[test]
fn a_folder_that_everybody_may_change_is_not_trusted() {
    let place = Place::new();
    fs::create_dir(place.cache()).unwrap();
    fs::set_permissions(place.cache(), fs::Permissions::from_mode(0o777)).unwrap();
    place.predict(&["true"]).assert_sentence("and could replace a folder in it");
    assert!(names(&place.cache()).is_empty());
    // But for one like /tmp, where nobody can do that.
    fs::set_permissions(place.cache(), fs::Permissions::from_mode(0o1777)).unwrap();
    place.predict(&["true"]).assert_sentence("no process of the command imported torch");
}

/// Makes `files`, each with its path as its contents; they and their folders are from an hour ago.
fn make(folder: &Path, files: &[&str]) {
    for file in files {
        let path = folder.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, file).unwrap();
    }
    let an_hour_ago = SystemTime::now() - Duration::from_secs(3600);
    for file in files {
        for path in Path::new(file).ancestors() {
            File::open(folder.join(path)).unwrap().set_modified(an_hour_ago).unwrap();
        }
    }
}

/// Those that are not there any more as [`make`] made them.
fn lost<'a>(folder: &Path, files: &[&'a str]) -> Vec<&'a str> {
    let is_whole = |it: &&&str| fs::read_to_string(folder.join(it)).is_ok_and(|text| text == **it);
    files.iter().filter(|it| !is_whole(it)).copied().collect()
}

/// What removes what earlier runs have left.
fn all_that_sweep(place: &Place) -> Vec<(&'static str, Command)> {
    let mut doctor = place.plimsoll(&["doctor"]);
    // Without torch it does not come to its last check.
    if let Some(python) = std::env::var_os("PLIMSOLL_PYTHON") {
        doctor.env("PLIMSOLL_PYTHON", python);
    }
    vec![
        ("predict", place.plimsoll(&["predict", "--", "true"])),
        ("run", place.plimsoll(&["run", "--no-gpu", "--", "true"])),
        ("doctor", doctor),
    ]
}

const LIKE_A_BUNDLE: &str = "0123456789abcdef0123456789abcdef/lib/libcuda.so.1";

#[test]
fn a_cache_may_be_a_folder_with_files_of_the_users() {
    const THEIRS: &[&str] = &[
        "sessions/experiment1/results.csv",
        "sessions/experiment2/lock",
        "sessions/session-abcdefghijkl/thesis.tex",
        "layers/layer-mine/weights.bin",
        "layers/layer-abcdefghijkl/lock",
        "downloads/photos/net-5891b5b5.pth",
        "bytecode/measured",
        "plimsoll/CACHEDIR.TAG",
        LIKE_A_BUNDLE,
    ];
    let place = Place::new();
    for (what, mut command) in all_that_sweep(&place) {
        make(&place.cache(), THEIRS);
        fs::set_permissions(place.cache(), fs::Permissions::from_mode(0o755)).unwrap();
        let ran = Ran::from(command.output().unwrap());
        assert!(lost(&place.cache(), THEIRS).is_empty(), "{what}: {ran:?}");
        assert!(place.own().join("sessions").is_dir(), "{what} came as far: {ran:?}");
    }
    let mut all: Vec<String> =
        THEIRS.iter().map(|it| it.split('/').next().unwrap().to_owned()).collect();
    all.push("plimsoll-cache".to_owned());
    all.sort();
    all.dedup();
    assert_eq!(names(&place.cache()), all);
}

#[test]
fn in_our_folder_too_only_what_is_ours_goes() {
    const THEIRS: &[&str] = &[
        "sessions/experiment1/results.csv",
        "sessions/experiment2/.plimsoll-lock",
        "sessions/session-mine/.plimsoll-lock",
        "sessions/session-abcdefghijkl/lock",
        "layers/layer-mine/.plimsoll-lock",
        "layers/layer-abcdefghijkl/weights.bin",
        "downloads/photos/net-5891b5b5.pth",
        LIKE_A_BUNDLE,
    ];
    const OURS: &[&str] = &[
        "sessions/session-mnopqrstuvwx/.plimsoll-lock",
        "sessions/session-mnopqrstuvwx/process-1/agent.jsonl",
        "layers/layer-mnopqrstuvwx/.plimsoll-lock",
    ];
    let place = Place::new();
    for (what, mut command) in all_that_sweep(&place) {
        place.predict(&["true"]);
        make(&place.own(), THEIRS);
        make(&place.own(), OURS);
        let ran = Ran::from(command.output().unwrap());
        assert!(lost(&place.own(), THEIRS).is_empty(), "{what}: {ran:?}");
        // A real run has no layer, and without torch a doctor runs nothing.
        assert!(what != "predict" || lost(&place.own(), OURS) == OURS, "{what}: {ran:?}");
    }
}

#[test]
fn links_and_folders_of_others_in_the_place_of_ours_are_refused() {
    const THEIRS: &[&str] = &[
        "session-abcdefghijkl/.plimsoll-lock",
        "layer-abcdefghijkl/.plimsoll-lock",
        "experiment1/results.csv",
    ];
    let place = Place::new();
    let elsewhere = place.path().join("elsewhere");
    let refused = |sentence: &str| {
        make(&elsewhere, THEIRS);
        for (what, mut command) in all_that_sweep(&place) {
            let ran = Ran::from(command.output().unwrap());
            let said = format!("{}{}", ran.stdout, ran.stderr);
            assert!(ran.code == Some(2) && said.contains(sentence), "{what}: {ran:?}");
            assert!(lost(&elsewhere, THEIRS).is_empty(), "{what}: {ran:?}");
            assert_eq!(names(&elsewhere).len(), THEIRS.len(), "{what}: {ran:?}");
        }
    };
    fs::create_dir(place.cache()).unwrap();
    symlink(&elsewhere, place.own()).unwrap();
    refused("plimsoll-cache in it is a link");
    fs::remove_file(place.own()).unwrap();
    fs::create_dir(place.own()).unwrap();
    fs::write(place.own().join("thesis.tex"), "").unwrap();
    refused("plimsoll-cache in it is not plimsoll's");
    assert_eq!(names(&place.own()), ["thesis.tex"]);
    fs::remove_dir_all(place.own()).unwrap();
    place.predict(&["true"]);
    let bundle = place.bundle().file_name().unwrap().to_owned().into_string().unwrap();
    for (name, sentence) in [
        ("sessions", "plimsoll-cache/sessions in it is a link"),
        ("layers", "plimsoll-cache/layers in it is a link"),
        ("downloads", "plimsoll-cache/downloads in it is a link"),
        (&*bundle, "it exists, but it is not a folder of your user"),
    ] {
        let path = place.own().join(name);
        fs::rename(&path, place.path().join("aside")).unwrap();
        symlink(&elsewhere, &path).unwrap();
        if name == bundle {
            // The doctor finds that out only where there is torch.
            make(&elsewhere, THEIRS);
            place.predict(&["true"]).assert_sentence(sentence);
            assert_eq!(names(&elsewhere).len(), THEIRS.len());
        } else {
            refused(sentence);
        }
        fs::remove_file(&path).unwrap();
        fs::rename(place.path().join("aside"), &path).unwrap();
    }
    place.predict(&["true"]).assert_sentence("no process of the command imported torch");
}

const WAYS: [&str; 3] = ["mounts", "user", "traced"];

/// Runs `script` in `folder`, its writes kept apart in this way; none if the machine has not got it.
fn predict_in(place: &Place, way: &str, cache: &str, folder: &Path, script: &str) -> Option<Ran> {
    let mut command = place.plimsoll(&["predict", "--", "sh", "-c", script]);
    command.current_dir(folder).env("PLIMSOLL_CACHE", cache).env("PLIMSOLL_WRITES_WAY", way);
    let ran = Ran::from(command.output().unwrap());
    let has_way = !ran.stderr.contains("cannot separate the script's writes");
    // A kernel without ptrace and seccomp is not one that we know.
    assert!(has_way || way != "traced", "{ran:?}");
    has_way.then_some(ran)
}

#[test]
fn a_cache_that_holds_the_project_is_kept_apart_as_everything_else() {
    const SCRIPT: &str = "echo CHANGED > victim; rm other; echo n > new; mkdir -p made/deep; mv folder moved; \
        echo n > $PLIMSOLL_CACHE/in-the-cache; cat victim $PLIMSOLL_CACHE/in-the-cache; \
        for it in *; do case $it in cache | plimsoll-cache | in-the-cache) ;; *) echo $it; esac; done; \
        test -s $PLIMSOLL_SESSION/phantom.conf && echo said";
    const THEIRS: &[&str] = &["victim", "other", "folder/file", "sessions/experiment1/results.csv"];
    for (way, most) in WAYS.into_iter().zip([5, 2, 2]) {
        let place = Place::new();
        let home = place.path().join("home");
        let project = home.join("a/project");
        for cache in [".", "cache", "..", "../..", home.to_str().unwrap()].into_iter().take(most) {
            make(&project, THEIRS);
            let Some(ran) = predict_in(&place, way, cache, &project, SCRIPT) else { break };
            ran.assert_sentence("no process of the command imported torch");
            let expected = "CHANGED\nn\nmade\nmoved\nnew\nsessions\nvictim\nsaid\n";
            assert_eq!(ran.stdout, expected, "{way}, {cache}: {ran:?}");
            assert!(lost(&project, THEIRS).is_empty(), "{way}, {cache}: {ran:?}");
            let mut after = names(&project);
            after.retain(|it| it != "plimsoll-cache" && it != "cache");
            assert_eq!(after, ["folder", "other", "sessions", "victim"], "{way}, {cache}");
            let cache = project.join(cache);
            assert!(!cache.join("in-the-cache").exists(), "{way}, {cache:?}");
            for folder in ["sessions", "layers"] {
                let left = names(&cache.join("plimsoll-cache").join(folder));
                assert!(left.is_empty(), "{way}, {cache:?}: {left:?}");
            }
        }
    }
}

/// A script that clears the cache reaches the folder of its own session, and nothing else of ours.
#[test]
fn a_script_that_removes_the_cache_removes_nothing_of_other_runs() {
    const OTHERS: &[&str] = &[
        "sessions/session-abcdefghijkl/process-1/agent.jsonl",
        "layers/layer-abcdefghijkl/upper-0/file",
        "downloads/home/me/.cache/torch/hub/checkpoints/net-5891b5b5.pth.plimsoll-kept",
    ];
    const SCRIPT: &str = "rm -rf $PLIMSOLL_CACHE 2> errors; sort -u errors >&2; ls -A $PLIMSOLL_CACHE/plimsoll-cache";
    for way in WAYS {
        let place = Place::new();
        place.predict(&["true"]);
        make(&place.own(), OTHERS);
        let before = tree(&place.own());
        let cache = place.cache();
        let ran = predict_in(&place, way, cache.to_str().unwrap(), place.path(), SCRIPT);
        let Some(ran) = ran else { continue };
        assert_eq!(tree(&place.own()), before, "{way}: {ran:?}");
        let sentence = ran.stderr.lines().find_map(|it| it.strip_prefix("plimsoll: "));
        let sentence = sentence.unwrap_or_default();
        let expected = format!("the script removed {}/sessions/session-", place.own().display());
        assert!(ran.code == Some(2) && sentence.starts_with(&expected), "{way}: {ran:?}");
        assert!(sentence.contains("this run has no result; set PLIMSOLL_CACHE"), "{way}: {ran:?}");
        // What cannot be removed is where something is mounted.
        let busy = ran.stderr.lines().filter(|it| it.starts_with("rm: "));
        assert!(busy.clone().count() <= 2, "{way}: {ran:?}");
        assert!(busy.clone().all(|it| it.ends_with("Device or resource busy")), "{way}: {ran:?}");
        let stays = ran.stdout.lines().all(|it| it == "sessions" || it == "layers");
        assert!(stays, "{way}: {ran:?}");
        assert_eq!(names(&place.own().join("sessions")), ["session-abcdefghijkl"], "{way}");
    }
}

/// What Python compiles of installed packages is the same in the next run; the rest of what a run writes there goes with its layer.
#[test]
fn bytecode_is_kept_and_nothing_else_that_was_written_beside_it() {
    const SCRIPT: &str = "b=$PLIMSOLL_BYTECODE; cat $b/a/old.pyc 2> /dev/null; mkdir -p $b/a/b; echo $WAY > $b/a/b/$WAY.pyc; \
        echo changed > $b/a/old.pyc; rm -f $b/a/gone.pyc; echo n > $b/notes; ln -s /etc/passwd $b/link.pyc; : > $b/empty.pyc";
    let place = Place::new();
    place.predict(&["true"]);
    let bytecode = place.bundle().join("bytecode");
    make(&bytecode, &["a/old.pyc", "a/gone.pyc"]);
    for way in WAYS {
        let script = format!("WAY={way}; {SCRIPT}");
        let cache = place.cache();
        let ran = predict_in(&place, way, cache.to_str().unwrap(), place.path(), &script);
        let Some(ran) = ran else { continue };
        ran.assert_sentence("no process of the command imported torch");
        assert_eq!(ran.stdout, "a/old.pyc", "{way}: {ran:?}");
        assert!(lost(&bytecode, &["a/old.pyc", "a/gone.pyc"]).is_empty(), "{way}: {ran:?}");
        let new = bytecode.join(format!("a/b/{way}.pyc"));
        assert_eq!(fs::read_to_string(new).unwrap(), format!("{way}\n"), "{ran:?}");
        assert_eq!(names(&bytecode), ["a", "measured"], "{way}: {ran:?}");
    }
}

/// Who looks at all files of a home meets no error in ours.
#[test]
fn the_cache_can_be_looked_through() {
    const SCRIPT: &str = "echo n > first; find $PLIMSOLL_CACHE | grep -c /; cp -r $PLIMSOLL_CACHE copy && du -s copy";
    for way in WAYS {
        let place = Place::new();
        let cache = place.cache();
        let Some(ran) = predict_in(&place, way, cache.to_str().unwrap(), place.path(), SCRIPT)
        else {
            continue;
        };
        ran.assert_sentence("no process of the command imported torch");
        assert_eq!(ran.stderr.lines().count(), 1, "{way}: {ran:?}");
        assert_eq!(ran.stdout.lines().count(), 2, "{way}: {ran:?}");
    }
}

#[test]
fn sessions_left_behind_go_when_they_are_old() {
    let place = Place::new();
    place.predict(&["true"]);
    let sessions = place.own().join("sessions");
    make(&sessions, &["session-oldoldoldold/.plimsoll-lock"]);
    fs::create_dir(sessions.join("session-freshfreshfr")).unwrap();
    fs::write(sessions.join("session-freshfreshfr/.plimsoll-lock"), "").unwrap();
    place.predict(&["true"]);
    assert_eq!(names(&sessions), ["session-freshfreshfr"]);
}
