//! Where output goes: the report, JSON, recordings, and the script's own words.

use std::{
    fs,
    io::Read as _,
    process::{Command, Stdio},
};

use crate::support::{BEGIN, Place, Ran};

#[test]
fn json_has_standard_output_for_itself() {
    let place = Place::new();
    let script = place.script("train", "echo from the script; exit 3");
    let ran = place.run(&["predict", "--json", "-", "--", script.to_str().unwrap()]);
    let document: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(document["outcome"], "script_failed");
    assert!(ran.stderr.contains("from the script\n"), "{ran:?}");
    ran.assert_sentence("exited with code 3");
}

#[test]
fn json_replaces_a_file_and_nothing_else_does() {
    let place = Place::new();
    let report = place.path().join("report.json");
    fs::write(&report, "x".repeat(100_000)).unwrap();
    place.run(&["predict", "--json", "report.json", "true"]).assert_sentence("imported torch");
    let document: serde_json::Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
    assert_eq!(document["version"], 1);

    // A run that could not start leaves what was there, and makes nothing new.
    fs::write(&report, "before").unwrap();
    place.run(&["predict", "--json", "report.json", "no-such"]).assert_sentence("no command");
    assert_eq!(fs::read_to_string(&report).unwrap(), "before");
    place.run(&["predict", "--json", "new.json", "no-such"]).assert_sentence("no command");
    assert!(!place.path().join("new.json").exists());
}

#[test]
fn a_recording_is_one_zip() {
    let place = Place::new();
    let script =
        place.noting_script("train", &[BEGIN], "printf pickle > $p/snapshot.pickle; exit 1");
    place.run(&["predict", "--record", "run.zip", "--", script.to_str().unwrap()]);
    let mut zip =
        zip::ZipArchive::new(fs::File::open(place.path().join("run.zip")).unwrap()).unwrap();
    let mut text_of = |name: &str| {
        let mut text = String::new();
        zip.by_name(name).unwrap().read_to_string(&mut text).unwrap();
        text
    };
    let manifest: serde_json::Value = serde_json::from_str(&text_of("manifest.json")).unwrap();
    assert_eq!(manifest["format"], 1);
    assert_eq!(manifest["exit_code"], 1);
    assert!(text_of("phantom.conf").contains("compute_capability = "));
    let names: Vec<String> = zip.file_names().map(|it| it.unwrap().into_owned()).collect();
    let process = names.iter().find(|it| it.ends_with("/snapshot.pickle")).unwrap();
    assert!(process.starts_with("process-"), "{names:?}");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let place = Place::new();
    for arguments in [&["cards"][..], &["cards", "--json"], &["predict", "--json", "-", "true"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = place.plimsoll(arguments);
        let child = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        let ran = Ran::from(child.wait_with_output().unwrap());
        assert!(!ran.stderr.to_lowercase().contains("pipe"), "{ran:?}");
        let expected = if arguments[0] == "cards" { 0 } else { 2 };
        assert_eq!(ran.code, Some(expected), "{ran:?}");
    }
}

#[test]
fn the_environment_is_added_to() {
    let place = Place::new();
    let script = place.script(
        "train",
        "echo $LD_LIBRARY_PATH; echo $PYTHONPATH; echo $PLIMSOLL_MODE $PLIMSOLL_STOP; echo \"${CUDA_VISIBLE_DEVICES-unset}\"; cat $PLIMSOLL_SESSION/phantom.conf",
    );
    let mut command = place.plimsoll(&[
        "predict", "--gpu", "h200", "--gpus", "2", "--memory", "20GiB", "--steps", "4",
    ]);
    command.arg(&script).env("LD_LIBRARY_PATH", "/their/lib").env("PYTHONPATH", "");
    let ran = Ran::from(command.output().unwrap());
    let bundle = place.bundle();
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(lines[0], format!("{}/lib:/their/lib", bundle.display()));
    assert_eq!(lines[1], format!("{}/agent", bundle.display()));
    assert_eq!(lines[2], "predict steps:4");
    assert_eq!(lines[3], "unset");
    assert!(ran.stdout.contains("devices = 2\n"), "{ran:?}");
    assert!(ran.stdout.contains("total_bytes = 21474836480\n"), "{ran:?}");
}

#[test]
fn a_script_that_python_runs() {
    let place = Place::new();
    let python = place.script("my-python", "echo \"python: $@\"");
    fs::write(place.path().join("train.py"), "").unwrap();
    for arguments in
        [&["predict", "train.py", "--lr", "1"][..], &["predict", "--", "train.py", "--lr", "1"]]
    {
        let mut command = place.plimsoll(arguments);
        let ran = Ran::from(command.env("PLIMSOLL_PYTHON", &python).output().unwrap());
        assert_eq!(ran.stdout, "python: train.py --lr 1\n", "{ran:?}");
    }
    // One that can start itself does.
    place.script("own.py", "echo started itself");
    let ran = place.predict(&["./own.py"]);
    assert_eq!(ran.stdout, "started itself\n", "{ran:?}");
}

#[test]
fn options_after_the_command_are_the_commands() {
    let place = Place::new();
    let ran = place.run(&["predict", "echo", "--gpu", "x", "--json", "-"]);
    assert_eq!(ran.stdout, "--gpu x --json -\n", "{ran:?}");
}

#[test]
fn cards_are_listed_and_shown() {
    let place = Place::new();
    let table = place.run(&["cards"]);
    assert_eq!(table.code, Some(0));
    assert!(table.stdout.lines().all(|it| it.chars().count() <= 100), "{}", table.stdout);
    let document: serde_json::Value =
        serde_json::from_str(&place.run(&["cards", "--json"]).stdout).unwrap();
    let ids: Vec<&str> =
        document["cards"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap()).collect();
    for id in ["rtx4060-8g", "t4", "a100-80g", "h200", "b200"] {
        assert!(ids.contains(&id), "{ids:?}");
        let page = place.run(&["cards", id]);
        assert!(page.stdout.contains(" bytes; "), "{page:?}");
    }
    let unknown = place.run(&["cards", "voodoo2"]);
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.stderr.starts_with("plimsoll: "), "{unknown:?}");
}

