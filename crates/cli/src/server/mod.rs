//! The viewer's server: loopback only, and only for who knows the address. It keeps the recordings in
//! memory and writes nothing. Of files it opens only Python's that a recording names, for a few lines.

pub(crate) mod answers;
pub(crate) mod assets;
pub(crate) mod http;
pub(crate) mod live;

use std::{fmt, io, net::TcpListener, time::Duration};

use anyhow::Context as _;
use nix::sys::signal::Signal;

use crate::{
    files::reason::reason,
    server::{
        answers::{Gallery, Kind, Reply},
        http::{Request, Response},
    },
    signals::Signals,
};

/// The page runs its own code and talks to us; nothing else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What "Save page" saves: the page in one file, as `view --html` makes it.
const SAVED: &str = "page.html";

/// What is shown. Whoever asks first waits until it is made.
pub(crate) type Shown<'g> = dyn Fn() -> &'g Gallery<'g> + Sync + 'g;

/// A server that listens.
pub(crate) struct Server {
    listener: TcpListener,
    port: u16,
    token: String,
}

/// Why a request gets no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// It came for another name than this machine's own: a page elsewhere may have had the name of its
    /// own server point here.
    Host,
    /// Another page asked.
    Origin,
    /// It would change something, and nothing here can be changed.
    Method,
    /// It does not know the address.
    Token,
}

impl Server {
    /// Listens on `port` of this machine's loopback; 0 is any that is free.
    /// The address has `token`, or one that nobody can guess.
    pub(crate) fn listen(port: u16, token: Option<&str>) -> anyhow::Result<Server> {
        let listener = TcpListener::bind(("127.0.0.1", port)).map_err(|error| {
            anyhow::anyhow!(
                "cannot listen on port {port}: {}; name another port with --port, or remove --port",
                reason(&error)
            )
        })?;
        let port = listener.local_addr().map_or(port, |it| it.port());
        let mut bytes = [0_u8; 16];
        getrandom::fill(&mut bytes).context("cannot get random numbers from the system")?;
        let random = || bytes.iter().map(|it| format!("{it:02x}")).collect();
        let token = token.map_or_else(random, str::to_owned);
        Ok(Server { listener, port, token })
    }

    /// Where the page is.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/{}/", self.port, self.token)
    }

    /// The port that it listens on.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Answers until a signal asks to end. The page's own files do not wait for the gallery.
    pub(crate) fn serve(&self, gallery: &Shown<'_>, signals: &Signals) -> io::Result<()> {
        let wait = || loop {
            match signals.next(Duration::from_secs(60)) {
                // The browser that we started has ended; ours to go on.
                Ok(Some(it)) if it.signal == Signal::SIGCHLD => {}
                Ok(None) => {}
                other => return other.map(|_| ()),
            }
        };
        let answer = |request: &Request| self.respond(request, gallery);
        http::serve(&self.listener, &answer, &|is_over| gallery().prepare(is_over), wait)
    }

    fn respond(&self, request: &Request, gallery: &Shown<'_>) -> Response {
        let (status, reply) = match self.admit(request) {
            Err(Refusal::Method) => {
                ((405, "Method Not Allowed"), Reply::error(&Refusal::Method.to_string()))
            }
            Err(refusal) => ((403, "Forbidden"), Reply::error(&refusal.to_string())),
            Ok(SAVED) => {
                let page = assets::one_file(gallery());
                ((200, "OK"), Reply { kind: Kind::Html, bytes: page.into_bytes() })
            }
            Ok(path) => match assets::find(path).or_else(|| gallery().answer(path)) {
                Some(Ok(reply)) => ((200, "OK"), reply),
                Some(Err(sentence)) => ((400, "Bad Request"), Reply::error(&sentence)),
                None => ((404, "Not Found"), Reply::error("there is nothing at this address")),
            },
        };
        let mut headers = vec![
            ("Content-Type", reply.kind.content_type()),
            ("Content-Security-Policy", POLICY),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Cross-Origin-Opener-Policy", "same-origin"),
            ("Cache-Control", "no-store"),
        ];
        if status.0 == 405 {
            headers.push(("Allow", "GET, HEAD"));
        }
        // It is a file to save: what it needs, this policy does not allow here.
        if self.admit(request) == Ok(SAVED) {
            headers.push(("Content-Disposition", "attachment"));
        }
        Response { status, headers, body: reply.bytes }
    }

    /// The path below the token, with its query, of a request that may be answered.
    fn admit<'r>(&self, request: &'r Request) -> Result<&'r str, Refusal> {
        let host = request.header("Host").unwrap_or_default();
        if !is_loopback(host) {
            return Err(Refusal::Host);
        }
        if request.header("Origin").is_some_and(|it| it != format!("http://{host}"))
            || request.header("Sec-Fetch-Site").is_some_and(|it| it.ends_with("-site"))
        {
            return Err(Refusal::Origin);
        }
        if !matches!(request.method.as_str(), "GET" | "HEAD") {
            return Err(Refusal::Method);
        }
        let rest = request.target.strip_prefix('/').unwrap_or_default();
        let (token, path) = rest.split_once('/').ok_or(Refusal::Token)?;
        if same(token.as_bytes(), self.token.as_bytes()) { Ok(path) } else { Err(Refusal::Token) }
    }
}

/// Whether `host` is a name of this machine for itself. The port may be another one, forwarded by ssh.
pub(crate) fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|it| it.is_ascii_digit()) => {
            name
        }
        _ => host,
    };
    matches!(name, "127.0.0.1" | "localhost" | "[::1]")
}

/// Compares without telling by the time it takes where the first difference is.
pub(crate) fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

impl Kind {
    fn content_type(self) -> &'static str {
        match self {
            Kind::Html => "text/html; charset=utf-8",
            Kind::Css => "text/css; charset=utf-8",
            Kind::Script => "text/javascript; charset=utf-8",
            Kind::Json => "application/json",
            Kind::Columns => "application/octet-stream",
            Kind::Svg => "image/svg+xml",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Host => "this server accepts the hosts 127.0.0.1 and localhost only",
            Refusal::Origin => "another web page sent this request; only the viewer's own page may",
            Refusal::Method => "this server is read-only: only GET and HEAD are allowed",
            Refusal::Token => {
                "the address is not complete: open the address that `plimsoll view` printed"
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_for_itself_are_loopback() {
        for host in ["127.0.0.1:8080", "localhost:9000", "localhost", "[::1]:80"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "127.0.0.1.evil.example:80",
            "localhost.evil:1",
            "127.0.0.2",
            "127.0.0.1:",
            "x@localhost",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn tokens_are_the_same_or_not() {
        assert!(same(b"abc", b"abc"));
        assert!(!same(b"abc", b"abd"));
        assert!(!same(b"abc", b"ab"));
        assert!(!same(b"", b"ab"));
    }
}
