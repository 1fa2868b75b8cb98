//! One device of one recording as something to look at: any window of its time at any level of detail,
//! what was live at any moment, and where it lay.
//!
//! A **position** is a moment: 0 is before the first event, `p` is after the `p`-th. Every number comes
//! out of the same replay and the same rules as `explain`'s; nothing here knows how it will be drawn.

mod block;
mod changed;
mod columns;
mod group;
mod groups;
mod happened;
mod holes;
mod levels;
mod line;
mod lives;
mod map;
mod moment;
mod owners;
mod pools;
mod position;
mod program;
mod segments;
mod selection;
mod stacked;
mod window;

pub use block::BlockFacts;
pub use changed::Change;
pub use columns::{Columns, Extents};
pub use group::{Group, Grouping, Held};
pub use happened::Happened;
pub use line::{Code, Line};
pub use map::{Map, MapBlock, MapSegment, MapState};
pub use moment::{Moment, Row, Tree, TreeNode, Trees, Weigh};
pub use position::{LifeId, Position};
use position::{count, event_of};
pub use program::Counterfactual;
pub use selection::{Hit, Pick, Selection};
pub use stacked::Layer;
pub use window::{Column, Piece, Window, WindowRequest};

use std::{collections::BTreeMap, sync::OnceLock};

use crate::{
    explanation::{self, Explanation, NoSuchDevice, held::devices},
    failures::Failure,
    findings,
    prediction::{Category, device_run::DeviceRun, steps, timeline::Stage},
    recording::{Phase, Recording},
    replay::BlockId,
    scene::{
        groups::Groups,
        holes::Holes,
        levels::Levels,
        line::{line_of, name_of},
        lives::Lives,
        owners::Owners,
        pools::Pools,
        segments::Segments,
    },
    trace::{Action, StackId},
    units::Bytes,
};

/// What to count along the horizontal axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Axis {
    /// Positions.
    #[default]
    Events,
    /// Microseconds since the first event.
    Time,
}

/// The devices of one recording.
pub struct Scenes<'a> {
    name: String,
    recording: &'a Recording,
    /// One for each device that was used.
    pub scenes: Vec<Scene<'a>>,
}

/// One device.
pub struct Scene<'a> {
    run: DeviceRun<'a>,
    levels: Levels,
    lives: Lives,
    groups: Groups,
    segments: Segments,
    /// The tensor that lived in a block.
    names: BTreeMap<LifeId, String>,
    owners: Owners,
    window: findings::Window,
    /// Worked out when somebody asks.
    holes: OnceLock<Holes>,
}

/// What is true of a device as a whole.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The device's index in its process.
    pub device: usize,
    /// The process.
    pub pid: u32,
    /// Its rank, where the recording says it.
    pub rank: Option<u32>,
    /// Events.
    pub events: u32,
    /// Blocks that lived at any time; one more than the largest id.
    pub lives: u32,
    /// Of them, those that the program had before the first event.
    pub lives_before: u32,
    /// And their bytes.
    pub bytes_before: Bytes,
    /// What came before the first event was recorded, and overwritten: the ring was too small.
    pub overwritten: bool,
    /// How many allocations were, where something else counted them.
    pub overwritten_allocations: Option<u64>,
    /// Most allocated, what was there before included.
    pub peak_allocated: Bytes,
    /// When.
    pub peak_position: Position,
    /// Most reserved.
    pub peak_reserved: Bytes,
    /// When.
    pub peak_reserved_position: Position,
    /// Reserved when most was allocated.
    pub reserved_at_peak: Bytes,
    /// What explains every refusal: more was never given.
    pub limit: Option<Bytes>,
    /// What the device has, and what its context takes of it, where a phantom says so.
    pub capacity: Option<(Bytes, Bytes)>,
    /// Microseconds from the first event to the last; 0 when no clock was recorded.
    pub micros: u64,
    /// Whether call stacks were recorded.
    pub stacks: bool,
    /// Whether what lived where was recorded, so that categories are names and no guesses.
    pub named: bool,
}

/// A stretch of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Band {
    /// Its first position.
    pub from: Position,
    /// The first position after it.
    pub to: Position,
    /// What it is.
    pub phase: Phase,
}

/// One training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its number, from 1.
    pub step: u32,
    /// The first position after it.
    pub end: Position,
    /// Most allocated in it.
    pub allocated: Bytes,
    /// Most reserved in it.
    pub reserved: Bytes,
    /// Allocated when it was over.
    pub after: Bytes,
    /// It ran out of memory.
    pub unfinished: bool,
    /// When most was allocated in it.
    pub peak: Position,
}

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// When.
    pub position: Position,
    /// What was asked for, rounded.
    pub requested: Bytes,
    /// What the device said was free.
    pub free: Bytes,
    /// Who asked.
    pub line: String,
}

