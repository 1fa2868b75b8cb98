//! Programs that reach servers outside of themselves, with the library preloaded: what is written down of it.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::{
    fs,
    net::{TcpListener, UdpSocket},
    os::unix::net::{UnixDatagram, UnixListener},
    path::PathBuf,
    process::Command,
};

/// A folder of a session, and servers that are nobody's below it.
struct Outside {
    folder: tempfile::TempDir,
    tcp: TcpListener,
    udp: UdpSocket,
    _unix: UnixListener,
    _log: UnixDatagram,
}

impl Outside {
    fn new() -> Outside {
        let folder = tempfile::tempdir().unwrap();
        let of = |name| folder.path().join(name);
        Outside {
            tcp: TcpListener::bind("127.0.0.1:0").unwrap(),
            udp: UdpSocket::bind("127.0.0.1:0").unwrap(),
            _unix: UnixListener::bind(of("a b.sock")).unwrap(),
            _log: UnixDatagram::bind(of("log")).unwrap(),
            folder,
        }
    }

    /// What a program leaves, with names in the place of what differs from run to run.
    fn seen(&self, program: &str) -> Vec<String> {
        let begin = "import socket, sys\nport, udp = map(int, sys.argv[1:])\nhere = '127.0.0.1'\n";
        let tests = std::env::current_exe().unwrap();
        let library: PathBuf = tests.parent().unwrap().join("libplimsoll_writes_preload.so");
        let file = self.folder.path().join("network");
        let _ = fs::remove_file(&file);
        let (tcp, udp) =
            (self.tcp.local_addr().unwrap().port(), self.udp.local_addr().unwrap().port());
        let ran = Command::new("python3")
            .args(["-c", &format!("{begin}{program}"), &tcp.to_string(), &udp.to_string()])
            .current_dir(self.folder.path())
            .env("LD_PRELOAD", library)
            .env("PLIMSOLL_SESSION", self.folder.path())
            .output()
            .unwrap();
        assert!(ran.status.success(), "{program}: {}", String::from_utf8_lossy(&ran.stderr));
        let text = fs::read_to_string(&file).unwrap_or_default();
        let text = text.replace(&format!(":{tcp}"), ":TCP").replace(&format!(":{udp}"), ":UDP");
        text.lines().map(str::to_owned).collect()
    }
}

const TCP: &str = "stream-here 127.0.0.1:TCP";

#[test]
fn each_connection_that_stands_is_a_line() {
    let outside = Outside::new();
    for (program, expected) in [
        ("socket.create_connection((here, port))", &["stream-here 127.0.0.1:TCP 127.0.0.1"][..]),
        ("s = socket.socket(); s.connect((here, port))", &[TCP]),
        ("for _ in range(2): socket.socket().connect((here, port))", &[TCP, TCP]),
        // It does not wait for it, and asks later.
        ("s = socket.socket(); s.settimeout(5); s.connect((here, port))", &[TCP]),
        ("import asyncio\nasyncio.run(asyncio.open_connection(here, port))", &[TCP]),
        ("socket.create_connection(('localhost', port))", &["stream-here 127.0.0.1:TCP localhost"]),
        ("s = socket.socket(socket.AF_UNIX); s.connect('a b.sock')", &["stream unix:a%20b.sock"]),
    ] {
        assert_eq!(outside.seen(program), expected, "{program}");
    }
}

#[test]
fn what_reaches_nobody_is_none() {
    let outside = Outside::new();
    for program in [
        // Refused; on a port that was free a moment ago.
        "free = socket.socket(); free.bind((here, 0)); gone = free.getsockname(); free.close()\n\
         import os; os.remove('network')\n\
         for timeout in (None, 5):\n    s = socket.socket(); s.settimeout(timeout)\n    assert s.connect_ex(gone) != 0",
        // How a program finds its own address.
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect((here, udp)); s.getsockname()",
        "a, b = socket.socketpair(); a.send(b'x')",
        "socket.getaddrinfo('localhost', 80)",
    ] {
        assert_eq!(outside.seen(program), [""; 0], "{program}");
    }
}

#[test]
fn datagrams_are_a_line_for_each_receiver() {
    let outside = Outside::new();
    let udp = "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n";
    for (program, expected) in [
        ("for _ in range(3): s.sendto(b'x', (here, udp))", "datagram 127.0.0.1:UDP"),
        ("s.connect((here, udp)); s.send(b'x'); s.send(b'x')", "datagram 127.0.0.1:UDP"),
        ("s.sendmsg([b'x'], [], 0, (here, udp))", "datagram 127.0.0.1:UDP"),
        (
            "s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.sendto(b'x', 'log')",
            "datagram unix:log",
        ),
    ] {
        assert_eq!(outside.seen(&format!("{udp}{program}")), [expected], "{program}");
    }
}

/// From which a reader sees that nobody outside was reached.
#[test]
fn where_a_program_listens_itself_is_said() {
    let seen = Outside::new().seen(
        "server = socket.create_server((here, 0)); own = server.getsockname()[1]\n\
         import os\n\
         if os.fork() == 0:\n    socket.create_connection((here, own)); os._exit(0)\n\
         os.wait(); print(own)\n\
         socket.socket(socket.AF_UNIX).bind('\\0name')",
    );
    let [listens, connects, abstract_one] = &seen[..] else { panic!("{seen:?}") };
    let own = listens.strip_prefix("own ").unwrap();
    assert_eq!(connects, &format!("stream-here {own} 127.0.0.1"));
    assert_eq!(abstract_one, "own unix:%00name");
}

#[test]
fn without_a_session_nothing_is_written() {
    let outside = Outside::new();
    let program =
        "import os; os.unsetenv('PLIMSOLL_SESSION'); socket.socket().connect((here, port))";
    assert_eq!(outside.seen(program), [""; 0]);
}
