//! Steps that were recorded without stacks borrow those of a step that did the same: stacks, module paths and
//! phases. The same is what allocates in the same order on the same streams, and frees the same of it in between;
//! sizes may differ, as those of a longer batch do. Where a step goes another way it borrows nothing more.

use std::collections::BTreeMap;

use crate::{
    recording::{Mark, MarkKind, Notes, counts::Counts},
    trace::{Action, BlockState, DeviceTrace, Event, EventId, StackId, Trace},
};

/// What one event did, in the words of its step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    /// A block was asked for on a stream.
    Alloc(u32),
    /// The n-th block of this step was given back, or one from before the step.
    Free(Action, Option<u32>),
}

/// An event of a step.
#[derive(Clone, Copy, Debug)]
struct Act {
    event: EventId,
    deed: Deed,
}

/// What lies between the ends of two steps, before the first or after the last.
struct Span {
    acts: Vec<Act>,
    /// Its first event, and the first after it.
    events: (EventId, EventId),
    /// Stacks were on all the time; off all the time.
    full: bool,
    light: bool,
}

/// Lends what full steps know to those that have no stacks. Does nothing in a recording that has stacks throughout.
pub(super) fn fill_in(trace: &mut Trace, notes: &mut Notes) {
    if notes.stacks.is_empty() {
        return;
    }
    let used: Vec<usize> =
        (0..trace.devices.len()).filter(|it| !trace.devices[*it].events.is_empty()).collect();
    for index in &used {
        let device = &mut trace.devices[*index];
        let counts = Counts::of(device, notes, *index);
        let spans = spans(device, notes, &counts);
        let loans = loans(&spans);
        if let [_] = used[..] {
            // A mark speaks of all devices at once.
            lend_marks(notes, &counts, &spans, &loans);
        }
        fill_in_stacks(device, &spans, &loans);
    }
}

fn spans(device: &DeviceTrace, notes: &Notes, counts: &Counts) -> Vec<Span> {
    let end = EventId(u32::try_from(device.events.len()).unwrap_or(u32::MAX));
    let mut ends: Vec<EventId> = step_ends(notes).map(|it| counts.event(&it.place)).collect();
    ends.push(end);
    let switches: Vec<(EventId, bool)> =
        notes.stacks.iter().map(|it| (counts.event(&it.place), it.kept)).collect();
    // Where each live block was asked for: in which span, as which.
    let mut asked: BTreeMap<u64, (usize, u32)> = BTreeMap::new();
    let mut res: Vec<Span> = Vec::new();
    let mut from = EventId(0);
    for (number, to) in ends.into_iter().enumerate() {
        let to = to.max(from);
        let mut acts = Vec::new();
        let mut allocs = 0;
        for id in from.0..to.0 {
            let event = device.events.get(id as usize);
            if let Some(deed) = deed(event, number, &mut allocs, &mut asked) {
                acts.push(Act { event: EventId(id), deed });
            }
        }
        let before = switches.iter().rev().find(|(at, _)| *at <= from).is_none_or(|it| it.1);
        let mut within = switches.iter().filter(|(at, _)| from < *at && *at < to);
        let changes = within.any(|it| it.1 != before);
        res.push(Span {
            acts,
            events: (from, to),
            full: before && !changes,
            light: !before && !changes,
        });
        from = to;
    }
    res
}

fn step_ends(notes: &Notes) -> impl Iterator<Item = &Mark> {
    notes.marks.iter().filter(|it| it.kind == MarkKind::StepEnd)
}

fn deed(
    event: Event,
    span: usize,
    allocs: &mut u32,
    asked: &mut BTreeMap<u64, (usize, u32)>,
) -> Option<Deed> {
    match event.action {
        Action::Alloc => {
            asked.insert(event.address, (span, *allocs));
            *allocs += 1;
            Some(Deed::Alloc(event.stream.0))
        }
        Action::FreeRequested | Action::FreeCompleted => {
            let own = asked.get(&event.address).filter(|it| it.0 == span).map(|it| it.1);
            Some(Deed::Free(event.action, own))
        }
        _ => None,
    }
}

/// What a span borrows: from which, and how much of it.
#[derive(Clone, Copy)]
struct Loan {
    lender: usize,
    len: usize,
}

/// For each span the neighbour among the full ones that goes the same way for longest.
fn loans(spans: &[Span]) -> Vec<Option<Loan>> {
    let full: Vec<usize> = (0..spans.len()).filter(|it| spans[*it].full).collect();
    let of = |(number, span): (usize, &Span)| {
        if span.full {
            return None;
        }
        let next = full.partition_point(|it| *it < number);
        let neighbours = [next.checked_sub(1), Some(next)].into_iter().flatten();
        let loans = neighbours.filter_map(|it| full.get(it)).map(|lender| {
            let both = spans[*lender].acts.iter().zip(&span.acts);
            Loan { lender: *lender, len: both.take_while(|(a, b)| a.deed == b.deed).count() }
        });
        // Of equals the earlier one.
        loans.filter(|it| it.len != 0).reduce(|best, it| if best.len < it.len { it } else { best })
    };
    spans.iter().enumerate().map(of).collect()
}

