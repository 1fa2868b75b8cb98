//! A moment of a recording that somebody names: the peak, the end, an event, a step.

use std::{
    fmt::{self, Display, Formatter},
    str::FromStr,
};

use crate::{
    prediction::device_run::DeviceRun,
    replay::Levels,
    trace::{Action, EventId},
};

/// A moment, as people name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum At {
    /// When most was allocated, the first time.
    #[default]
    Peak,
    /// When a request failed, the last time.
    Oom,
    /// After the last event.
    End,
    /// After this event, from 0.
    Event(u32),
    /// When most was allocated within this optimizer step, from 1.
    Step(u32),
    /// When this optimizer step was over, from 1: what is kept from step to step.
    After(u32),
}

/// A word that names no moment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{given:?} is no moment: expected peak, oom, end, event:N (from 0), step:N (the peak of a step, from 1) or after:N (what a step keeps)"
)]
pub struct ParseAtError {
    given: String,
}

/// The recording has no such moment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSuchMoment {
    /// An event that is not there.
    #[error("there is no event {asked}: this recording has {n} of device {device}, counted from 0")]
    Event {
        /// The event.
        asked: u32,
        /// How many there are.
        n: usize,
        /// The device.
        device: usize,
    },
    /// A step that is not there.
    #[error(
        "there is no step {asked}: {n} were seen on device {device}{}",
        if *n == 0 { " (steps are read from the agent's notes, or from call stacks)" } else { "" }
    )]
    Step {
        /// The step.
        asked: u32,
        /// How many there are.
        n: usize,
        /// The device.
        device: usize,
    },
    /// Nothing failed.
    #[error("no request failed on device {device}: there is no moment `oom`; try `peak`")]
    Oom {
        /// The device.
        device: usize,
    },
}

impl FromStr for At {
    type Err = ParseAtError;

    fn from_str(given: &str) -> Result<At, ParseAtError> {
        let error = || ParseAtError { given: given.to_owned() };
        let lower = given.trim().to_ascii_lowercase();
        let (word, number) = match lower.split_once([':', '=']) {
            Some((word, number)) => (word, Some(number)),
            // `step3`, and a bare number for an event.
            None => {
                let at = lower.find(|it: char| it.is_ascii_digit()).unwrap_or(lower.len());
                let (word, number) = lower.split_at(at);
                (word, Some(number).filter(|it| !it.is_empty()))
            }
        };
        let number = number.map(|it| it.parse::<u32>().map_err(|_| error())).transpose()?;
        match (word, number) {
            ("peak", None) => Ok(At::Peak),
            ("oom", None) => Ok(At::Oom),
            ("end", None) => Ok(At::End),
            ("event" | "", Some(number)) => Ok(At::Event(number)),
            ("step", Some(number @ 1..)) => Ok(At::Step(number)),
            ("after", Some(number @ 1..)) => Ok(At::After(number)),
            _ => Err(error()),
        }
    }
}

impl Display for At {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            At::Peak => f.write_str("at the peak"),
            At::Oom => f.write_str("when memory ran out"),
            At::End => f.write_str("at the end of the recording"),
            At::Event(event) => write!(f, "after event {event}"),
            At::Step(step) => write!(f, "at the peak of step {step}"),
            At::After(step) => write!(f, "after step {step}"),
        }
    }
}

/// A moment that was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// How many events had happened.
    pub(crate) done: u32,
    /// The levels then.
    pub(crate) levels: Levels,
}

impl At {
    /// Where this moment is on the device of `run`.
    pub(crate) fn find(self, run: &DeviceRun<'_>) -> Result<Found, NoSuchMoment> {
        let events = &run.device.events;
        let device = run.index;
        let n = u32::try_from(events.len()).unwrap_or(u32::MAX);
        let ends = &run.timeline.step_ends;
        let no_step = |asked| NoSuchMoment::Step { asked, n: ends.len(), device };
        let end_of = |step: u32| match step {
            0 => Some(EventId(0)),
            step => ends.get(step as usize - 1).copied(),
        };
        let is_ended_by_oom = |step: u32| run.oom.is_some() && step as usize == ends.len() + 1;
        let window = match self {
            At::Peak => 0..=n,
            At::Oom => {
                let last = events.actions().iter().rposition(|it| *it == Action::Oom);
                let last = last.and_then(|it| u32::try_from(it).ok());
                let done = last.ok_or(NoSuchMoment::Oom { device })? + 1;
                done..=done
            }
            At::End => n..=n,
            At::Event(asked) if asked < n => asked + 1..=asked + 1,
            At::Event(asked) => {
                return Err(NoSuchMoment::Event { asked, n: events.len(), device });
            }
            At::Step(step) if is_ended_by_oom(step) => ends.last().map_or(0, |it| it.0)..=n,
            At::Step(step) => {
                let from = end_of(step - 1).ok_or_else(|| no_step(step))?;
                from.0..=end_of(step).ok_or_else(|| no_step(step))?.0
            }
            At::After(step) => {
                let end = end_of(step).ok_or_else(|| no_step(step))?.0;
                end..=end
            }
        };
        let mut res = Found { done: 0, levels: run.replay.levels_before() };
        let mut found = window.contains(&0);
        for (id, levels) in run.replay.levels(events) {
            let done = id.0 + 1;
            if *window.end() < done {
                break;
            }
            if window.contains(&done) && (!found || res.levels.allocated < levels.allocated) {
                res = Found { done, levels };
                found = true;
            }
        }
        Ok(res)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_as_people_write_them() {
        let read = |it: &str| it.parse::<At>();
        assert_eq!(read("peak"), Ok(At::Peak));
        assert_eq!(read("OOM"), Ok(At::Oom));
        assert_eq!(read("event:7"), Ok(At::Event(7)));
        assert_eq!(read("7"), Ok(At::Event(7)));
        assert_eq!(read("step3"), Ok(At::Step(3)));
        assert_eq!(read("after:3"), Ok(At::After(3)));
        for wrong in ["", "step", "step:0", "peak:3", "event:x", "-1", "event:99999999999"] {
            let error = read(wrong).unwrap_err().to_string();
            assert!(error.contains("expected peak, oom, end"), "{wrong}: {error}");
        }
    }
}
