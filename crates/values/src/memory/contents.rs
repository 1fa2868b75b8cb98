//! The bytes of device memory that we know: small values that the program copied there, and what
//! kernels would have computed of them. Other kernels do not run, so nothing else has a value; what is not
//! known reads as zeros, and the reader is told.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::budget::{Budget, Dropped, Place, Room};
use super::lazy::{Element, Lazy, Open, Product, Source, Span};
use super::origin::Origin;

/// Larger copies are not kept: they cost host memory and no program steers by them.
const KEEP: u64 = 1 << 20;
/// But by large tables of indices, such as the neighbours of each node.
const KEEP_INDICES: u64 = 16 << 20;
/// What all copies that are kept may cost on the host together. What goes then is the [`Budget`]'s affair.
const BUDGET: u64 = 128 << 20;
/// Likewise of what is computed, which is small numbers taken in pairs: the overlap of each box with each, the distance of
/// each point to each.
pub(crate) const KEEP_COMPUTED: u64 = 64 << 20;
const BUDGET_COMPUTED: u64 = 384 << 20;
/// Elements of what is computed where it is read that one reading may take, of a few steps each, and all together: some seconds.
const READ_LAZILY: u64 = 1 << 26;
const BUDGET_LAZY: u64 = 1 << 30;
/// So many bytes are kept as one element again and again, if they are that.
pub(crate) const SAME: u64 = 1 << 12;
/// In a span of that many bytes a part is overwritten where it is.
const LARGE: u64 = 1 << 16;

/// Known bytes by address.
#[derive(Debug)]
pub struct Contents {
    /// Invariant: no two overlap, none is empty.
    spans: BTreeMap<u64, Span>,
    /// Where each span stands in its account.
    places: BTreeMap<u64, (Account, Place)>,
    /// What the program copied to the device.
    copied: Budget,
    /// What came of it there.
    made: Budget,
    /// Elements that were computed because somebody read them.
    read_lazily: Cell<u64>,
    /// Where spans begin that were computed: a kernel that we do not follow may change them.
    computed: BTreeSet<u64>,
    /// Those that come of places or of chance: no mask of padding.
    origins: BTreeMap<u64, Origin>,
    /// Where truth values are that nobody knows, and of which a program gathers more and more.
    gathered: BTreeSet<u64>,
    /// Where truth values are of choices that were compared with each other.
    compared: BTreeSet<u64>,
}

/// Who pays for a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Account {
    Copied,
    Made,
}

impl Default for Contents {
    fn default() -> Contents {
        Contents {
            spans: BTreeMap::new(),
            places: BTreeMap::new(),
            copied: Budget::new(BUDGET),
            made: Budget::new(BUDGET_COMPUTED),
            read_lazily: Cell::new(0),
            computed: BTreeSet::new(),
            origins: BTreeMap::new(),
            gathered: BTreeSet::new(),
            compared: BTreeSet::new(),
        }
    }
}

/// How long this is, as an address difference.
fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

