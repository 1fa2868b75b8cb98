//! Where the blocks at the peak come from: by line of the user's code, and by module.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    prediction::{
        Category, LineShare, ModuleShare, Origin,
        categories::{Evidence, Named},
        stacks::{Signs, Stacks},
        timeline::{Stage, Timeline},
    },
    recording::{CodeLine, LoopLines, Role, is_agents_code},
    replay::{BlockId, Replay},
    trace::{DeviceTrace, EventId, Frame, StackId, Trace},
    units::Bytes,
};

/// How many lines and modules a report names.
pub(crate) const SHOWN: usize = 10;

/// A block at the peak and what it is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Live {
    pub(crate) block: BlockId,
    pub(crate) size: Bytes,
    pub(crate) category: Category,
}

/// Where each block comes from.
pub(crate) struct Origins<'a> {
    trace: &'a Trace,
    device: &'a DeviceTrace,
    replay: &'a Replay,
    timeline: &'a Timeline,
    stacks: &'a Stacks,
    /// See [`backward_callers`].
    callers: Vec<(EventId, StackId)>,
}

impl<'a> Origins<'a> {
    pub(crate) fn new(
        trace: &'a Trace,
        device: &'a DeviceTrace,
        (replay, timeline, stacks): (&'a Replay, &'a Timeline, &'a Stacks),
    ) -> Origins<'a> {
        let callers = backward_callers(trace, device, stacks);
        Origins { trace, device, replay, timeline, stacks, callers }
    }

    /// The line that `block` comes from.
    pub(crate) fn of(&self, block: BlockId) -> Origin {
        let alloc = self.replay.blocks[block.index()].alloc;
        let is_own = !self.stacks.is_autograds(self.device.events.stack(alloc.index()));
        let in_backward = self.timeline.stage(alloc) == Stage::Backward && self.stacks.recorded;
        match line_of(self.trace, self.stacks, self.stack_of(block)) {
            Some(line) if is_own => Origin::Line(line),
            Some(line) => Origin::BackwardOf(line),
            None if in_backward => Origin::Backward,
            None => Origin::NoStack,
        }
    }

    /// The stack that asked for `block`; of what autograd's threads asked for, the one that called
    /// `backward()`.
    pub(crate) fn stack_of(&self, block: BlockId) -> StackId {
        self.stack_at(self.replay.blocks[block.index()].alloc)
    }

    /// The same of what was asked for at `event`, whether it was given or not.
    pub(crate) fn stack_at(&self, event: EventId) -> StackId {
        let stack = self.device.events.stack(event.index());
        if !self.stacks.is_autograds(stack) || !self.stacks.recorded {
            return stack;
        }
        let calls = self.callers.partition_point(|(call, _)| *call <= event);
        let Some((call, caller)) = calls.checked_sub(1).map(|it| self.callers[it]) else {
            return stack;
        };
        // Micro-batches run their backward passes within the call of the model.
        let is_within = || self.timeline.stretch_end(call) == self.timeline.stretch_end(event);
        let in_backward = self.timeline.stage(event) == Stage::Backward || is_within();
        if in_backward { caller } else { stack }
    }
}

/// The largest contributors by line.
pub(crate) fn by_line(
    trace: &Trace,
    device: &DeviceTrace,
    (replay, timeline, stacks): (&Replay, &Timeline, &Stacks),
    live: &[Live],
) -> Vec<LineShare> {
    let origins = Origins::new(trace, device, (replay, timeline, stacks));
    let mut sums: BTreeMap<Origin, Sum> = BTreeMap::new();
    for it in live {
        let origin = origins.of(it.block);
        sums.entry(origin).or_default().add(it);
    }
    let mut shares: Vec<LineShare> = sums
        .into_iter()
        .map(|(at, sum)| LineShare {
            at,
            bytes: sum.bytes,
            blocks: sum.blocks,
            category: sum.category(),
            is_mixed: sum.is_mixed(),
        })
        .collect();
    shares.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.at.cmp(&b.at)));
    shares
}

