//! What each block that is live at the peak is for: every block in exactly one category.
//!
//! The rules are asked in this order, and none of them looks at a model's architecture:
//!
//! 1. A block has a **name** (the agent saw that a parameter, gradient, buffer, optimizer state or
//!    input lives in it, at any place of the trace while it lived): that is its category.
//! 2. A block of the size of a cuBLAS or cublasLt **workspace** that was allocated in a forward or
//!    backward pass, that nothing names and that is never freed while training goes on, is one:
//!    PyTorch keeps these for each thread and stream for ever (`aten/src/ATen/cuda/CublasHandlePool.cpp`).
//! 3. Else its **lifetime** tells, by the stage it was allocated in:
//!    - forward pass or loss: still live when the next backward pass begins, also one inside of the forward pass: activation; else
//!      temporary;
//!    - backward pass: outlives it: gradient; else temporary, or an activation if checkpointing
//!      computed it again and kept it for a while;
//!    - optimizer: outlives it for good: optimizer state; else temporary;
//!    - between: live when the next forward pass begins: input; else temporary;
//!    - evaluation: temporary, unless it outlives it; of the pass in which memory ran out, activation;
//!    - setup: live when the first forward pass begins, and freed at the end of the first step at the
//!      latest: input; freed before: temporary, but for what `module.to()`
//!      made, which are weights;
//!    - anywhere, where nothing is trained: what never goes, or goes when a serving engine ends, and was made by a function or file named after a key-value cache
//!      or CUDA graphs is that. A cache that grows is made anew in each pass: what outlives the pass is it, too.
//! 4. **Scratch memory** (cuDNN workspaces) is a block that is given back before anything else happens
//!    in the allocator, taken by an operation that cuDNN serves or by autograd, and there not of a
//!    parameter's size (a gradient that is added to one which exists has the same lifetime).
//! 5. What outlives its stage and never goes, and that nobody names, is **kept** by the script, where one of its lines made it:
//!    results in a list, caches, copies of the model, data that was put there before. Without such a line it is **unknown**.
//!
//! Blocks freed because the run ended (an exception unwinds, the script returns) count as never
//! freed: that end says nothing about what they were for.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    codes::RemarkCode,
    prediction::{
        Category,
        stacks::{Signs, Stacks},
        timeline::{Places, Stage, Timeline},
    },
    recording::{Notes, Role},
    replay::{BlockId, BlockLife, Replay},
    trace::{Action, DeviceTrace, EventId, StackId, StreamId},
    units::Bytes,
};

/// Workspaces that PyTorch allocates for each cuBLAS handle and stream: before Hopper, and from Hopper
/// on. The recordings of an H200 hold one of 32 MiB for each of the two threads that compute.
const CUBLAS_WORKSPACES: [Bytes; 2] = [Bytes(8_519_680), Bytes::mib(32)];
/// The one of cublasLt. Other things have this size too, so it has to stay for a step or more.
const CUBLASLT_WORKSPACE: Bytes = Bytes::mib(1);

/// Blocks of a workspace's size that are never freed, where the same place made several on the same stream: PyTorch makes
/// one. Without stacks all places look alike, and two threads compute.
fn made_again(
    device: &DeviceTrace,
    replay: &Replay,
    has_stacks: bool,
    over: EventId,
) -> Vec<BlockId> {
    let is_size = |it: Bytes| CUBLAS_WORKSPACES.contains(&it) || it == CUBLASLT_WORKSPACE;
    let mut seen: BTreeMap<(StackId, Bytes, StreamId), Vec<BlockId>> = BTreeMap::new();
    let blocks = (0..).map(BlockId).zip(&replay.blocks);
    let is_kept = |it: &BlockLife| it.free.is_none_or(|it| over <= it) && is_size(it.requested);
    for (block, life) in blocks.filter(|(_, it)| is_kept(it)) {
        let event = device.events.get(life.alloc.index());
        seen.entry((event.stack, life.requested, event.stream)).or_default().push(block);
    }
    // A handle for each of the two threads that compute, and as many again for what is captured.
    const OF_A_STREAM: usize = 4;
    let mut of_stream: BTreeMap<(Bytes, StreamId), usize> = BTreeMap::new();
    for ((_, size, stream), blocks) in &seen {
        *of_stream.entry((*size, *stream)).or_default() += blocks.len();
    }
    let most = if has_stacks { 1 } else { 2 };
    let is_too_many = |(_, size, stream): &(StackId, Bytes, StreamId), blocks: &[BlockId]| {
        most < blocks.len() || OF_A_STREAM < of_stream[&(*size, *stream)]
    };
    let too_many = seen.iter().filter(|(key, blocks)| is_too_many(key, blocks));
    let mut res: Vec<BlockId> = too_many.flat_map(|(_, blocks)| blocks.iter().copied()).collect();
    res.sort_unstable();
    res
}

