//! Whom a script reached outside of its own processes. A run on a phantom sends what a real one sends.

/// By what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Connections.
    Tcp,
    /// Datagrams.
    Udp,
    /// A socket that is a file, or has a name of its own, on this machine.
    Unix,
}

/// One of whom it reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// `hooks.slack.com:443`, or the name of a socket, without blanks or what a terminal would act upon.
    pub name: String,
    /// By what it was reached.
    pub transport: Transport,
    /// Connections; of datagrams, the processes that sent some.
    pub count: u64,
}

/// All of them, in the order in which they were reached first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    destinations: Vec<Destination>,
}

impl Reached {
    /// All of them.
    pub fn destinations(&self) -> &[Destination] {
        &self.destinations
    }

    /// It was reached, so often.
    pub fn count(&mut self, name: &str, transport: Transport, times: u64) {
        let is_it = |it: &&mut Destination| it.name == name && it.transport == transport;
        match self.destinations.iter_mut().find(is_it) {
            Some(it) => it.count += times,
            None => {
                let name = name.to_owned();
                self.destinations.push(Destination { name, transport, count: times });
            }
        }
    }

    /// Another run of the same script reached these.
    pub fn add(&mut self, other: &Reached) {
        for Destination { name, transport, count } in &other.destinations {
            self.count(name, *transport, *count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_runs_reached_is_added_up() {
        let mut first = Reached::default();
        first.count("a:1", Transport::Tcp, 2);
        let mut all = first.clone();
        all.add(&first);
        all.add(&Reached::default());
        assert_eq!(all.destinations()[0].count, 4);
    }
}
