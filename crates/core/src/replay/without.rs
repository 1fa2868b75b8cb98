//! What would have been, had some blocks not been there: what a remedy gives back, and what would have had to
//! go for a failed request to fit. Both are answered by running the model, never by adding up sizes.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    replay::{
        Config, Held, Program, WhatIf,
        allocator::{Allocator, Request},
        driver::FreeDriver,
        follow,
        heap::State,
        program::Op,
        slot::Slot,
        what_if,
    },
    trace::{EventId, Trace},
};

/// What is to be other than it was recorded, of one allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// It was never asked for. One from before the first event is freed at the first event.
    NeverMade(Held),
    /// It was given back right after this event instead of when it was; after its own allocation, if that
    /// came later. A free that was recorded earlier stays where it was.
    FreedAfter(Held, EventId),
}

/// Runs `program` with `changes` under `config`.
///
/// The peak of reserved bytes, less that of [`what_if`] without changes under the same `config`, is what the
/// remedy gives back. Changes of blocks that `program` does not have do nothing; a block that is named twice
/// is given back at the earlier place.
pub fn what_if_without(program: &Program, changes: &[Change], config: &Config) -> WhatIf {
    what_if(&program.changed(changes), config)
}

/// The allocator as it stood when a recorded request failed, right before it tried.
///
/// Made once by following the recording up to the failure; asked as often as wanted.
#[derive(Clone, Debug)]
pub struct Failure {
    model: Allocator<FreeDriver<'static>>,
    request: Request,
    /// The blocks that the program had, by name.
    live: BTreeMap<Held, Slot>,
}

/// Whether a request at `failure` would have been served, had the program given `blocks` back before it.
pub fn would_fit_without(failure: &Failure, blocks: &[Held]) -> bool {
    failure.fits_without(blocks)
}

impl Failure {
    /// Follows the device `index` of `trace` up to `event`, an [`Oom`](crate::trace::Action::Oom). `config` has the
    /// recording's settings, and as its capacity what the allocator could take in all:
    /// [`Program::observed_limit`] when nothing better is known.
    ///
    /// None when there is no such event, or when it is no failed request.
    pub fn at(trace: &Trace, index: usize, config: &Config, event: EventId) -> Option<Failure> {
        let stopped = follow::follow_until(trace, index, config.clone(), event)?;
        let capacity = config.capacity.map_or(u64::MAX, |it| it.0);
        let taken = stopped.model.heap.whole_segments();
        let mapped = stopped.model.reserved() - taken.values().sum::<u64>();
        let driver = FreeDriver::new(capacity.saturating_sub(mapped), &[], taken);
        let changes = trace.devices.get(index).map_or(&[][..], |it| &it.settings_changes);
        Some(Failure {
            model: stopped.model.on(config.at(changes, event), driver),
            request: stopped.request,
            live: stopped.live,
        })
    }

    /// The blocks that the program had. Those that another stream was still using are not among them: they
    /// are waited for anyway.
    pub fn live(&self) -> impl Iterator<Item = Held> {
        self.live.keys().copied()
    }

    /// Whether the request would have been served, had the program given `blocks` back right before it. Blocks
    /// that it did not have then change nothing.
    pub fn fits_without(&self, blocks: &[Held]) -> bool {
        let mut model = self.model.clone();
        let blocks: BTreeSet<&Held> = blocks.iter().collect();
        for slot in blocks.into_iter().filter_map(|it| self.live.get(it)) {
            debug_assert_eq!(
                model.heap.block(*slot).state,
                State::Allocated,
                "it is the program's"
            );
            model.free(*slot);
        }
        model.malloc(self.request).is_ok()
    }
}

impl Program {
    /// The same requests with `changes`.
    pub fn changed(&self, changes: &[Change]) -> Program {
        let n_initial = super::history::id_of(self.initial.len());
        let handle_of = |held: Held| match held {
            Held::Before(index) => Some(index).filter(|it| *it < n_initial),
            Held::Made(block) => block.0.checked_add(n_initial),
        };
        let mut never: BTreeSet<u32> = BTreeSet::new();
        let mut earlier: BTreeMap<u32, EventId> = BTreeMap::new();
        for change in changes {
            match *change {
                Change::NeverMade(held) => match handle_of(held) {
                    Some(handle) if handle < n_initial => {
                        earlier.insert(handle, EventId(0));
                    }
                    handle => never.extend(handle),
                },
                Change::FreedAfter(held, event) => {
                    if let Some(handle) = handle_of(held) {
                        let at = earlier.entry(handle).or_insert(event);
                        *at = event.min(*at);
                    }
                }
            }
        }
        // By place: the free comes after everything of its event, and after its own allocation.
        let mut due: BTreeMap<EventId, Vec<u32>> = BTreeMap::new();
        for (handle, event) in earlier.range(..n_initial) {
            due.entry(*event).or_default().push(*handle);
        }
        let mut res = Program { ops: Vec::new(), events: Vec::new(), ..self.clone() };
        let mut handle = n_initial;
        for (op, event) in self.ops.iter().zip(&self.events) {
            while let Some(first) = due.first_entry().filter(|it| it.key() < event) {
                let at = *first.key();
                res.free_all(&first.remove(), at);
            }
            let mut op = *op;
            if matches!(op, Op::Alloc { .. }) {
                if never.contains(&handle) {
                    op = Op::NeverMade;
                } else if let Some(at) = earlier.get(&handle) {
                    due.entry((*at).max(*event)).or_default().push(handle);
                }
                handle += 1;
            }
            res.push(op, event.index());
        }
        res
    }

    fn free_all(&mut self, handles: &[u32], event: EventId) {
        for handle in handles {
            self.push(Op::Free(*handle), event.index());
        }
    }
}
