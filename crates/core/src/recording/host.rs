//! Whether the host's memory (RAM) that a process has grows with its steps.

use crate::{
    recording::{CodeLine, Mark, MarkKind, Notes},
    units::Bytes,
};

/// What recording itself takes for an event of the allocator, with its call stack: 256 B in the mean of 150 steps of a
/// transformer, in jumps.
const OF_AN_EVENT: Bytes = Bytes::kib(2);
/// Readings that growth needs, the first step's left out.
const READINGS: usize = 4;
/// Of fewer, each difference has to be like the others.
const MANY: usize = 8;
/// Less is nobody's trouble.
const LEAST: Bytes = Bytes::mib(64);

/// Who has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostOwner {
    /// The process itself.
    Process,
    /// Its workers, such as a `DataLoader`'s.
    Workers,
}

/// RAM that grows with each step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostGrowth {
    /// Who has it.
    pub owner: HostOwner,
    /// What a step adds.
    pub each: Bytes,
    /// What there was at the first reading that counts, and its step.
    pub from: (u32, Bytes),
    /// And at the last.
    pub to: (u32, Bytes),
    /// A line that copies about as much from the device in each step; inferred.
    pub at: Option<CodeLine>,
}

impl Notes {
    /// RAM that grows with each step, if some does.
    pub fn host_growth(&self) -> Option<HostGrowth> {
        let ends = || self.marks.iter().filter(|it| it.kind == MarkKind::StepEnd && 1 < it.step);
        let mut own: Vec<(u32, Bytes)> =
            ends().filter_map(|it| Some((it.step, it.host?))).collect();
        let mut of_workers: Vec<(u32, Bytes)> =
            ends().filter_map(|it| Some((it.step, it.workers?))).collect();
        own.sort_unstable_by_key(|it| it.0);
        of_workers.sort_unstable_by_key(|it| it.0);
        let mut ends: Vec<&Mark> = ends().collect();
        ends.sort_unstable_by_key(|it| it.step);
        let ours = of_recording(&ends) + of_contents(&ends);
        let growth = |owner, points: &[(u32, Bytes)], ours| {
            let each = rise(points, ours)?;
            let at = (owner == HostOwner::Process).then(|| self.copier(each, points)).flatten();
            Some(HostGrowth { owner, each, from: *points.first()?, to: *points.last()?, at })
        };
        growth(HostOwner::Process, &own, ours)
            .or_else(|| growth(HostOwner::Workers, &of_workers, Bytes::ZERO))
    }

    /// The line that reads about `each` from the device in a step.
    fn copier(&self, each: Bytes, points: &[(u32, Bytes)]) -> Option<CodeLine> {
        let steps = u64::from(points.last()?.0).max(1);
        let off = |bytes: Bytes| (bytes.0 / steps).abs_diff(each.0);
        let like = self.reads.iter().filter(|it| off(it.bytes) <= each.0 / 3);
        like.min_by_key(|it| off(it.bytes)).map(|it| it.at.clone())
    }
}

/// What the recording of a step's events takes.
fn of_recording(ends: &[&Mark]) -> Bytes {
    let events = |it: &Mark| it.place.allocs.iter().chain(&it.place.frees).sum::<u64>();
    let most = ends.windows(2).map(|pair| {
        let steps = u64::from(pair[1].step.saturating_sub(pair[0].step)).max(1);
        events(pair[1]).saturating_sub(events(pair[0])) / steps
    });
    Bytes(most.max().unwrap_or(0) * OF_AN_EVENT.0)
}

/// What the phantom remembers of data that lies on its device, which the host does not have on a real one: not more than the
/// device's own growth.
fn of_contents(ends: &[&Mark]) -> Bytes {
    let reserved = |it: &Mark| it.reserved.iter().map(|it| it.0).sum::<u64>();
    let (Some(first), Some(last)) = (ends.first(), ends.last()) else { return Bytes::ZERO };
    let steps = u64::from(last.step.saturating_sub(first.step)).max(1);
    let each = reserved(last).saturating_sub(reserved(first)) / steps;
    Bytes(each + each / 4)
}