/// A name that the program gave to a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// When.
    pub position: Position,
    /// The name.
    pub name: String,
    /// Whether the range begins; otherwise it ends.
    pub begins: bool,
}

impl<'a> Scenes<'a> {
    /// Whether `recording` has anything to show.
    pub fn are_in(recording: &Recording) -> bool {
        !DeviceRun::used(recording).is_empty()
    }

    /// Everything that `recording`, called `name`, has to show.
    pub fn new(name: &str, recording: &'a Recording) -> Scenes<'a> {
        let scenes = DeviceRun::all(recording).into_iter().map(Scene::new).collect();
        Scenes { name: name.to_owned(), recording, scenes }
    }

    /// The same with the device `asked` for alone, if one is.
    ///
    /// # Errors
    ///
    /// When nothing happened on that device, or on any.
    pub fn of_device(
        name: &str,
        recording: &'a Recording,
        asked: Option<usize>,
    ) -> Result<Scenes<'a>, NoSuchDevice> {
        let wanted = devices(recording, asked)?;
        let runs = wanted.into_iter().filter_map(|it| DeviceRun::of(recording, it));
        Ok(Scenes { name: name.to_owned(), recording, scenes: runs.map(Scene::new).collect() })
    }

    /// How it was called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is of a phantom GPU, whose clock is the processor's.
    pub fn is_phantom(&self) -> bool {
        self.recording.phantom.is_some()
    }

    /// What `explain` says of it. `messages` are the failures that its texts tell of.
    pub fn explanation(&self, messages: &[Failure]) -> Explanation {
        let runs = self.scenes.iter().map(|it| &it.run);
        explanation::of_runs(&self.name, self.recording, runs, messages)
    }
}