#[test]
fn doctor_says_what_is_missing() {
    let place = Place::new();
    let body = r#"echo noise; echo '{"executable": "/x/python", "version": "3.12.1", "implementation": "CPython", "libc": "glibc 2.31", "torch": null}'"#;
    let python = place.script("my-python", body);
    let run = |arguments: &[&str]| {
        let mut command = place.plimsoll(arguments);
        Ran::from(command.env("PLIMSOLL_PYTHON", &python).output().unwrap())
    };
    let ran = run(&["doctor"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stdout.contains("bad   torch    /x/python has no torch;"), "{ran:?}");
    assert!(ran.stdout.ends_with("\ncannot predict\n"), "{ran:?}");
    let document: serde_json::Value =
        serde_json::from_str(&run(&["doctor", "--json"]).stdout).unwrap();
    assert_eq!(document["able"], false);

    let broken = place.script("broken", "echo nothing useful; exit 1");
    let mut command = place.plimsoll(&["doctor"]);
    let ran = Ran::from(command.env("PLIMSOLL_PYTHON", &broken).output().unwrap());
    assert!(ran.stdout.contains("does not answer like a Python 3"), "{ran:?}");
}

/// A fake interpreter that answers as one with that torch would, and the doctor's words on it.
fn doctor_on(torch: &str) -> Ran {
    let place = Place::new();
    let body = format!(
        r#"echo '{{"executable": "/x/python", "version": "3.13.0", "implementation": "CPython", "libc": "glibc 2.31", "torch": {torch}}}'"#
    );
    let python = place.script("my-python", &body);
    let mut command = place.plimsoll(&["doctor"]);
    Ran::from(command.env("PLIMSOLL_PYTHON", &python).output().unwrap())
}

#[test]
fn doctor_says_how_far_a_torch_is_supported() {
    let ran = doctor_on(
        r#"{"version": "2.11.0+cpu", "cuda": null, "path": "/x/torch", "standing": "unsupported", "why": "it is built without CUDA"}"#,
    );
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.stdout.contains("ok    torch    2.11.0+cpu, built without CUDA (/x/torch)\n"),
        "{ran:?}"
    );
    let bad = "bad   support  unsupported: it is built without CUDA\n\ncannot predict\n";
    assert!(ran.stdout.ends_with(bad), "a refused torch is not tried: {ran:?}");

    let ran = doctor_on(
        r#"{"version": "2.7.1", "cuda": "12.6", "path": "/x/torch", "is_condas": true, "standing": "experimental", "why": "not compared"}"#,
    );
    assert!(
        ran.stdout.contains("ok    torch    2.7.1, built by conda for CUDA 12.6 (/x/torch)\n"),
        "{ran:?}"
    );
    assert!(ran.stdout.contains("note  support  experimental: not compared\n"), "{ran:?}");
    assert!(ran.stdout.contains("bad   phantom  plimsoll's agent was not loaded"), "{ran:?}");

    let ran = doctor_on(
        r#"{"version": "2.11.0+cu130", "cuda": "13.0", "path": "/x/torch", "standing": "supported", "why": "compared"}"#,
    );
    assert!(ran.stdout.contains("ok    support  supported: compared\n"), "{ran:?}");
}

