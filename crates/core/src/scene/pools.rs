//! Which pool and stream each block came out of, and what private pools hold: nobody else can have it.

use std::collections::BTreeMap;

use crate::{
    prediction::device_run::DeviceRun,
    scene::{
        Group, Position,
        segments::{Extent, Segments},
    },
    trace::Action,
    units::Bytes,
};

/// Pools and streams that get a group of their own.
const OWN: usize = 60;

/// A pool's pair of numbers, and the raw handle of a stream.
type Owner = ((i64, i64), i64);

/// Blocks by pool and stream. Of a private pool, a second group follows the one of its blocks: what it
/// holds beside them.
pub(super) struct Pools {
    /// By life.
    groups_of: Vec<u8>,
    pub(super) groups: Vec<Group>,
    /// By group of what is held beside blocks: the group of these, and what both take together, from where
    /// it changes on.
    held: BTreeMap<usize, (usize, Vec<(Position, Bytes)>)>,
}

impl Pools {
    pub(super) fn of(run: &DeviceRun<'_>, segments: &Segments) -> Pools {
        let (owners, changes) = Sweep::over(run, segments);
        let mut known: Vec<Owner> = owners.iter().copied().collect();
        known.extend(changes.iter().map(|it| it.1));
        known.sort_unstable();
        known.dedup();
        if known.is_empty() {
            known.push(Owner::default());
        }
        let mut groups = Vec::new();
        let mut group_of: BTreeMap<Owner, u8> = BTreeMap::new();
        let mut held = BTreeMap::new();
        for owner in known.iter().take(OWN) {
            let name = name(*owner, &known);
            let own = groups.len();
            group_of.insert(*owner, number(own));
            groups.push(Group { key: "pool", name: name.clone() });
            if owner.0 != (0, 0) {
                held.insert(groups.len(), (own, curve(&changes, *owner)));
                groups.push(Group { key: "held", name: format!("{name}: held and free") });
            }
        }
        let others = number(groups.len());
        if OWN < known.len() {
            let name = format!("{} other pools and streams", known.len() - OWN);
            groups.push(Group { key: "others", name });
        }
        let groups_of =
            owners.iter().map(|it| group_of.get(it).copied().unwrap_or(others)).collect();
        Pools { groups_of, groups, held }
    }

    pub(super) fn group(&self, life: usize) -> u8 {
        self.groups_of[life]
    }

    /// For each group that is no blocks: its index, that of the blocks beside it, and what both take
    /// together at `position`.
    pub(super) fn held_at(
        &self,
        position: Position,
    ) -> impl Iterator<Item = (usize, usize, Bytes)> + '_ {
        self.held.iter().map(move |(group, (blocks, curve))| {
            let at = curve.partition_point(|it| it.0 <= position);
            let held = at.checked_sub(1).map_or(Bytes::ZERO, |it| curve[it].1);
            (*group, *blocks, held)
        })
    }
}

/// Goes from the end of a recording to its beginning: only the final state says whose a segment is.
struct Sweep<'a> {
    run: &'a DeviceRun<'a>,
    segments: &'a Segments,
    map: BTreeMap<u64, Extent>,
    /// Changes that were not undone yet.
    left: usize,
    /// What changed, and whether it was given to the pool; the last first.
    seen: Vec<(Position, Owner, Bytes, bool)>,
}

/// When, whose, how much, and whether the pool got it.
type Changed = (Position, Owner, Bytes, bool);

impl Sweep<'_> {
    /// The owner of each life, and what the pools got and gave back, in order.
    fn over(run: &DeviceRun<'_>, segments: &Segments) -> (Vec<Owner>, Vec<Changed>) {
        let left = segments.changes.len();
        let mut sweep = Sweep { run, segments, map: segments.last.clone(), left, seen: Vec::new() };
        let n_before = run.replay.initial.len();
        let mut owners = vec![Owner::default(); n_before + run.replay.blocks.len()];
        for (at, block) in run.replay.blocks.iter().enumerate().rev() {
            sweep.back_to(block.alloc.0 + 1);
            let event = run.device.events.get(block.alloc.index());
            let own = || {
                let pool = run.trace.pools.get(event.pool.index()).copied().unwrap_or_default();
                (pool, run.trace.streams.get(event.stream.index()).copied().unwrap_or(0))
            };
            owners[n_before + at] = sweep.owner(block.address).unwrap_or_else(own);
        }
        sweep.back_to(0);
        for (at, block) in run.replay.initial.iter().enumerate() {
            owners[at] = sweep.owner(block.address).unwrap_or_default();
        }
        let first = sweep.map.iter().map(|(address, it)| (0, owner(it), it.size(*address), true));
        let changes = first.chain(sweep.seen.iter().rev().copied()).collect();
        (owners, changes)
    }

    /// Undoes what came after `position`.
    fn back_to(&mut self, position: Position) {
        let trace = self.run.trace;
        while let Some((at, event)) = self.left.checked_sub(1).map(|it| &self.segments.changes[it])
            && position < *at
        {
            self.left -= 1;
            let gives = matches!(event.action, Action::SegmentAlloc | Action::SegmentMap);
            let before = if gives { self.owner(event.address) } else { None };
            Segments::undo(&mut self.map, event, trace);
            let whose = if gives { before } else { self.owner(event.address) };
            self.seen.push((*at, whose.unwrap_or_default(), event.size, gives));
        }
    }

    fn owner(&self, address: u64) -> Option<Owner> {
        let (_, it) = self.map.range(..=address).next_back()?;
        (address < it.end).then(|| owner(it))
    }
}

fn owner(it: &Extent) -> Owner {
    (it.pool, it.stream)
}

/// What `owner` holds, from where it changes on.
fn curve(changes: &[Changed], owner: Owner) -> Vec<(Position, Bytes)> {
    let mut sum = Bytes::ZERO;
    let own = changes.iter().filter(|it| it.1 == owner);
    own.map(|(position, _, size, gets)| {
        sum = if *gets { sum + *size } else { sum.saturating_sub(*size) };
        (*position, sum)
    })
    .collect()
}

/// What people call `owner`: the stream only where its pool has several.
fn name((pool, stream): Owner, known: &[Owner]) -> String {
    let mut res = match pool {
        (0, 0) => "default pool".to_owned(),
        (a, b) => format!("private pool ({a}, {b})"),
    };
    if 1 < known.iter().filter(|it| it.0 == pool).count() {
        res += &match stream {
            0 => ", default stream".to_owned(),
            it => format!(", stream {it:#x}"),
        };
    }
    res
}

fn number(index: usize) -> u8 {
    u8::try_from(index).unwrap_or(u8::MAX)
}
