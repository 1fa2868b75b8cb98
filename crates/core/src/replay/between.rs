//! What a program asks of its allocator between two runs of it that were seen: its blocks come free sooner than in one and later than
//! in the other, or now as in one and now as in the other; or those blocks have other sizes each time that differ between the two.

use crate::{
    replay::{Config, Places, Program, chance::mixed, program::Op, what_if},
    trace::EventId,
    units::Bytes,
};

/// Parts that a run is cut into, to change from one end to the other between them; and parts of the way from one end to the other.
const PARTS: usize = 6;
/// Orders in which each block comes free at one end or the other by chance.
const DRAWN: u64 = 4;
/// Orders of the driver's segments.
const PLACED: u64 = 32;
/// Draws of sizes.
const SIZES_DRAWN: u64 = 8;
/// Parts of the way between two sizes.
const STEPS: u64 = 16;
/// So many requests whose sizes do not differ lie between two layers.
const GROUPS_APART: usize = 8;
/// Requests that are replayed in all, but for the fewest orders: those of a long run are too many for every order.
const MOST: usize = 20_000_000;
const FEWEST: usize = 4;

/// In how many orders at most so many requests are replayed.
pub(super) fn most_orders(n_requests: usize) -> usize {
    MOST.checked_div(n_requests).unwrap_or(FEWEST).max(FEWEST)
}

/// Whether ranks exchange memory: NCCL's handles of it decide where the driver places segments then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shared(pub bool);

/// Whether it runs out of memory where segments lie elsewhere, though it comes to its end as it was recorded. Which of equal free
/// blocks PyTorch takes decides which segments it can give back.
pub fn depends_on_addresses(program: &Program, config: &Config, shared: Shared) -> bool {
    !runs_out(program, config)
        && elsewhere(program, config, shared).any(|it| runs_out(program, &it))
}

/// Whether it comes to its end where segments lie elsewhere.
pub fn fits_at_other_addresses(program: &Program, config: &Config, shared: Shared) -> bool {
    elsewhere(program, config, shared).any(|it| !runs_out(program, &it))
}

pub(super) fn runs_out(program: &Program, config: &Config) -> bool {
    what_if(program, config).ran_out.is_some()
}

fn elsewhere(program: &Program, config: &Config, shared: Shared) -> impl Iterator<Item = Config> {
    let n = u64::try_from(most_orders(program.ops.len())).unwrap_or(PLACED).min(PLACED);
    let places = if shared.0 { Places::Anywhere } else { Places::BesideTheHost };
    (1..=n).map(move |order| config.clone().placed(places(order)))
}

/// One program as two runs of it were seen, which differ in when blocks come free or how large they are, and in nothing else.
#[derive(Debug)]
pub struct Between<'a> {
    first: &'a Program,
    asked: Vec<(Op, EventId)>,
    differ: Differ,
}

/// In what they differ.
#[derive(Debug)]
enum Differ {
    /// When each block comes free in both.
    Lives(Vec<[Life; 2]>),
    /// How large what is asked for is in the second, for each request.
    Sizes(Vec<Bytes>),
}

/// When a block comes free: after how many requests it was given back, and after how many nobody used it any more. `usize::MAX` is never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Life {
    requested: usize,
    completed: usize,
}

const NEVER: Life = Life { requested: usize::MAX, completed: usize::MAX };

/// How a run goes between both ends.
#[derive(Clone, Copy, Debug)]
enum Order {
    /// Each block so many parts of the way.
    PartOfTheWay(usize),
    /// At one end for so many parts of the run, and at the other from there on.
    Changes { after: usize, late_first: bool },
    /// Each block at either end, by chance.
    Drawn(u64),
}

