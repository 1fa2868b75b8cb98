//! A run on the real card beside the same run on the phantom of it: how far apart they are, and where they part.

use std::slice;

use crate::{
    cards::Card,
    prediction::{BetweenEnds, Category, Moment, OtherEnd, Runs, device_run::DeviceRun},
    recording::{CodeLine, Recording},
    units::Bytes,
};

/// How much a phantom may be off, in hundredths.
const WITHIN: u64 = 1;
/// So many requests alike in a row, and both are at the same place of the program again.
const ALIKE_AGAIN: usize = 6;
/// How many requests more of either side are looked through for that place.
const LOOKED_THROUGH: usize = 40;

/// One of the two runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Side {
    /// Training steps that were seen.
    pub steps: u32,
    /// Largest sum of allocated blocks.
    pub allocated: Bytes,
    /// Largest sum of segments.
    pub reserved: Bytes,
    /// What the process held at most on the device; none if nobody could say.
    pub process: Option<Bytes>,
    /// Requests to the allocator.
    pub requests: usize,
    /// The version of torch.
    pub torch: String,
}

/// Both, and where they part.
#[derive(Clone, Debug, PartialEq)]
pub struct Verified {
    /// On the real card.
    pub real: Side,
    /// On the phantom.
    pub phantom: Side,
    /// Requests that both made, in the same order.
    pub alike: usize,
    /// Where they first did otherwise; none if they never did.
    pub parting: Option<Parting>,
    /// What was asked for on the real card and on the phantom, in order, in bytes.
    pub asked: [Vec<u64>; 2],
}

/// Where two runs first did otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parting {
    /// Which request it was, from 1; 0 if all requests are alike.
    pub number: usize,
    /// What the real card was asked for there, and the phantom.
    pub asked: [Vec<Bytes>; 2],
    /// The line of the script, if it is known.
    pub at: Option<CodeLine>,
    /// When, if it is known.
    pub moment: Option<Moment>,
    /// What it most likely comes of.
    pub cause: Cause,
}

/// What a difference most likely comes of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A library asked for another amount of scratch memory.
    Workspace,
    /// A size followed from a value that the phantom does not know.
    Value,
    /// The requests are the same; the driver placed segments otherwise.
    Address,
    /// The requests are the same; memory came back at another moment.
    Timing,
    /// Two versions of torch.
    Version,
    /// One of the two ended earlier.
    End,
}

impl Cause {
    /// A stable word for it.
    pub fn word(self) -> &'static str {
        match self {
            Cause::Workspace => "workspace",
            Cause::Value => "value",
            Cause::Address => "address",
            Cause::Timing => "timing",
            Cause::Version => "version",
            Cause::End => "end",
        }
    }

    /// A sentence about it.
    pub fn sentence(self) -> &'static str {
        match self {
            Cause::Workspace => {
                "a library requested another amount of scratch memory (cuDNN chooses it by the card); `plimsoll calibrate` measures this card's answers"
            }
            Cause::Value => {
                "a size depends on a value on the GPU, which a phantom does not compute; give it with --assume"
            }
            Cause::Address => {
                "the requests are the same; the driver placed PyTorch's segments differently, so PyTorch split others"
            }
            Cause::Timing => {
                "the requests are the same; PyTorch freed some memory earlier or later, because it waits for a collective or another stream"
            }
            Cause::Version => "the two runs had different versions of torch",
            Cause::End => "one of the two runs ended earlier",
        }
    }
}

/// A process that was compared with that of the other run.
#[derive(Clone, Debug, PartialEq)]
pub struct OfRank {
    /// Its number, in a job of several ranks.
    pub rank: Option<u32>,
    /// What it did.
    pub verified: Verified,
    /// What the phantom showed in the other of two ways, where a run may come out in both.
    pub other_way: Option<OtherWay>,
}

/// The other of two ways in which a run may come out.
#[derive(Clone, Debug, PartialEq)]
pub struct OtherWay {
    /// In what they differ.
    pub end: OtherEnd,
    /// Whether what is compared is the phantom's own choice, and this the other end.
    pub is_the_end: bool,
    /// What the phantom took.
    pub side: Side,
    /// What it may take between the two, where orders between them were replayed.
    pub between: Option<BetweenEnds>,
}

