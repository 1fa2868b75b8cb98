//! Which pool and stream each block came out of, and what private pools hold: nobody else can have it.

use std::collections::BTreeMap;

use crate::{
    prediction::device_run::DeviceRun,
    scene::{
        Group, Held, Position,
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
        let sweep = Sweep::over(run, segments);
        let changes = sweep.changes();
        let mut known: Vec<(Owner, u16)> = sweep.known.into_iter().collect();
        if known.is_empty() {
            known.push((Owner::default(), 0));
        }
        let mut groups = Vec::new();
        let mut held = BTreeMap::new();
        let mut group_of: Vec<Option<u8>> = vec![None; known.len()];
        for (owner, index) in known.iter().take(OWN) {
            let name = name(*owner, &known);
            let own = groups.len();
            group_of[usize::from(*index)] = Some(number(own));
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
        let owners = sweep.owners.iter();
        let groups_of = owners.map(|it| group_of[usize::from(*it)].unwrap_or(others)).collect();
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

    /// Of each group that is no blocks: its index, that of the blocks beside it, and its curve.
    pub(super) fn curves(&self) -> Vec<Held> {
        let all = self.held.iter();
        let curve = |it: &[(Position, Bytes)]| it.iter().map(|it| (it.0, it.1.0)).collect();
        all.map(|(group, (own, it))| (number(*group), number(*own), curve(it))).collect()
    }
}

/// When, whose, how much, and whether the pool got it.
type Changed = (Position, Owner, Bytes, bool);

/// Goes from the end of a recording to its beginning: only the final state says whose a segment is.
struct Sweep<'a> {
    run: &'a DeviceRun<'a>,
    segments: &'a Segments,
    map: BTreeMap<u64, Extent>,
    /// Changes that were not undone yet.
    left: usize,
    /// What changed, the last first.
    seen: Vec<Changed>,
    known: BTreeMap<Owner, u16>,
    /// By life, as what `known` has.
    owners: Vec<u16>,
}

impl<'a> Sweep<'a> {
    fn over(run: &'a DeviceRun<'a>, segments: &'a Segments) -> Sweep<'a> {
        let n_before = run.replay.initial.len();
        let mut sweep = Sweep {
            run,
            segments,
            map: segments.last.clone(),
            left: segments.changes.len(),
            seen: Vec::new(),
            known: BTreeMap::new(),
            owners: vec![0; n_before + run.replay.blocks.len()],
        };
        for (at, block) in run.replay.blocks.iter().enumerate().rev() {
            sweep.back_to(block.alloc.0 + 1);
            let event = run.device.events.get(block.alloc.index());
            let own = || {
                let pool = run.trace.pools.get(event.pool.index()).copied().unwrap_or_default();
                (pool, run.trace.streams.get(event.stream.index()).copied().unwrap_or(0))
            };
            let owner = sweep.owner(block.address).unwrap_or_else(own);
            sweep.owners[n_before + at] = sweep.index(owner);
        }
        sweep.back_to(0);
        for (at, block) in run.replay.initial.iter().enumerate() {
            let owner = sweep.owner(block.address).unwrap_or_default();
            sweep.owners[at] = sweep.index(owner);
        }
        let first: Vec<Owner> = sweep.map.values().map(owner).collect();
        for it in first {
            sweep.index(it);
        }
        sweep
    }

    /// What the pools had at first, got and gave back, in order.
    fn changes(&self) -> Vec<Changed> {
        let first = self.map.iter().map(|(address, it)| (0, owner(it), it.size(*address), true));
        first.chain(self.seen.iter().rev().copied()).collect()
    }

    fn index(&mut self, owner: Owner) -> u16 {
        let next = u16::try_from(self.known.len()).unwrap_or(u16::MAX);
        *self.known.entry(owner).or_insert(next)
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
            let whose = whose.unwrap_or_default();
            self.index(whose);
            self.seen.push((*at, whose, event.size, gives));
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
fn name((pool, stream): Owner, known: &[(Owner, u16)]) -> String {
    let mut res = match pool {
        (0, 0) => "default pool".to_owned(),
        (a, b) => format!("private pool ({a}, {b})"),
    };
    if 1 < known.iter().filter(|it| it.0.0 == pool).count() {
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
