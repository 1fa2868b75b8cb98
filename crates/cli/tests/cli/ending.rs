//! How a run ends when it does not end by itself: Ctrl-C, signals, processes left running. Nothing stays.
//! The scripts tell of themselves in files of the cache, the one place where they write through.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use crate::support::{BEGIN, Place, Ran, is_running};
use nix::{
    libc,
    pty::openpty,
    sys::{
        signal::{Signal, kill},
        stat::Mode,
    },
    unistd::Pid,
};

const STEP: &str = r#"{"kind":"mark","what":"step_end","step":1,"phase":null,"allocs":[1],"frees":[0],"reserved":[2],"allocated":[1],"t":1.0}"#;

/// What a machine that is busy with other tests gets done by then is done in time.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until the script has come so far that it has made this file.
#[track_caller]
fn wait_for(path: &Path) -> String {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        match fs::read_to_string(path) {
            Ok(text) if text.ends_with('\n') => return text,
            _ => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    panic!("{} did not appear", path.display());
}

/// The binary with a terminal of its own, as a shell would start it.
struct Terminal {
    child: Child,
    keyboard: File,
    screen: Option<std::thread::JoinHandle<String>>,
}

impl Terminal {
    fn start(mut command: Command) -> Terminal {
        let pty = openpty(None, None).unwrap();
        let end = || Stdio::from(pty.slave.try_clone().unwrap());
        command.stdin(end()).stdout(end()).stderr(end());
        // SAFETY: two system calls between fork and exec.
        unsafe {
            command.pre_exec(|| {
                nix::unistd::setsid()?;
                if libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let child = command.spawn().unwrap();
        // The command's copies of the other end would keep it open.
        drop(command);
        drop(pty.slave);
        let keyboard = File::from(pty.master.try_clone().unwrap());
        let mut master = File::from(pty.master);
        let screen = std::thread::spawn(move || {
            let mut text = Vec::new();
            // The last read fails with EIO once nobody has the terminal.
            let _ = master.read_to_end(&mut text);
            String::from_utf8_lossy(&text).replace("\r\n", "\n")
        });
        Terminal { child, keyboard, screen: Some(screen) }
    }

    fn press_ctrl_c(&mut self) {
        self.keyboard.write_all(b"\x03").unwrap();
    }

    fn end(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().unwrap().code();
        (code, self.screen.take().unwrap().join().unwrap())
    }
}

#[test]
fn ctrl_c_lets_the_script_clean_up() {
    let place = Place::new();
    let script = place.noting_script(
        "train",
        &[BEGIN, STEP],
        "trap 'echo cleaned up; exit 1' INT\necho $$ > $MARKS/started\nwhile :; do sleep 0.05; done",
    );
    let mut terminal = Terminal::start(place.marking(script.to_str().unwrap()));
    let pid = wait_for(&place.marks().join("started"));
    terminal.press_ctrl_c();
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(2), "{screen}");
    assert!(screen.contains("cleaned up\n"), "{screen}");
    assert!(screen.contains("plimsoll: interrupted after 1 optimizer step"), "{screen}");
    assert!(!is_running(&pid));
    place.assert_no_session();
}

#[test]
fn a_second_ctrl_c_ends_a_script_that_does_not_listen() {
    let place = Place::new();
    let script = place.script(
        "train",
        "trap '' INT TERM\necho $$ > $MARKS/started\nwhile :; do sleep 0.05; done",
    );
    let mut terminal = Terminal::start(place.marking(script.to_str().unwrap()));
    let pid = wait_for(&place.marks().join("started"));
    let started = Instant::now();
    terminal.press_ctrl_c();
    std::thread::sleep(Duration::from_millis(600));
    terminal.press_ctrl_c();
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(2), "{screen}");
    assert!(started.elapsed() < PATIENCE, "{:?}", started.elapsed());
    assert!(!is_running(&pid));
    place.assert_no_session();
}

#[test]
fn a_request_to_stop_is_passed_on() {
    for (signal, sentence) in
        [(Signal::SIGTERM, "stopped by SIGTERM"), (Signal::SIGINT, "interrupted before the first")]
    {
        let place = Place::new();
        let script = place.script(
            "train",
            "trap 'echo got it > $MARKS/got; exit 1' INT TERM\necho $$ > $MARKS/started\nwhile :; do sleep 0.05; done",
        );
        let mut command = place.marking(script.to_str().unwrap());
        // A group of its own, so that nobody but us gets the signal.
        let child = command.process_group(0).stderr(Stdio::piped()).spawn().unwrap();
        wait_for(&place.marks().join("started"));
        kill(Pid::from_raw(child.id().try_into().unwrap()), signal).unwrap();
        Ran::from(child.wait_with_output().unwrap()).assert_sentence(sentence);
        assert_eq!(wait_for(&place.marks().join("got")), "got it\n");
        place.assert_no_session();
    }
}

#[test]
fn what_the_script_leaves_running_is_ended() {
    let place = Place::new();
    // One that can be asked, one that has to be killed, and both have lost their parent.
    let script = place.script(
        "train",
        "(sleep 100 & echo $! > $MARKS/polite)\n\
         (setsid sh -c 'trap \"\" TERM; echo $$ > $MARKS/deaf; while :; do sleep 0.05; done' &)\n\
         while ! test -s $MARKS/deaf; do sleep 0.02; done\n\
         exit 4",
    );
    let ran = Ran::from(place.marking(script.to_str().unwrap()).output().unwrap());
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("exited with code 4"), "{ran:?}");
    assert!(ran.stderr.contains("of the script"), "{ran:?}");
    for name in ["polite", "deaf"] {
        let pid = wait_for(&place.marks().join(name));
        assert!(!is_running(&pid), "{name}");
    }
}

#[test]
fn the_script_goes_when_we_are_killed() {
    let place = Place::new();
    let script = place.script("train", "echo $$ > $MARKS/started\nwhile :; do sleep 0.05; done");
    let mut child = place.marking(script.to_str().unwrap()).spawn().unwrap();
    let pid = wait_for(&place.marks().join("started"));
    child.kill().unwrap();
    child.wait().unwrap();
    let until = Instant::now() + PATIENCE;
    while is_running(&pid) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!is_running(&pid));
}