/// The largest contributors by module: where the agent says that a block was allocated, and what is
/// named after a module (parameters, their gradients and states) there.
pub(crate) fn by_module(
    trace: &Trace,
    device: &DeviceTrace,
    replay: &Replay,
    evidence: &Evidence<'_>,
    live: &[Live],
) -> Vec<ModuleShare> {
    // Who owns a name that goes on behind a parameter's, such as `wte.weight.exp_avg`.
    let parameters: BTreeSet<&str> = (0..replay.blocks.len())
        .filter_map(|it| evidence.name(BlockId(u32::try_from(it).unwrap_or(u32::MAX))))
        .filter(|it| it.role == Role::Parameter)
        .map(|it| it.name)
        .collect();
    let mut sums: BTreeMap<String, (Sum, BTreeSet<String>)> = BTreeMap::new();
    for it in live {
        let path = match evidence.name(it.block) {
            Some(Named { role: Role::Input, .. }) => None,
            Some(Named { name, .. }) => {
                let owner = parameters
                    .range(..=name)
                    .next_back()
                    .filter(|it| name.strip_prefix(**it).is_some_and(|rest| rest.starts_with('.')))
                    .copied()
                    .unwrap_or(name);
                owner.rsplit_once('.').map(|(module, _)| module)
            }
            None => {
                let alloc = replay.blocks[it.block.index()].alloc;
                let metadata = trace.text(device.events.get(alloc.index()).metadata);
                metadata.strip_prefix("m=").filter(|it| !it.is_empty())
            }
        };
        let Some(path) = path else { continue };
        let (sum, modules) = sums.entry(without_numbers(path)).or_default();
        sum.add(it);
        modules.insert(path.to_owned());
    }
    let mut shares: Vec<ModuleShare> = sums
        .into_iter()
        .map(|(path, (sum, modules))| ModuleShare {
            path,
            modules: modules.len() as u64,
            bytes: sum.bytes,
            blocks: sum.blocks,
            category: sum.category(),
            is_mixed: sum.is_mixed(),
        })
        .collect();
    shares.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.path.cmp(&b.path)));
    shares.truncate(SHOWN);
    shares
}

/// The line of the user's own code that `stack` comes from; where there is none the innermost of a library other than PyTorch, else PyTorch's.
pub(crate) fn line_of(trace: &Trace, stacks: &Stacks, stack: StackId) -> Option<CodeLine> {
    let users = stacks.user_frame(stack).map(|it| trace.stacks.frame_of(it));
    let frames = || {
        let all = trace.stacks.frame_ids(stack).map(|it| trace.stacks.frame_of(it));
        all.filter(|it| !is_agents_code(trace.text(it.file)))
    };
    let of_a_library = || frames().find(|it| is_of_a_library(trace.text(it.file)));
    let Frame { file, function, line } = users.or_else(of_a_library).or_else(|| frames().next())?;
    Some(CodeLine {
        file: trace.text(file).to_owned(),
        line,
        function: trace.text(function).to_owned(),
        text: String::new(),
    })
}

/// Whether a function of the stack is in one of these lines.
pub(crate) fn passes_through(trace: &Trace, stack: StackId, lines: &LoopLines) -> bool {
    let mut frames = trace.stacks.frame_ids(stack).map(|it| trace.stacks.frame_of(it));
    frames.any(|it| lines.has(trace.text(it.file), it.line))
}

/// The line of a library's model that asked for it, below the user's: the innermost in a file of models, as libraries call
/// them, else the innermost outside of PyTorch.
pub(crate) fn line_of_library(trace: &Trace, stacks: &Stacks, stack: StackId) -> Option<CodeLine> {
    let user = stacks.user_frame(stack)?;
    let below = trace.stacks.frame_ids(stack).take_while(|id| *id != user);
    let frames = below.map(|id| trace.stacks.frame_of(id));
    let frames: Vec<Frame> =
        frames.filter(|frame| is_of_a_library(trace.text(frame.file))).collect();
    let of_a_model = |frame: &&Frame| {
        let file = trace.text(frame.file);
        file.contains("/models/") || file.contains("/modeling_")
    };
    let &Frame { file, function, line } =
        frames.iter().find(of_a_model).or_else(|| frames.first())?;
    Some(CodeLine {
        file: trace.text(file).to_owned(),
        line,
        function: trace.text(function).to_owned(),
        text: String::new(),
    })
}

/// Whether `file` is Python of an installed package other than PyTorch's.
fn is_of_a_library(file: &str) -> bool {
    let installed = ["/site-packages/", "/dist-packages/"];
    let package = installed.iter().find_map(|it| file.rsplit_once(it)).map(|(_, path)| path);
    package.is_some_and(|path| {
        let not = ["torch/", "torchgen/", "numpy/", "functorch/"];
        path.ends_with(".py") && !not.iter().any(|it| path.starts_with(it))
    })
}

