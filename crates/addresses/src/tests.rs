//! The rule in pictures: what a real driver did, and each of its parts.

use super::*;

const TOP: u64 = 0x7f00_0000_0000;
const MIB: u64 = 1 << 20;

fn space() -> Addresses {
    Addresses::new(0x7000_0000_0000, TOP)
}

/// What a real H200's driver did from its first range on, one call a line: `take MIB BELOW-TOP` or `free BELOW-TOP`.
fn replay(recording: &str) -> usize {
    let mut space = space();
    let mut same = 0;
    for (number, line) in recording.lines().enumerate() {
        let words: Vec<&str> = line.split(' ').collect();
        let number_of = |i: usize| words[i].parse::<u64>().expect("a number") * MIB;
        if words[0] == "take" {
            let at = space.take(number_of(1)).map(|at| (TOP - at) / MIB);
            assert_eq!(at, Some(number_of(2) / MIB), "line {}: {line}", number + 1);
            same += 1;
        } else {
            assert!(space.give_back(TOP - number_of(1)).is_some(), "line {}: {line}", number + 1);
        }
    }
    same
}

#[test]
fn a_real_driver_placed_everything_just_so() {
    // The driver's own ranges, then: sizes as PyTorch asks for them, all freed, and the same again.
    assert_eq!(replay(include_str!("../../../fixtures/addresses/h200-order.txt")), 59);
    // The driver's own ranges, then 400 calls at random, a third of them frees; twice.
    assert_eq!(replay(include_str!("../../../fixtures/addresses/h200-random.txt")), 252);
    assert_eq!(replay(include_str!("../../../fixtures/addresses/h200-random-2.txt")), 286);
}

#[test]
fn chunks_go_down_and_the_newest_is_filled_first() {
    let mut space = space();
    let large = space.take(148 * MIB).expect("room");
    assert_eq!(large, TOP - 160 * MIB);
    let first = space.take(20 * MIB).expect("room");
    assert_eq!(first, large - 32 * MIB, "20 MiB does not fit the tail of 12");
    assert_eq!(space.take(2 * MIB), Some(first + 20 * MIB), "of two tails the newer one");
    assert_eq!(space.take(12 * MIB), Some(large + 148 * MIB), "the other tail fits exactly");
}

#[test]
fn an_older_chunk_above_is_filled_after_a_newer_one_below_it_and_the_smallest_hole_first() {
    let mut space = space();
    let old = space.take(32 * MIB).expect("room");
    let parts: Vec<u64> = (0..5).map(|_| space.take(6 * MIB).expect("room")).collect();
    assert_eq!(space.give_back(parts[0]), Some(6 * MIB));
    assert_eq!(space.give_back(parts[1]), Some(6 * MIB));
    assert_eq!(space.give_back(parts[3]), Some(6 * MIB));
    assert_eq!(space.take(6 * MIB), Some(parts[3]), "6 MiB fit better than 12");
    assert_eq!(space.take(2 * MIB), Some(parts[4] + 6 * MIB), "2 MiB at the end fit best");
    assert_eq!(old, parts[0] + 32 * MIB);
}

#[test]
fn a_chunk_that_nothing_is_in_goes_back_to_the_kernel() {
    let mut space = space();
    let a = space.take(32 * MIB).expect("room");
    let b = space.take(32 * MIB).expect("room");
    assert_eq!(space.give_back(a), Some(32 * MIB));
    // The gap is 32 MiB, and the kernel is asked for almost 64.
    assert_eq!(space.take(32 * MIB), Some(b - 32 * MIB));
    assert_eq!(space.give_back(b), Some(32 * MIB));
    assert_eq!(space.take(32 * MIB), Some(a), "now there are 64, of which the upper half is taken");
    assert_eq!(space.give_back(b), None, "no range starts there any more");
}

#[test]
fn an_address_is_found_in_its_range() {
    let mut space = space();
    let a = space.take(4 * MIB).expect("room");
    assert_eq!(space.range_of(a + 5), Some((a, 4 * MIB)));
    assert_eq!(space.range_of(a + 4 * MIB), None);
    assert_eq!(space.range_of(a - 1), None);
}

#[test]
fn goes_on_from_what_somebody_else_holds() {
    let taken = [(TOP - 32 * MIB, 32 * MIB), (TOP - 64 * MIB, 20 * MIB)];
    let mut space = Addresses::holding(0x7000_0000_0000, TOP, &taken);
    assert_eq!(space.take(12 * MIB), Some(TOP - 44 * MIB), "the end of the newer chunk");
    assert_eq!(space.take(2 * MIB), Some(TOP - 96 * MIB), "a chunk below all");
    assert_eq!(space.give_back(TOP - 32 * MIB), Some(32 * MIB));
}

#[test]
fn what_somebody_else_holds_may_lie_across_chunks() {
    let taken = [(TOP - 64 * MIB, 20 * MIB), (TOP - 44 * MIB, 20 * MIB), (TOP - 20 * MIB, 2 * MIB)];
    let mut space = Addresses::holding(0x7000_0000_0000, TOP, &taken);
    assert_eq!(space.range_of(TOP - 30 * MIB), Some((TOP - 44 * MIB, 20 * MIB)));
    assert_eq!(space.take(4 * MIB), Some(TOP - 24 * MIB));
    // Damage: two ranges that overlap, and one that ends beyond all addresses.
    let taken = [(TOP, 4 * MIB), (TOP + MIB, 4 * MIB), (u64::MAX - 5, 4 * MIB)];
    assert!(Addresses::holding(0x7000_0000_0000, TOP, &taken).take(2 * MIB).is_some());
}

#[test]
fn a_request_larger_than_the_space_is_refused() {
    let mut space = Addresses::new(TOP - 96 * MIB, TOP);
    assert_eq!(space.take(96 * MIB), None);
    assert_eq!(space.take(u64::MAX - 5), None);
    assert!(space.take(64 * MIB).is_some());
}