/// Whoever has lost their parent and their session, too, however this machine keeps writes apart; and nobody else.
#[test]
fn what_the_script_left_running_goes_when_we_are_killed() {
    for way in ["mounts", "user", "traced"] {
        let place = Place::new();
        let script = place.script(
            "train",
            "(setsid sh -c 'trap \"\" TERM HUP; echo $$ > $MARKS/daemon; while :; do sleep 0.05; done' &)\n\
             while :; do sleep 0.05; done",
        );
        let mut neighbour = Command::new("sleep").arg("1000").spawn().unwrap();
        let mut command = place.marking(script.to_str().unwrap());
        let command = command.env("PLIMSOLL_WRITES_WAY", way).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let daemon = place.marks().join("daemon");
        let until = Instant::now() + PATIENCE;
        let has_said = || fs::read_to_string(&daemon).is_ok_and(|it| it.ends_with('\n'));
        while !has_said() && Instant::now() < until && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(10));
        }
        // A machine that has not this way runs nothing.
        let runs = child.try_wait().unwrap().is_none();
        child.kill().unwrap();
        let output = child.wait_with_output().unwrap();
        if runs {
            let pid = wait_for(&daemon);
            let until = Instant::now() + PATIENCE;
            while is_running(&pid) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(10));
            }
            assert!(!is_running(&pid), "{way}");
        } else {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(text.contains("cannot separate the script's writes"), "{way}: {text}");
        }
        assert!(neighbour.try_wait().unwrap().is_none(), "{way}");
        neighbour.kill().unwrap();
        neighbour.wait().unwrap();
    }
}

