//! A window of time, reduced to the columns of a picture: each column shows one real moment, the fullest
//! of those that fall into it. What is too small to be seen alone is summed, never dropped.

use crate::{
    scene::{Axis, Grouping, LifeId, Position, Scene, lives::Life, position::count, stacked},
    units::Bytes,
};

/// More columns than any screen has.
const MOST_COLUMNS: u32 = 4096;
/// More blocks than anybody sees at once; of the rest, the sums are shown.
const MOST_PIECES: usize = 40_000;
/// A block that is so many times higher than what can be seen is shown alone even where it is in one
/// column only.
const TALL: u64 = 6;

/// What to show.
#[derive(Clone, Copy, Debug)]
pub struct WindowRequest {
    /// What `from` and `to` count.
    pub axis: Axis,
    /// Where it begins.
    pub from: u64,
    /// Where it ends.
    pub to: u64,
    /// How many columns there are at most.
    pub columns: u32,
    /// The smallest block that can be seen.
    pub least: Bytes,
    /// How blocks are put into groups.
    pub grouping: Grouping,
}

/// A picture's worth of a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// From left to right; all are equally wide.
    pub columns: Vec<Column>,
    /// Blocks that can be seen alone, from the bottom to the top: by group, then as [`Scene::layers`] has them.
    pub pieces: Vec<Piece>,
    /// For each group, for each column, the sum of its blocks that are no pieces.
    pub rest: Vec<Vec<Bytes>>,
    /// Blocks that were live at any time in the window.
    pub lives: u32,
    /// Of them, those in `rest`.
    pub summed: u32,
    /// Of them, those that were live at no column's moment.
    pub between: u32,
}

/// One column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Column {
    /// The moment that it shows: of those within it, when most was allocated.
    pub position: Position,
    /// What was allocated then.
    pub allocated: Bytes,
    /// The least that was allocated within it.
    pub lowest: Bytes,
    /// The most that was reserved within it.
    pub reserved: Bytes,
}

/// A block in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Which.
    pub life: LifeId,
    /// Its size.
    pub size: Bytes,
    /// Its group.
    pub group: u8,
    /// The first column that it is in.
    pub first: u32,
    /// The first column that it is in no more.
    pub end: u32,
}

impl Scene<'_> {
    /// The columns of `request` alone.
    pub fn moments(&self, request: &WindowRequest) -> Vec<Column> {
        self.bounds(request).windows(2).map(|it| self.column(it[0], it[1])).collect()
    }

    /// What `request` asks for; less where there is less.
    pub fn window(&self, request: &WindowRequest) -> Window {
        let bounds = self.bounds(request);
        let Some(n) = bounds.len().checked_sub(1).filter(|it| 0 < *it) else {
            return Window::default();
        };
        let columns: Vec<Column> = bounds.windows(2).map(|it| self.column(it[0], it[1])).collect();
        let finder = Finder::new(&columns);
        let n_groups = self.groups(request.grouping).len();
        let mut changes = vec![vec![(Bytes::ZERO, Bytes::ZERO); n + 1]; n_groups];
        let mut res = Window::default();
        let least_span = if count(n) < request_span(&bounds) { 2 } else { 1 };
        let peak = self.levels.allocated(self.levels.peak);
        let least = stacked::floor(request.least, peak);
        let mut put = |life: &Piece| {
            let group = &mut changes[usize::from(life.group)];
            group[life.first as usize].0 += life.size;
            group[life.end as usize].1 += life.size;
        };
        let range = (bounds[0].min(columns[0].position), bounds[n].max(bounds[0] + 1));
        self.lives.overlapping(range, request.grouping, |life| {
            res.lives += 1;
            let Some((first, end)) = finder.columns(&life) else {
                res.between += 1;
                return;
            };
            let Life { id, size, group, .. } = life;
            let piece = Piece { life: id, size, group, first, end };
            let tall = request.least.0.saturating_mul(TALL) <= size.0;
            if least <= size && (least_span <= end - first || tall) {
                res.pieces.push(piece);
            } else {
                res.summed += 1;
                put(&piece);
            }
        });
        if MOST_PIECES < res.pieces.len() {
            let area = |it: &Piece| u128::from(it.size.0) * u128::from(it.end - it.first);
            let by_area = |a: &Piece, b: &Piece| area(b).cmp(&area(a)).then(a.life.cmp(&b.life));
            res.pieces.select_nth_unstable_by(MOST_PIECES, by_area);
            res.summed += count(res.pieces.len() - MOST_PIECES);
            res.pieces.drain(MOST_PIECES..).for_each(|it| put(&it));
        }
        res.pieces.sort_unstable_by_key(|it| (it.group, stacked::class(it.size, peak), it.life));
        res.rest = changes.iter().map(|it| running_sums(it)).collect();
        res.columns = columns;
        if request.grouping == Grouping::Pool {
            self.add_held(&mut res);
        }
        res
    }

    /// What private pools hold beside their blocks.
    fn add_held(&self, window: &mut Window) {
        let mut blocks = window.rest.clone();
        for it in &window.pieces {
            let columns = &mut blocks[usize::from(it.group)][it.first as usize..it.end as usize];
            columns.iter_mut().for_each(|sum| *sum += it.size);
        }
        for (at, column) in window.columns.iter().enumerate() {
            for (group, own, held) in self.groups.pools.held_at(column.position) {
                window.rest[group][at] = held.saturating_sub(blocks[own][at]);
            }
        }
    }

    /// The positions at which columns begin; the last is where the last one ends.
    fn bounds(&self, request: &WindowRequest) -> Vec<Position> {
        let end = match request.axis {
            Axis::Events => u64::from(self.levels.end()),
            Axis::Time => self.levels.micros() + 1,
        };
        let from = request.from.min(end.saturating_sub(1));
        let to = request.to.clamp(from + 1, end);
        let columns = u64::from(request.columns.clamp(1, MOST_COLUMNS)).min(to - from);
        let at = |column: u64| from + (to - from) * column / columns;
        let units = (0..=columns).map(at);
        let clip = |it: u64| u32::try_from(it).unwrap_or(u32::MAX).min(self.levels.end());
        match request.axis {
            Axis::Events => units.map(clip).collect(),
            Axis::Time if self.levels.micros() == 0 => Vec::new(),
            // What has happened by the end of a column belongs to it.
            Axis::Time => units.map(|it| self.levels.position_at(it)).collect(),
        }
    }

    fn column(&self, from: Position, to: Position) -> Column {
        // Nothing happened: what stood before still stands.
        let range = if from < to { from..to } else { from.saturating_sub(1)..from.max(1) };
        let (most, least) = self.levels.extremes(range.clone());
        Column {
            position: most,
            allocated: self.levels.allocated(most),
            lowest: self.levels.allocated(least),
            reserved: self.levels.most_reserved(range),
        }
    }
}