/// What each step adds, if it adds about the same all the time, and more than `ours`.
fn rise(points: &[(u32, Bytes)], ours: Bytes) -> Option<Bytes> {
    let (first, last) = (*points.first()?, *points.last()?);
    let steps = u64::from(last.0.checked_sub(first.0).filter(|it| 0 < *it)?);
    let total = last.1.0.checked_sub(first.1.0)?;
    let each = Bytes(total / steps);
    let least = match points.len() {
        ..READINGS => return None,
        READINGS..MANY => Bytes::mib(8),
        MANY..64 => Bytes::mib(1),
        _ => Bytes::kib(32),
    };
    if total < LEAST.0 || each < least + ours {
        return None;
    }
    // What is emptied and fills up again does not grow.
    let mut high = first.1;
    for it in points {
        if total / 4 < high.saturating_sub(it.1).0 {
            return None;
        }
        high = high.max(it.1);
    }
    // Nor does what levels off: each part of the way adds its share.
    let parts = if points.len() < MANY { points.len() as u64 - 1 } else { 4 };
    let level = |step: u64| {
        let at = points.partition_point(|it| u64::from(it.0) < step).min(points.len() - 1);
        points[at]
    };
    let is_steady = (0..parts).all(|n| {
        let begin = level(u64::from(first.0) + steps * n / parts);
        let end = level(u64::from(first.0) + steps * (n + 1) / parts);
        let share = u64::from(end.0 - begin.0) * each.0;
        let more = end.1.saturating_sub(begin.1).0;
        share / 2 <= more && more <= share * 2
    });
    is_steady.then_some(each)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{Place, ReadNote};

    fn mib(it: Bytes) -> u64 {
        it.0 >> 20
    }

    /// Steps that end with so many MiB, from the first on, with so many events each.
    fn notes(levels: &[u64], events: u64) -> Notes {
        let mark = |(n, level): (u32, &u64)| Mark {
            kind: MarkKind::StepEnd,
            step: n + 1,
            place: Place { allocs: vec![events * u64::from(n)], frees: vec![] },
            reserved: vec![],
            allocated: vec![],
            seconds: 0.0,
            with_gradients: false,
            host: Some(Bytes::mib(*level)),
            workers: None,
        };
        Notes { marks: (0..).zip(levels).map(mark).collect(), ..Notes::default() }
    }

    #[test]
    fn what_grows_and_what_does_not() {
        let of =
            |levels: &[u64], events| notes(levels, events).host_growth().map(|it| mib(it.each));
        assert_eq!(of(&[500, 600, 640, 680, 720], 100), Some(40), "a list of tensors");
        assert_eq!(of(&[500, 600, 640, 680], 100), None, "three readings are few");
        assert_eq!(of(&[500, 600, 604, 608, 612, 616], 100), None, "little, and few readings");
        let slow: Vec<u64> = (0..100).map(|it| 500 + it).collect();
        assert_eq!(of(&slow, 100), Some(1), "little, and many readings");
        assert_eq!(of(&slow, 10_000), None, "as much as recording takes");
        assert_eq!(of(&[500, 600, 700, 750, 760, 760, 760, 760, 760, 760], 100), None, "a cache");
        assert_eq!(of(&[500, 600, 700, 800, 600, 700, 800, 600, 700, 800], 100), None, "emptied");
        assert_eq!(of(&[500, 600, 600, 600, 600, 1000, 1000, 1000, 1000], 100), None, "once");
        assert_eq!(of(&[500; 50], 100), None, "steady");
    }

    #[test]
    fn what_a_phantom_remembers_of_its_device_is_not_the_programs() {
        let mut notes = notes(&[500, 600, 640, 680, 720, 760], 100);
        for (mark, n) in notes.marks.iter_mut().zip(1..) {
            mark.reserved = vec![Bytes::mib(40 * n)];
        }
        assert_eq!(notes.host_growth(), None);
    }

    #[test]
    fn the_line_that_copies_as_much_is_named() {
        let mut notes = notes(&[500, 564, 628, 692, 756, 820], 100);
        let read = |line, bytes| ReadNote {
            at: CodeLine { file: "train.py".to_owned(), line, ..CodeLine::default() },
            count: 6,
            bytes,
            sizes: 0,
            becomes_size: false,
        };
        notes.reads =
            vec![read(7, Bytes(24)), read(9, Bytes::mib(64 * 6)), read(12, Bytes::gib(9))];
        let found = notes.host_growth().unwrap();
        assert_eq!((mib(found.each), found.at.unwrap().line), (64, 9));
        notes.reads.remove(1);
        assert_eq!(notes.host_growth().unwrap().at, None);
    }
}
