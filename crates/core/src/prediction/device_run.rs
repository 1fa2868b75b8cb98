//! One device of one process, with everything that was worked out of its recording.

use std::{
    collections::BTreeSet,
    sync::{Arc, OnceLock},
};

use crate::{
    cards::Card,
    codes::RemarkCode,
    prediction::{
        Counted, Moment, Peaks, Rank,
        categories::Evidence,
        origins::{self, Live},
        stacks::Stacks,
        timeline::{self, Places, Stage, Timeline},
    },
    recording::{CodeLine, PhantomDevice, Recording, Redone},
    replay::{self, Ahead, BlockId, Config, Program, Replay, TorchVersion},
    trace::{Action, DeviceTrace, EventId, StackId, Trace},
    units::Bytes,
};

/// One device of one process, with everything that was worked out of its recording.
pub(crate) struct DeviceRun<'a> {
    pub(crate) recording: &'a Recording,
    pub(crate) trace: &'a Trace,
    pub(crate) device: &'a DeviceTrace,
    /// The device's index in the process.
    pub(crate) index: usize,
    pub(crate) replay: Replay,
    pub(crate) timeline: Timeline,
    pub(crate) stacks: Stacks,
    /// The event at which the process ended for lack of memory on this device, if it did.
    pub(crate) oom: Option<EventId>,
    /// The version of torch whose rules explain the recording best.
    pub(crate) torch: TorchVersion,
    /// What the program asked for.
    pub(crate) program: Arc<Program>,
    in_one_piece: Arc<InOnePiece>,
}

/// Hears of what was followed, where memory ran out, and of the replay that somebody may ask for.
pub(crate) type Begun<'a> = dyn FnMut(&Replay, Option<EventId>, &Arc<InOnePiece>) + 'a;

/// What a device's program would have reserved at most with `expandable_segments:True`: replayed once, by whoever asks first.
pub struct InOnePiece {
    program: Arc<Program>,
    /// None when the recording had it on.
    config: Option<Config>,
    reserved: OnceLock<Option<Bytes>>,
}

impl InOnePiece {
    /// Whoever asks meanwhile waits.
    pub fn reserved(&self) -> Option<Bytes> {
        *self.reserved.get_or_init(|| {
            let config = self.config.as_ref()?;
            Some(replay::what_if(&self.program, config).peak_reserved.bytes)
        })
    }
}

impl<'a> DeviceRun<'a> {
    /// Every device that the process used.
    pub(crate) fn all(recording: &'a Recording) -> Vec<DeviceRun<'a>> {
        DeviceRun::all_after(recording, None, &mut |_, _, _| ())
    }

    /// The same; of one device what was followed ahead. `begun` hears of each as soon as it is followed.
    pub(crate) fn all_after(
        recording: &'a Recording,
        mut ahead: Option<(usize, Ahead)>,
        begun: &mut Begun<'_>,
    ) -> Vec<DeviceRun<'a>> {
        let Some(trace) = recording.trace.as_ref() else { return Vec::new() };
        let used = DeviceRun::used(recording).into_iter();
        used.map(|index| {
            let ahead = ahead.take_if(|it| it.0 == index).map(|it| it.1);
            DeviceRun::new(recording, trace, &trace.devices[index], (index, ahead), begun)
        })
        .collect()
    }

    /// The indices of the devices that the process used.
    pub(crate) fn used(recording: &Recording) -> Vec<usize> {
        let devices = recording.trace.iter().flat_map(|it| it.devices.iter().enumerate());
        let used = |it: &DeviceTrace| !it.events.is_empty() || !it.segments.is_empty();
        devices.filter(|(_, it)| used(it)).map(|(index, _)| index).collect()
    }

