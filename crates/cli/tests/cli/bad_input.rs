//! Whatever is wrong ends in one sentence that says what was found and what to do, and exit code 2.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use crate::support::{BEGIN, Place, Ran};

#[test]
fn command_not_found() {
    let place = Place::new();
    place
        .predict(&["no-such-command"])
        .assert_sentence("there is no command no-such-command in PATH");
    place.predict(&["./no-such-command"]).assert_sentence("there is no ./no-such-command");
}

#[test]
fn a_file_here_is_not_in_path() {
    let place = Place::new();
    place.script("train", "");
    place.predict(&["train"]).assert_sentence("the file here is ./train");
}

#[test]
fn not_executable_or_a_folder() {
    let place = Place::new();
    let path = place.script("train.sh", "");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    place.predict(&["./train.sh"]).assert_sentence("it is not executable (chmod +x ./train.sh)");
    place.predict(&["./"]).assert_sentence("it is a folder");
}

#[test]
fn interpreter_of_the_first_line_does_not_exist() {
    let place = Place::new();
    let path = place.script("train", "");
    fs::write(&path, "#!/no/such/interpreter\n").unwrap();
    place.predict(&["./train"]).assert_sentence("the interpreter in its first line");
}

#[test]
fn script_does_not_exist() {
    let place = Place::new();
    place.predict(&["train.py"]).assert_sentence("the script train.py does not exist (looked in ");
    place
        .predict(&["python3", "-u", "train.py"])
        .assert_sentence("the script train.py does not exist");
}

#[test]
fn no_python() {
    let place = Place::new();
    fs::write(place.path().join("train.py"), "").unwrap();
    let run = |variable: &str, value: &str| {
        let mut command = place.plimsoll(&["predict", "train.py"]);
        Ran::from(command.env(variable, value).output().unwrap())
    };
    run("PATH", "/nowhere")
        .assert_sentence("found no Python: neither python3 nor python is in PATH");
    run("PLIMSOLL_PYTHON", "/no/python")
        .assert_sentence("PLIMSOLL_PYTHON is /no/python, which is not a program");
}

#[test]
fn exits_before_torch() {
    let place = Place::new();
    let script = place.script("train", "exit 3");
    let script = script.to_str().unwrap();
    place.predict(&[script]).assert_sentence("exited with code 3 before it imported torch");
    place.assert_no_session();
}

#[test]
fn never_imports_torch() {
    let place = Place::new();
    place.predict(&["true"]).assert_sentence("no process of the command imported torch");
}

/// A Python that has no torch, as far as the probe can see.
fn python_without_torch(place: &Place) -> String {
    let body = r#"case "$1" in
-c) echo '{"executable": "/x/python", "version": "3.12.1", "implementation": "CPython", "libc": "glibc 2.31", "torch": null}' ;;
*) echo "ModuleNotFoundError: No module named 'torch'" >&2; exit 1 ;;
esac"#;
    place.script("python3.12", body).to_str().unwrap().to_owned()
}

#[test]
fn python_without_torch_is_said() {
    let place = Place::new();
    let python = python_without_torch(&place);
    fs::write(place.path().join("train.py"), "").unwrap();
    place
        .predict(&[&python, "train.py"])
        .assert_sentence("/x/python runs the script and has no torch");
}

#[test]
fn python_options_that_shut_the_agent_out() {
    let place = Place::new();
    let python = python_without_torch(&place);
    fs::write(place.path().join("train.py"), "").unwrap();
    for option in ["-I", "-S", "-uE"] {
        place
            .predict(&[&python, option, "train.py"])
            .assert_sentence(&format!("python {option} keeps plimsoll's agent from loading"));
    }
}

#[test]
fn what_the_agent_refuses() {
    let place = Place::new();
    let note = r#"{"kind":"unsupported","reason":"version","text":"torch 2.6.0 is not supported; install 2.11","torch":"2.6.0","cuda":null}"#;
    let script = place.noting_script("train", &[note], "exit 86");
    place
        .predict(&[script.to_str().unwrap()])
        .assert_sentence("torch 2.6.0 is not supported; install 2.11");
}