/// A block's name, if it ever had one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Named<'a> {
    pub(crate) role: Role,
    pub(crate) name: &'a str,
    /// The class of the model that it belongs to.
    pub(crate) model: &'a str,
}

/// Everything that the rules ask.
pub(crate) struct Evidence<'a> {
    device: &'a DeviceTrace,
    replay: &'a Replay,
    timeline: &'a Timeline,
    stacks: &'a Stacks,
    /// By block; of none where nobody named any.
    named: Vec<Option<Named<'a>>>,
    /// Some tensors line exists: what has no name then really has none.
    has_names: bool,
    /// Sizes of named parameters, sorted.
    parameter_sizes: Vec<Bytes>,
    /// Frees from this event on belong to the end of the run.
    over: EventId,
    trains: bool,
    /// It plans the memory of a serving engine, which frees its cache when it ends.
    serves: bool,
    /// Blocks of a workspace's size that are too many to be one, sorted.
    no_workspaces: Vec<BlockId>,
    /// Where a backward pass begins inside of a forward pass: of a part of a batch, or for a gradient that the model needs.
    inner_backward: Vec<EventId>,
    /// Requests that failed, and after which the program went on.
    refused: Vec<EventId>,
    /// Gradients have a graph of their own (`create_graph`), which what autograd makes may be of.
    creates_graph: bool,
}

impl<'a> Evidence<'a> {
    /// `oom` is the event at which the run ended for lack of memory, if it did.
    pub(crate) fn new(
        device: &'a DeviceTrace,
        (replay, timeline, stacks): (&'a Replay, &'a Timeline, &'a Stacks),
        (notes, places, index): (&'a Notes, &Places<'_>, usize),
        oom: Option<EventId>,
    ) -> Evidence<'a> {
        let tensors = || notes.tensors.iter().filter(|it| it.device == index);
        let n_blocks = if tensors().next().is_some() { replay.blocks.len() } else { 0 };
        let mut named = vec![None; n_blocks];
        let mut parameter_sizes = Vec::new();
        let mut has_names = false;
        for tensors in tensors() {
            let place = places.event(&tensors.place);
            let mut live: Vec<(u64, usize)> = (replay.blocks.iter().enumerate())
                .filter(|(_, it)| it.alloc < place && it.free.is_none_or(|free| place <= free))
                .map(|(block, it)| (it.address, block))
                .collect();
            live.sort_unstable();
            for entry in &tensors.entries {
                let at = live.partition_point(|(address, _)| *address <= entry.address);
                let Some((address, block)) = at.checked_sub(1).map(|it| live[it]) else { continue };
                if address + replay.blocks[block].size.0 <= entry.address {
                    continue;
                }
                has_names |= entry.role != Role::Input;
                if entry.role == Role::Parameter {
                    parameter_sizes.push(replay.blocks[block].requested);
                }
                let better = |old: &Named<'_>| rank(entry.role) < rank(old.role);
                if named[block].as_ref().is_none_or(better) {
                    named[block] =
                        Some(Named { role: entry.role, name: &entry.name, model: &entry.model });
                }
            }
        }
        parameter_sizes.sort_unstable();
        parameter_sizes.dedup();
        let over = oom.into_iter().chain(timeline.last_mark).max().unwrap_or(timeline.end());
        let trains = timeline.has(Stage::Backward);
        let calls_backward = device.events.allocations().filter(|(event, stack)| {
            stacks.signs(*stack).has(Signs::BACKWARD)
                && matches!(timeline.stage(*event), Stage::Forward | Stage::Loss)
        });
        let inner_backward = calls_backward.map(|(event, _)| event).collect();
        let actions = device.events.actions();
        let last = actions.iter().rposition(|it| *it == Action::Alloc).unwrap_or(0);
        let refused = (0..).zip(&actions[..last]).filter(|(_, it)| **it == Action::Oom);
        let refused = refused.map(|(event, _)| EventId(event)).collect();
        Evidence {
            device,
            replay,
            timeline,
            stacks,
            named,
            has_names,
            parameter_sizes,
            over,
            trains,
            serves: notes.engine.is_some(),
            no_workspaces: made_again(device, replay, stacks.recorded, over),
            inner_backward,
            refused,
            creates_graph: notes.remarks.iter().any(|it| it.code == RemarkCode::CreatesGraph),
        }
    }

