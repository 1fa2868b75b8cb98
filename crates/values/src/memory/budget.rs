//! Which known bytes go when they have become too many. The rule:
//!
//! - what has up to 16 KiB stays, however much else there is: shapes, sizes and small objects, which PyTorch itself reads back;
//! - of the rest the largest goes first, and of those about as large (to a power of two) the oldest;
//! - what is new stays, unless it has more than 1 MiB and is the largest itself.

use std::collections::BTreeSet;

/// What has up to so many bytes stays.
const SMALL: u64 = 16 << 10;
/// Until such small ones alone are so many times the budget: nothing here grows without bound.
const SMALL_ONES: u64 = 4;
/// What is new and has up to so many bytes is kept, however small the others are.
const FRESH: u64 = 1 << 20;

/// The account of what is kept, and who goes next.
#[derive(Debug)]
pub(crate) struct Budget {
    most: u64,
    held: u64,
    clock: u64,
    /// Who goes first is last: by size, then by how long ago it came, and where it is.
    order: BTreeSet<Place>,
    dropped: Dropped,
}

/// What a span is found by in the account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// Zero of what is small, else the power of two.
    class: u32,
    /// How long ago it came: the oldest has the largest.
    age: u64,
    at: u64,
}

/// What went for want of room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// How many pieces.
    pub count: u64,
    /// Their bytes together.
    pub bytes: u64,
    /// The bytes of the largest.
    pub largest: u64,
}

impl Dropped {
    /// Both together.
    #[must_use]
    pub fn and(self, other: Dropped) -> Dropped {
        Dropped {
            count: self.count + other.count,
            bytes: self.bytes.saturating_add(other.bytes),
            largest: self.largest.max(other.largest),
        }
    }

    fn add(&mut self, bytes: u64) {
        *self = self.and(Dropped { count: 1, bytes, largest: bytes });
    }
}

/// Whether there is room for one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// There is.
    Is,
    /// There is once what is here has gone.
    After(u64),
    /// There is none.
    None,
}

impl Budget {
    /// Of so many bytes.
    pub(crate) fn new(most: u64) -> Budget {
        let dropped = Dropped::default();
        Budget { most, held: 0, clock: 0, order: BTreeSet::new(), dropped }
    }

    /// Bytes that are kept.
    #[cfg(test)]
    pub(crate) fn held(&self) -> u64 {
        self.held
    }

    /// What went for want of room.
    pub(crate) fn dropped(&self) -> Dropped {
        self.dropped
    }

    /// Whether something new of `size` bytes has room.
    pub(crate) fn room(&self, size: u64) -> Room {
        let wanted = self.held.saturating_add(size);
        if wanted <= self.most {
            return Room::Is;
        }
        let Some(next) = self.order.last() else { return Room::None };
        let may_go = match next.class {
            0 if class(size) == 0 && wanted <= self.most.saturating_mul(SMALL_ONES) => {
                return Room::Is;
            }
            0 => class(size) == 0,
            it => size <= FRESH || class(size) <= it,
        };
        if may_go { Room::After(next.at) } else { Room::None }
    }

    /// `size` bytes at `at` are kept from now on.
    pub(crate) fn keep(&mut self, at: u64, size: u64) -> Place {
        self.clock += 1;
        self.keep_as(Place { class: 0, age: u64::MAX - self.clock, at }, at, size)
    }

    /// Likewise of a part of what was kept as `before`.
    pub(crate) fn keep_as(&mut self, before: Place, at: u64, size: u64) -> Place {
        let place = Place { class: class(size), age: before.age, at };
        self.held += size;
        self.order.insert(place);
        place
    }

    /// What was kept as `place`, of `size` bytes, is kept no longer.
    pub(crate) fn let_go(&mut self, place: Place, size: u64) {
        self.order.remove(&place);
        self.held -= size;
    }

    /// `size` bytes had no room.
    pub(crate) fn drop(&mut self, size: u64) {
        self.dropped.add(size);
    }
}

fn class(size: u64) -> u32 {
    if size <= SMALL { 0 } else { size.ilog2() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    /// Keeps pieces of these sizes, one after the other, and returns the places of those that stay.
    fn kept(budget: u64, sizes: &[u64]) -> (Vec<usize>, Dropped) {
        let mut budget = Budget::new(budget);
        let mut places: Vec<Option<Place>> = vec![None; sizes.len()];
        for (i, &size) in sizes.iter().enumerate() {
            loop {
                match budget.room(size) {
                    Room::Is => {
                        places[i] = Some(budget.keep(i as u64, size));
                        break;
                    }
                    Room::After(at) => {
                        let at = usize::try_from(at).unwrap();
                        budget.let_go(places[at].take().unwrap(), sizes[at]);
                        budget.drop(sizes[at]);
                    }
                    Room::None => {
                        budget.drop(size);
                        break;
                    }
                }
            }
        }
        let stay = |it: &(usize, &Option<Place>)| it.1.is_some();
        let stay = places.iter().enumerate().filter(stay).map(|it| it.0).collect();
        (stay, budget.dropped())
    }

    #[test]
    fn the_largest_goes_first_and_of_equals_the_oldest() {
        let (stay, dropped) = kept(8 * MIB, &[MIB, 3 * MIB, 3 * MIB, 4 * KIB, MIB, MIB]);
        assert_eq!(stay, [0, 2, 3, 4, 5]);
        assert_eq!(dropped, Dropped { count: 1, bytes: 3 * MIB, largest: 3 * MIB });
    }

    #[test]
    fn what_is_large_takes_no_room_from_what_is_small() {
        let (stay, dropped) = kept(4 * MIB, &[MIB, MIB, MIB, MIB, 4 * MIB]);
        assert_eq!(stay, [0, 1, 2, 3]);
        assert_eq!(dropped.count, 1);
    }

    #[test]
    fn what_is_new_is_kept_beside_smaller_ones() {
        let (stay, _) =
            kept(MIB, &[64 * KIB; 16].into_iter().chain([256 * KIB]).collect::<Vec<_>>());
        assert!(stay.contains(&16) && !stay.contains(&0), "{stay:?}");
    }

    #[test]
    fn what_is_small_stays_and_is_bounded_all_the_same() {
        let (stay, dropped) = kept(64 * KIB, &[KIB; 100]);
        assert_eq!((stay.len(), dropped.count), (100, 0));
        let (stay, dropped) = kept(64 * KIB, &[KIB; 300]);
        assert_eq!((stay.len(), stay[0], dropped.count), (256, 44, 44));
    }
}