fn request_span(bounds: &[Position]) -> u32 {
    bounds[bounds.len() - 1].saturating_sub(bounds[0])
}

fn running_sums(changes: &[(Bytes, Bytes)]) -> Vec<Bytes> {
    let mut sum = Bytes::ZERO;
    let columns = &changes[..changes.len() - 1];
    columns
        .iter()
        .map(|(more, less)| {
            sum = (sum + *more).saturating_sub(*less);
            sum
        })
        .collect()
}

/// Which columns' moments lie within a life, without a search through all of them.
struct Finder {
    /// The moments, by column; they never go back.
    moments: Vec<Position>,
    first: Position,
    shift: u32,
    /// For every `1 << shift` positions from `first`, how many columns' moments come before.
    before: Vec<u32>,
}

impl Finder {
    fn new(columns: &[Column]) -> Finder {
        let moments: Vec<Position> = columns.iter().map(|it| it.position).collect();
        let (first, last) = (moments[0], moments[moments.len() - 1]);
        let span = last - first;
        // About four buckets for each column.
        let buckets = count(moments.len()).saturating_mul(4).max(1);
        let shift = (span / buckets).max(1).ilog2();
        let n = (span >> shift) + 2;
        let bucket_start = |it: u32| u64::from(first) + (u64::from(it) << shift);
        let mut before = Vec::with_capacity(n as usize + 1);
        let mut at = 0;
        for bucket in 0..=n {
            while moments.get(at).is_some_and(|it| u64::from(*it) < bucket_start(bucket)) {
                at += 1;
            }
            before.push(count(at));
        }
        Finder { moments, first, shift, before }
    }

    /// How many columns' moments come before `position`.
    fn before(&self, position: Position) -> u32 {
        let Some(distance) = position.checked_sub(self.first) else { return 0 };
        let bucket = (distance >> self.shift) as usize;
        let Some(&high) = self.before.get(bucket + 1) else { return count(self.moments.len()) };
        let low = self.before[bucket];
        let within = &self.moments[low as usize..high as usize];
        low + count(within.partition_point(|it| *it < position))
    }

    /// The columns whose moments lie within `life`.
    fn columns(&self, life: &Life) -> Option<(u32, u32)> {
        let (first, end) = (self.before(life.start), self.before(life.end));
        (first < end).then_some((first, end))
    }
}
