//! What other processes have of a card: as a message names them, or as what is left when everything known is taken away.

use crate::{
    failures::{
        Failure,
        verdict::{Cause, Verdict, verdict},
    },
    units::Bytes,
};

impl Failure {
    /// What other processes had: what the message names, or what is left when everything known is
    /// taken from the capacity.
    pub fn others(&self) -> Option<Bytes> {
        let named: Bytes = self.processes.iter().map(|(_, it)| *it).sum();
        let (Some(capacity), Some(free)) = (self.capacity, self.free) else {
            return (!self.processes.is_empty()).then_some(named);
        };
        let taken = capacity.saturating_sub(free);
        let rest = match self.own_process() {
            Some(own) => taken.saturating_sub(own),
            None => {
                let own = self.reserved.or(self.allocated)?;
                taken.saturating_sub(own + self.context_guess())
            }
        };
        let own_pid = self.own_named_pid();
        let named_others: Bytes =
            self.processes.iter().filter(|(pid, _)| Some(*pid) != own_pid).map(|(_, it)| *it).sum();
        // Rounding in the message: three numbers of two decimals each.
        let noise = if capacity < Bytes::gib(1) { Bytes::mib(1) } else { Bytes::mib(32) };
        let rest = if rest <= noise { Bytes::ZERO } else { rest };
        Some(rest.max(named_others.min(taken)))
    }

    /// What this process had: its own line, or the one of the named ones that can be nobody else's.
    pub fn own_process(&self) -> Option<Bytes> {
        let own = self.process.filter(|it| self.reserved.is_none_or(|reserved| reserved <= *it));
        own.or_else(|| self.own_named().map(|(_, it)| it))
    }

    /// Whether what other processes have is only what is left when everything known is taken away.
    pub fn others_are_inferred(&self) -> bool {
        let own_pid = self.own_named_pid();
        self.own_process().is_none() && !self.processes.iter().any(|(pid, _)| Some(*pid) != own_pid)
    }

    /// In a container a process's own line may read 0 bytes, or be missing, and its own memory stands
    /// under its process id outside: the smallest that is as much as PyTorch holds.
    fn own_named(&self) -> Option<(u32, Bytes)> {
        let reserved = self.reserved.filter(|it| Bytes::ZERO < *it)?;
        if self.process.is_some_and(|it| reserved <= it) {
            return None;
        }
        // Numbers of two decimals, some of them sums.
        let enough = reserved.saturating_sub(Bytes::mib(32));
        let can_be = self.processes.iter().filter(|(_, it)| enough <= *it);
        can_be.min_by_key(|(_, it)| *it).copied()
    }

    /// The process id among the named ones that is this process's own.
    fn own_named_pid(&self) -> Option<u32> {
        self.own_named().map(|(pid, _)| pid)
    }

    /// What a context and libraries take beside the allocator, when nothing says: at most this is not
    /// blamed on others.
    fn context_guess(&self) -> Bytes {
        let share = self.capacity.map_or(0, |it| it.0 / 10);
        Bytes(share.clamp(Bytes::mib(512).0, Bytes::gib(1).0))
    }

    pub(super) fn others_have(&self, others: Bytes) -> Verdict {
        let own_pid = self.own_named_pid();
        let mut processes: Vec<(u32, Bytes)> =
            self.processes.iter().filter(|(pid, _)| Some(*pid) != own_pid).copied().collect();
        processes.sort_by_key(|it| std::cmp::Reverse(it.1));
        // Ranks that open a card by accident have a context there each, and contexts are equally large.
        let are_alike = 2 < processes.len()
            && processes.first().map(|it| it.1) == processes.last().map(|it| it.1);
        // A rank that is not the first one has a card of its own, mostly of its own number.
        let is_on_the_first =
            self.rank.is_some_and(|it| 0 < it) && self.device == Some(0) && !processes.is_empty();
        let is_of_ranks = are_alike || is_on_the_first;
        let named: Vec<String> =
            processes.iter().take(3).map(|(pid, it)| format!("process {pid}: {it}")).collect();
        let named = match processes.len() {
            0 => String::new(),
            n if are_alike => format!(" ({n} other processes with {} each)", processes[0].1),
            n if n <= 3 => format!(" ({})", named.join(", ")),
            n => format!(" ({}, and {} more)", named.join(", "), n - 3),
        };
        let own = self
            .own_process()
            .or(self.reserved)
            .map_or(String::new(), |it| format!("; this process holds {it}"));
        let (about, sure) = if self.own_process().is_some() {
            ("", "")
        } else {
            ("about ", ". plimsoll inferred this: the message does not name them")
        };
        let find = format!(
            "find them with `{}`, and end those that you do not need: a notebook or a dead run often still holds memory",
            self.monitor()
        );
        let choose = format!("choose another card: {}=1", self.backend.visible_devices());
        let ranks = "if several ranks share a card by accident: each must call `torch.cuda.set_device(local_rank)` before it allocates, and load checkpoints to the host or to its own GPU (`device=f\"cuda:{local_rank}\"`)";
        let rank = match self.rank {
            Some(rank) if is_on_the_first => {
                format!(
                    ". Rank {rank} used GPU 0 here: the others are perhaps ranks that use it, too"
                )
            }
            _ => String::new(),
        };
        let why =
            format!("other processes hold {about}{others} of the card{named}{own}{rank}{sure}");
        let remedies = [ranks, &find, &choose];
        let n_first = usize::from(!is_of_ranks);
        let remedies = [&remedies[n_first..], &remedies[..n_first]].concat();
        verdict(Cause::OtherProcess, why, &remedies)
    }
}