    /// The device `index`, if the process had it.
    pub(crate) fn of(recording: &'a Recording, index: usize) -> Option<DeviceRun<'a>> {
        let trace = recording.trace.as_ref()?;
        let device = trace.devices.get(index)?;
        Some(DeviceRun::new(recording, trace, device, (index, None), &mut |_, _, _| ()))
    }

    fn new(
        recording: &'a Recording,
        trace: &'a Trace,
        device: &'a DeviceTrace,
        (index, ahead): (usize, Option<Ahead>),
        begun: &mut Begun<'_>,
    ) -> DeviceRun<'a> {
        let (torch, (replay, program)) = replay::follow_on(trace, index, ahead);
        let places = Places::new(&replay, index, &recording.notes.stats);
        let ended = recording.ended_out_of_memory();
        let oom = failure(recording, device, &places).filter(|_| ended);
        let program = Arc::new(program);
        let settings = trace.settings.clone().unwrap_or_default();
        let expandable =
            Config { expandable_segments: true, ..Config::of_recording(&settings, torch) };
        let in_one_piece = Arc::new(InOnePiece {
            program: Arc::clone(&program),
            config: (!settings.expandable_segments).then_some(expandable),
            reserved: OnceLock::new(),
        });
        begun(&replay, oom, &in_one_piece);
        let stacks = Stacks::of(trace);
        let timeline = timeline::timeline(device, &recording.notes, &places, &stacks);
        DeviceRun {
            recording,
            trace,
            device,
            index,
            replay,
            timeline,
            stacks,
            oom,
            torch,
            program,
            in_one_piece,
        }
    }

    /// See [`InOnePiece`].
    pub(crate) fn reserved_in_one_piece(&self) -> Option<Bytes> {
        self.in_one_piece.reserved()
    }

    pub(crate) fn peaks(&self, card: &Card) -> Peaks {
        let reserved = self.replay.peak_reserved.bytes;
        Peaks {
            // What was there before a recording that began late has no blocks of its own.
            allocated: self.replay.peak_allocated.bytes,
            reserved,
            device: reserved + self.other(card) + self.context(card),
        }
    }

    pub(crate) fn phantom(&self) -> Option<&PhantomDevice> {
        self.recording.phantom.as_ref()?.devices.get(self.index)
    }

    /// What its context takes beside the most that PyTorch reserves.
    pub(crate) fn context(&self, card: &Card) -> Bytes {
        let context = self.phantom().map(|it| it.context).filter(|it| *it != Bytes::ZERO);
        context.map_or(card.context, |it| it.min(self.beside_torch(card)))
    }

    /// What libraries other than PyTorch's allocator take beside that.
    pub(crate) fn other(&self, card: &Card) -> Bytes {
        let rest = self.beside_torch(card).saturating_sub(self.context(card));
        self.phantom().map_or(Bytes::ZERO, |it| it.other_peak.min(rest))
    }

    /// What was on the card beside PyTorch's memory when that was most: the phantom gives nobody more than the card has, so any more came before or after.
    fn beside_torch(&self, card: &Card) -> Bytes {
        (card.usable() + card.lent).saturating_sub(self.replay.peak_reserved.bytes)
    }

    /// Whether the job has more ranks than this machine has devices.
    pub(crate) fn has_several_machines(&self) -> bool {
        let devices = self.recording.phantom.as_ref().map_or(0, |it| it.devices.len());
        let world = self.recording.notes.begin.as_ref().and_then(|it| it.world_size).unwrap_or(1);
        usize::try_from(world).is_ok_and(|world| 0 < devices && devices < world)
    }

    /// What another rank of the job takes at most where this one takes less.
    pub(crate) fn more_elsewhere(&self) -> Bytes {
        self.phantom().map_or(Bytes::ZERO, |it| it.more_elsewhere)
    }

    /// What other processes held on the same device when all of them held most, beyond what this one takes at most.
    pub(crate) fn beside(&self, recordings: &[Recording], card: &Card) -> Bytes {
        self.together(recordings).saturating_sub(self.peaks(card).device)
    }

    /// The most that all processes held on its device at once; zero if there was never more than one.
    pub(crate) fn together(&self, recordings: &[Recording]) -> Bytes {
        let Some(ordinal) = self.phantom().map(|it| it.ordinal) else { return Bytes::ZERO };
        let machine = |it: &Recording| it.notes.begin.as_ref().and_then(|it| it.machine);
        let is_here = |it: &&Recording| machine(it) == machine(self.recording);
        let phantoms = recordings.iter().filter(is_here).filter_map(|it| it.phantom.as_ref());
        let devices = phantoms.flat_map(|it| &it.devices).filter(|it| it.ordinal == ordinal);
        devices.map(|it| it.together).max().unwrap_or(Bytes::ZERO)
    }

    pub(crate) fn steps_seen(&self) -> u32 {
        let in_trace = u32::try_from(self.timeline.step_ends.len()).unwrap_or(u32::MAX);
        self.recording.notes.end.as_ref().map_or(in_trace, |it| it.steps.max(in_trace))
    }

