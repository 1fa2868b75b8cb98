//! Whom a script reached, as a sentence of the report.

use std::fmt;

use crate::recording::{Destination, Reached, Transport};

/// So many are named.
const NAMED: usize = 5;
/// One process writes down no more.
const MOST_COUNTED: u64 = 10_000;

impl Reached {
    /// What the report says; nothing if it reached nobody.
    pub fn sentence(&self) -> Option<String> {
        let (datagrams, connections): (Vec<_>, Vec<_>) =
            self.destinations().iter().partition(|it| it.transport == Transport::Udp);
        let did = match (connections.as_slice(), datagrams.as_slice()) {
            ([], []) => return None,
            (to, []) => format!("connected to {}", Listed(to)),
            ([], to) => format!("sent datagrams to {}", Listed(to)),
            (to, others) => {
                format!("connected to {} and sent datagrams to {}", Listed(to), Listed(others))
            }
        };
        let is_kept_off = |it: &Destination| it.transport != Transport::Unix;
        let hint = match self.destinations().iter().filter(|it| is_kept_off(it)).count() {
            0 => "",
            n if n == self.destinations().len() => "; `--offline` takes the network away",
            _ => "; `--offline` takes the network away, but not sockets of this machine",
        };
        Some(format!("the script {did}: that traffic was real{hint}"))
    }
}

/// As words of a sentence.
struct Listed<'a>(&'a [&'a Destination]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = self.0.len().min(NAMED);
        let more = self.0.len() - named;
        for (i, it) in self.0.iter().take(named).enumerate() {
            match i {
                0 => (),
                _ if i + 1 == named && more == 0 => f.write_str(" and ")?,
                _ => f.write_str(", ")?,
            }
            write!(f, "{it}")?;
        }
        match more {
            0 => Ok(()),
            n => write!(f, " and {n} more"),
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.transport == Transport::Unix {
            f.write_str("the socket ")?;
        }
        f.write_str(&self.name)?;
        match (self.transport, self.count) {
            (Transport::Udp, _) | (_, ..=1) => Ok(()),
            (_, MOST_COUNTED..) => write!(f, " (10,000 times or more)"),
            (_, n) => write!(f, " ({n} times)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(all: &[(&str, Transport, u64)]) -> String {
        let mut it = Reached::default();
        all.iter().for_each(|(name, transport, times)| it.count(name, *transport, *times));
        it.sentence().unwrap_or_default()
    }

    #[test]
    fn one_sentence_says_whom_it_reached() {
        use Transport::{Tcp, Udp, Unix};
        assert_eq!(said(&[]), "");
        assert_eq!(
            said(&[("hooks.slack.com:443", Tcp, 1), ("hooks.slack.com:443", Tcp, 1)]),
            "the script connected to hooks.slack.com:443 (2 times): that traffic was real; `--offline` takes the network away"
        );
        assert_eq!(
            said(&[("localhost:5432", Tcp, 12_000), ("10.0.0.3:8125", Udp, 3)]),
            "the script connected to localhost:5432 (10,000 times or more) and sent datagrams to 10.0.0.3:8125: that traffic \
             was real; `--offline` takes the network away"
        );
        assert_eq!(
            said(&[("/run/docker.sock", Unix, 1)]),
            "the script connected to the socket /run/docker.sock: that traffic was real"
        );
        assert_eq!(
            said(&[("/run/docker.sock", Unix, 2), ("a:1", Tcp, 1), ("b:1", Tcp, 1)]),
            "the script connected to the socket /run/docker.sock (2 times), a:1 and b:1: that traffic was real; `--offline` takes the network away, but not sockets of this machine"
        );
        let many: Vec<String> = (0..7).map(|it| format!("h{it}:80")).collect();
        let many: Vec<_> = many.iter().map(|it| (it.as_str(), Udp, 1)).collect();
        assert_eq!(
            said(&many),
            "the script sent datagrams to h0:80, h1:80, h2:80, h3:80, h4:80 and 2 more: that traffic was real; `--offline` takes the network away"
        );
    }
}