/// It outlives the plimsoll that started it, by hours.
#[test]
fn a_real_training_goes_on_when_we_are_killed() {
    let place = Place::new();
    let script = place.script(
        "train",
        "echo $$ > started\nread go < go\necho said; echo told >&2\necho $PLIMSOLL_SESSION > done",
    );
    nix::unistd::mkfifo(&place.path().join("go"), Mode::S_IRWXU).unwrap();
    let mut command = place.plimsoll(&["run", "--no-gpu", "--", script.to_str().unwrap()]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for(&place.path().join("started"));
    child.kill().unwrap();
    child.wait().unwrap();
    // Who waits for the pipe is alive.
    fs::write(place.path().join("go"), "on\n").unwrap();
    let session = wait_for(&place.path().join("done"));
    assert!(session.trim().starts_with(place.cache().to_str().unwrap()), "{session}");
}

const RAN_OUT: &str = r#"{"kind":"oom","device":0,"step":1,"phase":"forward","requested":1073741824,"message":"CUDA out of memory.","stack":[],"user_frame":{"file":"/train.py","line":7,"function":"<module>","text":"model(x)"},"caught":false,"allocs":[],"frees":[]}"#;
const FAILED: &str = r#"{"kind":"end","why":"oom","steps":1,"steady":false,"has_optimizer":true,"exit_code":1,"exception":{"type":"OutOfMemoryError","message":"CUDA out of memory."},"used_cuda":true,"seconds":1.0}"#;

/// A child ran out of memory, and its parent waits for what the child would have sent.
#[test]
fn who_waits_for_a_process_that_failed_is_ended_and_the_answer_stays() {
    let place = Place::new();
    let script = place.noting_script(
        "train",
        &[BEGIN, STEP, RAN_OUT, FAILED],
        "touch $PLIMSOLL_SESSION/failed\nexec sleep 1000",
    );
    let started = Instant::now();
    let ran =
        place.run(&["predict", "--gpu", "t4", "--until-exit", "--", script.to_str().unwrap()]);
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stdout.contains("DOES NOT FIT t4"), "{ran:?}");
    let told = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains("the script failed and did not end"), "{ran:?}");
    place.assert_no_session();
}

/// Somebody is not patient enough.
#[test]
fn ctrl_c_after_memory_ran_out_keeps_the_answer() {
    let place = Place::new();
    let script = place.noting_script(
        "train",
        &[BEGIN, STEP, RAN_OUT, FAILED],
        "touch $PLIMSOLL_SESSION/failed\necho $$ > $MARKS/started\nexec sleep 1000",
    );
    fs::create_dir_all(place.marks()).unwrap();
    let words = ["predict", "--through", "marks", "--gpu", "t4", script.to_str().unwrap()];
    let mut terminal = Terminal::start(place.plimsoll(&words));
    wait_for(&place.marks().join("started"));
    terminal.press_ctrl_c();
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(1), "{screen}");
    assert!(screen.contains("DOES NOT FIT"), "{screen}");
    assert!(!screen.contains("interrupted"), "{screen}");
}

#[test]
fn steps_that_could_not_be_written_down_are_not_told_as_not_done() {
    let place = Place::new();
    let cut = r#"{"kind":"cut","why":"File too large"}"#;
    let script = place.noting_script("train", &[BEGIN, STEP, cut], "exit 3");
    place.predict(&[script.to_str().unwrap()]).assert_sentence(
        "exited with code 3 after 1 optimizer step or more (plimsoll's notes could not be written any further: File too large)",
    );
}

#[test]
fn exit_codes_are_seen_where_the_parent_ignores_its_children() {
    let place = Place::new();
    let mut command = place.plimsoll(&["predict", "--", "sh", "-c", "exit 9"]);
    // SAFETY: one system call between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGCHLD, libc::SIG_IGN);
            Ok(())
        });
    }
    Ran::from(command.output().unwrap()).assert_sentence("exited with code 9");
}

#[test]
fn a_hundred_megabytes_of_output() {
    let place = Place::new();
    let script = place.script("train", "head -c 100000000 /dev/zero; exit 5");
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = place.plimsoll(&["predict", script.to_str().unwrap()]);
    let child = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
    drop(command);
    let counting =
        std::thread::spawn(move || std::io::copy(&mut { reader }, &mut std::io::sink()).unwrap());
    Ran::from(child.wait_with_output().unwrap()).assert_sentence("exited with code 5");
    assert_eq!(counting.join().unwrap(), 100_000_000);
    place.assert_no_session();
}

#[test]
fn the_script_has_our_standard_input() {
    let place = Place::new();
    let script = place.script("train", "read line; echo \"read: $line\"");
    let mut command = place.plimsoll(&["predict", script.to_str().unwrap()]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"hello\n").unwrap();
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert!(ran.stdout.starts_with("read: hello\n"), "{ran:?}");
}

#[test]
fn says_that_it_lives() {
    let place = Place::new();
    let script = place.noting_script("train", &[BEGIN, STEP], "sleep 3; exit 1");
    let terminal = Terminal::start(place.marking(script.to_str().unwrap()));
    let (_, screen) = terminal.end();
    assert!(screen.contains("plimsoll: running train on a phantom "), "{screen}");
    assert!(screen.contains(": 2 s, 1 step seen\n"), "{screen}");
}
