//! What differs between versions of torch: each a short program, run under the last version of the one rule and
//! the first of the other. The order of equal free blocks, and what a MemPool may release, are in the pictures
//! beside these; keys and their bounds in `conf`.

use expect_test::{Expect, expect};

use super::picture;
use crate::{
    replay::{Config, TorchVersion, follow, tests::recorded::recording, what_if},
    trace::Settings,
    units::Bytes,
};

/// What `program` comes to under each version (2.x) and its settings, on a device of `capacity` MiB.
fn differs(program: &str, capacity: u64, versions: [(u8, &str); 2], expect: Expect) {
    let mut res = String::new();
    for (minor, conf) in versions {
        let with = if conf.is_empty() { String::new() } else { format!(" with {conf}") };
        res += &format!("torch 2.{minor}{with}\n");
        for line in picture(minor, conf, capacity, program).lines() {
            res += &format!("    {line}\n");
        }
    }
    expect.assert_eq(&res);
}

#[test]
fn one_division_rounded_to_a_power_of_two_until_2_0() {
    differs(
        "alloc a 33MiB",
        1 << 20,
        [(0, "roundup_power2_divisions:1"), (1, "roundup_power2_divisions:1")],
        expect![[r#"
        torch 2.0 with roundup_power2_divisions:1
            segment_alloc S0+0 64M
            a at S0+0, 64M
            reserved 64M, allocated 64M, active 64M, requested 33M, inactive split 0
        torch 2.1 with roundup_power2_divisions:1
            segment_alloc S0+0 34M
            a at S0+0, 34M
            reserved 34M, allocated 34M, active 34M, requested 33M, inactive split 0
    "#]],
    );
}

#[test]
fn private_pools_grow_by_mapping_since_2_5() {
    differs(
        "alloc a 30MiB pool=1\nalloc b 30MiB",
        1 << 20,
        [(4, "expandable_segments:True"), (5, "expandable_segments:True")],
        expect![[r#"
        torch 2.4 with expandable_segments:True
            segment_alloc S0+0 30M
            a at S0+0, 30M
            segment_map S1+0 40M
            b at S1+0, 30M
            reserved 70M, allocated 60M, active 60M, requested 60M, inactive split 0
        torch 2.5 with expandable_segments:True
            segment_map S0+0 40M
            a at S0+0, 30M
            segment_map S1+0 40M
            b at S1+0, 30M
            reserved 80M, allocated 60M, active 60M, requested 60M, inactive split 0
    "#]],
    );
}

#[test]
fn a_request_above_the_fraction_can_be_refused_at_once_since_2_12() {
    differs(
        "alloc a 60MiB\nfree a\nalloc b 80MiB",
        100,
        [
            (11, "per_process_memory_fraction:0.9"),
            (12, "per_process_memory_fraction:0.9,throw_on_cudamalloc_oom:True"),
        ],
        expect![[r#"
        torch 2.11 with per_process_memory_fraction:0.9
            segment_alloc S0+0 60M
            a at S0+0, 60M
            segment_free S0+0 60M
            segment_alloc S1+0 80M
            b at S1+0, 80M
            reserved 80M, allocated 80M, active 80M, requested 80M, inactive split 0; retries 1, syncs 1, ooms 0
        torch 2.12 with per_process_memory_fraction:0.9,throw_on_cudamalloc_oom:True
            segment_alloc S0+0 60M
            a at S0+0, 60M
            oom 80M
            reserved 60M, allocated 0, active 0, requested 0, inactive split 0; retries 0, syncs 0, ooms 1
    "#]],
    );
}

#[test]
fn an_expandable_range_can_be_shorter_since_2_15() {
    differs(
        "alloc a 30MiB\nalloc b 60MiB",
        128,
        [
            (14, "expandable_segments:True"),
            (15, "expandable_segments:True,expandable_segments_reserve:0.5"),
        ],
        expect![[r#"
        torch 2.14 with expandable_segments:True
            segment_map S0+0 40M
            a at S0+0, 30M
            segment_map S0+40M 60M
            b at S0+30M, 60M
            reserved 100M, allocated 90M, active 90M, requested 90M, inactive split 0
        torch 2.15 with expandable_segments:True,expandable_segments_reserve:0.5
            segment_map S0+0 40M
            a at S0+0, 30M
            segment_map S1+0 60M
            b at S1+0, 60M
            reserved 100M, allocated 90M, active 90M, requested 90M, inactive split 0
    "#]],
    );
}

#[test]
fn how_much_of_a_large_block_may_be_left_over_is_a_setting_since_2_6() {
    differs(
        "alloc a 90MiB\nfree a\nalloc b 60MiB",
        1 << 20,
        [(5, "max_split_size_mb:32"), (6, "max_split_size_mb:32,max_non_split_rounding_mb:40")],
        expect![[r#"
        torch 2.5 with max_split_size_mb:32
            segment_alloc S0+0 90M
            a at S0+0, 90M
            segment_alloc S1+0 60M
            b at S1+0, 60M
            reserved 150M, allocated 60M, active 60M, requested 60M, inactive split 0
        torch 2.6 with max_split_size_mb:32,max_non_split_rounding_mb:40
            segment_alloc S0+0 90M
            a at S0+0, 90M
            b at S0+0, 90M
            reserved 90M, allocated 90M, active 90M, requested 60M, inactive split 0
    "#]],
    );
}

#[test]
fn the_whole_device_is_a_limit_until_2_9() {
    let text = "\
segment_alloc 1000M 60M
alloc 1000M 60M
free 1000M 60M
segment_alloc 2000M 24M
alloc 2000M 24M stream=1
free 2000M 24M stream=1
segment_alloc 3000M 20M
alloc 3000M 20M stream=2
";
    let (_, program) = follow(&recording(text), 0, Config::of_torch(TorchVersion::two(9)));
    let reserved = |minor| {
        let conf = "garbage_collection_threshold:0.5";
        let config = Config::of_alloc_conf(conf, TorchVersion::two(minor)).unwrap();
        let config = config.with_capacity(Bytes::mib(110)).with_fraction(1.0);
        what_if(&program, &config).stats.reserved_bytes.all.current >> 20
    };
    // Garbage is collected only where there is a limit.
    assert_eq!([9, 10].map(reserved), [44, 104]);
}

#[test]
fn a_list_of_divisions_goes_on_one_interval_later_since_2_10() {
    differs(
        "alloc a 35MiB",
        1 << 20,
        [
            (9, "roundup_power2_divisions:[16:1,32:2,>:8]"),
            (10, "roundup_power2_divisions:[16:1,32:2,>:8]"),
        ],
        expect![[r#"
        torch 2.9 with roundup_power2_divisions:[16:1,32:2,>:8]
            segment_alloc S0+0 36M
            a at S0+0, 36M
            reserved 36M, allocated 36M, active 36M, requested 35M, inactive split 0
        torch 2.10 with roundup_power2_divisions:[16:1,32:2,>:8]
            segment_alloc S0+0 48M
            a at S0+0, 48M
            reserved 48M, allocated 48M, active 48M, requested 35M, inactive split 0
    "#]],
    );
}

#[test]
fn large_segments_have_a_size_since_2_11() {
    differs(
        "alloc a 2MiB",
        1 << 20,
        [(10, ""), (11, "large_segment_size_mb:32")],
        expect![[r#"
        torch 2.10
            segment_alloc S0+0 20M
            a at S0+0, 2M
            reserved 20M, allocated 2M, active 2M, requested 2M, inactive split 18M
        torch 2.11 with large_segment_size_mb:32
            segment_alloc S0+0 32M
            a at S0+0, 2M
            reserved 32M, allocated 2M, active 2M, requested 2M, inactive split 30M
    "#]],
    );
}

#[test]
fn settings_that_another_version_does_not_have_are_said() {
    let settings = Settings { expandable_segments: true, ..Settings::default() };
    let of = |minor| Config::of_recording_for(&settings, TorchVersion::two(minor));
    assert!(of(0).unwrap_err().to_string().ends_with("it came with torch 2.1"));
    assert!(of(1).unwrap().expandable_segments);
}

#[test]
fn a_mempool_releases_nothing_until_2_12_and_a_capture_never() {
    let program = |pool| format!("alloc a 60MiB\nfree a\nalloc b 80MiB pool={pool}");
    let in_2_12 = picture(12, "", 100, &program(1));
    expect![[r#"
        segment_alloc S0+0 60M
        a at S0+0, 60M
        segment_alloc 80M refused
        oom 80M
        reserved 60M, allocated 0, active 0, requested 0, inactive split 0; retries 0, syncs 0, ooms 1
    "#]]
    .assert_eq(&in_2_12);
    let [of_a_pool, of_the_default] = [1, 0].map(|pool| picture(13, "", 100, &program(pool)));
    assert_eq!(of_a_pool, of_the_default);
    assert_eq!(picture(13, "", 100, &format!("graph 1\n{}", program(1))), in_2_12);
}

#[test]
fn a_pool_that_never_splits_hands_out_whole_segments() {
    let program =
        "no_split 1\nalloc a 3MiB pool=1\nalloc b 3MiB pool=1\nfree a\nalloc c 2MiB pool=1";
    differs(
        program,
        1 << 20,
        [(10, ""), (10, "expandable_segments:True")],
        expect![[r#"
        torch 2.10
            segment_alloc S0+0 20M
            a at S0+0, 20M
            segment_alloc S1+0 20M
            b at S1+0, 20M
            c at S0+0, 20M
            reserved 40M, allocated 40M, active 40M, requested 5M, inactive split 0
        torch 2.10 with expandable_segments:True
            segment_map S0+0 20M
            a at S0+0, 20M
            segment_map S0+20M 20M
            b at S0+20M, 20M
            c at S0+0, 20M
            reserved 40M, allocated 40M, active 40M, requested 5M, inactive split 0
    "#]],
    );
}

#[test]
fn a_pool_serves_the_default_one_before_caches_are_released_since_2_11() {
    let program = "\
use_on_oom 1\nalloc a 60MiB pool=1\nfree a\nalloc b 30MiB\nfree b\nalloc c 50MiB\nalloc d 8MiB";
    differs(
        program,
        100,
        [(10, ""), (11, "")],
        expect![[r#"
        torch 2.10
            segment_alloc S0+0 60M
            a at S0+0, 60M
            segment_alloc S1+0 30M
            b at S1+0, 30M
            segment_alloc 50M refused
            segment_free S1+0 30M
            segment_alloc 50M refused
            c at S0+0, 50M
            segment_alloc S2+0 20M
            d at S2+0, 8M
            reserved 80M, allocated 58M, active 58M, requested 58M, inactive split 22M; retries 1, syncs 1, ooms 0
        torch 2.11
            segment_alloc S0+0 60M
            a at S0+0, 60M
            segment_alloc S1+0 30M
            b at S1+0, 30M
            segment_alloc 50M refused
            c at S0+0, 50M
            d at S1+0, 8M
            reserved 90M, allocated 58M, active 58M, requested 58M, inactive split 32M
    "#]],
    );
}

#[test]
fn what_could_grow_serves_nobody_else_since_2_10() {
    let program = "use_on_oom 1\nalloc a 60MiB pool=1\nfree a\nalloc b 50MiB";
    let conf = "expandable_segments:True";
    differs(
        program,
        100,
        [(9, conf), (10, conf)],
        expect![[r#"
        torch 2.9 with expandable_segments:True
            segment_map S0+0 60M
            a at S0+0, 60M
            segment_map 60M refused
            segment_map 60M refused
            b at S0+0, 50M
            reserved 60M, allocated 50M, active 50M, requested 50M, inactive split 0; retries 1, syncs 1, ooms 0
        torch 2.10 with expandable_segments:True
            segment_map S0+0 60M
            a at S0+0, 60M
            segment_map 60M refused
            segment_map 60M refused
            oom 50M
            reserved 60M, allocated 0, active 0, requested 0, inactive split 0; retries 1, syncs 1, ooms 1
    "#]],
    );
}