#[test]
fn script_raises() {
    let place = Place::new();
    let end = r#"{"kind":"end","why":"exception","steps":2,"steady":false,"exit_code":1,"exception":{"type":"FileNotFoundError","message":"[Errno 2] No such file or directory: 'data.bin'","user_frame":{"file":"/x/train.py","line":12,"function":"main","text":"open('data.bin')"}},"seconds_imports":1.0,"seconds":2.0}"#;
    let script = place.noting_script("train", &[BEGIN, end], "exit 1");
    place.predict(&[script.to_str().unwrap()]).assert_sentence(
        "the script raised FileNotFoundError: [Errno 2] No such file or directory: 'data.bin' at /x/train.py:12, after 2 optimizer steps",
    );
}

#[test]
fn a_worker_of_a_loader_raises() {
    let place = Place::new();
    let end = r#"{"kind":"end","why":"exception","steps":0,"steady":false,"exit_code":1,"exception":{"type":"UnidentifiedImageError","message":"Caught UnidentifiedImageError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n  File \"fetch.py\", line 54, in fetch\nPIL.UnidentifiedImageError: cannot identify image file 'bad/010.png'\n","user_frame":{"file":"/x/train.py","line":12,"function":"main","text":"for batch in loader:"}},"seconds_imports":1.0,"seconds":2.0}"#;
    let script = place.noting_script("train", &[BEGIN, end], "exit 1");
    place.predict(&[script.to_str().unwrap()]).assert_sentence(
        "the script raised UnidentifiedImageError in a worker of its DataLoader: cannot identify image file 'bad/010.png' at /x/train.py:12, before",
    );
}

#[test]
fn script_exits_with_a_code() {
    let place = Place::new();
    let end = r#"{"kind":"end","why":"exit","steps":0,"steady":false,"exit_code":3,"exception":null,"seconds_imports":1.0,"seconds":2.0}"#;
    let script = place.noting_script("train", &[BEGIN, end], "exit 3");
    place.predict(&[script.to_str().unwrap()]).assert_sentence(
        "the script exited with code 3 before the first forward pass was finished",
    );
}

#[test]
fn script_is_killed() {
    let place = Place::new();
    for (signal, sentence) in [
        ("KILL", "the script was killed (SIGKILL)"),
        ("SEGV", "the script crashed (SIGSEGV)"),
        ("TERM", "the script was ended by SIGTERM"),
    ] {
        let script = place.noting_script("train", &[BEGIN], &format!("kill -{signal} $$"));
        place.predict(&[script.to_str().unwrap()]).assert_sentence(sentence);
        // A shell in between makes it an exit code.
        let body = format!("{}; exit $?", script.display());
        let outer = place.script("outer", &body);
        place.predict(&[outer.to_str().unwrap()]).assert_sentence(sentence);
        place.assert_no_session();
    }
}