impl<'a> Between<'a> {
    /// None if they differ in more, or not at all.
    pub fn of(first: &'a Program, second: &Program) -> Option<Between<'a>> {
        let (asked, lives) = parts(first);
        let (asked_there, lives_there) = parts(second);
        let requests = asked.iter().map(|it| it.0).zip(asked_there.iter().map(|it| it.0));
        if asked.len() != asked_there.len() || lives.len() != lives_there.len() {
            return None;
        }
        let are_same = requests.clone().all(|(a, b)| a == b);
        let differ = match (are_same, lives == lives_there) {
            (true, false) => {
                let both = lives.into_iter().zip(lives_there);
                Differ::Lives(both.map(|(a, b)| [a, b]).collect())
            }
            (false, true) => {
                Differ::Sizes(requests.map(|(a, b)| size_there(a, b)).collect::<Option<_>>()?)
            }
            _ => return None,
        };
        Some(Between { first, asked, differ })
    }

    /// The program between, one at a time: always the same.
    pub fn programs(&self) -> impl Iterator<Item = Program> {
        let orders = match &self.differ {
            Differ::Lives(_) => orders(),
            Differ::Sizes(_) => (1..=SIZES_DRAWN).map(Order::Drawn).collect(),
        };
        orders.into_iter().take(most_orders(self.asked.len())).map(|it| match &self.differ {
            Differ::Lives(blocks) => self.in_order(it, blocks),
            Differ::Sizes(there) => self.with_sizes(it, there),
        })
    }

    /// Sizes as far from those of the first run as those of the second are, at most, and to either side: another part of the way for
    /// each group of requests.
    fn with_sizes(&self, order: Order, there: &[Bytes]) -> Program {
        let Order::Drawn(seed) = order else { return self.first.clone() };
        let (mut group, mut apart) = (0_u64, 0_usize);
        let mut sizes = self.asked.iter().zip(there).map(|((op, _), there)| {
            let Op::Alloc { size, .. } = *op else { return Bytes::ZERO };
            if size == *there {
                apart += 1;
                return size;
            }
            group += u64::from(GROUPS_APART <= std::mem::take(&mut apart));
            let part = mixed(seed << 32 | group) % (2 * STEPS + 1);
            let further = size.0.abs_diff(there.0);
            Bytes((size.0 + further * part / STEPS).saturating_sub(further).max(1))
        });
        let mut res = Program { ops: Vec::new(), events: Vec::new(), ..self.first.clone() };
        for (op, event) in self.first.ops.iter().zip(&self.first.events) {
            let op = match *op {
                Op::Free(_) | Op::FreeRequested(_) | Op::FreeCompleted(_) => *op,
                Op::Alloc { stream, pool, size } => {
                    Op::Alloc { size: sizes.next().unwrap_or(size), stream, pool }
                }
                other => {
                    sizes.next();
                    other
                }
            };
            res.push(op, event.index());
        }
        res
    }

    fn in_order(&self, order: Order, blocks: &[[Life; 2]]) -> Program {
        let n = self.asked.len();
        let mut given: Vec<(usize, Op)> = Vec::new();
        for (handle, ends) in (0..).zip(blocks) {
            let Life { requested, completed } = order.life(*ends, handle, n);
            if requested == usize::MAX {
                continue;
            }
            if requested == completed {
                given.push((requested, Op::Free(handle)));
                continue;
            }
            given.push((requested, Op::FreeRequested(handle)));
            if completed != usize::MAX {
                given.push((completed, Op::FreeCompleted(handle)));
            }
        }
        given.sort_by_key(|it| it.0);
        let mut res = Program { ops: Vec::new(), events: Vec::new(), ..self.first.clone() };
        let mut given = given.into_iter().peekable();
        for (i, (op, event)) in self.asked.iter().enumerate() {
            while let Some((_, op)) = given.next_if(|it| it.0 <= i) {
                res.push(op, event.index());
            }
            res.push(*op, event.index());
        }
        res
    }
}

impl Order {
    fn life(self, [early, late]: [Life; 2], handle: u32, n: usize) -> Life {
        if early == late {
            return early;
        }
        let is_late = match self {
            Order::PartOfTheWay(part) => {
                let way = |from: usize, to: usize| {
                    if from == usize::MAX {
                        return from;
                    }
                    let to = to.min(n);
                    if from <= to { from + (to - from) * part / PARTS } else { from }
                };
                return Life {
                    requested: way(early.requested, late.requested),
                    completed: way(early.completed, late.completed),
                };
            }
            Order::Changes { after, late_first } => {
                (early.requested < n * after / PARTS) == late_first
            }
            Order::Drawn(seed) => mixed(seed << 32 | u64::from(handle)) & 1 == 1,
        };
        if is_late { late } else { early }
    }
}

/// Orders between both ends of a race, those that change in the middle of the run first.
fn orders() -> Vec<Order> {
    let both = |after| [true, false].map(|late_first| Order::Changes { after, late_first });
    let mut places: Vec<usize> = (1..PARTS).collect();
    places.sort_by_key(|it| it.abs_diff(PARTS / 2));
    let parts = (1..PARTS).map(Order::PartOfTheWay);
    let drawn = (1..=DRAWN).map(Order::Drawn);
    places.into_iter().flat_map(both).chain(parts).chain(drawn).collect()
}

/// How much is asked for in the second run, if both are the same request but for that.
fn size_there(here: Op, there: Op) -> Option<Bytes> {
    match (here, there) {
        (Op::Alloc { stream, pool, .. }, Op::Alloc { size, stream: that, pool: of }) => {
            (stream == that && pool == of).then_some(size)
        }
        _ => (here == there).then_some(Bytes::ZERO),
    }
}

/// What the program asks for, in order, and when the block of each handle comes free.
fn parts(program: &Program) -> (Vec<(Op, EventId)>, Vec<Life>) {
    let mut asked = Vec::new();
    let mut lives = vec![NEVER; program.n_handles as usize];
    for (op, event) in program.ops.iter().zip(&program.events) {
        let at = asked.len();
        let mut set = |handle: u32, requested: bool, completed: bool| {
            if let Some(it) = lives.get_mut(handle as usize) {
                it.requested = if requested { at } else { it.requested };
                it.completed = if completed { at } else { it.completed };
            }
        };
        match *op {
            Op::Free(it) => set(it, true, true),
            Op::FreeRequested(it) => set(it, true, false),
            Op::FreeCompleted(it) => set(it, false, true),
            _ => asked.push((*op, *event)),
        }
    }
    (asked, lives)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::replay::{self, Config, TorchVersion, recording};

    /// Early, a small block takes the place of a large one, which needs another then; late, a block waits for one that is given back.
    pub(crate) const EARLY: &str = "\
segment_alloc 1000M 20M
alloc 1000M 20M
free_requested 1000M 20M
free_completed 1000M 20M
alloc 1000M 10M
segment_alloc 2000M 20M
alloc 2000M 20M
segment_alloc 3000M 20M
alloc 3000M 20M
free_requested 3000M 20M
free_completed 3000M 20M
alloc 3000M 20M
";
    pub(crate) const LATE: &str = "\
segment_alloc 1000M 20M
alloc 1000M 20M
free_requested 1000M 20M
segment_alloc 2000M 10M
alloc 2000M 10M
free_completed 1000M 20M
alloc 1000M 20M
segment_alloc 3000M 20M
alloc 3000M 20M
free_requested 3000M 20M
segment_alloc 4000M 20M
alloc 4000M 20M
free_completed 3000M 20M
";

    /// A layer after another, whose tokens take so much, and between them what is always the same.
    fn layers(mib: u64) -> String {
        let first =
            format!("segment_alloc 1000M {mib}M\nsegment_alloc 2000M 20M\nalloc 2000M 8M\n");
        let tokens = format!("alloc 1000M {mib}M\nfree 1000M {mib}M\n");
        let rest = "alloc 2008M 2M\nfree 2008M 2M\n".repeat(GROUPS_APART);
        first + &(tokens + &rest).repeat(6)
    }

    /// Two free blocks of 20 MiB, of which the lower one is taken: 30 MiB have a place only if that leaves the segment that is free as a whole.
    #[test]
    fn which_segment_lies_lower_decides_what_can_be_given_back() {
        let trace = recording(
            "segment_alloc 1000M 30M\nalloc 1000M 30M\nsegment_alloc 2000M 20M\nalloc 2000M 20M\nfree 1000M 30M\nalloc 1000M 10M\nfree 2000M 20M
             alloc 1010M 20M\nsegment_free 2000M 20M\nsegment_alloc 3000M 30M\nalloc 3000M 30M\n",
        );
        let config = Config::of_torch(TorchVersion::two(11));
        let program = replay::follow(&trace, 0, config.clone()).1;
        let within = |mib: u64| config.clone().with_capacity(Bytes::mib(mib));
        assert!(replay::what_if(&program, &within(60)).ran_out.is_none());
        let shared = Shared(true);
        assert!(depends_on_addresses(&program, &within(60), shared));
        assert!(!depends_on_addresses(&program, &within(59), shared), "it runs out in any order");
        assert!(!fits_at_other_addresses(&program, &within(59), shared));
        assert!(!depends_on_addresses(&program, &within(80), shared));
        let later = Config { torch: TorchVersion::two(12), ..within(60) };
        assert!(!depends_on_addresses(&program, &later, shared), "age decides, not the address");
    }

    #[test]
    fn tokens_in_other_numbers_each_time_leave_blocks_that_fit_no_more() {
        let config = Config::of_torch(TorchVersion::two(11));
        let program = |text: &str| replay::follow(&recording(text), 0, config.clone()).1;
        let (even, all_to_one) = (program(&layers(40)), program(&layers(60)));
        let reserved = |it: &Program| replay::what_if(it, &config).peak_reserved.bytes.0 >> 20;
        assert_eq!([reserved(&even), reserved(&all_to_one)], [60, 80]);
        let between = Between::of(&even, &all_to_one).expect("they differ in sizes");
        let most = between.programs().map(|it| reserved(&it)).max();
        assert!(Some(100) < most && most < Some(200), "{most:?}");
        let again = Between::of(&even, &all_to_one).expect("they differ in sizes");
        assert_eq!(again.programs().map(|it| reserved(&it)).max(), most, "always the same");
    }

    #[test]
    fn who_changes_from_one_end_to_the_other_may_take_more_than_at_both() {
        let torch = TorchVersion::two(11);
        let config = Config::of_torch(torch);
        let program = |text: &str| replay::follow(&recording(text), 0, config.clone()).1;
        let (early, late) = (program(EARLY), program(LATE));
        let reserved = |it: &Program| replay::what_if(it, &config).peak_reserved.bytes.0 >> 20;
        assert_eq!([reserved(&early), reserved(&late)], [60, 70]);
        let between = Between::of(&early, &late).expect("they differ in when blocks come free");
        assert_eq!(between.programs().map(|it| reserved(&it)).max(), Some(80));
        assert!(Between::of(&early, &early).is_none(), "there is nothing between");
        let asks_more = program(&format!("{LATE}segment_alloc 5000M 20M\nalloc 5000M 20M\n"));
        assert!(Between::of(&early, &asks_more).is_none(), "they differ in more");
    }
}