/// The user's line that called the outermost module: what is kept, is kept by the loop around it.
pub(crate) fn line_outside(trace: &Trace, stacks: &Stacks, stack: StackId) -> Option<CodeLine> {
    line_of(trace, stacks, stacks.outside(stack))
}

/// Where `backward()` was called, and by which stack. Autograd's threads have no Python stack, but the
/// thread that called them allocates the first gradient (the 1 that a loss begins with) inside
/// `torch.autograd`, just before; of a model on several devices, on the one where its loss is, and time says when.
fn backward_callers(
    trace: &Trace,
    device: &DeviceTrace,
    stacks: &Stacks,
) -> Vec<(EventId, StackId)> {
    fn calls<'a>(
        device: &'a DeviceTrace,
        stacks: &'a Stacks,
    ) -> impl Iterator<Item = (EventId, StackId)> + 'a {
        device.events.allocations().filter(|(_, stack)| {
            let signs = stacks.signs(*stack);
            signs.has(Signs::BACKWARD) && !signs.has(Signs::RECOMPUTE)
        })
    }
    let mut res: Vec<(EventId, StackId)> = calls(device, stacks).collect();
    let is_other = |it: &&DeviceTrace| !std::ptr::eq(*it, device) && !it.events.is_empty();
    let mut others = trace.devices.iter().filter(is_other).peekable();
    if device.events.is_empty() || others.peek().is_none() {
        return res;
    }
    let times = device.events.times();
    for other in others {
        for (event, stack) in calls(other, stacks) {
            let time = other.events.times()[event.index()];
            let at = times.partition_point(|it| *it < time);
            if time != 0
                && let Ok(at) = u32::try_from(at)
            {
                res.push((EventId(at), stack));
            }
        }
    }
    res.sort_by_key(|(event, _)| *event);
    res
}

/// `transformer.h.3.mlp` as `transformer.h.*.mlp`: the same part of every layer.
pub(crate) fn without_numbers(path: &str) -> String {
    let parts = path.split('.').map(|path| {
        let is_number = !path.is_empty() && path.bytes().all(|it| it.is_ascii_digit());
        if is_number { "*" } else { path }
    });
    parts.collect::<Vec<_>>().join(".")
}

#[derive(Debug, Default)]
struct Sum {
    bytes: Bytes,
    blocks: u64,
    by_category: BTreeMap<Category, Bytes>,
}

impl Sum {
    fn add(&mut self, live: &Live) {
        self.bytes += live.size;
        self.blocks += 1;
        *self.by_category.entry(live.category).or_default() += live.size;
    }

    /// The category that most of it belongs to; of equals the first.
    fn category(&self) -> Category {
        let most = self
            .by_category
            .iter()
            .max_by_key(|(category, bytes)| (**bytes, std::cmp::Reverse(**category)));
        most.map_or(Category::Unknown, |(category, _)| *category)
    }

    /// Whether another category has a tenth of it or more.
    fn is_mixed(&self) -> bool {
        let most = self.category();
        let others = self.by_category.iter().filter(|(it, _)| **it != most);
        others
            .map(|(_, bytes)| bytes.0)
            .max()
            .is_some_and(|it| self.bytes.0 <= it.saturating_mul(10))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_of_another_category_makes_a_line_mixed() {
        let block = |mib, category| Live { block: BlockId(0), size: Bytes::mib(mib), category };
        let is_mixed = |all: &[Live]| {
            let mut sum = Sum::default();
            all.iter().for_each(|it| sum.add(it));
            (sum.category(), sum.is_mixed())
        };
        let state = block(90, Category::OptimizerState);
        let one = (Category::OptimizerState, false);
        assert_eq!(is_mixed(&[state]), one);
        assert_eq!(is_mixed(&[state, block(9, Category::Temporaries)]), one);
        let both = is_mixed(&[state, block(10, Category::Temporaries)]);
        assert_eq!(both, (Category::OptimizerState, true));
    }

    #[test]
    fn layers_are_one_module() {
        assert_eq!(without_numbers("transformer.h.11.mlp.c_fc"), "transformer.h.*.mlp.c_fc");
        assert_eq!(without_numbers("0"), "*");
        assert_eq!(without_numbers("layer4.2.conv3"), "layer4.*.conv3");
    }
}