    /// Whether a request failed in between that the program survived: a pass that was given up is none whose results nobody needs.
    pub(crate) fn was_refused(&self, from: EventId, until: EventId) -> bool {
        let next = self.refused.partition_point(|it| *it < from);
        self.refused.get(next).is_some_and(|it| *it < until)
    }

    /// The name of `block`, if it ever had one.
    pub(crate) fn name(&self, block: BlockId) -> Option<Named<'a>> {
        self.named.get(block.index()).copied().flatten()
    }

    /// Frees from here on belong to the end of the run.
    pub(crate) fn over(&self) -> EventId {
        self.over
    }

    /// What `block` is for.
    pub(crate) fn category(&self, block: BlockId) -> Category {
        let signs = self.signs(self.replay.blocks[block.index()].alloc);
        // A model is called with these, and no data loader made them.
        let of_inputs = if signs.has(Signs::CACHE) && !self.trains {
            Category::KeyValueCache
        } else if signs.has(Signs::CACHE) || signs.has(Signs::COLLECTED) {
            Category::Retained
        } else if signs.has(Signs::GATHERED) {
            Category::Parameters
        } else {
            Category::Inputs
        };
        if let Some(named) = self.name(block) {
            return match named.role {
                Role::Parameter => Category::Parameters,
                Role::Gradient => Category::Gradients,
                Role::Buffer => Category::Buffers,
                Role::OptimizerState => Category::OptimizerState,
                Role::Input => of_inputs,
            };
        }
        let life = &self.replay.blocks[block.index()];
        let free = life.free.filter(|it| *it < self.over);
        let stage = self.timeline.stage(life.alloc);
        // A training that ended in its first forward pass trained nothing, either.
        let is_of_training = matches!(stage, Stage::Forward | Stage::Loss);
        if let Some(found) = self.of_serving(life, free).filter(|_| !is_of_training) {
            return found;
        }
        let computes = matches!(
            stage,
            Stage::Forward
                | Stage::Loss
                | Stage::Backward
                | Stage::AfterBackward
                | Stage::Evaluation
        );
        if computes && (self.is_cublas_workspace(block, free) || self.is_scratch(block)) {
            return Category::Workspaces;
        }
        let found = match stage {
            Stage::Forward | Stage::Loss => self.of_forward(life, free),
            Stage::Backward => self.of_backward(life, free),
            Stage::Optimizer | Stage::ZeroGrad => self.of_optimizer(life, free),
            Stage::Between | Stage::AfterBackward | Stage::Saving | Stage::Merging => {
                self.of_between(life, free)
            }
            Stage::Evaluation => match free {
                Some(free) if free <= self.timeline.stretch_end(life.alloc) => {
                    Category::Temporaries
                }
                // The pass was not over when the run was: what it had made so far.
                None if self.over <= self.timeline.stretch_end(life.alloc) => Category::Activations,
                // Outputs and graphs that somebody keeps.
                _ => Category::Activations,
            },
            Stage::Setup => self.of_setup(life, free),
        };
        // A line of the script made it, and it stays: it is kept, whatever for.
        let stack = self.device.events.stack(life.alloc.index());
        match found {
            Category::Unknown if self.stacks.user_frame(stack).is_some() => Category::Retained,
            Category::Inputs => of_inputs,
            found => found,
        }
    }

    /// What stays allocated where nothing is trained (in an engine: until it ends), and whose maker's name says what it is for.
    fn of_serving(&self, life: &BlockLife, free: Option<EventId>) -> Option<Category> {
        if self.trains {
            return None;
        }
        let signs = self.signs(life.alloc);
        let stays = free.is_none() || self.serves;
        if signs.has(Signs::CACHE) {
            let outlives = free.is_none_or(|it| self.timeline.stretch_end(life.alloc) <= it);
            (stays || outlives).then_some(Category::KeyValueCache)
        } else if stays && signs.has(Signs::GRAPH) {
            Some(Category::Graphs)
        } else {
            None
        }
    }

    /// The largest block that was ever scratch memory, at the peak or not.
    pub(crate) fn largest_scratch(&self) -> Bytes {
        let blocks = (0..).map(BlockId).zip(&self.replay.blocks);
        let scratch =
            blocks.filter(|(block, _)| self.name(*block).is_none() && self.is_scratch(*block));
        scratch.map(|(_, it)| it.size).max().unwrap_or_default()
    }

    /// The most that was ever allocated but for scratch memory, of which cuDNN makes do with less where there is less.
    pub(crate) fn allocated_without_scratch(&self) -> Bytes {
        let blocks = (0..).map(BlockId).zip(&self.replay.blocks);
        let scratch: BTreeSet<EventId> = blocks
            .filter(|(block, _)| self.name(*block).is_none() && self.is_scratch(*block))
            .map(|(_, it)| it.alloc)
            .collect();
        let levels = self.replay.levels(&self.device.events);
        let rest = levels.filter(|(event, _)| !scratch.contains(event));
        rest.map(|(_, it)| it.allocated).max().unwrap_or_default()
    }

    fn of_forward(&self, life: &BlockLife, free: Option<EventId>) -> Category {
        if self.is_of_an_inner_backward(life) {
            return self.of_backward(life, free);
        }
        let backward = self.timeline.next(Stage::Backward, life.alloc).filter(|it| *it < self.over);
        match (backward, free) {
            (_, Some(free)) if self.is_for_an_inner_backward(life, free) => Category::Activations,
            // A backward pass was to come.
            (_, Some(free)) if self.was_refused(life.alloc, free) => Category::Activations,
            (Some(backward), Some(free)) if free < backward => Category::Temporaries,
            (Some(_), Some(_)) => Category::Activations,
            // Kept by a run that went on for a step or more.
            (Some(_), None) if self.steps_after(life.alloc) => Category::Unknown,
            (Some(_), None) => Category::Activations,
            // The run ended in this forward pass, or only computes forward passes.
            (None, Some(free)) if free < self.timeline.stretch_end(life.alloc) => {
                Category::Temporaries
            }
            (None, Some(_)) => Category::Activations,
            (None, None) if self.trains || !self.steps_after(life.alloc) => Category::Activations,
            (None, None) => Category::Unknown,
        }
    }

    /// Whether a backward pass that begins inside of the forward pass needs it.
    fn is_for_an_inner_backward(&self, life: &BlockLife, free: EventId) -> bool {
        let begin = self.inner_backward.partition_point(|it| *it <= life.alloc);
        self.inner_backward.get(begin).is_some_and(|begin| *begin < free)
    }

    /// Whether a backward pass inside of the forward pass made it, in the caller's thread or in one of autograd's.
    fn is_of_an_inner_backward(&self, life: &BlockLife) -> bool {
        let begun = self.inner_backward.partition_point(|it| *it <= life.alloc);
        let last = begun.checked_sub(1).and_then(|it| self.inner_backward.get(it));
        let stack = self.stack(life.alloc);
        last.is_some_and(|last| {
            self.timeline.stretch_end(*last) == self.timeline.stretch_end(life.alloc)
        }) && (self.stacks.is_autograds(stack) || self.stacks.signs(stack).has(Signs::BACKWARD))
    }

    fn of_backward(&self, life: &BlockLife, free: Option<EventId>) -> Category {
        let end = self.timeline.stretch_end(life.alloc);
        match free {
            Some(free) if free < end => {
                let recomputed = self.is_recomputed(life.alloc);
                let kept = recomputed && self.recompute_end(life.alloc) <= free;
                if kept { Category::Activations } else { Category::Temporaries }
            }
            None if self.over <= end && !self.stretch_was_finished(life.alloc) => {
                // It ended in here: nobody can know what would have stayed.
                if self.is_recomputed(life.alloc) {
                    Category::Activations
                } else if self.parameter_sizes.binary_search(&life.requested).is_ok() {
                    Category::Gradients
                } else {
                    Category::Temporaries
                }
            }
            _ if self.is_of_a_graph_of_gradients(life, free) => Category::Activations,
            _ => Category::Gradients,
        }
    }

    /// Whether it is what a loss is made of in the same step: no gradient of a parameter, and gone before an optimizer works.
    fn is_of_a_graph_of_gradients(&self, life: &BlockLife, free: Option<EventId>) -> bool {
        let is_over = || {
            let next = self.timeline.next(Stage::Optimizer, life.alloc);
            next.is_none_or(|next| free.is_some_and(|free| free <= next))
        };
        self.creates_graph
            && !self.parameter_sizes.is_empty()
            && self.parameter_sizes.binary_search(&life.requested).is_err()
            && is_over()
    }

    fn of_optimizer(&self, life: &BlockLife, free: Option<EventId>) -> Category {
        let end = self.timeline.stretch_end(life.alloc);
        match free {
            Some(free) if free < end => Category::Temporaries,
            // Held by a variable until the optimizer runs the next time.
            Some(free) => match self.timeline.next(Stage::Optimizer, life.alloc) {
                Some(next) if free <= self.timeline.stretch_end(next) => Category::Temporaries,
                _ => Category::OptimizerState,
            },
            None => Category::OptimizerState,
        }
    }

    fn of_between(&self, life: &BlockLife, free: Option<EventId>) -> Category {
        let forward = self.timeline.next(Stage::Forward, life.alloc);
        match (forward, free) {
            (Some(forward), Some(free)) if free < forward => Category::Temporaries,
            (Some(_), Some(_)) => Category::Inputs,
            (None, Some(_)) => Category::Temporaries,
            (_, None) if self.steps_after(life.alloc) => Category::Unknown,
            (_, None) => Category::Inputs,
        }
    }

    fn of_setup(&self, life: &BlockLife, free: Option<EventId>) -> Category {
        let signs = self.signs(life.alloc);
        let forward = [Stage::Forward, Stage::Evaluation]
            .into_iter()
            .filter_map(|it| self.timeline.next(it, life.alloc))
            .min();
        match (forward, free) {
            // An earlier form of the weights: in another precision, or of a model that was replaced.
            (Some(forward), Some(free)) if free < forward && signs.has(Signs::APPLY) => {
                Category::Parameters
            }
            (Some(forward), Some(free)) if free < forward => Category::Temporaries,
            // Nobody named anything: what `module.to()` or a constructor made and stays is a weight or a buffer.
            (_, None)
                if (signs.has(Signs::APPLY) || signs.has(Signs::BUILT)) && !self.has_names =>
            {
                Category::Parameters
            }
            // Of a model that was replaced before anybody looked at it, or that is moved in and out.
            (Some(_), _) if signs.has(Signs::APPLY) => Category::Parameters,
            (Some(_), Some(free)) => {
                // A batch is replaced by the next one.
                let steps = self.timeline.steps_before(free);
                if steps <= 1 { Category::Inputs } else { Category::Unknown }
            }
            (Some(_), None) if !self.steps_after(life.alloc) => Category::Inputs,
            (None, Some(_)) => Category::Temporaries,
            _ => Category::Unknown,
        }
    }

    fn is_cublas_workspace(&self, block: BlockId, free: Option<EventId>) -> bool {
        let life = &self.replay.blocks[block.index()];
        if self.no_workspaces.binary_search(&block).is_ok() {
            return false;
        }
        let size = life.requested;
        let is_one =
            CUBLAS_WORKSPACES.contains(&size) && self.parameter_sizes.binary_search(&size).is_err();
        let stays = self.steps_after(life.alloc);
        free.is_none() && (is_one || stays && size == CUBLASLT_WORKSPACE)
    }

    /// Given back before anything else happens, by an operation that takes scratch memory.
    fn is_scratch(&self, block: BlockId) -> bool {
        let life = &self.replay.blocks[block.index()];
        if life.free != Some(EventId(life.alloc.0 + 1)) {
            return false;
        }
        let stack = self.stack(life.alloc);
        let by_cudnn = self.stacks.signs(stack).has(Signs::CUDNN);
        let by_autograd = self.stacks.is_autograds(stack)
            && self.stacks.recorded
            && self.timeline.stage(life.alloc) == Stage::Backward
            && self.parameter_sizes.binary_search(&life.requested).is_err();
        by_cudnn || by_autograd
    }

    /// Whether the run finished at least one whole step after the one that `event` lies in.
    fn steps_after(&self, event: EventId) -> bool {
        let finished = self.timeline.steps_before(self.over);
        self.timeline.steps_before(event) + 1 < finished
    }

    /// Whether something came after the stretch of `event`, other than the end of the run.
    fn stretch_was_finished(&self, event: EventId) -> bool {
        self.timeline.steps_before(event) < self.timeline.steps_before(self.over)
    }

    fn is_recomputed(&self, event: EventId) -> bool {
        self.signs(event).has(Signs::RECOMPUTE)
    }

    /// The first allocation after `event` that checkpointing does not compute again.
    fn recompute_end(&self, event: EventId) -> EventId {
        let after = self.replay.blocks.partition_point(|it| it.alloc <= event);
        let later = self.replay.blocks[after..].iter().map(|it| it.alloc);
        later.into_iter().find(|it| !self.is_recomputed(*it)).unwrap_or(self.timeline.end())
    }

    fn stack(&self, event: EventId) -> StackId {
        self.device.events.stack(event.index())
    }

    fn signs(&self, event: EventId) -> Signs {
        self.stacks.signs(self.stack(event))
    }
}

/// Which role counts when a block has several: a tied weight is a parameter first of all.
fn rank(role: Role) -> u8 {
    match role {
        Role::Parameter => 0,
        Role::Buffer => 1,
        Role::Gradient => 2,
        Role::OptimizerState => 3,
        Role::Input => 4,
    }
}
