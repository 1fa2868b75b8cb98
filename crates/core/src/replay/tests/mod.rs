//! Pictures: what a program asks for, and what the allocator does. The scenarios J1 to J15 of the design
//! notes, and the chains that recordings rarely show. Addresses are `S0+4M`: the segment or range, in order
//! of appearance, and the distance from its start.

mod contradictions;
mod readings;
pub(super) mod recorded;
mod versions;
mod without;

use std::collections::{BTreeMap, BTreeSet};

use expect_test::{Expect, expect};

use crate::{
    replay::{
        Config, TorchVersion,
        allocator::{Allocator, Request},
        driver::{Choice, Driver},
        heap::Heap,
        slot::Slot,
    },
    trace::{PoolId, StreamId},
    units::Bytes,
};

/// What `program` comes to under `conf` of torch 2.`minor`, on a device of `capacity` MiB.
fn picture(minor: u8, conf: &str, capacity: u64, program: &str) -> String {
    let torch = TorchVersion::two(minor);
    let config = Config::of_alloc_conf(conf, torch).unwrap().with_capacity(Bytes::mib(capacity));
    let driver = FakeDevice { left: capacity << 20, ..FakeDevice::default() };
    let mut model = Allocator::new(config, Vec::new(), driver);
    let mut blocks: BTreeMap<String, Slot> = BTreeMap::new();
    for line in program.lines().map(|it| it.split('#').next().unwrap().trim()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |prefix: &str| {
            let found = words.iter().find_map(|it| it.strip_prefix(prefix));
            found.map_or(0, |it| it.parse().unwrap())
        };
        match words[..] {
            [] => {}
            ["alloc", name, size, ..] => {
                let request = Request {
                    size: size.parse().unwrap(),
                    stream: StreamId(number("stream=")),
                    pool: PoolId(number("pool=")),
                };
                let said = match model.malloc(request) {
                    Ok(slot) => {
                        blocks.insert(name.to_owned(), slot);
                        let block = *model.heap.block(slot);
                        let place = model.driver.place(block.address);
                        format!("{name} at {place}, {}", short(block.size))
                    }
                    Err(error) => format!("oom {}", short(error.params_size)),
                };
                model.driver.log.push(said);
            }
            ["free", name] => {
                model.free_requested(blocks[name]);
                model.free_completed(blocks[name]);
            }
            ["free_requested", name] => model.free_requested(blocks[name]),
            ["free_completed", name] => model.free_completed(blocks[name]),
            ["empty_cache"] => model.release_cached_blocks(),
            ["graph", pool] => {
                model.traits.graphs.insert(PoolId(pool.parse().unwrap()));
            }
            ["no_split", pool] => {
                model.traits.no_split.insert(PoolId(pool.parse().unwrap()));
            }
            ["use_on_oom", pool] => {
                model.traits.use_on_oom.insert(PoolId(pool.parse().unwrap()));
            }
            _ => panic!("{line}"),
        }
        model.check_invariants();
    }
    let stats = model.stats;
    let mut picture = model.driver.log.join("\n");
    picture += &format!(
        "\nreserved {}, allocated {}, active {}, requested {}, inactive split {}",
        short(stats.reserved_bytes.all.current),
        short(stats.allocated_bytes.all.current),
        short(stats.active_bytes.all.current),
        short(stats.requested_bytes.all.current),
        short(stats.inactive_split_bytes.all.current),
    );
    if stats.num_alloc_retries + stats.num_sync_all_streams + stats.num_ooms != 0 {
        picture += &format!(
            "; retries {}, syncs {}, ooms {}",
            stats.num_alloc_retries, stats.num_sync_all_streams, stats.num_ooms
        );
    }
    picture + "\n"
}

fn check_on(minor: u8, conf: &str, capacity: u64, program: &str, expect: Expect) {
    expect.assert_eq(&picture(minor, conf, capacity, program));
}

fn check(program: &str, expect: Expect) {
    check_on(11, "", 1 << 20, program, expect);
}

/// Segments go down from here, as they do on a device: the oldest has the highest address.
const FIRST: u64 = 255;

/// A device whose segments are far apart, and that tells what it was asked.
#[derive(Debug, Default)]
struct FakeDevice {
    left: u64,
    n: u64,
    log: Vec<String>,
}

impl FakeDevice {
    fn place(&self, address: u64) -> String {
        format!("S{}+{}", FIRST - (address >> 44), short(address & ((1 << 44) - 1)))
    }
}

