//! `network` of a session: whom its processes reached, and where they listened themselves, a line each, as the preloaded library
//! writes it (`crates/writes/preload/src/reach.rs`). What is left is whom the script reached outside of itself.

use std::{collections::BTreeSet, net::SocketAddr};

use crate::recording::{Reached, Transport};

/// How the address of a socket begins that is a file or has a name of its own.
const UNIX: &str = "unix:";
/// Where names are looked up, and no program says anything.
const NAMES: u16 = 53;
/// Sockets by which the system's own libraries look up users, hosts and numbers.
const LOOK_UPS: [&str; 8] = [
    "/run/systemd/",
    "/var/run/systemd/",
    "/run/nscd/",
    "/var/run/nscd/",
    "/var/lib/sss/",
    "/run/avahi-daemon/",
    "/var/run/avahi-daemon/",
    "/run/uuidd/",
];

/// Reads it. A line that is none is left out: a process may be killed while it writes.
pub fn read(bytes: &[u8]) -> Reached {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<Line<'_>> = text.lines().filter_map(Line::read).collect();
    let own: Own<'_> = lines.iter().filter(|it| it.what == What::Own).map(|it| it.to).collect();
    let mut res = Reached::default();
    for it in lines.iter().filter(|it| !own.has(it)) {
        let (transport, name) = match (it.what, it.to) {
            (What::Own, _) => continue,
            (What::Datagram, To::Inet(to)) if to.port() == NAMES => continue,
            (What::Datagram, To::Inet(_)) => (Transport::Udp, it.name()),
            (_, To::Inet(_)) => (Transport::Tcp, it.name()),
            (_, To::Unix(path)) if LOOK_UPS.iter().any(|it| path.starts_with(it)) => continue,
            (_, To::Unix(_)) => (Transport::Unix, it.name()),
        };
        res.count(&name, transport, 1);
    }
    res
}

/// Where processes of the run listened.
struct Own<'a>(BTreeSet<To<'a>>);

impl<'a> FromIterator<To<'a>> for Own<'a> {
    fn from_iter<I: IntoIterator<Item = To<'a>>>(all: I) -> Own<'a> {
        Own(all.into_iter().collect())
    }
}

impl Own<'_> {
    fn has(&self, it: &Line<'_>) -> bool {
        // Who listens everywhere is reached by each address of the machine.
        let everywhere = |port: u16| {
            let is_it = |own: &To<'_>| matches!(own, To::Inet(own) if own.port() == port && own.ip().is_unspecified());
            self.0.iter().any(is_it)
        };
        self.0.contains(&it.to)
            || matches!(it.to, To::Inet(to) if it.is_on_this_machine(to) && everywhere(to.port()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Own,
    Connection,
    ConnectionHere,
    Datagram,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum To<'a> {
    Inet(SocketAddr),
    /// As it was written: a word without anything that a terminal would act upon.
    Unix(&'a str),
}

#[derive(Debug)]
struct Line<'a> {
    what: What,
    to: To<'a>,
    /// What the program asked for, likewise.
    asked: Option<&'a str>,
}

impl<'a> Line<'a> {
    fn read(line: &'a str) -> Option<Line<'a>> {
        let mut words = line.split(' ');
        let what = match words.next()? {
            "own" => What::Own,
            "stream" => What::Connection,
            "stream-here" => What::ConnectionHere,
            "datagram" => What::Datagram,
            _ => return None,
        };
        let to = words.next()?;
        let to = match to.strip_prefix(UNIX) {
            Some(name) => To::Unix(name),
            None => To::Inet(to.parse().ok()?),
        };
        let is_plain = |it: &&str| it.bytes().all(|it| it.is_ascii_graphic());
        let asked = words.next().filter(is_plain);
        let is_sound = match to {
            To::Inet(_) => true,
            To::Unix(name) => is_plain(&name),
        };
        is_sound.then_some(Line { what, to, asked })
    }

    fn is_on_this_machine(&self, to: SocketAddr) -> bool {
        self.what == What::ConnectionHere || to.ip().is_loopback()
    }

    /// For people.
    fn name(&self) -> String {
        match (self.to, self.asked) {
            (To::Unix(name), _) => name.to_owned(),
            // An address was asked for, not a name.
            (To::Inet(to), Some(asked)) if !asked.contains(':') && asked != to.ip().to_string() => {
                format!("{asked}:{}", to.port())
            }
            (To::Inet(to), _) => to.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(text: &str) -> Vec<String> {
        let reached = read(text.as_bytes());
        let of = |it: &crate::recording::Destination| {
            format!("{:?} {} {}", it.transport, it.name, it.count)
        };
        reached.destinations().iter().map(of).collect()
    }

    #[test]
    fn connections_are_counted_by_their_names() {
        assert_eq!(
            seen(
                "stream 93.184.216.34:443 hooks.slack.com\nstream 93.184.216.35:443 hooks.slack.com\n\
                 stream-here 127.0.0.1:5432 localhost\nstream 10.0.0.3:80 10.0.0.3\nstream [2001:db8::1]:443\n\
                 datagram 10.0.0.3:8125\nstream unix:/run/docker.sock\ndatagram unix:/dev/log\nstream unix:%00x\n"
            ),
            [
                "Tcp hooks.slack.com:443 2",
                "Tcp localhost:5432 1",
                "Tcp 10.0.0.3:80 1",
                "Tcp [2001:db8::1]:443 1",
                "Udp 10.0.0.3:8125 1",
                "Unix /run/docker.sock 1",
                "Unix /dev/log 1",
                "Unix %00x 1"
            ]
        );
    }

    #[test]
    fn the_runs_own_processes_are_nobody() {
        // A store that listens everywhere, a pair of gloo, a manager of multiprocessing; and a database beside them.
        assert_eq!(
            seen(
                "own [::]:29500\nstream-here 127.0.0.1:29500 localhost\nstream-here 10.0.0.5:29500 node7\n\
                 own 10.0.0.5:41234\nstream-here 10.0.0.5:41234\nown unix:/run/user/7/pymp-1/listener\n\
                 stream unix:/run/user/7/pymp-1/listener\nstream-here 127.0.0.1:41234\nstream 10.0.0.9:29500\n\
                 stream-here 127.0.0.1:5432\n"
            ),
            ["Tcp 127.0.0.1:41234 1", "Tcp 10.0.0.9:29500 1", "Tcp 127.0.0.1:5432 1"]
        );
    }

    #[test]
    fn look_ups_and_broken_lines_are_left_out() {
        assert_eq!(
            seen(
                "datagram 127.0.0.53:53\nstream unix:/run/systemd/userdb/io.systemd.DynamicUser\n\
                 stream unix:/var/run/nscd/socket\nstream\nstream nowhere:80\nsomething 1.2.3.4:5\n\
                 stream unix:\u{1b}[2J\nstream 1.2.3.4:5 \u{1b}[2J\nstream 1.2."
            ),
            ["Tcp 1.2.3.4:5 1"]
        );
    }
}