impl<'a> Scene<'a> {
    fn new(run: DeviceRun<'a>) -> Scene<'a> {
        let levels = Levels::of(&run);
        let stacks_before = stacks_before(&run);
        let (categories, names) = categories(&run);
        let segments = Segments::of(&run);
        let pools = Pools::of(&run, &segments);
        let owners = Owners::of(&run, &stacks_before);
        let groups = Groups::of(&run, categories, &owners, pools);
        let lives = Lives::of(&run, &groups);
        let window = findings::Window::of(&run);
        let holes = OnceLock::new();
        Scene { run, levels, lives, groups, segments, names, owners, window, holes }
    }

    /// What is true of it as a whole.
    pub fn facts(&self) -> Facts {
        let replay = &self.run.replay;
        let held: Bytes = self.run.device.segments.iter().map(|it| it.size).sum();
        let (reserved, reserved_position) = self.levels.peak_reserved();
        let phantom = self.run.phantom();
        let position = self.levels.peak;
        Facts {
            device: self.run.index,
            pid: self.run.recording.pid,
            rank: self.run.recording.notes.begin.as_ref().and_then(|it| it.rank),
            events: self.levels.end() - 1,
            lives: count(replay.initial.len() + replay.blocks.len()),
            lives_before: count(replay.initial.iter().filter(|it| !it.pending).count()),
            bytes_before: replay.allocated_before,
            // Of a file that is cut off nobody knows whether its ring was full.
            overwritten: self.window.overwritten && !self.is_cut(),
            overwritten_allocations: self.window.overwritten_allocations.filter(|_| !self.is_cut()),
            peak_allocated: self.levels.allocated(position),
            peak_position: position,
            peak_reserved: reserved.max(held).max(replay.peak_reserved.bytes),
            peak_reserved_position: reserved_position,
            reserved_at_peak: self.levels.reserved(position),
            limit: replay.observed_limit,
            capacity: phantom.map(|it| (it.total, it.context)),
            micros: self.levels.micros(),
            stacks: self.run.stacks.recorded,
            named: !self.names.is_empty(),
        }
    }

    /// The phases, in order. What lies between them has no name.
    pub fn bands(&self) -> Vec<Band> {
        let stretches = self.run.timeline.stretches();
        stretches
            .filter_map(|(first, end, stage)| {
                let phase = stage.phase()?;
                Some(Band { from: first.0 + 1, to: end.0 + 1, phase })
            })
            .collect()
    }

    /// Peaks of each step.
    pub fn steps(&self) -> Vec<Step> {
        let run = &self.run;
        let curve = steps::curve(run.device, &run.replay, &run.timeline, run.oom);
        let ends = run.timeline.step_ends.iter().map(|it| it.0 + 1);
        let ends = ends.chain(std::iter::repeat(self.levels.end()));
        let mut before = 0;
        curve
            .steps
            .iter()
            .zip(ends)
            .map(|(it, end)| Step {
                step: it.step,
                peak: self.levels.peak_between(&mut before, end),
                end,
                allocated: it.allocated,
                reserved: it.reserved,
                after: it.allocated_after,
                unfinished: it.unfinished,
            })
            .collect()
    }

    /// Requests that failed, in order.
    pub fn refusals(&self) -> Vec<Refusal> {
        let events = &self.run.device.events;
        let mut failed = events.iter().filter(|(_, it)| it.action == Action::Oom).peekable();
        if failed.peek().is_none() {
            return Vec::new();
        }
        let origins = owners::origins(&self.run);
        let line = |it| owners::name(&self.run, owners::at(&self.run, &origins, it));
        failed
            .map(|(id, event)| Refusal {
                position: id.0 + 1,
                requested: event.size,
                free: Bytes(event.address),
                line: line(id).map_or_else(String::new, |it| it.to_string()),
            })
            .collect()
    }

    /// The names that the program gave to moments, in order.
    pub fn labels(&self) -> Vec<Label> {
        let trace = self.run.trace;
        let own = trace.annotations.iter().filter(|it| it.device as usize == self.run.index);
        own.map(|it| Label {
            position: self.levels.position_of(it.time_micros),
            name: trace.text(it.name).to_owned(),
            begins: it.begins,
        })
        .collect()
    }

    /// Which step `position` lies in, from 1; none before training. And its phase.
    pub fn step_of(&self, position: Position) -> (Option<u32>, Option<Phase>) {
        let stage = self.run.timeline.stage(event_of(position));
        let moment = self.run.moment(event_of(position));
        (Some(moment.step).filter(|it| *it != 0 && stage != Stage::Setup), moment.phase)
    }

    /// The groups that blocks are put into under `grouping`.
    pub fn groups(&self, grouping: Grouping) -> &[Group] {
        self.groups.of_grouping(grouping)
    }

    /// Microseconds from the first event to `position`.
    pub fn micros_at(&self, position: Position) -> u64 {
        self.levels.micros_at(position)
    }

    /// The position after the last.
    pub fn end(&self) -> Position {
        self.levels.end()
    }

    /// How many blocks the recorded history made; none when it has a final state only.
    pub fn n_made(&self) -> usize {
        self.run.replay.blocks.len()
    }

    /// Whether the file that it comes from was not read to its end.
    pub fn is_cut(&self) -> bool {
        self.run.trace.cut_at.is_some()
    }

    /// Whether a stack names `file`.
    pub fn has_file(&self, file: &str) -> bool {
        let trace = self.run.trace;
        trace.stacks.all_frames().any(|it| trace.text(it.file) == file)
    }

    /// The ids of blocks of the recorded history.
    pub fn lives_of(&self, blocks: &[BlockId]) -> Vec<LifeId> {
        blocks.iter().map(|it| count(self.n_before() + it.index())).collect()
    }

    /// What is held and free at `position`, and what could be had of it with one request.
    pub fn free_at(&self, position: Position) -> (Bytes, Bytes) {
        let free = self.levels.reserved(position).saturating_sub(self.levels.allocated(position));
        (free, self.holes().at(position))
    }

    fn holes(&self) -> &Holes {
        self.holes.get_or_init(|| Holes::of(&self.run, &self.segments))
    }

    /// The line that `stack` comes from.
    fn line_of_stack(&self, stack: StackId) -> Option<Line> {
        line_of(&self.run, stack).map(|it| name_of(&self.run, it))
    }

    /// The line that `life` comes from: the one that `explain` names.
    pub fn line(&self, life: LifeId) -> Option<Line> {
        owners::name(&self.run, self.owners.owner(life))
    }

    fn n_before(&self) -> usize {
        self.run.replay.initial.len()
    }

    /// Where `life` is, and how large.
    fn extent(&self, life: LifeId) -> (u64, Bytes) {
        match (life as usize).checked_sub(self.n_before()) {
            None => {
                let it = &self.run.replay.initial[life as usize];
                (it.address, it.size)
            }
            Some(block) => {
                let it = &self.run.replay.blocks[block];
                (it.address, it.size)
            }
        }
    }
}

/// The stacks of blocks from before the recording: the final state knows those of the ones that are
/// still there.
fn stacks_before(run: &DeviceRun<'_>) -> Vec<StackId> {
    let last: BTreeMap<u64, StackId> =
        run.device.blocks.iter().map(|it| (it.address, it.stack)).collect();
    let initial = run.replay.initial.iter();
    initial
        .map(|it| match it.free {
            None => last.get(&it.address).copied().unwrap_or_default(),
            Some(_) => StackId::EMPTY,
        })
        .collect()
}

/// What each block of the recording is for, and the names of those that have one.
fn categories(run: &DeviceRun<'_>) -> (Vec<Category>, BTreeMap<LifeId, String>) {
    let evidence = run.evidence();
    let n_before = run.replay.initial.len();
    let mut names = BTreeMap::new();
    let blocks = (0..count(run.replay.blocks.len())).map(BlockId);
    let categories = blocks
        .map(|block| {
            if let Some(named) = evidence.name(block) {
                names.insert(count(n_before + block.index()), named.name.to_owned());
            }
            evidence.category(block)
        })
        .collect();
    (categories, names)
}
