//! What a training step does, in the few kinds that step times tell apart. The agent counts them, `plimsoll-core` prices them; the words between
//! the two are written into the agent when the binary is built.

/// One kind of work. Its word is its name in lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// A product of matrices.
    Matmul,
    /// A convolution, but for those of each channel by itself, which are `Walk`.
    Convolution,
    /// Fused attention.
    Attention,
    /// One time step of one recurrent layer.
    Recurrent,
    /// What takes as long as its bytes: elementwise operations, norms, sums, copies.
    Memory,
    /// What walks through numbers one by one: indexing, sorting, resampling, depthwise convolutions. Its arithmetic is how many.
    Walk,
    /// A copy between device and host.
    Link,
    /// What goes to other devices.
    Network,
    /// A segment that is given back to the driver and asked for again.
    Segment,
    /// A call that starts no kernel, on the host alone. Two tensors in a list that one operation takes (`foreach`) count as one.
    Look,
    /// A Python function around a tensor that autograd keeps, on the host alone.
    Hook,
    /// A part of a model with such functions, each time that it is gone through, on the host alone.
    Around,
}

impl Op {
    /// Every kind, in the order of the table.
    pub const ALL: [Op; 12] = [
        Op::Matmul,
        Op::Convolution,
        Op::Attention,
        Op::Recurrent,
        Op::Memory,
        Op::Walk,
        Op::Link,
        Op::Network,
        Op::Segment,
        Op::Look,
        Op::Hook,
        Op::Around,
    ];

    /// The word between the agent and core.
    pub fn word(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// The kind of this word; none if no kind is called so.
    pub fn of(word: &str) -> Option<Op> {
        Op::ALL.into_iter().find(|op| op.word() == word)
    }
}
