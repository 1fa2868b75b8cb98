//! As much of HTTP/1.1 as a browser needs that only asks: one thread for each connection, heads of a
//! bounded size, no bodies. It does not know what is asked.

use std::{
    io::{self, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, TcpListener, TcpStream},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Browsers send about 1 KiB.
const MOST_HEAD: usize = 16 << 10;
const MOST_HEADERS: usize = 64;
/// A browser opens six; several tabs, several times that.
const MOST_CONNECTIONS: usize = 128;
/// How often a connection on which nothing happens asks whether it is over.
const TICK: Duration = Duration::from_millis(200);
/// How long a connection may be idle, or take to say what it wants; and how long where there are many, so that nobody keeps
/// the owner out by holding them.
const PATIENCE: Duration = Duration::from_secs(60);
const PATIENCE_WITH_MANY: Duration = Duration::from_secs(1);
const MANY: usize = MOST_CONNECTIONS / 2;

/// The head of a request.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) target: String,
    headers: Vec<(String, String)>,
}

/// What to say.
pub(crate) struct Response {
    pub(crate) status: (u16, &'static str),
    pub(crate) headers: Vec<(&'static str, &'static str)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    /// The header called `name`; empty when there are several, which no browser sends.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|it| it.0.eq_ignore_ascii_case(name));
        let first = found.next()?;
        Some(if found.next().is_some() { "" } else { &first.1 })
    }
}

/// Answers on `listener` until `wait` returns. `meanwhile` runs beside, and asks whether it is over.
pub(crate) fn serve<T>(
    listener: &TcpListener,
    answer: &(dyn Fn(&Request) -> Response + Sync),
    meanwhile: &(dyn Fn(&dyn Fn() -> bool) + Sync),
    wait: impl FnOnce() -> T,
) -> T {
    let over = AtomicBool::new(false);
    let connections = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for stream in listener.incoming() {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                // Too many open files, or a connection that was closed before it was taken.
                let Ok(stream) = stream else {
                    thread::sleep(TICK);
                    continue;
                };
                // One that says nothing goes soon.
                while MOST_CONNECTIONS <= connections.load(Ordering::Relaxed)
                    && !over.load(Ordering::Relaxed)
                {
                    thread::sleep(TICK);
                }
                connections.fetch_add(1, Ordering::Relaxed);
                scope.spawn(|| {
                    let is_over = |since: Instant| {
                        let many = MANY <= connections.load(Ordering::Relaxed);
                        let patience = if many { PATIENCE_WITH_MANY } else { PATIENCE };
                        over.load(Ordering::Relaxed) || patience < since.elapsed()
                    };
                    // Whoever went away needs no answer.
                    let _ = converse(stream, answer, &is_over);
                    connections.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        scope.spawn(|| meanwhile(&|| over.load(Ordering::Relaxed)));
        let res = wait();
        over.store(true, Ordering::Relaxed);
        // The listener waits for somebody, so somebody comes.
        if let Ok(mut address) = listener.local_addr() {
            match address.ip() {
                IpAddr::V4(it) if it.is_unspecified() => {
                    address.set_ip(Ipv4Addr::LOCALHOST.into());
                }
                IpAddr::V6(it) if it.is_unspecified() => {
                    address.set_ip(Ipv6Addr::LOCALHOST.into());
                }
                _ => {}
            }
            let _ = TcpStream::connect_timeout(&address, TICK);
        }
        res
    })
}

/// Answers one request after another.
fn converse(
    mut stream: TcpStream,
    answer: &(dyn Fn(&Request) -> Response + Sync),
    is_over: &dyn Fn(Instant) -> bool,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TICK))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut buffer = Vec::new();
    while let Some((request, length)) = read_head(&mut stream, &mut buffer, is_over)? {
        buffer.drain(..length);
        let has_body = request.header("Content-Length").is_some_and(|it| it != "0")
            || request.header("Transfer-Encoding").is_some();
        let is_last = has_body
            || request.header("Connection").is_some_and(|it| it.eq_ignore_ascii_case("close"));
        write(&mut stream, &request, &answer(&request), is_last)?;
        if is_last {
            break;
        }
    }
    stream.shutdown(Shutdown::Both)
}

