//! Who may read the numbers, and where.

use std::{
    fmt, io,
    net::{SocketAddr, TcpListener},
    time::Duration,
};

use nix::sys::signal::Signal;

use crate::{
    commands::exporter::text::Format,
    files::reason::reason,
    server::{
        http::{self, Request, Response},
        is_loopback, same,
    },
    signals::Signals,
};

/// What is below the address.
const PATH: &str = "/metrics";
const START: &str = "plimsoll exporter: the metrics are at /metrics\n";

/// Listens, and answers who may read.
pub(super) struct Server {
    listener: TcpListener,
    address: SocketAddr,
    token: Option<String>,
}

/// Gives the text of all numbers.
pub(super) type Metrics<'a> = dyn Fn(Format) -> Result<String, fmt::Error> + Sync + 'a;

impl Server {
    /// Elsewhere than on this machine's loopback only for those who show who they are: process names and users are nobody's business.
    pub(super) fn listen(address: SocketAddr, token: Option<String>) -> anyhow::Result<Server> {
        anyhow::ensure!(
            address.ip().is_loopback() || token.is_some(),
            "other machines could read at {address} who trains which script here: give a secret with --token-file, or listen on 127.0.0.1"
        );
        let listener = TcpListener::bind(address).map_err(|error| {
            anyhow::anyhow!(
                "cannot listen on {address}: {}; name another with --listen",
                reason(&error)
            )
        })?;
        let address = listener.local_addr().unwrap_or(address);
        Ok(Server { listener, address, token })
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}{PATH}", self.address)
    }

    /// Answers until a signal asks to end.
    pub(super) fn serve(&self, metrics: &Metrics<'_>, signals: &Signals) -> io::Result<()> {
        let wait = || loop {
            match signals.next(Duration::from_secs(60)) {
                Ok(Some(it)) if it.signal == Signal::SIGCHLD => {}
                Ok(None) => {}
                other => return other.map(|_| ()),
            }
        };
        http::serve(&self.listener, &|request| self.respond(request, metrics), &|_| {}, wait)
    }

    fn respond(&self, request: &Request, metrics: &Metrics<'_>) -> Response {
        let host = request.header("Host").unwrap_or_default();
        let path = request.target.split('?').next().unwrap_or_default();
        if self.address.ip().is_loopback() && !is_loopback(host) {
            // A page elsewhere may have had the name of its own server point here.
            return plain(
                (403, "Forbidden"),
                "this exporter accepts the hosts 127.0.0.1 and localhost only\n",
            );
        }
        if !matches!(request.method.as_str(), "GET" | "HEAD") {
            let mut res = plain((405, "Method Not Allowed"), "only GET and HEAD are allowed\n");
            res.headers.push(("Allow", "GET, HEAD"));
            return res;
        }
        if !self.knows(request.header("Authorization").unwrap_or_default()) {
            let mut res = plain(
                (401, "Unauthorized"),
                "send the token: `Authorization: Bearer TOKEN`, in Prometheus authorization.credentials_file\n",
            );
            res.headers.push(("WWW-Authenticate", "Bearer"));
            return res;
        }
        match path {
            PATH => {
                let format = Format::wanted(request.header("Accept").unwrap_or_default());
                match metrics(format) {
                    Ok(text) => answer((200, "OK"), format.content_type(), text.into_bytes()),
                    Err(_) => {
                        plain((500, "Internal Server Error"), "the metrics could not be written\n")
                    }
                }
            }
            "/" => plain((200, "OK"), START),
            _ => plain((404, "Not Found"), START),
        }
    }

    /// Whether a request has the token, where there is one.
    fn knows(&self, authorization: &str) -> bool {
        let Some(token) = &self.token else { return true };
        let given = authorization.split_once(' ').filter(|it| it.0.eq_ignore_ascii_case("bearer"));
        given.is_some_and(|it| same(it.1.trim().as_bytes(), token.as_bytes()))
    }
}

fn plain(status: (u16, &'static str), text: &str) -> Response {
    answer(status, "text/plain; charset=utf-8", text.as_bytes().to_vec())
}

fn answer(status: (u16, &'static str), kind: &'static str, body: Vec<u8>) -> Response {
    let headers = vec![
        ("Content-Type", kind),
        ("X-Content-Type-Options", "nosniff"),
        ("Cache-Control", "no-store"),
    ];
    Response { status, headers, body }
}
