//! Pictures of what events may mean: a retry, a collection of garbage, an `empty_cache`, a private pool's end.
//! Each was found by a random program on the real allocator.

use crate::{
    replay::{Config, Mismatch, Replay, TorchVersion, follow, tests::recorded::recording, what_if},
    trace::{Block, BlockState, PoolId, Segment, SizeClass, StackId, StreamId},
    units::Bytes,
};

fn checked(conf: &str, text: &str) -> Replay {
    let config = Config::of_alloc_conf(conf, TorchVersion::two(11)).unwrap();
    follow(&recording(text), 0, config).0
}

/// Retries and mismatches.
fn retries(conf: &str, text: &str) -> (u64, Vec<Mismatch>) {
    let replay = checked(conf, text);
    let mismatches = replay.mismatches.iter().map(|(_, it)| *it).collect();
    (replay.stats.num_alloc_retries, mismatches)
}

/// A segment of line 1 goes before a request of line 1; in between, who freed it says its own line or not.
fn one_segment(free_line: u32, asked: &str) -> String {
    format!(
        "\
segment_alloc 1000M 60M line=1
alloc 1000M 60M line=1
free 1000M 60M line={free_line}
segment_free 1000M 60M line=1
segment_alloc 2000M {asked} line=1
alloc 2000M {asked} line=1
"
    )
}

#[test]
fn where_frees_have_their_own_stack_so_has_an_empty_cache() {
    // The free has line 9, so an empty_cache would not show line 1.
    assert_eq!(retries("", &one_segment(9, "80M")), (1, vec![]));
}

#[test]
fn where_stacks_are_of_the_allocation_the_level_decides() {
    // 60 + 80 MiB are more than were ever granted: the request may have been refused.
    assert_eq!(retries("", &one_segment(1, "80M")), (1, vec![]));
    // The run held 140 MiB before: 60 + 80 would have been granted.
    let before = "\
segment_alloc 4000M 140M line=1
alloc 4000M 140M line=1
free 4000M 140M line=1
segment_free 4000M 140M line=2
";
    assert_eq!(retries("", &format!("{before}{}", one_segment(1, "80M"))), (0, vec![]));
}

#[test]
fn what_the_device_would_have_given_was_no_retry() {
    // 140 MiB are more than were ever granted. A later failure says that 80 were held and so much was free.
    let later = |free| format!("{}oom {free} 200M\n", one_segment(1, "80M"));
    assert_eq!(retries("", &later("70M")), (1, vec![]));
    assert_eq!(retries("", &later("20M")), (2, vec![]));
    // Where as much was free as was asked for, a limit refused, and may have before.
    assert_eq!(retries("", &later("300M")), (2, vec![]));
}

#[test]
fn what_a_free_block_could_have_served_was_no_retry() {
    // No stacks: 32 MiB are free when 30 are asked for, yet all goes back and comes again.
    let text = "\
segment_alloc 1000M 32M
alloc 1000M 32M
free 1000M 32M
segment_free 1000M 32M
segment_alloc 2000M 30M
alloc 2000M 30M
";
    assert_eq!(retries("", text), (0, vec![]));
}

#[test]
fn a_block_that_the_search_may_not_take_is_grown_in_place() {
    // 40 MiB are mapped and free, which a split limit of 32 MiB bars from the search.
    let text = "\
segment_map 1000M 40M
alloc 1000M 40M
free 1000M 40M
alloc 1000M 4M
";
    assert_eq!(retries("expandable_segments:True,max_split_size_mb:32", text), (0, vec![]));
}

#[test]
fn a_limit_refuses_even_what_is_mapped() {
    // 40 MiB are mapped; a retry unmaps the 20 MiB of them that it can, and is then served by the rest.
    let text = "\
segment_map 1000M 20M line=1
alloc 1000M 10M line=1
segment_map 1020M 20M line=1
alloc 1010M 30M line=1
free 1010M 30M line=9
segment_unmap 1020M 20M line=2
alloc 1010M 4M line=2
";
    assert_eq!(retries("expandable_segments:True,max_split_size_mb:21", text), (1, vec![]));
}

#[test]
fn garbage_is_told_from_a_retry_by_what_stays() {
    // Two segments of 20 and 40 MiB are free; only the one that was not used for longer goes.
    let text = "\
segment_alloc 1000M 20M
alloc 1000M 20M
segment_alloc 2000M 40M
alloc 2000M 40M
segment_alloc 3000M 2M
alloc 3000M 512
free 1000M 20M
segment_alloc 4000M 24M
alloc 4000M 24M
free 4000M 24M
alloc 4000M 24M
free 2000M 40M
segment_free 1000M 20M
segment_alloc 5000M 60M
alloc 5000M 60M
";
    let conf = "garbage_collection_threshold:0.5";
    let trace = recording(text);
    let config = Config::of_alloc_conf(conf, TorchVersion::two(11)).unwrap();
    let (replay, program) = follow(&trace, 0, config);
    assert_eq!((replay.stats.num_alloc_retries, replay.mismatches), (0, vec![]));
    // 126 MiB were above half of it, and 106 + 60 MiB were granted.
    let limit = program.known_limit.unwrap();
    assert!((Bytes::mib(166)..Bytes::mib(252)).contains(&limit), "{limit}");
}