#[test]
fn help_has_examples_and_exit_codes() {
    let place = Place::new();
    for arguments in [&["--help"][..], &["predict", "--help"], &["predict", "-h"]] {
        let ran = place.run(arguments);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(ran.stdout.contains("\nExamples:\n  plimsoll predict "), "{ran:?}");
        assert!(ran.stdout.contains("\nExit codes:"), "{ran:?}");
    }
}

#[test]
fn a_shell_completes_every_command() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = place.run(&["completions", shell]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        for word in ["predict", "explain", "find-max"] {
            assert!(ran.stdout.contains(word), "{shell} does not know {word}");
        }
    }
    let script = place.run(&["completions", "bash"]).stdout;
    let asks = "COMP_WORDS=(plimsoll pre); COMP_CWORD=1; _plimsoll plimsoll pre plimsoll; echo ${COMPREPLY[@]}";
    let bash = Command::new("bash").arg("-c").arg(format!("{script}\n{asks}")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&bash.stdout), "predict\n", "{bash:?}");

    let wrong = place.run(&["completions", "csh"]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert!(wrong.stderr.contains("bash"), "it says which there are: {wrong:?}");
}

#[test]
fn each_command_has_a_page_for_man() {
    let place = Place::new();
    let ran = place.run(&["man", "predict"]);
    assert!(ran.stdout.contains(".TH plimsoll-predict 1"), "{ran:?}");
    assert!(ran.stdout.contains("Exit codes:"), "{ran:?}");
    let ran = place.run(&["man", "prodict"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("no command prodict; did you mean `predict`?\n"), "{ran:?}");

    let ran = place.run(&["man", "--all", "pages/man1"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let help = place.run(&["--help"]).stdout;
    let commands = help.lines().skip_while(|it| *it != "Commands:").skip(1).map_while(|it| {
        let is_command = it.starts_with("  ") && !it.starts_with("   ");
        (!it.is_empty()).then(|| it.split_whitespace().next().filter(|_| is_command))
    });
    for name in commands.flatten().filter(|it| *it != "help") {
        assert!(ran.stdout.contains(&format!("pages/man1/plimsoll-{name}.1\n")), "{name}: {ran:?}");
    }
}

#[test]
fn the_version_says_what_was_built() {
    let place = Place::new();
    let short = place.run(&["-V"]).stdout;
    assert_eq!(short, concat!("plimsoll ", env!("CARGO_PKG_VERSION"), "\n"));
    let long = place.run(&["--version"]).stdout;
    assert!(long.starts_with(&format!("{} (", short.trim_end())), "{long}");
    assert!(long.contains(" build, ") && long.contains("x86_64"), "{long}");
}