impl Driver for FakeDevice {
    fn malloc(&mut self, size: u64) -> Option<(u64, u64)> {
        let Some(left) = self.left.checked_sub(size) else {
            self.log.push(format!("segment_alloc {} refused", short(size)));
            return None;
        };
        self.left = left;
        let address = (FIRST - self.n) << 44;
        self.n += 1;
        self.log.push(format!("segment_alloc {} {}", self.place(address), short(size)));
        Some((address, size))
    }

    fn free(&mut self, address: u64, size: u64) -> bool {
        self.left += size;
        self.log.push(format!("segment_free {} {}", self.place(address), short(size)));
        true
    }

    fn reserve(&mut self, _: u64) -> Option<u64> {
        self.n += 1;
        Some((FIRST - (self.n - 1)) << 44)
    }

    fn map(&mut self, address: u64, size: u64) -> bool {
        let Some(left) = self.left.checked_sub(size) else {
            self.log.push(format!("segment_map {} refused", short(size)));
            return false;
        };
        self.left = left;
        self.log.push(format!("segment_map {} {}", self.place(address), short(size)));
        true
    }

    fn unmap(&mut self, address: u64, size: u64) -> bool {
        self.left += size;
        self.log.push(format!("segment_unmap {} {}", self.place(address), short(size)));
        true
    }

    fn choose(&mut self, found: Option<Slot>, _: &mut Heap) -> Choice {
        found.map_or(Choice::Grow, Choice::Take)
    }

    fn synchronize(&mut self, pending: &BTreeSet<Slot>) -> Vec<Slot> {
        pending.iter().copied().collect()
    }
}

/// `20M`, `1536`, `1M+512`.
fn short(bytes: u64) -> String {
    match (bytes >> 20, bytes & 0xf_ffff) {
        (0, rest) => rest.to_string(),
        (mib, 0) => format!("{mib}M"),
        (mib, rest) => format!("{mib}M+{rest}"),
    }
}

