//! How blocks are put into groups, and what a group is.

use crate::scene::Position;

/// How to put blocks into groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Grouping {
    /// By what they are for.
    #[default]
    Category,
    /// By the line of the user's code that asked.
    Line,
    /// By the pool and the stream that they came out of.
    Pool,
}

/// Blocks that are drawn alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// A stable word, for colours.
    pub key: &'static str,
    /// What people call it.
    pub name: String,
}

/// What a private pool holds: its group, that of the blocks beside it, and what both take from where on.
pub type Held = (u8, u8, Vec<(Position, u64)>);