impl OfRank {
    /// Whether the phantom is within 1 % in everything that was seen, or the real run between its two ways, or it is in a replay of what lies
    /// between them; none if too little was seen.
    pub fn is_within(&self) -> Option<bool> {
        let Verified { real, phantom, .. } = &self.verified;
        if real.reserved == Bytes::ZERO || phantom.reserved == Bytes::ZERO {
            return None;
        }
        let other = self.other_way.as_ref();
        let between = other.and_then(|it| it.between).map(|it| Side {
            allocated: phantom.allocated,
            reserved: it.reserved,
            process: Some(it.most),
            ..Side::default()
        });
        let ways = [Some(phantom), other.map(|it| &it.side), between.as_ref()];
        let is_there = |pick: &dyn Fn(&Side) -> Option<Bytes>| {
            let Some(real) = pick(real) else { return true };
            let of_ways = ways.iter().flatten().filter_map(|it| pick(it)).map(|it| it.0);
            let (Some(least), Some(most)) = (of_ways.clone().min(), of_ways.max()) else {
                return true;
            };
            let may_be_off = real.0 * WITHIN / 100;
            least <= real.0 + may_be_off && real.0 <= most + may_be_off
        };
        Some(
            is_there(&|it| Some(it.allocated))
                && is_there(&|it| Some(it.reserved))
                && is_there(&|it| it.process),
        )
    }

    /// Whether it is only within as the real run lies between two ways.
    pub fn is_between(&self) -> bool {
        let alone = OfRank { other_way: None, ..self.clone() };
        self.is_within() == Some(true) && alone.is_within() == Some(false)
    }
}

/// Takes in another run of the phantom, told to show the other way: each rank may have come out in its own, and is compared with the
/// nearer. `between` has what replays of orders between the two took.
pub fn take_other_way(
    ranks: &mut [OfRank],
    others: Vec<OfRank>,
    end: OtherEnd,
    between: &[BetweenEnds],
) {
    for other in others {
        let Some(rank) = ranks.iter_mut().find(|it| it.rank == other.rank) else { continue };
        let off = |it: &Verified| it.real.reserved.0.abs_diff(it.phantom.reserved.0);
        let is_nearer = off(&other.verified) < off(&rank.verified);
        let side = if is_nearer { &rank.verified.phantom } else { &other.verified.phantom };
        let of_rank = |it: &&BetweenEnds| it.rank == rank.rank && it.reserved != Bytes::ZERO;
        let between = between.iter().find(of_rank).copied();
        let other_way = Some(OtherWay { end, is_the_end: !is_nearer, side: side.clone(), between });
        *rank = if is_nearer {
            OfRank { other_way, ..other }
        } else {
            OfRank { other_way, ..rank.clone() }
        };
    }
}

/// The ranks of a run that used a device, by number; fewer than two if it was no job of several.
pub fn ranks(recordings: &[Recording]) -> Vec<(u32, &Recording)> {
    let used = recordings.iter().filter(|it| !DeviceRun::used(it).is_empty());
    let mut res: Vec<_> =
        used.filter_map(|it| Some((it.notes.begin.as_ref()?.rank?, it))).collect();
    res.sort_by_key(|it| (it.0, it.1.pid));
    res.dedup_by_key(|it| it.0);
    res
}

/// The first device that a process used, by its own number.
pub fn device_of(recording: &Recording) -> Option<usize> {
    DeviceRun::used(recording).first().copied()
}

/// Compares two runs of one program: of a job of several ranks each rank with that of its number, else the process that took most.
/// `held` says what a rank of the real run held at most, `most` what was held of the device.
pub fn compare_ranks(
    real: &[Recording],
    phantom: &[Recording],
    card: &Card,
    held: &dyn Fn(&Recording) -> Option<Bytes>,
    most: Option<Bytes>,
) -> Vec<OfRank> {
    let (of_real, of_phantom) = (ranks(real), ranks(phantom));
    if of_real.len() < 2 {
        let verified = compare(real, phantom, card, most);
        return vec![OfRank { rank: None, verified, other_way: None }];
    }
    let one = |(rank, real): (u32, &Recording)| {
        let phantom = of_phantom.iter().find(|it| it.0 == rank).map(|it| slice::from_ref(it.1));
        let phantom = phantom.unwrap_or_default();
        let verified = compare(slice::from_ref(real), phantom, card, held(real));
        OfRank { rank: Some(rank), verified, other_way: None }
    };
    of_real.into_iter().map(one).collect()
}

