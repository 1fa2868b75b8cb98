//! What NCCL takes on a device, in each process that uses it.

const MIB: u64 = 1 << 20;

/// What NCCL takes, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nccl {
    /// With a process's first communicator, whatever its size: code, and what all share.
    pub library: u64,
    /// With each communicator of several ranks.
    pub tables: u64,
    /// With each communicator of one rank.
    pub alone: u64,
    /// Buffers of a communicator, at its first collective over all ranks.
    pub ring: u64,
    /// Kernels of a process, at its first collective.
    pub ring_kernels: u64,
    /// And at its first message from one rank to another.
    pub peer_kernels: u64,
    /// Buffers of a communicator to send to one other rank, at the first message.
    pub send: u64,
    /// And to receive from one.
    pub receive: u64,
    /// Whether the card says so, because somebody measured it.
    pub is_of_the_card: bool,
}

impl Default for Nccl {
    /// Two H200s joined by `NVLink` under NCCL 2.28, with NCCL's own log of allocations and what the driver counted for the process.
    ///
    /// The smallest piece of device memory is 2 MiB, and NCCL asks for each of its small tables by itself: three for each of 32 channels and three
    /// for all of them; of 64 channels and two where there is nobody to talk to. A ring has 24 channels, and each takes buffers of 2 MiB to send and
    /// of 10 to receive; so does each of 32 channels from one peer to another. 350 MiB over the context and the communicator were counted in DDP and
    /// FSDP2 runs, of which the kernels of the first collective are 186.
    fn default() -> Nccl {
        Nccl {
            library: 164 * MIB,
            tables: 198 * MIB,
            alone: 388 * MIB,
            ring: 288 * MIB,
            ring_kernels: 186 * MIB,
            peer_kernels: 58 * MIB,
            send: 64 * MIB,
            receive: 320 * MIB,
            is_of_the_card: false,
        }
    }
}

impl Nccl {
    /// Eight sizes in the order of the fields, with commas; none if they are not eight.
    pub fn parse(text: &str) -> Option<Nccl> {
        let sizes: Result<Vec<u64>, _> = text.split(',').map(|it| it.trim().parse()).collect();
        let [library, tables, alone, ring, ring_kernels, peer_kernels, send, receive] =
            sizes.ok()?.try_into().ok()?;
        let is_of_the_card = true;
        Some(Nccl {
            library,
            tables,
            alone,
            ring,
            ring_kernels,
            peer_kernels,
            send,
            receive,
            is_of_the_card,
        })
    }

    /// What a communicator of so many ranks takes.
    pub fn communicator(&self, ranks: u64) -> u64 {
        if 2 <= ranks { self.tables } else { self.alone }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_may_say_what_was_measured_on_it() {
        let it = Nccl::parse("1,2,3, 4,5,6,7,8").unwrap();
        assert_eq!((it.library, it.receive, it.is_of_the_card), (1, 8, true));
        assert_eq!([1, 2, 8].map(|ranks| it.communicator(ranks)), [3, 2, 2]);
        assert_eq!(Nccl::parse("1,2,3"), None);
        assert_eq!(Nccl::parse("1,2,3,4,5,6,7,many"), None);
    }
}
