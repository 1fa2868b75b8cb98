//! Programs that try to go around the layer: through what they inherited, through other processes, the kernel's objects
//! and settings. Each under each way and as each kind of user: what is outside stays as it was.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::{
    fs,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use support::{As, PLAIN, Place, has_way, is_root, printed};

/// The ways of each kind of user that this machine has, with a word for each.
fn all() -> Vec<(As, &'static str)> {
    let as_root = [(As::Root, "mounts"), (As::Root, "user"), (As::Root, "traced")];
    let as_user = [(As::User, "user"), (As::User, "traced"), (As::UserInContainer, "traced")];
    let in_container = [(As::RootInContainer, "traced")];
    let ways = as_root.into_iter().chain(in_container).filter(|_| is_root()).chain(as_user);
    let res: Vec<_> = ways.filter(|(user, way)| has_way(*user, way)).collect();
    assert!(res.contains(&(As::User, "traced")), "{res:?}");
    res
}

/// (what, what the shell opens, a Python program, what it prints). In a folder as in `support`.
const INHERITED: &[(&str, &str, &str, &str)] = &[
    (
        "writes below a folder",
        "exec 9< d",
        "import os\n\
         w = lambda name, how: os.fdopen(os.open(name, how, dir_fd=9), 'w').write('new')\n\
         w('made', os.O_CREAT | os.O_WRONLY); w('x', os.O_WRONLY | os.O_TRUNC); os.mkdir('sub', dir_fd=9)\n\
         os.unlink('deep/y', dir_fd=9); os.rename('x', 'sub/x', src_dir_fd=9, dst_dir_fd=9)\n\
         print(sorted(os.listdir('d')), open('d/made').read(), open('d/sub/x').read(), os.path.samefile(9, 'd'))\n\
         os.fchdir(9); open('here', 'w'); os.fchmod(9, 0o700); print(os.getcwd()[-6:], os.path.exists('../d/here'))",
        "['deep', 'made', 'sub'] new new True\ntree/d True\n",
    ),
    (
        "writes into its standard input",
        "exec < a",
        "import os, sys\n\
         print(sys.stdin.readline().strip()); f = open('/dev/stdin', 'r+'); f.write('two'); f.flush(); print(open('a').read().strip())\n\
         os.fchmod(0, 0o600); os.truncate('/proc/self/fd/0', 1); print(os.stat('a').st_size, oct(os.stat('a').st_mode & 0o777))",
        "one\ntwo\n1 0o600\n",
    ),
    (
        "writes into what it may read",
        "exec 8< a 7< locked",
        "import os\n\
         for fd in (7, 8):\n    os.fchmod(fd, 0o600); os.utime(fd, (1, 1)); open(f'/proc/self/fd/{fd}', 'w').write(f'new {fd}')\n\
         os.setxattr(8, 'user.k', b'v'); os.truncate('/dev/fd/8', 4); print(open('a').read(), '|', open('locked').read())\n\
         f = os.open('/proc/self/fd/8', os.O_RDWR); os.write(f, b'NEW'); print(open('a').read())",
        "new  | new 7\nNEW \n",
    ),
    (
        "goes on where the shell had come to",
        "exec 8< a; read -r first <&8",
        "import os, subprocess\nprint(os.read(8, 9), os.lseek(8, 1, 0)); print(subprocess.check_output(['cat'], stdin=8, close_fds=False))",
        "b'' 1\nb'ne\\n'\n",
    ),
    (
        "reads what has no name any more",
        "printf 'gone\\n' > $OUT/gone; exec 6< $OUT/gone; rm $OUT/gone",
        "import os\nprint(os.read(6, 9))",
        "b'gone\\n'\n",
    ),
    (
        "passes on what it inherited",
        "exec 9< d 8< a",
        "import subprocess, sys\n\
         print(subprocess.check_output([sys.executable, '-c', 'import os; open(\"/proc/self/fd/8\", \"w\"); os.mkdir(\"s\", dir_fd=9); print(os.listdir(\"d\").count(\"s\"), os.stat(\"a\").st_size)'], pass_fds=[8, 9]))",
        "b'1 0\\n'\n",
    ),
];

