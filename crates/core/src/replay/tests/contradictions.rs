//! Recordings that no allocator wrote: each disagrees with itself, is told where, and followed to its end.

use expect_test::{Expect, expect};

use super::recorded::recording;
use crate::{
    replay::checked,
    trace::{
        Action, Block, BlockState, PoolId, Segment, Settings, SizeClass, StackId, StreamId, Trace,
    },
    units::Bytes,
};

fn check(trace: &Trace, expect: Expect) {
    let expandable_segments = trace.devices[0].events.actions().contains(&Action::SegmentMap);
    let settings = Settings { expandable_segments, ..Settings::default() };
    let replay = checked(&trace.devices[0], &settings);
    let mut picture = String::new();
    for (event, mismatch) in &replay.mismatches {
        picture += &format!("event {}: {}\n", event.0, mismatch.sentence());
    }
    picture += &format!(
        "{} mismatches; peak allocated {}, peak reserved {}\n",
        replay.n_mismatches, replay.peak_allocated.bytes, replay.peak_reserved.bytes
    );
    expect.assert_eq(&picture);
}

#[test]
fn a_segment_comes_where_one_is() {
    check(
        &recording(
            "segment_alloc 2MiB 20MiB
             alloc 2MiB 12MiB
             segment_alloc 2MiB 20MiB
             alloc 2MiB 12MiB
             free 2MiB 12MiB",
        ),
        expect![[r#"
            event 0: the driver was asked for another size
            event 2: a block lies outside all segments, or inside another block
            event 2: the driver was asked although a free block fits
            event 2: the driver was asked for another size
            event 3: a segment came where another one is
            5 mismatches; peak allocated 12.0 MiB, peak reserved 40.0 MiB
        "#]],
    );
    check(
        &recording(
            "segment_alloc 2MiB 2MiB
             alloc 2MiB 512
             free 2MiB 512
             segment_alloc 2MiB 20MiB
             alloc 2MiB 12MiB",
        ),
        expect![[r#"
            event 4: the driver was asked for another size
            event 5: a segment came where another one is
            2 mismatches; peak allocated 12.0 MiB, peak reserved 22.0 MiB
        "#]],
    );
}

#[test]
fn a_range_is_mapped_where_one_is() {
    check(
        &recording(
            "segment_map 2MiB 20MiB
             alloc 2MiB 8MiB
             free 2MiB 8MiB
             segment_map 2MiB 20MiB
             alloc 2MiB 12MiB
             segment_map 2MiB 20MiB
             segment_unmap 2MiB 20MiB",
        ),
        expect![[r#"
            event 7: a segment changed without a reason in the model
            event 7: a segment was given back that was not held
            2 mismatches; peak allocated 12.0 MiB, peak reserved 60.0 MiB
        "#]],
    );
}

/// What the fuzzer found: the end state has more at an address than the event that mapped it, so that the
/// rest was there before, and the memory comes where its range goes on.
#[test]
fn the_end_state_has_more_than_came() {
    let mut trace = recording(
        "segment_map 12GiB 2MiB
         alloc 12GiB 3472
         free 12GiB 3472
         segment_map 16GiB 20MiB
         alloc 16GiB 8MiB
         segment_map 12GiB 2MiB
         alloc 12GiB 4096",
    );
    trace.devices[0].segments.push(Segment {
        address: 12 << 30,
        size: Bytes::mib(112),
        stream: StreamId(0),
        pool: PoolId(0),
        size_class: SizeClass::Small,
        expandable: true,
        stack: StackId(0),
        blocks: 0..0,
    });
    check(
        &trace,
        expect![[r#"
            event 6: the driver was asked although a free block fits
            event 6: a segment changed without a reason in the model
            event 7: another free block would have been taken
            event 7: the recorded end state is another
            event 7: the recorded end state is another
            5 mismatches; peak allocated 8.0 MiB, peak reserved 112.0 MiB
        "#]],
    );
}

/// What a hostile recording found: a range that ends with the last address.
#[test]
fn a_range_is_unmapped_at_the_last_addresses() {
    let trace = recording("segment_unmap 17592186044415MiB 20MiB\nalloc 2MiB 4096");
    let replay = checked(&trace.devices[0], &Settings::default());
    assert_ne!(replay.n_mismatches, 0);
}

/// What mutated recordings found: mapped runs that overlap, and a segment at the last addresses.
#[test]
fn the_end_state_overlaps() {
    let mut trace = recording("free 12GiB 4096");
    for (address, size) in [(12 << 30, 20), (12 << 30 | 10 << 20, 20), (u64::MAX - 511, 20)] {
        trace.devices[0].segments.push(Segment {
            address,
            size: Bytes::mib(size),
            stream: StreamId(0),
            pool: PoolId(0),
            size_class: SizeClass::Large,
            expandable: address < 1 << 40,
            stack: StackId(0),
            blocks: 0..0,
        });
    }
    let replay = checked(&trace.devices[0], &Settings::default());
    assert_eq!(replay.reserved_before, Bytes::mib(60));
    assert_ne!(replay.n_mismatches, 0);
}

/// What the fuzzer found: a block of no bytes in the end state.
#[test]
fn the_end_state_has_a_block_of_no_bytes() {
    let mut trace = recording("free 12GiB 4096");
    let (address, stack) = (14 << 30, StackId(0));
    trace.devices[0].blocks.push(Block {
        address,
        size: Bytes::ZERO,
        requested: Bytes::ZERO,
        state: BlockState::Allocated,
        stack,
    });
    trace.devices[0].segments.push(Segment {
        address,
        size: Bytes::mib(20),
        stream: StreamId(0),
        pool: PoolId(0),
        size_class: SizeClass::Large,
        expandable: false,
        stack,
        blocks: 0..1,
    });
    let replay = checked(&trace.devices[0], &Settings::default());
    assert_eq!(replay.reserved_before, Bytes::mib(20));
}
