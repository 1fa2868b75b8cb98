//! The devices of one recording, each with all that its run comes to; what is asked of a device is answered from that, here
//! and in the files beside.

use std::{collections::BTreeMap, sync::OnceLock};

use crate::{
    explanation::{self, Explanation, NoSuchDevice, held::devices},
    failures::Failure,
    findings,
    prediction::{Category, device_run::DeviceRun, steps, timeline::Stage},
    recording::{Phase, Recording},
    replay::BlockId,
    scene::{
        facts::{Band, Facts, Label, Refusal, Step},
        group::{Group, Grouping},
        groups::Groups,
        holes::Holes,
        levels::Levels,
        line::{Line, line_of, name_of},
        lives::Lives,
        owners::{self, Owners},
        pools::Pools,
        position::{LifeId, Position, count, event_of},
        segments::Segments,
    },
    trace::{Action, StackId},
    units::Bytes,
};

/// The devices of one recording.
pub struct Scenes<'a> {
    name: String,
    recording: &'a Recording,
    /// One for each device that was used.
    pub scenes: Vec<Scene<'a>>,
}

/// One device.
pub struct Scene<'a> {
    pub(super) run: DeviceRun<'a>,
    pub(super) levels: Levels,
    pub(super) lives: Lives,
    pub(super) groups: Groups,
    pub(super) segments: Segments,
    /// The tensor that lived in a block.
    pub(super) names: BTreeMap<LifeId, String>,
    pub(super) owners: Owners,
    pub(super) window: findings::Window,
    /// Worked out when somebody asks.
    holes: OnceLock<Holes>,
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
            ends_failing: self.run.program.ends_failing(),
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
        let is_last = |end: Position| end == self.levels.end() && !run.timeline.marked;
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
                after: (!it.unfinished && !is_last(end)).then_some(it.allocated_after),
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
        own.map(|mark| Label {
            position: self.levels.position_of(mark.time_micros),
            name: trace.text(mark.name).to_owned(),
            begins: mark.begins,
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

    pub(super) fn holes(&self) -> &Holes {
        self.holes.get_or_init(|| Holes::of(&self.run, &self.segments))
    }

    /// The line that `stack` comes from.
    pub(super) fn line_of_stack(&self, stack: StackId) -> Option<Line> {
        line_of(&self.run, stack).map(|it| name_of(&self.run, it))
    }

    /// The line that `life` comes from: the one that `explain` names.
    pub fn line(&self, life: LifeId) -> Option<Line> {
        owners::name(&self.run, self.owners.owner(life))
    }

    pub(super) fn n_before(&self) -> usize {
        self.run.replay.initial.len()
    }

    /// The device's index in its process.
    pub fn device(&self) -> usize {
        self.run.index
    }

    /// What was asked for as `life`.
    pub(super) fn requested(&self, life: LifeId) -> Bytes {
        let replay = &self.run.replay;
        match (life as usize).checked_sub(self.n_before()) {
            None => replay.initial[life as usize].requested,
            Some(block) => replay.blocks[block].requested,
        }
    }

    /// Where `life` is, and how large.
    pub(super) fn extent(&self, life: LifeId) -> (u64, Bytes) {
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
        .map(|block| match block.free {
            None => last.get(&block.address).copied().unwrap_or_default(),
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
