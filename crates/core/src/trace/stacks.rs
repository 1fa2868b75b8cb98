//! Call stacks, shared: a training step repeats the same few stacks millions of times.

use std::iter;

use crate::trace::{
    TextId,
    interner::{IdTable, id_after},
};

crate::trace::define_ids! {
    /// A call stack: one node of the tree in [`StackTable`]; 0 is the empty stack.
    StackId;
    /// A frame in [`StackTable`].
    FrameId;
}

impl StackId {
    /// No stack was recorded: the thread ran no Python (autograd's threads), or the recorder kept
    /// none.
    pub const EMPTY: StackId = StackId(0);
}

/// One place in the program. C++ frames have line 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The source file.
    pub file: TextId,
    /// The function.
    pub function: TextId,
    /// The line, from 1; 0 when unknown.
    pub line: u32,
}

/// All stacks of a trace as one tree of frames. A stack is its innermost node; its callers are the
/// way to the root, so stacks with a common beginning share it.
#[derive(Clone, Debug)]
pub struct StackTable {
    frames: Vec<Frame>,
    frame_ids: IdTable,
    /// Invariant: a parent comes before its children, so every walk ends. Node 0 is the empty stack,
    /// its own parent.
    nodes: Vec<(StackId, FrameId)>,
    node_ids: IdTable,
    /// The lists of frames that [`StackTable::stack`] has seen, one after the other.
    lists: Vec<FrameId>,
    /// Where each ends in `lists`, and the stack that it is.
    list_ends: Vec<(usize, StackId)>,
    list_ids: IdTable,
}

impl StackTable {
    /// The id of `frame`, new or not.
    pub fn frame(&mut self, frame: Frame) -> FrameId {
        let StackTable { frames, frame_ids, .. } = self;
        let new = id_after(frames.len());
        let found = frame_ids.find_or_insert(frame, new, |id| frames[id as usize]);
        if found == new {
            frames.push(frame);
        }
        FrameId(found)
    }

    /// The stack that adds `frame` inside `caller`.
    pub fn push(&mut self, caller: StackId, frame: FrameId) -> StackId {
        let StackTable { nodes, node_ids, .. } = self;
        let new = id_after(nodes.len());
        let found = node_ids.find_or_insert((caller, frame), new, |id| nodes[id as usize]);
        if found == new {
            nodes.push((caller, frame));
        }
        StackId(found)
    }

    /// The stack of `frames`, innermost first. Recordings repeat the same lists, so a list is looked up
    /// as a whole, and frame by frame only when it is new.
    pub fn stack(&mut self, frames: &[FrameId]) -> StackId {
        let StackTable { lists, list_ends, list_ids, .. } = self;
        let new = id_after(list_ends.len());
        let found = list_ids.find_or_insert(frames, new, |id| list(lists, list_ends, id));
        if found != new {
            return list_ends[found as usize].1;
        }
        let innermost = frames.iter().rev().fold(StackId::EMPTY, |it, frame| self.push(it, *frame));
        self.lists.extend_from_slice(frames);
        self.list_ends.push((self.lists.len(), innermost));
        innermost
    }

    /// The frames of `stack`, innermost first.
    pub fn frames(&self, stack: StackId) -> impl Iterator<Item = Frame> {
        self.frame_ids(stack).map(|it| self.frames[it.index()])
    }

    /// The ids of the frames of `stack`, innermost first.
    pub fn frame_ids(&self, stack: StackId) -> impl Iterator<Item = FrameId> {
        let node = |it: StackId| (it != StackId::EMPTY).then(|| self.nodes[it.index()]);
        iter::successors(node(stack), move |(caller, _)| node(*caller)).map(|(_, frame)| frame)
    }

    /// Who called the innermost frame of `stack`; the empty stack for an outermost frame.
    pub fn caller(&self, stack: StackId) -> StackId {
        self.nodes[stack.index()].0
    }

    /// The innermost frame of `stack`, which is not the empty one.
    pub fn innermost(&self, stack: StackId) -> Option<Frame> {
        self.frames(stack).next()
    }

    /// The frame of `id`.
    pub fn frame_of(&self, id: FrameId) -> Frame {
        self.frames[id.index()]
    }

    /// Every frame that stands on some stack, in order of first appearance.
    pub fn all_frames(&self) -> impl Iterator<Item = Frame> {
        self.frames.iter().copied()
    }

    /// How many different frames there are.
    pub fn n_frames(&self) -> usize {
        self.frames.len()
    }

    /// How many nodes the tree has, the empty stack included. Ids are less than this.
    pub fn n_nodes(&self) -> usize {
        self.nodes.len()
    }
}

impl Default for StackTable {
    fn default() -> StackTable {
        StackTable {
            frames: Vec::new(),
            frame_ids: IdTable::default(),
            nodes: vec![(StackId::EMPTY, FrameId(0))],
            node_ids: IdTable::default(),
            lists: Vec::new(),
            list_ends: Vec::new(),
            list_ids: IdTable::default(),
        }
    }
}

/// The list of number `id`.
fn list<'a>(lists: &'a [FrameId], ends: &[(usize, StackId)], id: u32) -> &'a [FrameId] {
    let id = id as usize;
    let start = if id == 0 { 0 } else { ends[id - 1].0 };
    &lists[start..ends[id].0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_share_their_beginning() {
        let mut stacks = StackTable::default();
        let [main, forward, backward] = [1, 9, 20]
            .map(|line| stacks.frame(Frame { file: TextId(1), function: TextId(2), line }));
        let outer = stacks.push(StackId::EMPTY, main);
        let in_forward = stacks.push(outer, forward);
        let in_backward = stacks.push(outer, backward);

        assert_eq!(stacks.push(outer, forward), in_forward);
        assert_eq!(stacks.n_nodes(), 4);
        let lines: Vec<u32> = stacks.frames(in_backward).map(|it| it.line).collect();
        assert_eq!(lines, [20, 1]);
        assert_eq!(stacks.frames(StackId::EMPTY).count(), 0);
        for _ in 0..2 {
            assert_eq!(stacks.stack(&[backward, main]), in_backward);
            assert_eq!(stacks.stack(&[forward, main]), in_forward);
            assert_eq!(stacks.stack(&[]), StackId::EMPTY);
        }
        assert_eq!(stacks.n_nodes(), 4);
    }
}
