//! A recording that is followed while it is read says the same as one that is followed afterwards, wherever it is cut, and
//! whatever it is that only its end tells.

use std::{fs, path::Path};

use plimsoll_core::{
    replay::{self, Ahead},
    sources::snapshot,
    trace::{Events, Keeper, Portion, Trace},
};

/// Follows on the same thread.
#[derive(Default)]
struct Followed {
    ahead: Ahead,
    n_portions: usize,
}

impl Keeper for Followed {
    fn keep(&mut self, portion: Portion) {
        self.n_portions += 1;
        self.ahead.follow(&portion);
    }

    fn give_back(&mut self) -> Events {
        self.ahead.take_events()
    }
}

/// Every snapshot among the fixtures, by name.
fn snapshots() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/snapshots");
    let paths = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path());
    let pickles = paths.filter(|it| it.extension().is_some_and(|it| it == "pickle"));
    let res: Vec<_> = pickles.map(|it| (it.display().to_string(), fs::read(it).unwrap())).collect();
    assert!(5 <= res.len(), "the fixtures are there");
    res
}

fn followed(trace: &Trace, index: usize, ahead: Option<Ahead>) -> String {
    format!("{:?}", replay::follow_on(trace, index, ahead))
}

/// As JSON: on each of `n_devices` a block is handed out and given back, again and again, which are so many events.
fn long_snapshot(n_devices: usize, n_turns: usize) -> String {
    let event = |action: &str, size: u64, time: u64| {
        format!(
            r#"{{"action": "{action}", "addr": 8388608, "size": {size}, "stream": 0, "time_us": {time}}}"#
        )
    };
    let turn = |time: u64| {
        ["alloc", "free_requested", "free_completed"].map(|it| event(it, 512 + time % 512, time))
    };
    let events = || {
        let mut res = vec![event("segment_alloc", 2 << 20, 0)];
        res.extend((0_u64..).take(n_turns).flat_map(turn));
        format!("[{}]", res.join(", "))
    };
    let segment = |device: usize| {
        format!(
            r#"{{"device": {device}, "address": 8388608, "total_size": 2097152, "stream": 0, "segment_type": "small", "blocks": [{{"size": 2097152, "state": "inactive"}}]}}"#
        )
    };
    let traces: Vec<String> = (0..n_devices).map(|_| events()).collect();
    let segments: Vec<String> = (0..n_devices).map(segment).collect();
    format!(
        r#"{{"segments": [{}], "device_traces": [{}]}}"#,
        segments.join(", "),
        traces.join(", ")
    )
}

#[test]
fn what_is_followed_while_it_is_read_says_the_same() {
    for (n_devices, n_turns) in [(1, 5000), (2, 5000), (3, 900), (1, 10)] {
        let text = long_snapshot(n_devices, n_turns);
        // Also of a file that ends too soon.
        for len in [text.len(), text.len() - 20_000.min(text.len() / 2)] {
            let bytes = &text.as_bytes()[..len];
            let (trace, warnings) = snapshot::read(bytes).unwrap();
            let mut keeper = Followed::default();
            let whole = snapshot::read_with(bytes, &mut keeper).unwrap();
            let what = format!("{n_devices} devices, {n_turns} turns, {len} bytes");
            assert_eq!(whole.warnings, warnings, "{what}");
            assert_eq!(whole.begins, Some(0), "{what}");
            assert_eq!(keeper.n_portions != 0, 2048 < n_devices * 3 * n_turns, "{what}");
            let mut ahead = Some(keeper.ahead);
            for (index, (one, other)) in whole.trace.devices.iter().zip(&trace.devices).enumerate()
            {
                assert!(one.events == other.events, "{what}");
                assert_eq!(
                    (&one.segments, &one.blocks),
                    (&other.segments, &other.blocks),
                    "{what}"
                );
                // What ends too soon contradicts its end state, and is followed again and again.
                if len == text.len() {
                    let ahead = ahead.take_if(|_| index == 0);
                    let at_once = followed(&trace, index, None);
                    assert!(followed(&whole.trace, index, ahead) == at_once, "{what}");
                }
            }
        }
    }
}

#[test]
fn where_it_is_cut_makes_no_difference() {
    for (name, bytes) in snapshots() {
        let (mut trace, _) = snapshot::read(&bytes).unwrap();
        let all = trace.devices[0].events.clone();
        let end = trace.devices[0].clone();
        // Of a beginning there is no end state; what begins late shows in it.
        for (from, to, n) in [(0, 200, 1), (0, 500, 97), (9, all.len(), 100), (0, all.len(), 150)] {
            let mut events = all.clone();
            events.truncate(to);
            trace.devices[0] = end.clone();
            if to < all.len() {
                trace.devices[0].segments.clear();
                trace.devices[0].blocks.clear();
            }
            trace.devices[0].events = events.split_off(from);
            let mut ahead = Ahead::default();
            let mut rest = trace.devices[0].events.clone();
            while !rest.is_empty() {
                let after = rest.split_off(n.min(rest.len()));
                ahead.follow(&Portion { events: rest, ..portion_of(&trace) });
                rest = after;
            }
            let at_once = followed(&trace, 0, None);
            assert!(followed(&trace, 0, Some(ahead)) == at_once, "{name}, {from}..{to} by {n}");
        }
    }
}

/// What is known of `trace`, all but the events.
fn portion_of(trace: &Trace) -> Portion {
    Portion {
        streams: trace.streams.clone(),
        has_expandable: trace.devices[0].segments.iter().any(|it| it.expandable),
        ..Portion::default()
    }
}