/// The next head and how long it is; none when the other side is done, or we are: `is_over` says so of one that waits since then.
fn read_head(
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
    is_over: &dyn Fn(Instant) -> bool,
) -> io::Result<Option<(Request, usize)>> {
    let start = Instant::now();
    let mut piece = [0_u8; 4096];
    loop {
        if let Some(res) = parse(buffer)? {
            return Ok(Some(res));
        }
        if MOST_HEAD < buffer.len() || is_over(start) {
            return Ok(None);
        }
        match stream.read(&mut piece) {
            Ok(0) => return Ok(None),
            Ok(n) => buffer.extend_from_slice(&piece[..n]),
            Err(error) if is_tick(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

fn is_tick(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

/// The head that `bytes` begin with, when all of it is there.
fn parse(bytes: &[u8]) -> io::Result<Option<(Request, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let status = request.parse(bytes).map_err(|it| io::Error::other(it.to_string()))?;
    let httparse::Status::Complete(length) = status else { return Ok(None) };
    let text = |it: &[u8]| String::from_utf8_lossy(it).trim().to_owned();
    let headers = request.headers.iter().map(|it| (it.name.to_owned(), text(it.value))).collect();
    let method = request.method.unwrap_or_default().to_owned();
    let target = request.path.unwrap_or_default().to_owned();
    Ok(Some((Request { method, target, headers }, length)))
}

fn write(
    stream: &mut TcpStream,
    request: &Request,
    response: &Response,
    is_last: bool,
) -> io::Result<()> {
    let (code, reason) = response.status;
    let mut bytes = format!("HTTP/1.1 {code} {reason}\r\n").into_bytes();
    for (name, value) in &response.headers {
        bytes.extend(format!("{name}: {value}\r\n").bytes());
    }
    let connection = if is_last { "close" } else { "keep-alive" };
    let length = response.body.len();
    bytes.extend(format!("Content-Length: {length}\r\nConnection: {connection}\r\n\r\n").bytes());
    if request.method != "HEAD" {
        bytes.extend_from_slice(&response.body);
    }
    stream.write_all(&bytes)?;
    stream.flush()
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn a_head_is_read_when_all_of_it_is_there() {
        let text = b"GET /token/?a=1 HTTP/1.1\r\nHost: localhost:1\r\nX: 1\r\nx: 2\r\n\r\nrest";
        assert!(parse(&text[..40]).unwrap().is_none());
        let (request, length) = parse(text).unwrap().unwrap();
        assert_eq!(&text[length..], b"rest");
        assert_eq!((request.method.as_str(), request.target.as_str()), ("GET", "/token/?a=1"));
        assert_eq!(request.header("host"), Some("localhost:1"));
        assert_eq!(request.header("x"), Some(""), "twice the same header is somebody's trick");
        assert_eq!(request.header("Origin"), None);
        assert!(parse(b"\x16\x03\x01 not http").is_err());
    }

    #[test]
    fn who_holds_all_connections_keeps_nobody_out() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answer =
            |_: &Request| Response { status: (200, "OK"), headers: Vec::new(), body: Vec::new() };
        serve(&listener, &answer, &|_| {}, || {
            let silent: Vec<TcpStream> =
                (0..MOST_CONNECTIONS + 20).map(|_| TcpStream::connect(address).unwrap()).collect();
            let mut owner = TcpStream::connect(address).unwrap();
            owner.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            write!(owner, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
            let mut text = String::new();
            owner.read_to_string(&mut text).unwrap();
            assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");
            drop(silent);
        });
    }

    #[test]
    fn many_connections_that_stay_open_are_all_answered_and_all_ended() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answer = |request: &Request| Response {
            status: (200, "OK"),
            headers: Vec::new(),
            body: request.target.clone().into_bytes(),
        };
        serve(&listener, &answer, &|_| {}, || {
            let mut streams: Vec<TcpStream> =
                (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
            for round in 0..3 {
                for (index, stream) in streams.iter_mut().enumerate() {
                    write!(stream, "GET /{round}-{index} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
                }
                for (index, stream) in streams.iter_mut().enumerate() {
                    let expected = format!("/{round}-{index}");
                    let mut text = String::new();
                    while !text.ends_with(&expected) {
                        let mut piece = [0_u8; 256];
                        let n = stream.read(&mut piece).unwrap();
                        assert_ne!(n, 0, "{text}");
                        text += std::str::from_utf8(&piece[..n]).unwrap();
                    }
                }
            }
        });
    }
}