/// Garbage that goes in another size than it came in is damage; what could be collected stays, and it ends.
#[test]
fn garbage_that_does_not_go_as_it_came_is_not_collected_for_ever() {
    let text = "\
segment_alloc 1000M 20M
alloc 1000M 20M
segment_alloc 2000M 40M
alloc 2000M 40M
free 1000M 20M
segment_free 1000M 22M
segment_alloc 3000M 24M
alloc 3000M 24M
";
    let replay = checked("garbage_collection_threshold:0.5", text);
    assert_ne!(replay.n_mismatches, 0);
}

#[test]
fn a_failed_request_of_a_pool_that_is_gone_gave_nothing_back() {
    // 20 MiB are free, which a retry would have given back: it was inside use_mem_pool.
    let text = "\
segment_alloc 1000M 20M
alloc 1000M 20M
free 1000M 20M
oom 0M 60M
alloc 1000M 20M
";
    assert_eq!(retries("", text), (0, vec![]));
}

#[test]
fn segments_that_go_alone_were_a_private_pool_s() {
    // Of three free segments two go, without any request, though the first could have, too: and it served
    // none of the blocks in the others.
    let text = "\
segment_alloc 1000M 20M
alloc 1000M 20M
free 1000M 20M
segment_alloc 2000M 20M
alloc 2000M 8M
alloc 2008M 12M
segment_alloc 3000M 12M
alloc 3000M 12M
free 2000M 8M
free 2008M 12M
free 3000M 12M
segment_free 3000M 12M
segment_free 2000M 20M
free_requested 8000M 1
";
    let replay = checked("", text);
    let kinds: Vec<Mismatch> = replay.mismatches.iter().map(|(_, it)| *it).collect();
    assert_eq!(kinds, [Mismatch::NotInUse], "only the free of nothing");
}

/// What does not agree.
fn disagrees(conf: &str, text: &str) -> Vec<Mismatch> {
    checked(conf, text).mismatches.iter().map(|(_, it)| *it).collect()
}

#[test]
fn a_new_range_while_one_has_room_is_another_pool_s() {
    let text = "\
segment_map 1000M 20M
alloc 1000M 12M
segment_map 9000M 20M
alloc 9000M 12M
free 9000M 12M
alloc 1012M 8M
segment_unmap 9000M 20M
segment_map 1020M 20M
alloc 1020M 8M
";
    assert_eq!(disagrees("expandable_segments:True", text), []);
}

#[test]
fn a_pool_that_ends_completes_what_was_waiting() {
    let text = "\
segment_alloc 1000M 20M
alloc 1000M 20M
segment_alloc 2000M 20M
alloc 2000M 20M
segment_alloc 3000M 40M
alloc 3000M 40M
free 1000M 20M
free 2000M 20M
free_requested 3000M 40M
free_completed 3000M 40M
segment_free 2000M 20M
alloc 1000M 20M
alloc 3000M 40M
";
    assert_eq!(disagrees("", text), []);
}

#[test]
fn large_segments_that_go_after_the_small_ones_were_a_private_pool_s() {
    let text = "\
segment_alloc 1000M 20M
alloc 1000M 20M
segment_alloc 2000M 2M
alloc 2000M 512
segment_alloc 3000M 40M
alloc 3000M 40M
free 1000M 20M
free 2000M 512
free 3000M 40M
segment_free 1000M 20M
segment_free 2000M 2M
segment_free 3000M 40M
segment_alloc 4000M 60M
alloc 4000M 60M
";
    assert_eq!(disagrees("", text), []);
}

#[test]
fn above_a_split_limit_a_pool_gives_back_its_own() {
    // 36 MiB are free, and too much larger than 4; 20 more are refused until they are gone. The pool lives on.
    let text = "\
segment_alloc 1000M 60M
alloc 1000M 60M
segment_alloc 2000M 36M pool=1
alloc 2000M 36M pool=1
free_requested 2000M 36M pool=1
free_completed 2000M 36M pool=1
segment_free 2000M 36M pool=1
segment_alloc 3000M 20M pool=1
alloc 3000M 4M pool=1
free 1000M 60M
segment_free 1000M 60M line=1
segment_alloc 4000M 62M line=1
alloc 4000M 62M line=1
";
    assert_eq!(disagrees("max_split_size_mb:32", text), []);
}

#[test]
fn since_2_13_a_capture_is_told_by_its_pool_or_by_what_it_leaves() {
    // 60 MiB lie free in the default pool when 80 are refused to pool 1; a MemPool would give them back.
    let text = "\
segment_alloc 1000M 60M
alloc 1000M 60M
free 1000M 60M
oom 8M 80M pool=1
segment_alloc 3000M 20M pool=1
alloc 3000M 4M pool=1
";
    let config = Config::of_torch(TorchVersion::two(13));
    for id in [(7, 0), (0, 7)] {
        let mut trace = recording(text);
        trace.pools = vec![(0, 0), id];
        let (replay, _) = follow(&trace, 0, config.clone());
        assert_eq!((replay.mismatches, replay.stats.num_alloc_retries), (vec![], 0), "{id:?}");
    }
}