/// Whether the phantom is within 1 % in every rank; none if too little was seen of one.
pub fn are_within(ranks: &[OfRank]) -> Option<bool> {
    ranks.iter().map(OfRank::is_within).try_fold(true, |all, it| Some(all && it?))
}

/// Compares what two runs of one program left. `process` is what the real one held of the device at most.
pub fn compare(
    real: &[Recording],
    phantom: &[Recording],
    card: &Card,
    process: Option<Bytes>,
) -> Verified {
    let (real, phantom) = (Runs::of(real, card), Runs::of(phantom, card));
    let of_phantom = phantom.runs.first().map(|it| it.peaks(card).device);
    let sides = [side(&real, card, process), side(&phantom, card, of_phantom)];
    let asked = [requests(&real), requests(&phantom)];
    let (alike, first) = align(&asked[0], &asked[1]);
    let [real_side, phantom_side] = sides;
    let mut parting = first.map(|it| describe(it, &asked, [&real, &phantom]));
    if let Some(it) = &mut parting
        && real_side.torch != phantom_side.torch
    {
        it.cause = Cause::Version;
    }
    let is_alike = real_side.allocated == phantom_side.allocated;
    if parting.is_none() && (!is_alike || real_side.reserved != phantom_side.reserved) {
        parting = Some(Parting {
            number: 0,
            asked: [Vec::new(), Vec::new()],
            at: None,
            moment: None,
            cause: if is_alike { Cause::Address } else { Cause::Timing },
        });
    }
    Verified { real: real_side, phantom: phantom_side, alike, parting, asked }
}

fn side(runs: &Runs<'_>, card: &Card, process: Option<Bytes>) -> Side {
    let Some(run) = runs.runs.first() else { return Side { process, ..Side::default() } };
    let peaks = run.peaks(card);
    let begin = run.recording.notes.begin.as_ref();
    Side {
        steps: run.steps_seen(),
        allocated: peaks.allocated,
        reserved: peaks.reserved,
        process,
        requests: run.replay.blocks.len(),
        torch: begin.map(|it| it.torch.clone()).unwrap_or_default(),
    }
}

/// What was asked for, in order, before rounding: what a block gets depends on where it lies.
fn requests(runs: &Runs<'_>) -> Vec<u64> {
    let run = runs.runs.first();
    run.map(|it| it.replay.blocks.iter().map(|it| it.requested.0).collect()).unwrap_or_default()
}

/// Where two lists first differ: from which place on, and how many more of each there are until both are alike again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gap {
    at: [usize; 2],
    more: [usize; 2],
}

/// How many requests are alike, and the first gap.
fn align(real: &[u64], phantom: &[u64]) -> (usize, Option<Gap>) {
    let (mut i, mut j, mut alike, mut first) = (0, 0, 0, None);
    while i < real.len() && j < phantom.len() {
        if real[i] == phantom[j] {
            (i, j, alike) = (i + 1, j + 1, alike + 1);
            continue;
        }
        let gap = gap(&real[i..], &phantom[j..]);
        first = first.or(Some(Gap { at: [i, j], more: gap.into() }));
        (i, j) = (i + gap.0, j + gap.1);
    }
    let rest = (real.len() - i, phantom.len() - j);
    if first.is_none() && rest != (0, 0) {
        first = Some(Gap { at: [i, j], more: rest.into() });
    }
    (alike, first)
}

/// The fewest requests to leave out of both until they are alike again; one of each if that is not to be found.
fn gap(real: &[u64], phantom: &[u64]) -> (usize, usize) {
    let is_alike = |i: usize, j: usize| {
        let (a, b) = (real.get(i..).unwrap_or_default(), phantom.get(j..).unwrap_or_default());
        let n = ALIKE_AGAIN.min(a.len()).min(b.len());
        0 < n && a[..n] == b[..n]
    };
    for more in 1..=LOOKED_THROUGH {
        // Another size is likelier than one request more.
        let both = (1..more).rev().map(|it| (it, more - it));
        let pairs = both.chain([(more, 0), (0, more)]);
        let mut pairs = if more == 1 { vec![(1, 1), (1, 0), (0, 1)] } else { pairs.collect() };
        pairs.retain(|&(i, j)| is_alike(i, j));
        if let Some(found) = pairs.first() {
            return *found;
        }
    }
    (1, 1)
}

