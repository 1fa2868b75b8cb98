//! The cache: found, filled, shared, repaired, kept private.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
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
    let ours = ["layers", "sessions"].map(|it| place.cache().join(it));
    for folder in [place.cache(), bundle.clone()].into_iter().chain(ours) {
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700, "{}", folder.display());
    }
    assert!(fs::metadata(bundle.join("lib/libcuda.so.1")).unwrap().len() > 1000);
    let link = fs::read_link(bundle.join("lib/libnvidia-ml.so.1")).unwrap();
    assert_eq!(link, Path::new("libcuda.so.1"));
    assert_eq!(names(&place.cache()).len(), 3, "{:?}", names(&place.cache()));
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
    assert_eq!(names(&place.cache()).len(), 3, "{:?}", names(&place.cache()));
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
    let sessions = place.cache().join("sessions");
    fs::create_dir_all(&sessions).unwrap();
    fs::set_permissions(place.cache(), fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(&sessions, fs::Permissions::from_mode(0o777)).unwrap();
    place.predict(&["true"]).assert_sentence("everybody may write to it");
}

#[test]
fn a_path_that_cannot_be_preloaded_is_not_used() {
    for name in ["a:b", "a b"] {
        let place = Place::new();
        let folder = place.path().join(name);
        let mut command = place.plimsoll(&["predict", "true"]);
        let ran = Ran::from(command.env("PLIMSOLL_CACHE", folder).output().unwrap());
        ran.assert_sentence("LD_PRELOAD takes no path with a colon or a blank in it");
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
    place.predict(&["true"]).assert_sentence("everybody may write to it");
}

#[test]
fn sessions_left_behind_go_when_they_are_old() {
    let place = Place::new();
    let sessions = place.cache().join("sessions");
    fs::create_dir_all(&sessions).unwrap();
    fs::set_permissions(place.cache(), fs::Permissions::from_mode(0o700)).unwrap();
    for (name, touch) in [("old", "-d2001-01-01"), ("fresh", "-dnow")] {
        fs::create_dir(sessions.join(name)).unwrap();
        fs::write(sessions.join(name).join("lock"), "").unwrap();
        let touched =
            std::process::Command::new("touch").arg(touch).arg(sessions.join(name)).status();
        assert!(touched.unwrap().success());
    }
    place.predict(&["true"]);
    assert_eq!(names(&sessions), ["fresh"]);
}