#[test]
fn a_pool_that_holds_a_block_it_should_have_split_never_splits() {
    // 3 MiB of a segment of 20 MiB, twice; in the end one of them is there and has the whole segment.
    let text = "\
segment_alloc 1000M 20M pool=1
alloc 1000M 3M pool=1
segment_alloc 2000M 20M pool=1
alloc 2000M 3M pool=1
free 1000M 3M pool=1
";
    let mut trace = recording(text);
    trace.pools = vec![(0, 0), (0, 1)];
    let device = &mut trace.devices[0];
    for (n, state) in [(1000, BlockState::Free), (2000, BlockState::Allocated)] {
        let (address, first) = (n << 20, u32::try_from(device.blocks.len()).unwrap());
        let (size, requested) = (Bytes::mib(20), Bytes::mib(3));
        device.blocks.push(Block { address, size, requested, state, stack: StackId::EMPTY });
        device.segments.push(Segment {
            address,
            size,
            stream: StreamId(0),
            pool: PoolId(1),
            size_class: SizeClass::Large,
            expandable: false,
            stack: StackId::EMPTY,
            blocks: first..first + 1,
        });
    }
    let follow = |minor| follow(&trace, 0, Config::of_torch(TorchVersion::two(minor))).0;
    let replay = follow(12);
    assert_eq!(replay.mismatches, []);
    assert_eq!(replay.peak_allocated.bytes, Bytes::mib(40));
    // There were no such pools before.
    assert_ne!(follow(9).mismatches, []);
}

#[test]
fn a_pool_that_should_have_split_and_did_not_never_splits_though_nothing_of_it_is_left() {
    // A second segment, while 17 MiB of the first would have done for 3; then everything goes.
    let text = "\
segment_alloc 1000M 20M pool=1
alloc 1000M 3M pool=1
segment_alloc 2000M 20M pool=1
alloc 2000M 3M pool=1
free 1000M 3M pool=1
alloc 1000M 2M pool=1
free 1000M 2M pool=1
free 2000M 3M pool=1
segment_free 1000M 20M pool=1
segment_free 2000M 20M pool=1
";
    let mut trace = recording(text);
    trace.pools = vec![(0, 0), (0, 1)];
    let replay = follow(&trace, 0, Config::of_torch(TorchVersion::two(12))).0;
    assert_eq!(replay.mismatches, []);
    assert_eq!(replay.peak_allocated.bytes, Bytes::mib(40));
}

#[test]
fn garbage_is_collected_where_a_limit_refused_though_a_retry_would_give_back_the_same() {
    // 60 MiB are free and go, for 80 more. A later failure, with 1000 MiB free, says that some limit lies below
    // 120 MiB: half of that was held.
    let text = "\
segment_alloc 1000M 60M line=1
alloc 1000M 60M line=1
free 1000M 60M line=9
segment_free 1000M 60M line=1
segment_alloc 2000M 80M line=1
alloc 2000M 80M line=1
free 2000M 80M line=9
segment_free 2000M 80M line=2
segment_alloc 3000M 60M line=3
alloc 3000M 60M line=3
oom 1000M 60M line=4
";
    // The failed request is a retry in any case.
    assert_eq!(retries("garbage_collection_threshold:0.4", text), (1, vec![]));
    // Without the threshold, what went before the 80 MiB was given back by a retry, too.
    assert_eq!(retries("", text), (2, vec![]));
}

#[test]
fn a_pool_that_serves_a_line_of_the_default_one_is_one_that_serves_when_nothing_else_does() {
    // Line 1 asks the default pool, line 2 pool 1. When no more than 100 MiB are to be had, pool 1 serves line 1,
    // and the failure that follows is the default pool's again.
    let text = "\
segment_alloc 1000M 40M line=1
alloc 1000M 40M line=1
segment_alloc 2000M 60M pool=1 line=2
alloc 2000M 60M pool=1 line=2
free 2000M 60M pool=1 line=3
alloc 2000M 30M pool=1 line=1
oom 0M 40M line=1
alloc 2030M 30M pool=1 line=2
";
    let trace = recording(text);
    let (replay, program) = follow(&trace, 0, Config::of_torch(TorchVersion::two(11)));
    assert_eq!((replay.mismatches, replay.stats.num_alloc_retries), (vec![], 1));
    // On a larger device the default pool would have grown.
    let reserved = |mib| {
        let config = Config::of_torch(TorchVersion::two(11)).with_capacity(Bytes::mib(mib));
        what_if(&program, &config).peak_reserved.bytes
    };
    assert_eq!([100, 200].map(reserved), [Bytes::mib(100), Bytes::mib(170)]);
}
