//! Pictures of what would have been without some blocks.

use crate::{
    replay::{BlockId, Config, Failure, Held, TorchVersion, tests::recorded::recording},
    trace::EventId,
    units::Bytes,
};

/// Three steps that keep 30 MiB each, and one request of 60 MiB that fails on 100 MiB.
const LEAK: &str = "\
segment_alloc 1000M 30M
alloc 1000M 30M          # block 0
segment_alloc 2000M 30M
alloc 2000M 30M          # block 1
segment_alloc 3000M 30M
alloc 3000M 30M          # block 2
free 3000M 30M           # events 6 and 7
alloc 3000M 30M          # block 3
segment_alloc 4000M 2M
alloc 4000M 512          # block 4
oom 8M 60M
";

fn made(block: u32) -> Held {
    Held::Made(BlockId(block))
}

fn config() -> Config {
    Config::of_torch(TorchVersion::two(11))
}

#[test]
fn a_failed_request_fits_once_enough_is_gone() {
    let trace = recording(LEAK);
    let config = config().with_capacity(Bytes::mib(100));
    let failure = Failure::at(&trace, 0, &config, EventId(11)).unwrap();
    let live: Vec<Held> = failure.live().collect();
    assert_eq!(live, [made(0), made(1), made(3), made(4)]);
    let fits = |blocks: &[u32]| {
        let blocks: Vec<Held> = blocks.iter().copied().map(made).collect();
        failure.fits_without(&blocks)
    };
    assert!(!fits(&[]));
    assert!(!fits(&[0]), "62 of 100 MiB are left, and 60 are asked for");
    assert!(fits(&[0, 1]));
    assert!(fits(&[0, 3]));
    assert!(fits(&[3, 0, 3]), "a block is given back once");
    assert!(!fits(&[4, 2]), "block 2 is gone, and block 4 is small");
}

#[test]
fn bytes_alone_do_not_make_it_fit() {
    // Each segment keeps one small block in its middle: what lies beside it cannot go back to the driver.
    let trace = recording(
        "\
segment_alloc 1000M 20M
alloc 1000M 8M
alloc 1008M 4M
alloc 1012M 8M
segment_alloc 2000M 20M
alloc 2000M 8M
alloc 2008M 4M
alloc 2012M 8M
oom 0M 12M
",
    );
    let config = config().with_capacity(Bytes::mib(40));
    let failure = Failure::at(&trace, 0, &config, EventId(8)).unwrap();
    let fits = |blocks: [u32; 2]| failure.fits_without(&blocks.map(made));
    assert!(!fits([0, 3]), "16 MiB in two pieces");
    assert!(fits([0, 1]), "12 MiB in one piece");
}

#[test]
fn only_a_failed_request_is_a_failure() {
    let trace = recording(LEAK);
    for event in [0, 10, 12] {
        assert!(Failure::at(&trace, 0, &config(), EventId(event)).is_none());
    }
    assert!(Failure::at(&trace, 1, &config(), EventId(11)).is_none());
}