#[test]
#[ignore = "part of `make soak`: minutes, and the rights to make namespaces or to trace"]
fn what_was_inherited_is_of_the_world() {
    let ways = all();
    let plain = if is_root() { As::Root } else { As::User };
    let mut wrong = Vec::new();
    for (what, before, script, expected) in INHERITED {
        for (user, way) in [(plain, PLAIN)].iter().chain(&ways) {
            let place = Place::new(*user);
            let (tree, out) = (place.picture(), ["python3", "-c", script]);
            let (out, err) = printed(&mut place.command(*user, way, before, &out));
            if out != *expected {
                wrong.push(format!("{what}, {user:?}, {way}: {out:?}, not {expected:?}\n{err}"));
            }
            let differs = place.picture() != tree && !before.contains("$OUT");
            if differs && *way != PLAIN {
                wrong.push(format!("{what}, {user:?}, {way}: the files have changed"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A file that is open by a name that it has no more, and has another one: nobody can say which file of the world it is.
#[test]
#[ignore = "part of `make soak`: minutes, and the rights to make namespaces or to trace"]
fn what_cannot_be_found_in_the_world_is_taken_away() {
    const SCRIPT: &str = "import os\n\
        for attempt in (lambda: os.fchmod(8, 0o600), lambda: open('/proc/self/fd/8', 'w').write('new'), lambda: os.mkdir('new', dir_fd=9)):\n    \
            try: attempt()\n    except OSError: pass";
    for (user, way) in all() {
        let place = Place::new(user);
        let before = "mkdir $OUT/f; echo it > $OUT/one; ln $OUT/one $OUT/other; exec 8< $OUT/one 9< $OUT/f; rm $OUT/one; rmdir $OUT/f";
        let (_, err) = printed(&mut place.command(user, way, before, &["python3", "-c", SCRIPT]));
        let other = fs::metadata(place.path().join("out/other")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::mode(&other.permissions());
        assert_eq!((mode & 0o777, other.len()), (0o644, 3), "{user:?}, {way}: {err}");
        assert!(!place.path().join("out/new").exists());
    }
}

/// Prints how many of each kind of System V objects there are, and whether there is a queue of this name.
const OBJECTS: &str = "import ctypes\n\
    for kind in ('shm', 'sem', 'msg'): print(kind, sum(it.split()[0] == '1886153069' for it in open('/proc/sysvipc/' + kind)))\n\
    q = ctypes.CDLL(None).mq_open(b'/plimsoll-test', 0); print('mq', q >= 0)";

/// Makes them, each with the key `plim`.
const MAKES_OBJECTS: &str = "import ctypes\nc = ctypes.CDLL(None)\n\
    print([it >= 0 for it in (c.shmget(0x706c696d, 4096, 0o1600), c.shmget(0, 4096, 0o1600), c.semget(0x706c696d, 1, 0o1600), c.msgget(0x706c696d, 0o1600), c.mq_open(b'/plimsoll-test', 0o102, 0o600, None))])\n\
    print(c.shmget(0x706c696d, 4096, 0) >= 0)";

#[test]
#[ignore = "part of `make soak`: minutes, and the rights to make namespaces or to trace"]
fn the_kernels_objects_go_with_the_run() {
    for (user, way) in all() {
        let place = Place::new(user);
        let objects = || place.run(user, PLAIN, &["python3", "-c", OBJECTS]).0;
        let before = objects();
        assert_eq!(before, "shm 0\nsem 0\nmsg 0\nmq False\n", "something was left by another test");
        let segments = || fs::read_to_string("/proc/sysvipc/shm").unwrap().lines().count();
        let n_segments = segments();
        let (out, err) = place.run(user, way, &["python3", "-c", MAKES_OBJECTS]);
        assert_eq!(out, "[True, True, True, True, True]\nTrue\n", "{user:?}, {way}: {err}");
        assert_eq!(objects(), before, "{user:?}, {way}");
        assert_eq!(segments(), n_segments, "{user:?}, {way}");
    }
}

/// What a run finds of others' objects it leaves.
#[test]
#[ignore = "part of `make soak`: minutes, and the rights to make namespaces or to trace"]
fn objects_of_others_stay() {
    const MAKES: &str = "import ctypes; c = ctypes.CDLL(None); c.shmget(0x706c696e, 4096, 0o1600); c.mq_open(b'/plimsoll-other', 0o102, 0o600, None)";
    const TAKES: &str = "import ctypes; c = ctypes.CDLL(None); print(c.shmget(0x706c696e, 4096, 0o1600) >= 0, c.mq_open(b'/plimsoll-other', 0o102, 0o600, None) >= 0)";
    const REMOVES: &str = "import ctypes; c = ctypes.CDLL(None); print(c.shmctl(c.shmget(0x706c696e, 4096, 0), 0, None), c.mq_unlink(b'/plimsoll-other'))";
    for (user, way) in all() {
        let place = Place::new(user);
        place.run(user, PLAIN, &["python3", "-c", MAKES]);
        let (out, err) = place.run(user, way, &["python3", "-c", TAKES]);
        assert_eq!(out, "True True\n", "{user:?}, {way}: {err}");
        assert_eq!(
            place.run(user, PLAIN, &["python3", "-c", REMOVES]).0,
            "0 0\n",
            "{user:?}, {way}"
        );
    }
}

/// Through the root and the folder of another process, its namespaces and its memory; the machine's settings.
const ESCAPES: &str = "import os, socket, ctypes\n\
    c = ctypes.CDLL(None, use_errno=True)\n\
    here, pid, outside = os.getcwd(), os.getppid(), []\n\
    def cwd_of(pid):\n    \
        try: return os.readlink(f'/proc/{pid}/cwd')\n    \
        except OSError: return ''\n\
    while pid > 1 and len(outside) < 3:\n    outside.append(pid); pid = int(open(f'/proc/{pid}/stat').read().rsplit(')', 1)[1].split()[1])\n\
    def attempt(what, it):\n    \
        try: it()\n    \
        except OSError: return\n    \
        print(what)\n\
    def ok(res):\n    \
        if res != 0: raise OSError(ctypes.get_errno(), '')\n\
    for pid in outside:\n    \
        attempt((pid, 'root'), lambda: open(f'/proc/{pid}/root' + here + '/a', 'w').write('new'))\n    \
        attempt((pid, 'root'), lambda: os.mkdir(f'/proc/{pid}/root' + here + '/new'))\n    \
        if cwd_of(pid) == here: attempt((pid, 'cwd'), lambda: os.mkdir(f'/proc/{pid}/cwd/new'))\n    \
        attempt((pid, 'mem'), lambda: open(f'/proc/{pid}/mem', 'r+b'))\n\
    attempt('hostname', lambda: socket.sethostname(socket.gethostname()))\n\
    for file in ('/proc/sys/vm/swappiness', '/proc/sys/kernel/core_pattern', '/sys/kernel/mm/transparent_hugepage/enabled'):\n    \
        if os.path.exists(file): attempt(file, lambda: open(file, 'r+'))\n\
    attempt('cgroup', lambda: os.mkdir('/sys/fs/cgroup/plimsoll-test'))\n\
    attempt('cgroup', lambda: os.mkdir('/sys/fs/cgroup/unified/plimsoll-test'))\n\
    for pid in outside: attempt((pid, 'setns'), lambda: ok(c.setns(os.open(f'/proc/{pid}/ns/mnt', 0), 0)))";

#[test]
#[ignore = "part of `make soak`: minutes, and the rights to make namespaces or to trace"]
fn other_processes_and_the_machine_are_no_way_out() {
    let mut wrong = Vec::new();
    for (user, way) in all() {
        let place = Place::new(user);
        let before = place.picture();
        let (out, err) = place.run(user, way, &["python3", "-c", ESCAPES]);
        for folder in ["", "unified/"] {
            let _ = fs::remove_dir(format!("/sys/fs/cgroup/{folder}plimsoll-test"));
        }
        if before != place.picture() {
            wrong.push(format!("{user:?}, {way}: the files have changed"));
        }
        // Where all names are looked up, what is written so is in the layer.
        let out: Vec<_> = out
            .lines()
            .filter(|it| way != "traced" || !(it.contains("'root'") || it.contains("'cwd'")))
            .collect();
        if !out.is_empty() || !err.is_empty() {
            wrong.push(format!("{user:?}, {way}: {} {err}", out.join(", ")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What a process may do with its own, it may do here.
#[test]
#[ignore = "part of `make soak`: minutes, and the rights to make namespaces or to trace"]
fn own_processes_are_reached() {
    const SCRIPT: &str = "import os, resource, signal, subprocess, sys, threading\n\
        child = subprocess.Popen(['sleep', '100'])\n\
        print(len(os.listdir(f'/proc/{child.pid}/fd')) > 0, os.readlink(f'/proc/{child.pid}/root'))\n\
        os.setpriority(os.PRIO_PROCESS, child.pid, 5); os.sched_setaffinity(child.pid, os.sched_getaffinity(0)); resource.prlimit(child.pid, resource.RLIMIT_CORE, (0, 0))\n\
        os.kill(child.pid, 0); child.terminate(); print(child.wait())\n\
        fd = None; child = subprocess.Popen(['sleep', '100'], start_new_session=True); os.killpg(child.pid, signal.SIGKILL); print(child.wait())\n\
        child = subprocess.Popen(['sleep', '100']); signal.pidfd_send_signal(os.pidfd_open(child.pid), signal.SIGTERM); print(child.wait())\n\
        got = []; signal.signal(signal.SIGUSR1, lambda *a: got.append(1)); os.kill(os.getpid(), signal.SIGUSR1); signal.pthread_kill(threading.get_ident(), signal.SIGUSR1); signal.raise_signal(signal.SIGUSR1); print(len(got))\n\
        print(subprocess.run([sys.executable, '-c', 'import os; os.setsid(); os.kill(0, 15)']).returncode, subprocess.run([sys.executable, '-c', 'import os; os.abort()']).returncode)\n\
        os.nice(1); resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n\
        try: os.kill(2**22 - 2, 0)\n\
        except ProcessLookupError: print('nobody')";
    let expected = "True /\n-15\n-9\n-15\n3\n-15 -6\nnobody\n";
    for (user, way) in all() {
        let (out, err) = Place::new(user).run(user, way, &["python3", "-c", SCRIPT]);
        assert_eq!(out, expected, "{user:?}, {way}: {err}");
    }
}

/// `ioctl`s that change a file that is open for reading, and some that only ask.
#[test]
#[ignore = "part of `make soak`: minutes, and the rights to make namespaces or to trace"]
fn ioctls_change_no_file_that_is_open_for_reading() {
    const SCRIPT: &str = "import fcntl, os\n\
        changing = (0x40087602, 0x40086604, 0x40086602, 0x401c5820, 0x40806685, 0x800c6613, 0x40047211, 0x6609, 0x4004f50d, 0x40088302)\n\
        f, g = os.open('a', 0), os.open('new', os.O_CREAT | os.O_RDWR)\n\
        def refused(fd, number, argument=b'\\0' * 256):\n    \
            try: fcntl.ioctl(fd, number, argument)\n    \
            except OSError as e: return e.errno == 1\n    \
            return False\n\
        print([hex(it) for it in changing for fd in (f, os.open('d', 0)) if not refused(fd, it)])\n\
        print([refused(f, it) for it in (0x80086601, 0x801c581f, 0xc020660b, 0x80087601)], refused(g, 0x40049409, f))";
    for (user, way) in all() {
        let place = Place::new(user);
        let before = place.picture();
        let (out, err) = place.run(user, way, &["python3", "-c", SCRIPT]);
        if way == "traced" {
            let expected = "[]\n[False, False, False, False] False\n";
            assert_eq!(out, expected, "{user:?}, {way}: {err}");
        }
        assert_eq!(before, place.picture(), "{user:?}, {way}: {out} {err}");
    }
}

/// A named pipe that nobody has open is a file like others.
#[test]
#[ignore = "part of `make soak`: minutes, and the rights to make namespaces or to trace"]
fn a_pipe_that_was_left_behind_stays_as_it_was() {
    const SCRIPT: &str = "import os\nname = 'le' + 'ft'; f = os.open(name, os.O_RDWR); os.write(f, b'hi'); print(os.read(f, 2)); \
        g = os.open(name, os.O_RDWR); os.write(g, b'ho'); print(os.read(f, 2)); os.chmod(name, 0o600); os.utime('link', (1, 1), follow_symlinks=False); os.unlink(name)";
    for (user, way) in all() {
        let place = Place::new(user);
        let made = place.run(user, PLAIN, &["mkfifo", "left"]);
        assert_eq!(made, (String::new(), String::new()));
        let before = place.picture();
        let (out, err) = place.run(user, way, &["python3", "-c", SCRIPT]);
        assert_eq!(out, "b'hi'\nb'ho'\n", "{user:?}, {way}: {err}");
        assert_eq!(before, place.picture(), "{user:?}, {way}");
    }
}

/// A process beside the run, of the same user.
struct Neighbour(Child);

impl Neighbour {
    fn new(place: &Place, user: As) -> Neighbour {
        let mut command = place.command(user, PLAIN, "", &["sleep", "100"]);
        let it = Neighbour(command.stdout(Stdio::null()).spawn().unwrap());
        while !it.looks().starts_with("sleep S") {
            std::thread::sleep(Duration::from_millis(5));
        }
        it
    }

    fn looks(&self) -> String {
        let pid = self.0.id();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let (name, rest) = stat.rsplit_once(')').unwrap();
        let words: Vec<_> = rest.split_whitespace().collect();
        let (name, state, nice) = (name.rsplit('(').next().unwrap(), words[0], words[16]);
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let processors = status.lines().find(|it| it.starts_with("Cpus_allowed:")).unwrap();
        let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        format!("{name} {state} {nice} {processors} {limits}")
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Signals to a process that is not the run's, one by one, and to all.
const SIGNALS: &str = "import ctypes, os, signal, sys\n\
    pid = int(sys.argv[1]); c = ctypes.CDLL(None, use_errno=True)\n\
    def attempt(what, it):\n    \
        try: it()\n    \
        except PermissionError: return\n    \
        print(what)\n\
    def ok(res):\n    \
        if res != 0: raise OSError(ctypes.get_errno(), '')\n\
    attempt('kill', lambda: os.kill(pid, signal.SIGSTOP))\n\
    attempt('tkill', lambda: ok(c.syscall(200, pid, 19)))\n\
    attempt('tgkill', lambda: ok(c.syscall(234, pid, pid, 19)))\n\
    attempt('queue', lambda: ok(c.sigqueue(pid, 19, None)))\n\
    attempt('pidfd', lambda: signal.pidfd_send_signal(os.pidfd_open(pid), signal.SIGSTOP))";
const OTHERS: &str = "\n\
    import resource\n\
    attempt('nice', lambda: os.setpriority(os.PRIO_PROCESS, pid, 7))\n\
    attempt('affinity', lambda: os.sched_setaffinity(pid, [0]))\n\
    attempt('scheduler', lambda: os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0)))\n\
    attempt('limits', lambda: resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0)))\n\
    attempt('ioprio', lambda: ok(c.syscall(251, 1, pid, 0x4007)))";

#[test]
#[ignore = "part of `make soak`: minutes, and the rights to make namespaces or to trace"]
fn neighbours_are_not_reached() {
    let mut wrong = Vec::new();
    for (user, way) in all() {
        let place = Place::new(user);
        let neighbour = Neighbour::new(&place, user);
        let before = neighbour.looks();
        let pid = neighbour.0.id().to_string();
        // Of a mount namespace the kernel is asked, which knows only signals.
        let script = if way == "mounts" { SIGNALS.to_owned() } else { SIGNALS.to_owned() + OTHERS };
        let (out, err) = place.run(user, way, &["python3", "-c", &script, &pid]);
        if !out.is_empty() || !err.is_empty() || neighbour.looks() != before {
            wrong.push(format!("{user:?}, {way}: {out} {err} {}", neighbour.looks()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A signal to the whole group, as `kill 0` sends it, reaches what the run has started and not who else is in the group.
#[test]
#[ignore = "part of `make soak`: minutes, and the rights to make namespaces or to trace"]
fn a_signal_to_all_reaches_the_run_only() {
    const SCRIPT: &str = "import os, signal, subprocess, sys\n\
        signal.signal(signal.SIGTERM, signal.SIG_IGN)\n\
        child = subprocess.Popen([sys.executable, '-c', 'import signal, time; signal.signal(signal.SIGURG, lambda *a: print(\"urgent\", flush=True)); \
            signal.signal(signal.SIGTERM, signal.SIG_DFL); print(\"ready\", flush=True); time.sleep(100)'], stdout=subprocess.PIPE, text=True)\n\
        print(child.stdout.readline().strip()); os.kill(-1, signal.SIGURG); print(child.stdout.readline().strip())\n\
        os.kill(0, signal.SIGTERM); print(child.wait())";
    for (user, way) in all() {
        let place = Place::new(user);
        let before = "sleep 100 > /dev/null 2>&1 & echo $!";
        let mut command = place.command(user, way, before, &["python3", "-c", SCRIPT]);
        let (out, err) = printed(command.process_group(0));
        let (neighbour, out) = out.split_once('\n').unwrap();
        let stat = fs::read_to_string(format!("/proc/{neighbour}/stat")).unwrap_or_default();
        let ended = Command::new("kill").args(["-KILL", neighbour]).status().unwrap().success();
        assert_eq!(out, "ready\nurgent\n-15\n", "{user:?}, {way}: {err}");
        assert!(stat.contains("(sleep) S") && ended, "{user:?}, {way}: {stat}");
    }
}

/// What a run leaves running goes when the program that has started it is killed, and nobody else does.
#[test]
#[ignore = "part of `make soak`: minutes, and the rights to make namespaces or to trace"]
fn what_is_left_running_goes_with_us() {
    const DAEMON: &str = "import os, sys, time\n\
        if os.fork(): time.sleep(100)\n\
        os.setsid()\n\
        if os.fork(): os._exit(0)\n\
        print(os.getpid(), flush=True); os.close(1); time.sleep(100)";
    for (user, way) in all() {
        let place = Place::new(user);
        let neighbour = Neighbour::new(&place, user);
        let mut command = place.command(user, way, "", &["python3", "-c", DAEMON]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut output, &mut line).unwrap();
        let daemon = Path::new("/proc").join(line.trim()).join("stat");
        assert!(daemon.exists(), "{user:?}, {way}: {line}");
        child.kill().unwrap();
        child.wait().unwrap();
        let runs = || {
            let stat = fs::read_to_string(&daemon).unwrap_or_default();
            stat.rsplit_once(')').is_some_and(|it| !it.1.starts_with(" Z"))
        };
        let until = Instant::now() + Duration::from_secs(60);
        while runs() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(!runs(), "{user:?}, {way}");
        // Our own helpers, too.
        let helpers = || processes_of(&place.path().join("bin/in-a-layer"));
        while helpers() != 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(helpers(), 0, "{user:?}, {way}");
        assert!(neighbour.looks().starts_with("sleep S"), "{user:?}, {way}");
    }
}

/// How many processes run this program.
fn processes_of(program: &Path) -> usize {
    let all = fs::read_dir("/proc").unwrap().flatten();
    all.filter(|it| fs::read_link(it.path().join("exe")).is_ok_and(|it| it == program)).count()
}

/// Between the tracer's look at a name and the kernel's, another thread of the program puts another name there: where the tracer
/// writes its own, by every call that changes memory, and where the program's own stands.
#[test]
#[ignore = "part of `make soak`: minutes, and the rights to make namespaces or to trace"]
fn a_thread_puts_no_other_name_under_the_tracer() {
    const HOW: [&str; 12] = [
        "write",
        "protect",
        "protect-far",
        "map",
        "unmap",
        "move",
        "move-away",
        "attach",
        "forget",
        "file",
        "call",
        "name",
    ];
    let mut wrong = Vec::new();
    for (user, way) in all().into_iter().filter(|it| it.1 == "traced") {
        let place = Place::new(user);
        let program = place.path().join("bin/attacks").display().to_string();
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/attacks.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-w", "-pthread", "-o", &program, source]);
        assert!(compiler.status().unwrap().success());
        let other = place.tree().join("a").display().to_string();
        for how in HOW {
            let before = place.picture();
            // Where names are changed, one that is written in truth.
            let own = if how == "name" { "/dev/null" } else { "new" };
            let (out, err) = place.run(user, way, &[&program, how, own, &other, "3000"]);
            if place.picture() != before || out != "did\n" {
                wrong.push(format!("{user:?}, {how}: {out:?} {err}"));
                fs::write(&other, "one\n").unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
