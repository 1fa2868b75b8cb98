//! What a program holds at one moment, block by block: what every view of a moment adds up.

use std::collections::BTreeMap;

use crate::{
    explanation::at::{At, Found, NoSuchMoment},
    findings::{category_name, place},
    prediction::{
        Category, Origin,
        categories::Evidence,
        device_run::DeviceRun,
        origins::{Origins, line_of, without_numbers},
    },
    recording::Recording,
    replay::{BlockId, InitialBlock},
    trace::{BlockState, StackId},
    units::Bytes,
};

/// A block that the program has at a moment.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    /// None for one that was there before the first event.
    pub(crate) block: Option<BlockId>,
    pub(crate) size: Bytes,
    pub(crate) stack: StackId,
    pub(crate) category: Category,
}

/// Everything that the program has at a moment.
pub(crate) struct Holdings {
    pub(crate) found: Found,
    pub(crate) held: Vec<Held>,
    /// What the level says and the blocks do not. It is 0 unless the recording contradicts itself.
    pub(crate) rest: i128,
}

impl Holdings {
    pub(crate) fn of(
        run: &DeviceRun<'_>,
        evidence: &Evidence<'_>,
        at: At,
    ) -> Result<Holdings, NoSuchMoment> {
        let found = at.find(run)?;
        let is_live = |alloc: Option<u32>, free: Option<u32>| {
            alloc.is_none_or(|it| it < found.done) && free.is_none_or(|it| found.done <= it)
        };
        let blocks = (0..).map(BlockId).zip(&run.replay.blocks);
        let live = blocks.filter(|(_, it)| is_live(Some(it.alloc.0), it.free.map(|it| it.0)));
        let mut held: Vec<Held> = live
            .map(|(block, it)| Held {
                block: Some(block),
                size: it.size,
                stack: run.device.events.stack(it.alloc.index()),
                category: evidence.category(block),
            })
            .collect();
        let before = before(run).into_iter();
        let live = before.filter(|(it, _)| is_live(None, it.free.map(|it| it.0)));
        held.extend(live.map(|(it, stack)| Held {
            block: None,
            size: it.size,
            stack,
            category: Category::Unknown,
        }));
        let sum: i128 = held.iter().map(|it| i128::from(it.size.0)).sum();
        let rest = i128::from(found.levels.allocated.0) - sum;
        Ok(Holdings { found, held, rest })
    }
}

/// The blocks that were there before the first event, with their stacks: what lived to the end has one in
/// the end state.
pub(crate) fn before(run: &DeviceRun<'_>) -> Vec<(InitialBlock, StackId)> {
    let at_end: BTreeMap<u64, StackId> = (run.device.blocks.iter())
        .filter(|it| it.state == BlockState::Allocated)
        .map(|it| (it.address, it.stack))
        .collect();
    let stack = |block: &InitialBlock| match block.free {
        None => at_end.get(&block.address).copied().unwrap_or_default(),
        Some(_) => StackId::EMPTY,
    };
    let allocated = run.replay.initial.iter().filter(|it| !it.pending);
    allocated.map(|it| (*it, stack(it))).collect()
}

/// Which line, and by which words, a held block is known.
pub(crate) struct Names<'a> {
    run: &'a DeviceRun<'a>,
    evidence: &'a Evidence<'a>,
    origins: Origins<'a>,
}

impl<'a> Names<'a> {
    pub(crate) fn new(run: &'a DeviceRun<'a>, evidence: &'a Evidence<'a>) -> Names<'a> {
        let parts = (&run.replay, &run.timeline, &run.stacks);
        Names { run, evidence, origins: Origins::new(run.trace, run.device, parts) }
    }

    /// The line that `held` comes from.
    pub(crate) fn origin_of(&self, held: &Held) -> Origin {
        let line = || line_of(self.run.trace, &self.run.stacks, held.stack);
        match held.block {
            Some(block) => self.origin(block),
            None => line().map_or(Origin::NoStack, Origin::Line),
        }
    }

    /// The line that `block` comes from.
    pub(crate) fn origin(&self, block: BlockId) -> Origin {
        self.origins.of(block)
    }

    /// The stack that `held` comes from.
    pub(crate) fn stack_of(&self, held: &Held) -> StackId {
        held.block.map_or(held.stack, |it| self.stack(it))
    }

    /// The stack that `block` comes from; what the backward pass allocates has that of the call of
    /// `backward()`.
    pub(crate) fn stack(&self, block: BlockId) -> StackId {
        self.origins.stack_of(block)
    }

    /// What it is for, in words.
    pub(crate) fn category(held: &Held) -> &'static str {
        match held.block {
            Some(_) => category_name(held.category),
            None => "before the recording",
        }
    }

    /// The name of the tensor, or of the module that was running; the same for every layer.
    pub(crate) fn name(&self, block: BlockId) -> Option<String> {
        if let Some(named) = self.evidence.name(block) {
            return Some(without_numbers(named.name));
        }
        let alloc = self.run.replay.blocks[block.index()].alloc;
        let metadata = self.run.trace.text(self.run.device.events.get(alloc.index()).metadata);
        metadata.strip_prefix("m=").filter(|it| !it.is_empty()).map(without_numbers)
    }
}

/// An origin in words: `train.py:12`, `backward of train.py:12`.
pub fn origin_words(origin: &Origin) -> String {
    match origin {
        Origin::Line(line) => place(line),
        Origin::BackwardOf(line) => format!("backward of {}", place(line)),
        Origin::Backward => "backward".to_owned(),
        Origin::NoStack => "no stack".to_owned(),
    }
}

/// Why no device of a recording can be shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSuchDevice {
    /// There is none.
    #[error("the recording has no memory on any device")]
    None,
    /// The one asked for was not used.
    #[error("nothing happened on device {asked}; this recording has {}", list(used))]
    NotUsed {
        /// The device.
        asked: usize,
        /// Those that were.
        used: Vec<usize>,
    },
}

fn list(numbers: &[usize]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The device `asked` for, or the one with the highest peak, and how many there are to choose from.
pub(crate) fn device<'a>(
    recording: &'a Recording,
    asked: Option<usize>,
) -> Result<(DeviceRun<'a>, usize), NoSuchDevice> {
    let wanted = devices(recording, asked)?;
    let n = wanted.len();
    let runs = wanted.into_iter().filter_map(|it| DeviceRun::of(recording, it));
    let peak = |it: &DeviceRun<'_>| it.replay.peak_allocated.bytes;
    let highest = runs.reduce(|most, it| if peak(&most) < peak(&it) { it } else { most });
    Ok((highest.ok_or(NoSuchDevice::None)?, n))
}

/// The device `asked` for, or all that the process used.
pub(crate) fn devices(
    recording: &Recording,
    asked: Option<usize>,
) -> Result<Vec<usize>, NoSuchDevice> {
    let used = DeviceRun::used(recording);
    match asked {
        _ if used.is_empty() => Err(NoSuchDevice::None),
        None => Ok(used),
        Some(asked) if used.contains(&asked) => Ok(vec![asked]),
        Some(asked) => Err(NoSuchDevice::NotUsed { asked, used }),
    }
}