fn fill_in_stacks(device: &mut DeviceTrace, spans: &[Span], loans: &[Option<Loan>]) {
    for (span, loan) in spans.iter().zip(loans) {
        let Some(loan) = loan else { continue };
        for (theirs, own) in spans[loan.lender].acts.iter().zip(&span.acts).take(loan.len) {
            if matches!(own.deed, Deed::Alloc(_)) {
                let lender = device.events.get(theirs.event.index());
                device.events.lend(own.event.index(), lender.stack, lender.metadata);
            }
        }
    }
    // The blocks that are there in the end were asked for last of all that had their address.
    let mut last: BTreeMap<u64, StackId> = BTreeMap::new();
    for (_, event) in device.events.iter().filter(|(_, it)| it.action == Action::Alloc) {
        last.insert(event.address, event.stack);
    }
    for block in &mut device.blocks {
        if block.stack == StackId::EMPTY && block.state != BlockState::Free {
            block.stack = last.get(&block.address).copied().unwrap_or(StackId::EMPTY);
        }
    }
}

/// Marks the phases of light steps as in the steps that they borrow from.
fn lend_marks(notes: &mut Notes, counts: &Counts, spans: &[Span], loans: &[Option<Loan>]) {
    let mut of_lender: BTreeMap<usize, Vec<(usize, MarkKind)>> = BTreeMap::new();
    let mut number = 0;
    for mark in &notes.marks {
        match mark.kind {
            MarkKind::StepEnd => number += 1,
            MarkKind::TrainingBegin => {}
            MarkKind::Begin(_) | MarkKind::End(_) => {
                let Some(span) = spans.get(number) else { continue };
                let event = counts.event(&mark.place);
                let at = span.acts.partition_point(|it| it.event < event);
                of_lender.entry(number).or_default().push((at, mark.kind));
            }
        }
    }
    let mut res = Vec::with_capacity(notes.marks.len());
    number = 0;
    let borrow = |after: Option<&Mark>, number: usize, res: &mut Vec<Mark>| {
        let (Some(span), Some(Some(loan))) = (spans.get(number), loans.get(number)) else { return };
        let Some(theirs) = of_lender.get(&loan.lender).filter(|_| span.light) else { return };
        let mark = |kind: MarkKind, at: usize| {
            let before = at.checked_sub(1).and_then(|it| span.acts.get(it));
            let event = before.map_or(span.events.0, |it| EventId(it.event.0 + 1));
            Mark {
                kind,
                step: after.map_or(0, |it| it.step),
                place: counts.place(event),
                reserved: Vec::new(),
                allocated: Vec::new(),
                seconds: after.map_or(0.0, |it| it.seconds),
                with_gradients: false,
                host: None,
                workers: None,
            }
        };
        let mut open = Vec::new();
        for (at, kind) in theirs.iter().filter(|(at, _)| *at <= loan.len) {
            match kind {
                MarkKind::Begin(phase) => open.push(*phase),
                MarkKind::End(phase) => open.retain(|it| it != phase),
                _ => {}
            }
            res.push(mark(*kind, *at));
        }
        // From there on the step went another way.
        if number + 1 != spans.len() {
            res.extend(open.iter().rev().map(|it| mark(MarkKind::End(*it), loan.len)));
        }
    };
    borrow(None, 0, &mut res);
    for mark in std::mem::take(&mut notes.marks) {
        let is_end = mark.kind == MarkKind::StepEnd;
        res.push(mark.clone());
        if is_end {
            number += 1;
            borrow(Some(&mark), number, &mut res);
        }
    }
    notes.marks = res;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{Place, StacksNote};
    use crate::{recording::Phase, trace::Events, units::Bytes};

    /// A run as one letter for each event and spaces for the ends of steps: `a` asks for a block with stack 1, `b` with
    /// stack 2, ..., `-` gives the last one back. Steps in brackets were recorded without stacks.
    fn recorded(run: &str) -> (Trace, Notes) {
        let (mut device, mut notes) = (DeviceTrace::default(), Notes::default());
        let (mut place, mut live, mut light) = (Place::default(), Vec::new(), false);
        (place.allocs, place.frees) = (vec![0], vec![0]);
        for (at, it) in (1..).zip(run.chars()) {
            let mut push = |action: Action, address: u64, stack: u32| {
                let size = Bytes(512 * address);
                let stack = StackId(if light { 0 } else { stack });
                device.events.push(event(action, address, size, stack));
            };
            match it {
                '[' | ']' => {
                    light = it == '[';
                    notes.stacks.push(StacksNote { kept: !light, place: place.clone() });
                }
                ' ' => notes.marks.push(mark(MarkKind::StepEnd, &place)),
                '(' => notes.marks.push(mark(MarkKind::Begin(Phase::Forward), &place)),
                ')' => notes.marks.push(mark(MarkKind::End(Phase::Forward), &place)),
                '-' => {
                    push(Action::FreeRequested, live.pop().unwrap_or_default(), 0);
                    place.frees[0] += 1;
                }
                letter => {
                    push(Action::Alloc, at, u32::from(letter) - u32::from('a') + 1);
                    live.push(at);
                    place.allocs[0] += 1;
                }
            }
        }
        (Trace { devices: vec![device], ..Trace::default() }, notes)
    }

    fn event(action: Action, address: u64, size: Bytes, stack: StackId) -> Event {
        let (stream, pool, metadata) = Default::default();
        Event { action, address, size, stream, pool, stack, time_micros: 0, metadata }
    }

    fn mark(kind: MarkKind, place: &Place) -> Mark {
        let (reserved, allocated) = Default::default();
        Mark {
            kind,
            step: 0,
            place: place.clone(),
            reserved,
            allocated,
            seconds: 0.0,
            with_gradients: false,
            host: None,
            workers: None,
        }
    }

    /// The same way of writing, after the loan; `?` asks for a block and nobody knows where.
    fn after_the_loan(run: &str) -> String {
        let (mut trace, mut notes) = recorded(run);
        fill_in(&mut trace, &mut notes);
        let events: &Events = &trace.devices[0].events;
        let counts = Counts::of(&trace.devices[0], &notes, 0);
        let mut marks = notes.marks.iter().map(|it| (counts.event(&it.place), it.kind)).peekable();
        let mut res = String::new();
        for at in 0..=events.len() {
            while let Some((_, kind)) = marks.next_if(|(event, _)| event.index() <= at) {
                res.push(match kind {
                    MarkKind::Begin(_) => '(',
                    MarkKind::End(_) => ')',
                    _ => ' ',
                });
            }
            if at < events.len() {
                let it = events.get(at);
                let letter = it.stack.0.checked_sub(1).and_then(|it| char::from_digit(it + 10, 36));
                let is_alloc = it.action == Action::Alloc;
                res.push(if is_alloc { letter.unwrap_or('?') } else { '-' });
            }
        }
        res
    }

    #[test]
    fn a_step_without_stacks_borrows_from_one_that_did_the_same() {
        for (run, expected) in [
            // The same steps; what one keeps is kept by all.
            ("(ab-)c- [ab-c- ab-c- ]", "(ab-)c- (ab-)c- (ab-)c- "),
            // The later neighbour, where that is the one.
            ("xy- [ab-c- ](ab-)c- ", "xy- (ab-)c- (ab-)c- "),
            // Another way from some place on; a phase is over where nobody knows any more.
            ("(abc---) [ab--dd-- ](abc---) ", "(abc---) (ab)--??-- (abc---) "),
            // The last step was not finished: it is still in the phase where it ended.
            ("(abc---) [ab", "(abc---) (ab"),
            // Another block is given back than in the step with stacks, or none of the step's own.
            ("x ab-c-- [abc--- ]", "x ab-c-- ab?--- "),
            // With stacks throughout nothing is done.
            ("(ab-) ab- ", "(ab-) ab- "),
            // Nobody to borrow from.
            ("[ab- ab- ]", "??- ??- "),
        ] {
            assert_eq!(after_the_loan(run), expected, "{run}");
        }
    }

    #[test]
    fn the_beginning_that_a_ring_lost_moves_nothing() {
        let (mut trace, mut notes) = recorded("(ab-)c- (ab-)c- [ab-c- ]");
        let first_step = 5;
        let kept = trace.devices[0].events.split_off(first_step);
        trace.devices[0].events = kept;
        notes.stats =
            vec![crate::recording::DeviceStats { allocs: 9, frees: 6, ..Default::default() }];
        fill_in(&mut trace, &mut notes);
        let stacks: Vec<u32> = trace.devices[0].events.iter().map(|(_, it)| it.stack.0).collect();
        assert_eq!(stacks, [1, 2, 0, 3, 0, 1, 2, 0, 3, 0]);
    }

    #[test]
    fn what_is_live_in_the_end_has_the_line_that_its_step_borrowed() {
        let (mut trace, mut notes) = recorded("ab- [ab- ]");
        let (state, size) = (BlockState::Allocated, Bytes(512));
        let block = |address| crate::trace::Block {
            address,
            size,
            requested: size,
            state,
            stack: StackId::EMPTY,
        };
        trace.devices[0].blocks = vec![block(6), block(99)];
        fill_in(&mut trace, &mut notes);
        let stacks: Vec<u32> = trace.devices[0].blocks.iter().map(|it| it.stack.0).collect();
        assert_eq!(stacks, [1, 0]);
    }
}