/// A position inside a span that is known to be in memory.
fn index(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

impl Contents {
    /// `bytes` are at `at` now.
    pub fn write(&mut self, at: u64, bytes: &[u8]) {
        let size = length(bytes);
        let are_indices = KEEP < size && size <= KEEP_INDICES && are_indices(bytes);
        let most = if are_indices { KEEP_INDICES } else { KEEP };
        self.forget(at, size);
        if size != 0 && size <= most && self.make_room(size, Account::Copied) {
            self.insert(at, Span::Bytes(bytes.to_vec()), Account::Copied);
        }
    }

    fn budget(&mut self, account: Account) -> &mut Budget {
        match account {
            Account::Copied => &mut self.copied,
            Account::Made => &mut self.made,
        }
    }

    /// Whether something new of `size` bytes has room, once others have gone.
    fn make_room(&mut self, size: u64, account: Account) -> bool {
        loop {
            match self.budget(account).room(size) {
                Room::Is => return true,
                Room::None => {
                    self.budget(account).drop(size);
                    return false;
                }
                Room::After(at) => {
                    self.computed.remove(&at);
                    self.origins.remove(&at);
                    let gone = self.remove(at).map_or(0, |it| it.0.held());
                    self.budget(account).drop(gone);
                }
            }
        }
    }

    /// Nothing may be known of where it lies, and there must be room.
    fn insert(&mut self, at: u64, span: Span, account: Account) {
        let place = self.budget(account).keep(at, span.held());
        self.places.insert(at, (account, place));
        self.spans.insert(at, span);
    }

    fn remove(&mut self, at: u64) -> Option<(Span, Account, Place)> {
        let span = self.spans.remove(&at)?;
        let (account, place) = self.places.remove(&at)?;
        self.budget(account).let_go(place, span.held());
        Some((span, account, place))
    }

    /// What was known and is not any more, because it was too much together.
    pub fn dropped(&self) -> Dropped {
        self.copied.dropped().and(self.made.dropped())
    }

    /// What `open` makes is at `at` now, if all that it is made of is known.
    pub(crate) fn write_lazy(&mut self, at: u64, open: Open, origin: Option<Origin>) {
        let size = open.size();
        let operands = open.operands.iter().map(|&(from, size)| self.source(from, size));
        let lazy = operands.collect::<Option<_>>().and_then(|it| Lazy::of(open, it));
        self.put_lazy(at, size, lazy, origin);
    }

    /// The elements of this product, `size` bytes, are at `at` now.
    pub(crate) fn write_product(
        &mut self,
        at: u64,
        size: u64,
        it: Product,
        origin: Option<Origin>,
    ) {
        self.put_lazy(at, size, Some(Lazy::product(it)), origin);
    }

    fn put_lazy(&mut self, at: u64, size: u64, lazy: Option<Lazy>, origin: Option<Origin>) {
        self.forget(at, size);
        let Some(span) = lazy.map(|it| Span::Lazy { of: Arc::new(it), from: 0, size }) else {
            return;
        };
        if !self.make_room(span.held(), Account::Made) {
            return;
        }
        self.insert(at, span, Account::Made);
        self.computed.insert(at);
        origin.into_iter().for_each(|it| self.mark(at, it));
    }

    /// Whether what is at `at` is computed where somebody reads it.
    pub(crate) fn is_lazy(&self, at: u64) -> bool {
        let mut spans = self.overlapping(at, at.saturating_add(1));
        spans.any(|it| matches!(it.1, Span::Lazy { .. }))
    }

    /// All that is between `at` and `at + size`, as it is now.
    fn source(&self, at: u64, size: u64) -> Option<Source> {
        let end = at.checked_add(size)?;
        self.covers(at, end).then_some(())?;
        let part = |(&start, span): (&u64, &Span)| {
            let (first, last) = (start.max(at), (start + span.size()).min(end));
            (first - at, span.part(first - start, last - start))
        };
        Some(Source(self.overlapping(at, end).map(part).collect()))
    }

    /// Overwrites a part of a large span that was computed, where it is: a diagonal is as many such parts as it is long.
    /// Whether there was one.
    fn patch(&mut self, at: u64, size: u64, write: impl FnOnce(&mut [u8])) -> bool {
        let Some((&start, span)) = self.spans.range_mut(..=at).next_back() else { return false };
        let fits = LARGE <= span.size() && at + size < start + span.size();
        if !fits || !self.computed.contains(&start) {
            return false;
        }
        if matches!(span, Span::Same { .. }) && !self.write_out(start) {
            return false;
        }
        let Some(Span::Bytes(span)) = self.spans.get_mut(&start) else { return false };
        write(&mut span[index(at - start)..index(at + size - start)]);
        self.gathered.retain(|it| !(at..at + size).contains(it));
        self.compared.retain(|it| !(at..at + size).contains(it));
        true
    }

    /// Writes out what is one element again and again, of [`KEEP_COMPUTED`] at most. Whether there was room.
    fn write_out(&mut self, start: u64) -> bool {
        let Some(span) = self.spans.get(&start) else { return false };
        let size = span.size();
        let mut bytes = vec![0; index(size)];
        if span.read(0, &mut bytes, &Cell::new(0)).is_none() {
            return false;
        }
        let Some((_, account, _)) = self.remove(start) else { return false };
        let has_room = self.make_room(size, account);
        if has_room {
            self.insert(start, Span::Bytes(bytes), account);
        } else {
            self.computed.remove(&start);
            self.origins.remove(&start);
        }
        has_room
    }

    /// `bytes` are at `at` now, because a kernel that we follow put them there. What the program put there is
    /// its own still when it is changed in place: a count of steps.
    pub fn write_computed(&mut self, at: u64, bytes: &[u8]) {
        if self.patch(at, length(bytes), |it| it.copy_from_slice(bytes)) {
            return;
        }
        let size = length(bytes);
        self.put_computed(at, size, size, || Span::Bytes(bytes.to_vec()));
    }

    /// Likewise `element`, again and again.
    pub(crate) fn write_same(
        &mut self,
        at: u64,
        element: Element,
        size: u64,
        origin: Option<Origin>,
    ) {
        if self.patch(at, size, |it| element.repeat(0, it)) {
            return;
        }
        self.put_computed(at, size, 0, || Span::Same { element, from: 0, size });
        origin.into_iter().for_each(|it| self.mark(at, it));
    }

    fn put_computed(&mut self, at: u64, size: u64, held: u64, span: impl Fn() -> Span) {
        let own =
            self.spans.get(&at).is_some_and(|it| it.size() == size) && !self.computed.contains(&at);
        self.forget(at, size);
        if size != 0 && size <= KEEP_COMPUTED && self.make_room(held, Account::Made) {
            self.insert(at, span(), Account::Made);
        }
        if self.spans.contains_key(&at) && !own {
            self.computed.insert(at);
        }
    }

    /// `bytes` are at `at` now, computed from where elements stand as much as from what they are, or from what comes of
    /// chance.
    pub(crate) fn write_pattern(&mut self, at: u64, bytes: &[u8], origin: Origin) {
        if self.patch(at, length(bytes), |it| it.copy_from_slice(bytes)) {
            return;
        }
        self.write_computed(at, bytes);
        self.mark(at, origin);
    }

    /// `bytes` were chosen for the program: no other write makes them unsure.
    pub(crate) fn write_chosen(&mut self, at: u64, bytes: &[u8]) {
        self.write(at, bytes);
        self.mark(at, Origin::Chosen);
    }

    fn mark(&mut self, at: u64, origin: Origin) {
        if self.spans.contains_key(&at) {
            self.origins.insert(at, origin);
        }
    }

    /// Truth values that nobody knows, gathered as in `ended | (token == end)`, are at `at` now.
    pub(crate) fn gather(&mut self, at: u64) {
        self.gathered.insert(at);
    }

    /// Whether such are at `at`.
    pub(crate) fn is_gathered(&self, at: u64) -> bool {
        self.gathered.contains(&at)
    }

    /// Whether choices are the same as others was written at `at`.
    pub(crate) fn compare_choices(&mut self, at: u64) {
        self.compared.insert(at);
    }

    /// Whether that is at `at`.
    pub(crate) fn are_compared_choices(&self, at: u64) -> bool {
        self.compared.contains(&at)
    }

    /// What was computed of these bytes stays, as if the program had put it there.
    pub(crate) fn settle(&mut self, at: u64, size: u64) {
        let settled: Vec<u64> =
            self.overlapping(at, at.saturating_add(size)).map(|(&start, _)| start).collect();
        settled.iter().for_each(|it| _ = self.computed.remove(it));
    }

    /// What the numbers known at `at` come of, if of places or of chance.
    pub(crate) fn origin(&self, at: u64) -> Option<Origin> {
        let mut spans = self.overlapping(at, at.saturating_add(1));
        spans.find_map(|(start, _)| self.origins.get(start).copied())
    }

    /// Whether what is known at `at` was computed from nothing but what the program put on the device.
    pub(crate) fn is_computed(&self, at: u64) -> bool {
        let mut spans = self.overlapping(at, at.saturating_add(1));
        spans.any(|(it, _)| self.computed.contains(it) && !self.origins.contains_key(it))
    }

    /// Nothing that was computed is known any more.
    pub(crate) fn forget_computed(&mut self) {
        for at in std::mem::take(&mut self.computed) {
            self.origins.remove(&at);
            self.remove(at);
        }
    }

    /// Nothing is known any more of the bytes from `at` on that were written together with it, up to
    /// `most`.
    pub fn forget_span(&mut self, at: u64, most: u64) {
        let end = self
            .overlapping(at, at.saturating_add(1))
            .map(|(&start, span)| start + span.size())
            .next();
        if let Some(end) = end {
            self.forget(at, most.min(end - at));
        }
    }

    /// `size` bytes at `at` have the value `value` now.
    pub fn fill(&mut self, at: u64, value: u8, size: u64) {
        // As `zeros()` does, since torch 2.15: what a kernel that fills would have computed.
        match Element::of(&[value]) {
            Some(element) if size <= KEEP => self.write_same(at, element, size, None),
            _ => self.forget(at, size),
        }
    }

    /// Copies what is known of the bytes from `at` into `out`, zeros for the rest, and returns how
    /// many were not known.
    pub fn read(&self, at: u64, out: &mut [u8]) -> u64 {
        out.fill(0);
        let end = at.saturating_add(length(out));
        let mut known = 0;
        let most = READ_LAZILY.min(BUDGET_LAZY.saturating_sub(self.read_lazily.get()));
        let left = Cell::new(most);
        for (&start, span) in self.overlapping(at, end) {
            let (from, to) = (start.max(at), (start + span.size()).min(end));
            let out = &mut out[index(from - at)..index(to - at)];
            if span.read(from - start, out, &left).is_some() {
                known += to - from;
            }
        }
        self.read_lazily.update(|it| it + most - left.get());
        length(out) - known
    }

    /// Whether something is known of each byte there.
    fn covers(&self, at: u64, end: u64) -> bool {
        let spans = self.overlapping(at, end).map(|(&from, span)| (from, from + span.size()));
        let known: u64 = spans.map(|(from, to)| to.min(end) - from.max(at)).sum();
        known == end - at
    }

    /// The `size` bytes at `at`, if all of them are known.
    pub fn known(&self, at: u64, size: usize) -> Option<Vec<u8>> {
        // Most often nothing is; room for as much as a large tensor takes longer than everything else here.
        let end = at.saturating_add(u64::try_from(size).ok()?);
        self.covers(at, end).then_some(())?;
        let mut bytes = vec![0; size];
        (self.read(at, &mut bytes) == 0).then_some(bytes)
    }

    /// Whether any of `size` bytes at `at` is known.
    pub fn knows_any(&self, at: u64, size: u64) -> bool {
        self.overlapping(at, at.saturating_add(size)).next().is_some()
    }

    /// Copies within the device: what is known of the source is known of the target, the rest of
    /// the target is forgotten.
    pub fn copy(&mut self, to: u64, from: u64, size: u64) {
        let end = from.saturating_add(size);
        let pieces: Vec<(u64, Span, Option<Origin>)> = self
            .overlapping(from, end)
            .filter(|(_, span)| size <= KEEP_COMPUTED || !matches!(span, Span::Bytes(_)))
            .map(|(&start, span)| {
                let (first, last) = (start.max(from), (start + span.size()).min(end));
                let part = span.part(first - start, last - start);
                (first - from, part, self.origins.get(&start).copied())
            })
            .collect();
        self.forget(to, size);
        for (offset, span, origin) in pieces {
            if !self.make_room(span.held(), Account::Made) {
                continue;
            }
            self.insert(to + offset, span, Account::Made);
            if let Some(origin) = origin {
                self.mark(to + offset, origin);
            }
        }
    }

    /// Nothing is known of these bytes any more.
    pub fn forget(&mut self, at: u64, size: u64) {
        let end = at.saturating_add(size);
        self.gathered.retain(|it| !(at..end).contains(it));
        self.compared.retain(|it| !(at..end).contains(it));
        let touched: Vec<u64> = self.overlapping(at, end).map(|(&start, _)| start).collect();
        for start in touched {
            let Some((span, account, place)) = self.remove(start) else { continue };
            let was_computed = self.computed.remove(&start);
            let origin = self.origins.remove(&start);
            let last = start + span.size();
            for (from, to) in [(start, at), (end, last)] {
                if from < to && start <= from && to <= last {
                    let part = span.part(from - start, to - start);
                    let place = self.budget(account).keep_as(place, from, part.held());
                    self.places.insert(from, (account, place));
                    self.spans.insert(from, part);
                    if was_computed {
                        self.computed.insert(from);
                    }
                    origin.into_iter().for_each(|it| self.mark(from, it));
                }
            }
        }
    }

    /// Whether some tensor that we know looks like a mask with padding: zeros and ones, some of each.
    pub(crate) fn has_padding(&self) -> bool {
        let is_one = |it: &Span| matches!(it, Span::Bytes(bytes) if is_padded_mask(bytes));
        self.spans.iter().any(|(at, it)| !self.origins.contains_key(at) && is_one(it))
    }

    fn overlapping(&self, at: u64, end: u64) -> impl Iterator<Item = (&u64, &Span)> {
        let first = self
            .spans
            .range(..=at)
            .next_back()
            .filter(|&(&start, span)| at < start + span.size())
            .map_or(at, |(&start, _)| start);
        self.spans.range(first..end.max(first))
    }
}

/// Whether `bytes` are whole numbers of 64 bits that may be indices: in two floats of 32 bits the upper one is hardly ever zero.
fn are_indices(bytes: &[u8]) -> bool {
    const MOST: u64 = 1 << 32;
    let (numbers, rest) = bytes.as_chunks::<8>();
    rest.is_empty() && numbers.iter().all(|&it| u64::from_le_bytes(it) < MOST)
}

/// Whether `bytes` are elements of one width, each zero or one, and some of each.
fn is_padded_mask(bytes: &[u8]) -> bool {
    const FEWEST: usize = 16;
    let is_mask = |width: usize| {
        bytes.len().is_multiple_of(width)
            && FEWEST <= bytes.len() / width
            && bytes.chunks(width).all(|it| it[0] <= 1 && it[1..].iter().all(|&byte| byte == 0))
    };
    // The widest reading: as single bytes, 64-bit ones would look padded.
    let Some(width) = [8, 4, 1].into_iter().find(|&it| is_mask(it)) else { return false };
    let ones = bytes.chunks(width).filter(|it| it[0] == 1).count();
    0 < ones && ones < bytes.len() / width
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_program_put_there_is_its_own_still_when_it_grows() {
        let mut contents = Contents::default();
        contents.write(4096, &[0; 4]);
        for at in [4096, 8192] {
            contents.write_computed(at, &[1; 4]);
        }
        contents.forget_computed();
        assert_eq!(contents.known(4096, 4), Some(vec![1; 4]));
        assert_eq!(contents.known(8192, 4), None);
    }

    #[test]
    fn a_mask_with_padding_is_told_from_one_without() {
        let wide =
            |values: &[u64]| values.iter().flat_map(|it| it.to_le_bytes()).collect::<Vec<_>>();
        let narrow =
            |values: &[u32]| values.iter().flat_map(|it| it.to_le_bytes()).collect::<Vec<_>>();
        assert!(is_padded_mask(&wide(&[[1; 12].as_slice(), &[0; 4]].concat())));
        assert!(is_padded_mask(&narrow(&[[1; 12].as_slice(), &[0; 4]].concat())));
        assert!(is_padded_mask(&[[1; 12].as_slice(), &[0; 4]].concat()));
        assert!(!is_padded_mask(&wide(&[1; 16])), "no padding");
        assert!(!is_padded_mask(&narrow(&[1; 16])), "no padding");
        assert!(!is_padded_mask(&wide(&[0; 16])), "no mask");
        assert!(!is_padded_mask(&wide(&(0..16).collect::<Vec<_>>())), "token numbers");
        assert!(!is_padded_mask(&[1, 0, 1]), "too few to be one");
    }

    #[test]
    fn a_large_table_is_kept_if_it_has_indices() {
        let (mut contents, count) = (Contents::default(), 1_u64 << 18);
        let indices = (0..count).flat_map(|it| (it % 50_000).to_le_bytes()).collect::<Vec<_>>();
        contents.write(1 << 30, &indices);
        assert_eq!(contents.known((1 << 30) + 8, 8), Some(1_u64.to_le_bytes().to_vec()));
        let floats = (0..2 * count).flat_map(|_| 0.5_f32.to_le_bytes()).collect::<Vec<_>>();
        contents.write(1 << 30, &floats);
        assert_eq!(contents.known(1 << 30, 8), None);
    }

    #[test]
    fn gathered_flags_are_gone_with_their_block() {
        let mut contents = Contents::default();
        contents.gather(4096);
        assert!(contents.is_gathered(4096));
        contents.forget(4000, 512); // A new tensor there.
        assert!(!contents.is_gathered(4096));
    }

    #[test]
    fn a_mask_of_places_is_none_of_padding() {
        let mut contents = Contents::default();
        let causal: Vec<u8> = (0..64).map(|i| u8::from(i % 8 <= i / 8)).collect();
        contents.write_pattern(100, &causal, Origin::Pattern);
        assert!(!contents.has_padding());
        contents.copy(300, 100, 64);
        contents.forget(310, 4);
        assert!(!contents.has_padding(), "a copy of it, and what is left of one");
        contents.write_computed(100, &causal);
        assert!(contents.has_padding());
    }

    fn read(contents: &Contents, at: u64, size: usize) -> (Vec<u8>, u64) {
        let mut out = vec![0xff; size];
        let unknown = contents.read(at, &mut out);
        (out, unknown)
    }

    #[test]
    fn a_small_value_survives_the_round_trip() {
        let mut contents = Contents::default();
        contents.write(100, &[1, 2, 3, 4]);
        assert_eq!(read(&contents, 100, 4), (vec![1, 2, 3, 4], 0));
        assert_eq!(read(&contents, 98, 8), (vec![0, 0, 1, 2, 3, 4, 0, 0], 4));
    }

    #[test]
    fn a_later_write_cuts_an_earlier_one() {
        let mut contents = Contents::default();
        contents.write(100, &[1; 10]);
        contents.write(104, &[2; 2]);
        assert_eq!(read(&contents, 100, 10).0, [1, 1, 1, 1, 2, 2, 1, 1, 1, 1]);
        contents.forget(101, 8);
        assert_eq!(read(&contents, 100, 10), (vec![1, 0, 0, 0, 0, 0, 0, 0, 0, 1], 8));
    }

    #[test]
    fn copies_on_the_device_take_knowledge_along() {
        let mut contents = Contents::default();
        contents.write(100, &[7; 4]);
        contents.write(200, &[9; 8]);
        contents.copy(200, 98, 8);
        assert_eq!(read(&contents, 200, 8), (vec![0, 0, 7, 7, 7, 7, 0, 0], 4));
        contents.copy(101, 100, 3);
        assert_eq!(read(&contents, 100, 4).0, [7; 4], "an overlapping copy");
    }

    #[test]
    fn large_copies_cost_nothing_and_hide_what_was_there() {
        let mut contents = Contents::default();
        contents.write(1000, &[5; 16]);
        contents.write(0, &vec![1; index(KEEP) + 1]);
        assert_eq!(contents.copied.held(), 0);
        assert_eq!(read(&contents, 1000, 4), (vec![0; 4], 4));
        contents.fill(0, 3, KEEP);
        assert_eq!(read(&contents, KEEP - 2, 2), (vec![3; 2], 0));
    }

    #[test]
    fn what_is_filled_costs_nothing_until_a_part_is_written() {
        let mut contents = Contents::default();
        let seven = Element::of(&7_u32.to_le_bytes()).unwrap();
        for i in 0..1000 {
            contents.write_same(i << 26, seven, 1 << 22, None);
        }
        assert_eq!((contents.made.held(), contents.dropped()), (0, Dropped::default()));
        assert_eq!(read(&contents, (999 << 26) + 2, 5), (vec![0, 0, 7, 0, 0], 0));
        assert_eq!(read(&contents, (1 << 22) - 3, 6), (vec![0; 6], 3), "beyond its end");
        contents.forget(6, 8);
        assert_eq!(read(&contents, 4, 12).0, [7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        contents.copy(1 << 40, (1 << 26) + 1, 1 << 21);
        assert_eq!(read(&contents, 1 << 40, 4).0, [0, 0, 0, 7]);
        contents.write_computed((2 << 26) + 8, &[1; 4]);
        assert_eq!(read(&contents, (2 << 26) + 6, 8).0, [0, 0, 1, 1, 1, 1, 7, 0]);
        assert_eq!(contents.made.held(), 1 << 22, "this one is written out");
        contents.write_same(2 << 26, Element::of(&[5]).unwrap(), 1 << 20, None);
        assert_eq!(contents.made.held(), 1 << 22, "in its place");
        assert_eq!(read(&contents, (2 << 26) + (1 << 20) - 1, 3).0, [5, 7, 0]);
    }

    #[test]
    fn the_budget_bounds_what_is_kept() {
        let mut contents = Contents::default();
        for i in 0..200 {
            contents.write(i * KEEP, &vec![1; index(KEEP)]);
        }
        assert_eq!(contents.copied.held(), BUDGET);
        assert_eq!(contents.dropped(), Dropped { count: 72, bytes: 72 * KEEP, largest: KEEP });
        assert_eq!(read(&contents, 199 * KEEP, 2), (vec![1; 2], 0), "the newest");
        contents.forget(0, u64::MAX);
        assert_eq!(contents.copied.held(), 0);
    }

    #[test]
    fn what_is_small_is_known_beside_all_that_is_large() {
        let mut contents = Contents::default();
        contents.write(1 << 40, &[7; 4096]);
        let zeros = vec![0; index(KEEP_INDICES)];
        for i in 0..20 {
            contents.write(i * KEEP_INDICES, &zeros);
        }
        contents.write(1 << 41, &[9; 4000]);
        for i in 20..30 {
            contents.write(i * KEEP_INDICES, &zeros);
        }
        assert_eq!(read(&contents, 1 << 40, 1), (vec![7], 0));
        assert_eq!(read(&contents, 1 << 41, 1), (vec![9], 0));
        assert!(contents.copied.held() <= BUDGET);
    }
}
