//! Frames below frames, with the bytes that each holds.

use std::{cmp::Reverse, collections::BTreeMap};

use crate::{trace::FrameId, units::Bytes};

/// One frame below one caller.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) label: String,
    /// More about it; empty when there is nothing more.
    pub(super) detail: String,
    pub(super) kind: Kind,
    /// Of it and of everything below it.
    pub(super) bytes: Bytes,
    pub(super) blocks: u64,
}

impl Node {
    pub(super) fn of(label: String, kind: Kind) -> Node {
        Node { label, detail: String::new(), kind, bytes: Bytes::ZERO, blocks: 0 }
    }
}

/// All frames. Blocks are added by `begin`, then `enter` for each frame from the outermost.
pub(super) struct Tree {
    /// Invariant: a caller comes before what it calls; the first is the root.
    nodes: Vec<(Node, BTreeMap<Key, usize>)>,
    at: usize,
    size: Bytes,
    blocks: u64,
}

impl Default for Tree {
    fn default() -> Tree {
        let root = Node::of(String::new(), Kind::Root);
        Tree { nodes: vec![(root, BTreeMap::new())], at: 0, size: Bytes::ZERO, blocks: 0 }
    }
}

impl Tree {
    pub(super) fn root(&self) -> &Node {
        &self.nodes[0].0
    }

    pub(super) fn root_mut(&mut self) -> &mut Node {
        &mut self.nodes[0].0
    }

    /// So many blocks of together `size` begin at the root.
    pub(super) fn begin(&mut self, size: Bytes, blocks: u64) {
        self.at = 0;
        (self.size, self.blocks) = (size, blocks);
        self.count();
    }

    /// Goes down to the frame `key`, which `node` makes when it is new.
    pub(super) fn enter(&mut self, key: Key, node: impl FnOnce() -> Node) {
        let next = self.nodes.len();
        let below = *self.nodes[self.at].1.entry(key).or_insert(next);
        if below == next {
            self.nodes.push((node(), BTreeMap::new()));
        }
        self.at = below;
        self.count();
    }

    fn count(&mut self) {
        let node = &mut self.nodes[self.at].0;
        node.bytes += self.size;
        node.blocks += self.blocks;
    }

    /// Calls `draw` with every frame of at least `least` bytes, its depth and the bytes to its left;
    /// returns how many others there are. The largest of what a frame calls is the leftmost.
    pub(super) fn walk(&self, least: f64, mut draw: impl FnMut(&Node, u32, Bytes)) -> u64 {
        let mut hidden = 0;
        let mut open = vec![(0, 0, Bytes::ZERO)];
        while let Some((at, depth, before)) = open.pop() {
            let (node, below) = &self.nodes[at];
            if share(node.bytes) < least {
                hidden += 1;
                continue;
            }
            draw(node, depth, before);
            let mut below: Vec<usize> = below.values().copied().collect();
            below.sort_by_key(|it| (Reverse(self.nodes[*it].0.bytes), *it));
            let mut left = before;
            for it in below {
                open.push((it, depth + 1, left));
                left += self.nodes[it].0.bytes;
            }
        }
        hidden
    }
}

/// What makes two frames below the same caller one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Frame(FrameId),
    Word(&'static str),
    Size(Bytes),
}

/// Whose code a frame is: its color.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Root,
    Users,
    Torch,
    Library,
    Cpp,
    NoStack,
    Category,
    Size,
}

impl Kind {
    pub(super) const LEGEND: [(Kind, &'static str); 6] = [
        (Kind::Users, "your code"),
        (Kind::Torch, "PyTorch"),
        (Kind::Library, "other libraries"),
        (Kind::Cpp, "C++"),
        (Kind::NoStack, "no stack"),
        (Kind::Category, "category"),
    ];

    pub(super) fn color(self) -> &'static str {
        match self {
            Kind::Root => "#d9d9d9",
            Kind::Users => "#f4a259",
            Kind::Torch => "#f7dba7",
            Kind::Library => "#c7d59f",
            Kind::Cpp => "#e0b1cb",
            Kind::NoStack => "#cfd2d6",
            Kind::Category => "#8cb9d9",
            Kind::Size => "#b9d6ea",
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a picture is not exact to the byte")]
pub(super) fn share(bytes: Bytes) -> f64 {
    bytes.0 as f64
}