#[test]
fn j1_small_blocks_share_a_segment_and_fit_best() {
    check(
        "alloc a 1\nalloc b 1\nfree a\nalloc c 600\nalloc d 10",
        expect![[r#"
        segment_alloc S0+0 2M
        a at S0+0, 512
        b at S0+512, 512
        c at S0+1024, 1024
        d at S0+0, 512
        reserved 2M, allocated 2048, active 2048, requested 611, inactive split 1M+1046528
    "#]],
    );
}

#[test]
fn j2_two_blocks_of_1_mib_fill_a_small_segment() {
    check(
        "alloc a 1MiB\nalloc b 1MiB\nalloc c 1MiB",
        expect![[r#"
        segment_alloc S0+0 2M
        a at S0+0, 1M
        b at S0+1M, 1M
        segment_alloc S1+0 2M
        c at S1+0, 1M
        reserved 4M, allocated 3M, active 3M, requested 3M, inactive split 1M
    "#]],
    );
}

#[test]
fn j3_above_1_mib_is_large() {
    check(
        "alloc a 1048577",
        expect![[r#"
        segment_alloc S0+0 20M
        a at S0+0, 1M+512
        reserved 20M, allocated 1M+512, active 1M+512, requested 1M+1, inactive split 18M+1048064
    "#]],
    );
}

#[test]
fn j4_j5_a_rest_of_1_mib_is_not_split_off_and_more_is() {
    check(
        "alloc a 19MiB\nalloc b 19922432\nalloc c 1048577",
        expect![[r#"
        segment_alloc S0+0 20M
        a at S0+0, 20M
        segment_alloc S1+0 20M
        b at S1+0, 18M+1048064
        c at S1+18M+1048064, 1M+512
        reserved 40M, allocated 40M, active 40M, requested 38M+1048065, inactive split 0
    "#]],
    );
}

#[test]
fn j6_j7_best_fit_then_everything_merges() {
    check(
        "alloc a 8MiB\nalloc b 8MiB\nfree a\nalloc c 3MiB\nfree b\nfree c\nempty_cache",
        expect![[r#"
            segment_alloc S0+0 20M
            a at S0+0, 8M
            b at S0+8M, 8M
            c at S0+16M, 4M
            segment_free S0+0 20M
            reserved 0, allocated 0, active 0, requested 0, inactive split 0; retries 0, syncs 1, ooms 0
        "#]],
    );
}

#[test]
fn j8_streams_share_nothing() {
    check(
        "alloc a 64MiB\nfree a\nalloc b 64MiB stream=1\nalloc c 64MiB",
        expect![[r#"
        segment_alloc S0+0 64M
        a at S0+0, 64M
        segment_alloc S1+0 64M
        b at S1+0, 64M
        c at S0+0, 64M
        reserved 128M, allocated 128M, active 128M, requested 128M, inactive split 0
    "#]],
    );
}

#[test]
fn j9_blocks_above_the_split_limit_serve_their_like_only() {
    check_on(
        11,
        "max_split_size_mb:32",
        1 << 20,
        "alloc a 64MiB\nfree a\nalloc b 4MiB\nalloc c 40MiB\nalloc d 50MiB",
        expect![[r#"
            segment_alloc S0+0 64M
            a at S0+0, 64M
            segment_alloc S1+0 20M
            b at S1+0, 4M
            segment_alloc S2+0 40M
            c at S2+0, 40M
            d at S0+0, 64M
            reserved 124M, allocated 108M, active 108M, requested 94M, inactive split 16M
        "#]],
    );
}

#[test]
fn j10_caches_are_released_before_a_request_fails() {
    check_on(
        11,
        "",
        100,
        "alloc a 60MiB\nfree a\nalloc b 80MiB",
        expect![[r#"
        segment_alloc S0+0 60M
        a at S0+0, 60M
        segment_alloc 80M refused
        segment_free S0+0 60M
        segment_alloc S1+0 80M
        b at S1+0, 80M
        reserved 80M, allocated 80M, active 80M, requested 80M, inactive split 0; retries 1, syncs 1, ooms 0
    "#]],
    );
}

#[test]
fn j11_a_split_segment_cannot_be_released() {
    check_on(
        11,
        "",
        100,
        "alloc a 1048577\nalloc b 90MiB",
        expect![[r#"
        segment_alloc S0+0 20M
        a at S0+0, 1M+512
        segment_alloc 90M refused
        segment_alloc 90M refused
        oom 90M
        reserved 20M, allocated 1M+512, active 1M+512, requested 1M+1, inactive split 18M+1048064; retries 1, syncs 1, ooms 1
    "#]],
    );
}

#[test]
fn j12_a_block_in_use_elsewhere_is_active_until_completed() {
    check(
        "alloc a 4MiB\nfree_requested a\nalloc b 4MiB\nfree_completed a\nalloc c 4MiB",
        expect![[r#"
            segment_alloc S0+0 20M
            a at S0+0, 4M
            b at S0+4M, 4M
            c at S0+0, 4M
            reserved 20M, allocated 8M, active 8M, requested 8M, inactive split 12M
        "#]],
    );
}

#[test]
fn j13_expandable_prefers_what_could_not_grow() {
    check_on(
        11,
        "expandable_segments:True",
        1 << 20,
        "alloc a 30MiB\nalloc b 12MiB\nfree a\nalloc c 8MiB\nempty_cache",
        expect![[r#"
            segment_map S0+0 40M
            a at S0+0, 30M
            segment_map S0+40M 20M
            b at S0+30M, 12M
            c at S0+0, 8M
            reserved 60M, allocated 20M, active 20M, requested 20M, inactive split 0; retries 0, syncs 1, ooms 0
        "#]],
    );
}

#[test]
fn whole_granules_are_unmapped_and_mapped_again() {
    check_on(
        11,
        "expandable_segments:True",
        1 << 20,
        "alloc a 60MiB\nalloc b 20MiB\nfree a\nempty_cache\nalloc c 70MiB\nalloc d 10MiB",
        expect![[r#"
            segment_map S0+0 60M
            a at S0+0, 60M
            segment_map S0+60M 20M
            b at S0+60M, 20M
            segment_unmap S0+0 60M
            segment_map S0+80M 80M
            c at S0+80M, 70M
            d at S0+150M, 10M
            reserved 100M, allocated 100M, active 100M, requested 100M, inactive split 0; retries 0, syncs 1, ooms 0
        "#]],
    );
}

#[test]
fn a_map_that_fails_half_way_keeps_what_it_got() {
    check_on(
        11,
        "expandable_segments:True",
        100,
        "alloc a 50MiB\nalloc b 20MiB\nfree a\nalloc c 90MiB\nalloc d 40MiB",
        expect![[r#"
            segment_map S0+0 60M
            a at S0+0, 50M
            segment_map S0+60M 20M
            b at S0+50M, 20M
            segment_map 100M refused
            segment_unmap S0+0 40M
            segment_map 100M refused
            oom 90M
            segment_map S1+0 40M
            d at S1+0, 40M
            reserved 80M, allocated 60M, active 60M, requested 60M, inactive split 0; retries 1, syncs 1, ooms 1
        "#]],
    );
}

#[test]
fn j15_divisions_round_the_segment_too() {
    check_on(
        11,
        "roundup_power2_divisions:4",
        1 << 20,
        "alloc a 33MiB",
        expect![[r#"
        segment_alloc S0+0 40M
        a at S0+0, 40M
        reserved 40M, allocated 40M, active 40M, requested 33M, inactive split 0
    "#]],
    );
}

#[test]
fn equal_blocks_go_by_address_until_2_11_and_by_age_of_their_segment_since_2_13() {
    let program = "alloc a 12MiB\nalloc b 12MiB\nfree b\nfree a\nalloc c 12MiB";
    check_on(
        11,
        "",
        1 << 20,
        program,
        expect![[r#"
        segment_alloc S0+0 12M
        a at S0+0, 12M
        segment_alloc S1+0 12M
        b at S1+0, 12M
        c at S1+0, 12M
        reserved 24M, allocated 12M, active 12M, requested 12M, inactive split 0
    "#]],
    );
    check_on(
        13,
        "",
        1 << 20,
        program,
        expect![[r#"
        segment_alloc S0+0 12M
        a at S0+0, 12M
        segment_alloc S1+0 12M
        b at S1+0, 12M
        c at S0+0, 12M
        reserved 24M, allocated 12M, active 12M, requested 12M, inactive split 0
    "#]],
    );
}

#[test]
fn in_2_12_every_split_makes_a_new_block() {
    // What was handed out last from a split is newest, though its address is the lowest.
    let program = "\
alloc a 512
alloc b 512
alloc c 512
alloc d 512
free a
free b
alloc e 512
alloc f 512
free e
free c
alloc g 512
";
    check_on(
        11,
        "",
        1 << 20,
        program,
        expect![[r#"
        segment_alloc S0+0 2M
        a at S0+0, 512
        b at S0+512, 512
        c at S0+1024, 512
        d at S0+1536, 512
        e at S0+0, 512
        f at S0+512, 512
        g at S0+0, 512
        reserved 2M, allocated 1536, active 1536, requested 1536, inactive split 1M+1047040
    "#]],
    );
    check_on(
        12,
        "",
        1 << 20,
        program,
        expect![[r#"
        segment_alloc S0+0 2M
        a at S0+0, 512
        b at S0+512, 512
        c at S0+1024, 512
        d at S0+1536, 512
        e at S0+0, 512
        f at S0+512, 512
        g at S0+1024, 512
        reserved 2M, allocated 1536, active 1536, requested 1536, inactive split 1M+1047040
    "#]],
    );
    check_on(
        13,
        "",
        1 << 20,
        program,
        expect![[r#"
        segment_alloc S0+0 2M
        a at S0+0, 512
        b at S0+512, 512
        c at S0+1024, 512
        d at S0+1536, 512
        e at S0+0, 512
        f at S0+512, 512
        g at S0+0, 512
        reserved 2M, allocated 1536, active 1536, requested 1536, inactive split 1M+1047040
    "#]],
    );
}

#[test]
fn garbage_is_collected_before_the_driver_is_asked() {
    check_on(
        11,
        "garbage_collection_threshold:0.5,per_process_memory_fraction:0.9",
        100,
        "alloc a 20MiB\nalloc b 22MiB\nalloc c 24MiB\nfree a\nfree b\nalloc d 22MiB\nfree d\nalloc e 26MiB",
        expect![[r#"
            segment_alloc S0+0 20M
            a at S0+0, 20M
            segment_alloc S1+0 22M
            b at S1+0, 22M
            segment_alloc S2+0 24M
            c at S2+0, 24M
            d at S1+0, 22M
            segment_free S0+0 20M
            segment_free S1+0 22M
            segment_alloc S3+0 26M
            e at S3+0, 26M
            reserved 50M, allocated 50M, active 50M, requested 50M, inactive split 0
        "#]],
    );
}

#[test]
fn with_a_split_limit_one_large_block_goes_first() {
    check_on(
        11,
        "max_split_size_mb:32",
        200,
        "alloc a 40MiB\nalloc b 64MiB\nalloc c 60MiB\nfree a\nfree b\nfree c\nalloc d 90MiB",
        expect![[r#"
            segment_alloc S0+0 40M
            a at S0+0, 40M
            segment_alloc S1+0 64M
            b at S1+0, 64M
            segment_alloc S2+0 60M
            c at S2+0, 60M
            segment_alloc 90M refused
            segment_free S1+0 64M
            segment_free S2+0 60M
            segment_alloc S3+0 90M
            d at S3+0, 90M
            reserved 130M, allocated 90M, active 90M, requested 90M, inactive split 0
        "#]],
    );
}