#[test]
fn the_rank_that_failed_is_what_is_said() {
    let place = Place::new();
    let end = |class: &str, message: &str| {
        format!(
            r#"{{"kind":"end","why":"exception","steps":0,"steady":false,"exit_code":1,"exception":{{"type":"{class}","message":"{message}","user_frame":null}},"seconds_imports":1.0,"seconds":2.0}}"#
        )
    };
    let rank = BEGIN.replace(r#""rank":null"#, r#""rank":1"#);
    let launcher = end("ChildFailedError", "======");
    let raises = place.noting_script("raises", &[&rank, &end("ValueError", "bad batch")], "exit 1");
    let dies = place.noting_script("dies", &[&rank], "kill -KILL $$");
    for (script, sentence) in [
        (raises, "the script raised ValueError: bad batch, before the first"),
        (dies, "rank 1 ended without an error message before the first"),
    ] {
        let rest = format!("{}\nexit 1", script.display());
        let torchrun = place.noting_script("torchrun", &[BEGIN, &launcher], &rest);
        place.predict(&[torchrun.to_str().unwrap()]).assert_sentence(sentence);
    }
}

#[test]
fn uses_no_gpu() {
    let place = Place::new();
    let end = r#"{"kind":"end","why":"exit","steps":0,"steady":false,"exit_code":0,"exception":null,"seconds_imports":1.0,"seconds":2.0}"#;
    let script = place.noting_script("train", &[BEGIN, end], "");
    let script = script.to_str().unwrap();
    place.predict(&[script]).assert_sentence("the script ended without using a GPU");
    let hidden = r#"{"kind":"phantom","devices":[],"visible_devices":""}"#;
    let script = place.noting_script("train", &[BEGIN, hidden, end], "");
    place.predict(&[script.to_str().unwrap()]).assert_sentence(
        "the script used no GPU: CUDA_VISIBLE_DEVICES is empty, so PyTorch sees no GPU; set it to 0, or remove it",
    );
}

#[test]
fn unknown_card() {
    let place = Place::new();
    let ran = place.run(&["predict", "--gpu", "rtx4999", "--", "true"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("rtx4999"), "{ran:?}");
    let ran = place.run(&["predict", "--gpu", "mine.toml", "--", "true"]);
    ran.assert_sentence("cannot read the card mine.toml: no such file or directory");
}

#[test]
fn memory_that_holds_not_even_the_context() {
    let place = Place::new();
    place
        .run(&["predict", "--memory", "100MiB", "--", "true"])
        .assert_sentence("--memory 100.0 MiB is too small");
}

#[test]
fn json_path_is_checked_before_the_run() {
    let place = Place::new();
    fs::create_dir(place.marks()).unwrap();
    let script = place.script("train", "touch $MARKS/ran");
    let script = script.to_str().unwrap();
    let run = |option: &str, path: &str| {
        place.run(&["predict", "--through", "marks", option, path, "--", script])
    };
    run("--json", "no/such/folder/report.json").assert_sentence(
        "cannot write no/such/folder/report.json: no such file or directory; nothing was run",
    );
    run("--record", "/proc/recording.zip").assert_sentence("cannot write /proc/recording.zip");
    assert!(!place.marks().join("ran").exists());
}

#[test]
fn bad_arguments() {
    let place = Place::new();
    place.run(&["predict"]).assert_sentence("predict needs the command that starts your script");
    place
        .run(&["predict", "--max", "much", "true"])
        .assert_sentence("--max: cannot read \"much\" as a size: expected a number and a unit");
    let ran = place.run(&["predict", "--steps", "3", "--until-exit", "true"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.starts_with("error: "), "{ran:?}");
    place
        .run(&["predict", "--gpus", "0", "true"])
        .assert_sentence("--gpus 0: expected a whole number from 1 to 64, as in `4`");
    place
        .run(&["predict", "--", "--gpu", "t4", "python", "t.py"])
        .assert_sentence("--gpu goes before `--`: plimsoll predict --gpu t4 -- python t.py");
}

#[test]
fn a_size_without_a_unit_is_asked_for_one() {
    let place = Place::new();
    let meant = "12 has no unit; did you mean 12GiB?";
    for arguments in [
        &["predict", "--memory", "12", "true"][..],
        &["predict", "--max", "12", "true"],
        &["fit", "--budget", "12", "true"],
        &["replay", "--capacity", "12", "s.pickle"],
        &["run", "--expect", "12", "--watch", "true"],
    ] {
        let ran = place.run(arguments);
        assert!(ran.code == Some(2) && ran.stderr.contains(meant), "{arguments:?}: {ran:?}");
    }
    fs::write(place.path().join("plimsoll.toml"), "memory = \"12\"\n").unwrap();
    let ran = place.run(&["predict", "true"]);
    assert!(ran.code == Some(2) && ran.stderr.contains(meant), "{ran:?}");
}

#[test]
fn a_script_in_the_place_of_a_command() {
    let place = Place::new();
    place.run(&["train.py", "--lr", "1"]).assert_sentence(
        "plimsoll has no command train.py; to predict the memory of a script: plimsoll predict -- python train.py --lr 1",
    );
}

#[test]
fn an_option_of_the_script_before_the_command() {
    let place = Place::new();
    place.run(&["predict", "--batchsize", "4", "--", "python", "t.py"]).assert_sentence(
        "plimsoll predict has no option --batchsize; an option of the script goes after the script: \
         plimsoll predict -- python t.py --batchsize 4",
    );
    let ran = place.run(&["predict", "--memry", "4GiB", "--", "python", "t.py"]);
    assert!(ran.code == Some(2) && ran.stderr.contains("did you mean `--memory`?"), "{ran:?}");
}

/// Whatever reads recordings says of a script, and of a plan, what to type.
#[test]
fn a_script_or_a_plan_in_the_place_of_a_recording() {
    let place = Place::new();
    fs::write(place.path().join("train.py"), "import torch\n").unwrap();
    fs::write(place.path().join("plan.toml"), "# Made by `plimsoll fit`\n").unwrap();
    for command in ["explain", "replay", "view", "diff", "export --to html"] {
        for (file, meant) in [
            ("train.py", "to predict its memory: plimsoll predict -- python train.py"),
            (
                "plan.toml",
                "to check the plan: plimsoll predict --plan plan.toml -- python train.py",
            ),
        ] {
            let words: Vec<&str> = command.split(' ').chain([file]).collect();
            place.run(&words).assert_sentence(meant);
        }
    }
}

#[test]
fn a_golden_without_a_card() {
    let place = Place::new();
    place.run(&["check", "--add", "pets", "--", "python", "t.py"]).assert_sentence(
        "--add needs a card, as in: plimsoll check --add pets --gpu rtx4090 -- python t.py",
    );
}

#[test]
fn near_names_of_cards_and_codes() {
    let place = Place::new();
    place
        .run(&["predict", "--gpu", "rtx9999", "true"])
        .assert_sentence("no card is called \"rtx9999\"; `plimsoll cards rtx` lists them");
    place
        .run(&["explain", "--code", "fragmentation"])
        .assert_sentence("did you mean `fragmentation/slack`?");
}

#[test]
fn fix_without_a_command() {
    let place = Place::new();
    place.run(&["explain", "oom.log", "--fix"]).assert_sentence(
        "--fix needs the command that trains, after `--`: plimsoll explain oom.log --fix -- python train.py",
    );
}

#[test]
fn a_path_of_windows() {
    let place = Place::new();
    let hint = "(WSL has the drive C: as /mnt/c)";
    place.predict(&["C:\\me\\train.py"]).assert_sentence(hint);
    place.predict(&["C:/me/train.py"]).assert_sentence(hint);
    place.run(&["explain", "C:\\me\\run.zip"]).assert_sentence(hint);
    place.run(&["view", "--no-open", "C:\\me\\run.zip"]).assert_sentence(hint);
}

/// An archive without a recording is named as one, with what it has.
#[test]
fn an_archive_that_is_no_recording() {
    let place = Place::new();
    let zip = |files: &[&str]| {
        let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        for name in files {
            zip.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
        }
        fs::write(place.path().join("norec.zip"), zip.finish().unwrap().into_inner()).unwrap();
        place.run(&["explain", "norec.zip"])
    };
    zip(&["a.txt", "b\x1b[31m.txt", "c", "d", "e"])
        .assert_sentence("it is a zip archive without a recording of plimsoll: it has a.txt, b");
    let ran = zip(&["a.txt", "b\x1b[31m.txt", "c", "d", "e"]);
    assert!(!ran.stderr.contains('\x1b') && ran.stderr.contains(", c and 2 more."), "{ran:?}");
    zip(&[]).assert_sentence("without a recording of plimsoll: it is empty");
    fs::write(place.path().join("norec.zip"), "hello\n").unwrap();
    place.run(&["explain", "norec.zip"]).assert_sentence("norec.zip is not a zip archive");
}

#[test]
fn a_phantom_on_a_phantom() {
    let place = Place::new();
    let inner = env!("CARGO_BIN_EXE_plimsoll");
    let ran = place.predict(&[inner, "predict", "true"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.stderr.contains("plimsoll: this process already runs inside plimsoll predict"),
        "{ran:?}"
    );
}

#[test]
fn a_parameter_that_no_remedy_has_is_refused_with_its_place() {
    let place = Place::new();
    let plan = "version = 1\n[[remedy]]\nid = \"micro-batches\"\nprats = 4\n";
    fs::write(place.path().join("plan.toml"), plan).unwrap();
    place.script("train", "exit 0");
    place.run(&["run", "--no-gpu", "--plan", "plan.toml", "--", "./train"]).assert_sentence(
        "cannot read the plan plan.toml: line 4: micro-batches has no parameter `prats`; did you mean `parts`?",
    );
}

#[test]
fn a_plan_that_is_somebody_elses_is_refused_before_anything_runs() {
    let place = Place::new();
    fs::write(place.path().join("plan.toml"), "version = 1\n").unwrap();
    let fit = ["fit", "--gpu", "t4", "--", "sh", "-c", "touch ran"];
    place.run(&fit).assert_sentence("plan.toml is there already");
    fs::remove_file(place.path().join("plan.toml")).unwrap();
    fs::write(place.path().join("plan.diff"), "--- mine\n").unwrap();
    place.run(&fit).assert_sentence("plan.diff is there already");
    assert!(!place.path().join("ran").exists());
    assert_eq!(fs::read_to_string(place.path().join("plan.diff")).unwrap(), "--- mine\n");
}

#[test]
fn a_folder_with_files_takes_no_layer() {
    let place = Place::new();
    let kept = place.path().join("kept");
    fs::create_dir(&kept).unwrap();
    let run = || {
        place.run(&[
            "predict",
            "--writes",
            "keep=kept",
            "--",
            "sh",
            "-c",
            "echo n > new; rm -f old",
        ])
    };
    run().assert_sentence("no process of the command imported torch");
    assert_eq!(fs::read_to_string(kept.join("deleted.txt")).unwrap(), "");
    fs::write(kept.join("deleted.txt"), "mine").unwrap();
    run().assert_sentence(
        "kept exists and is not an empty folder; --writes keep=DIR needs a new or an empty folder",
    );
    assert_eq!(fs::read_to_string(kept.join("deleted.txt")).unwrap(), "mine");
}

/// What a stranger's script may put where plimsoll reads what the run did.
#[test]
fn what_a_script_leaves_in_place_of_its_notes_is_not_waited_for() {
    let place = Place::new();
    for left in [
        // Longer than it takes until the notes are looked at while it runs.
        "mkfifo $p/agent.jsonl $p/snapshot.pickle; sleep 2.5",
        "ln -s /dev/zero $p/agent.jsonl; ln -s /dev/zero $p/snapshot.pickle",
        "mkdir $p/agent.jsonl",
        "rm -f $PLIMSOLL_SESSION/output.txt; mkfifo $PLIMSOLL_SESSION/output.txt",
    ] {
        let body = format!("p=$PLIMSOLL_SESSION/process-$$\nmkdir -p $p\n{left}");
        let script = place.script("train", &body);
        let mut command = place.plimsoll(&["predict", "--", script.to_str().unwrap()]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let began = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if Duration::from_secs(120) < began.elapsed() {
                child.kill().unwrap();
                panic!("it waits: {left}");
            }
            thread::sleep(Duration::from_millis(20));
        }
        let ran = Ran::from(child.wait_with_output().unwrap());
        ran.assert_sentence("no process of the command imported torch");
        place.assert_no_session();
    }
}

#[test]
fn check_with_quiet_prints_no_report() {
    let place = Place::new();
    let goldens = "version = 1\n[scripts.a]\ncommand = [\"./nowhere\"]\ngpu = \"t4\"\n";
    fs::write(place.path().join("plimsoll-check.toml"), goldens).unwrap();
    let loud = place.run(&["check"]);
    assert!(loud.code == Some(2) && loud.stdout.contains("COULD NOT TELL"), "{loud:?}");
    let quiet = place.run(&["check", "-q"]);
    assert!(quiet.code == Some(2) && quiet.stdout.is_empty(), "{quiet:?}");
    quiet.assert_sentence("a: there is no ./nowhere");
}