fn describe(gap: Gap, asked: &[Vec<u64>; 2], runs: [&Runs<'_>; 2]) -> Parting {
    let sizes = [0, 1].map(|side: usize| {
        let (at, more) = (gap.at[side], gap.more[side]);
        asked[side][at..].iter().take(more).map(|it| Bytes(*it)).collect::<Vec<Bytes>>()
    });
    let ended = [0, 1].map(|side| asked[side].len() <= gap.at[side]);
    // Who asked for something tells more than who did not; the phantom's stacks are complete.
    let shown = if sizes[1].is_empty() { 0 } else { 1 };
    let run = runs[shown].runs.first();
    let place = run.and_then(|run| {
        let evidence = run.evidence();
        let block = run.replay.blocks.get(gap.at[shown])?;
        let event = block.alloc;
        let live = run.live_after(event, &evidence);
        let category = live.iter().find(|it| it.block.index() == gap.at[shown]);
        Some((run.line_at(event), run.moment(event), category.map(|it| it.category)))
    });
    let (at, moment, category) =
        place.map_or((None, None, None), |(at, moment, category)| (at, Some(moment), category));
    let cause = if ended != [false, false] {
        Cause::End
    } else if matches!(category, Some(Category::Workspaces)) {
        Cause::Workspace
    } else {
        Cause::Value
    };
    Parting { number: gap.at[shown] + 1, asked: sizes, at, moment, cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_brought_side_by_side() {
        let base = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
        assert_eq!(align(&base, &base), (12, None));
        let gap = |at: usize, a, b| Some(Gap { at: [at, at], more: [a, b] });
        let mut other = base;
        other[3] = 99;
        assert_eq!(align(&base, &other), (11, gap(3, 1, 1)), "another size");
        let more = [&base[..4], &[50, 51], &base[4..]].concat();
        assert_eq!(align(&more, &base), (12, gap(4, 2, 0)), "two more on the card");
        assert_eq!(align(&base, &more), (12, gap(4, 0, 2)), "two more on the phantom");
        assert_eq!(align(&base, &base[..9]), (9, gap(9, 3, 0)), "one ended");
        assert_eq!(align(&[], &[]), (0, None));
        let unlike = [7_u64; 200];
        assert_eq!(align(&[8; 200], &unlike), (0, gap(0, 1, 1)));
    }

    #[test]
    fn one_in_a_hundred_is_within() {
        let side = |allocated, reserved, process| Side {
            allocated: Bytes(allocated),
            reserved: Bytes(reserved),
            process,
            ..Side::default()
        };
        let verified = |phantom| {
            let real = side(1000, 2000, Some(Bytes(3000)));
            let asked = [Vec::new(), Vec::new()];
            let verified = Verified { real, phantom, alike: 0, parting: None, asked };
            OfRank { rank: None, verified, other_way: None }
        };
        let within = |phantom| verified(phantom).is_within();
        assert_eq!(within(side(1010, 1980, Some(Bytes(3030)))), Some(true));
        assert_eq!(within(side(1011, 2000, None)), Some(false));
        assert_eq!(within(side(1000, 2000, Some(Bytes(3031)))), Some(false));
        assert_eq!(within(side(1000, 2000, None)), Some(true), "who cannot say does not count");
        assert_eq!(within(side(0, 0, None)), None);

        let mut ranks = vec![verified(side(900, 1700, None))];
        take_other_way(&mut ranks, vec![verified(side(1100, 2400, None))], OtherEnd::Late, &[]);
        assert!(ranks[0].is_between(), "{ranks:?}");
        assert_eq!(ranks[0].verified.phantom.reserved, Bytes(1700), "the nearer is compared");
        take_other_way(&mut ranks, vec![verified(side(900, 2000, None))], OtherEnd::Late, &[]);
        assert_eq!(ranks[0].verified.phantom.reserved, Bytes(2000));
        assert_eq!(are_within(&ranks), Some(false), "both ways allocate too little");

        let late = || vec![verified(side(1000, 1900, Some(Bytes(2900))))];
        let mut ranks = vec![verified(side(1000, 1800, Some(Bytes(2800))))];
        take_other_way(&mut ranks, late(), OtherEnd::Late, &[]);
        assert_eq!(are_within(&ranks), Some(false), "both reserve too little");
        let (reserved, most) = (Bytes(2100), Bytes(3100));
        let between = [BetweenEnds { reserved, most, ..BetweenEnds::default() }];
        take_other_way(&mut ranks, late(), OtherEnd::Late, &between);
        assert!(ranks[0].is_between(), "an order between them reserves more: {ranks:?}");
    }
}