    /// What its steps are.
    pub(crate) fn counted(&self) -> Counted {
        let has = |code| self.recording.notes.remarks.iter().any(|it| it.code == code);
        match (has(RemarkCode::StepsByForward), has(RemarkCode::StepsByBackward)) {
            (true, _) => Counted::ForwardPasses,
            (false, true) => Counted::BackwardPasses,
            (false, false) => Counted::Steps,
        }
    }

    /// The line in a module, if it was the module that kept what `stacks` made, and `newest` at last: one line's alone is there,
    /// and its call went on and made others. What a loop keeps is what a call gives back, which is made last, or all that its
    /// backward pass needs.
    pub(crate) fn line_that_kept(
        &self,
        stacks: &BTreeSet<StackId>,
        newest: BlockId,
    ) -> Option<CodeLine> {
        let stack = *stacks.first()?;
        let line_of = |it: StackId| origins::line_of(self.trace, &self.stacks, it);
        let outside = |it: StackId| self.stacks.outside(it);
        let (line, caller) = (line_of(stack), outside(stack));
        // A hook of several layers is one line that each of them calls.
        let is_one_line = stacks.iter().all(|it| line_of(*it) == line && outside(*it) == caller);
        if !is_one_line || line == line_of(caller) {
            return None;
        }
        let later = &self.replay.blocks[newest.index()..];
        let made = later[0].alloc;
        let step_end = self.timeline.step_ends.iter().find(|it| made < **it).copied();
        let end = step_end.unwrap_or_else(|| self.timeline.stretch_end(made));
        let goes_on = later
            .iter()
            .take_while(|it| it.alloc < end)
            .map(|it| self.device.events.stack(it.alloc.index()))
            .any(|it| outside(it) == caller && line_of(it) != line);
        if goes_on { line } else { None }
    }

    /// The line of the script that made the request `event`.
    pub(crate) fn line_at(&self, event: EventId) -> Option<CodeLine> {
        let stack = self.device.events.stack(event.index());
        origins::line_of(self.trace, &self.stacks, stack)
    }

    pub(crate) fn moment(&self, event: EventId) -> Moment {
        let stage = self.timeline.stage(event);
        let step = if stage == Stage::Setup { 0 } else { self.timeline.steps_before(event) + 1 };
        Moment { step, phase: stage.phase() }
    }

    /// What its process is in the job. A rank's GPU has what other ranks hold there, too.
    pub(crate) fn rank(&self, recordings: &[Recording], card: &Card) -> Rank {
        let rank = self.recording.notes.begin.as_ref().and_then(|it| it.rank);
        let mut peak = self.peaks(card);
        if rank.is_some() {
            peak.device += self.beside(recordings, card);
        }
        Rank { pid: self.recording.pid, rank, device: self.index, peak }
    }

    pub(crate) fn evidence(&self) -> Evidence<'_> {
        let notes = &self.recording.notes;
        let places = Places::new(&self.replay, self.index, &notes.stats);
        Evidence::new(
            self.device,
            (&self.replay, &self.timeline, &self.stacks),
            (notes, &places, self.index),
            self.oom,
        )
    }

    /// What the script itself let the allocator take of this device, if it did.
    pub(crate) fn own_limit(&self) -> Option<Bytes> {
        self.recording.notes.stats.iter().find(|it| it.device == self.index)?.limit
    }

    /// What was live after `event`, and what for.
    pub(crate) fn live_after(&self, event: EventId, evidence: &Evidence<'_>) -> Vec<Live> {
        let blocks = (0..).map(BlockId).zip(&self.replay.blocks);
        let live = blocks.filter(|(_, it)| it.is_live_after(event));
        live.map(|(block, it)| Live { block, size: it.size, category: evidence.category(block) })
            .collect()
    }
}

/// The request that failed last. What failed after it, while it was done again in vain, is not what the program needed.
fn failure(recording: &Recording, device: &DeviceTrace, places: &Places<'_>) -> Option<EventId> {
    let notes = &recording.notes;
    let was_refused = notes.redone.last().is_some_and(|it| matches!(it.how, Redone::Refused(_)));
    let from = notes.ooms.last().filter(|_| was_refused).map(|it| places.event(&it.place).index());
    let failed = |it: &Action| *it == Action::Oom;
    let actions = device.events.actions();
    let first = from.and_then(|from| Some(from + actions.get(from..)?.iter().position(failed)?));
    let event = first.or_else(|| actions.iter().rposition(failed))?;
    u32::try_from(event).ok().map(EventId)
}
