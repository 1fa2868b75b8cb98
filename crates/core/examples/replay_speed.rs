//! Measures how fast the replay is, on a generated recording like that of a training run: one line of JSON.
//! `bench/instruments/replay_speed.py` calls it with the number of events.
#![expect(clippy::print_stdout, reason = "a measurement prints what it measured")]

use std::{env, fs, hint::black_box};

use plimsoll_core::{
    replay::{self, Config, TorchVersion},
    trace::{DeviceTrace, Settings, Trace},
    units::Bytes,
};

/// Kinds of layers; each allocates and frees its own sizes.
const LAYERS: u64 = 48;

fn main() {
    let n: usize = env::args().nth(1).and_then(|it| it.parse().ok()).unwrap_or(3_000_000);
    let config = Config::of_torch(TorchVersion::two(11));
    let trace = recorded(&requests(n), &config);
    let events = &trace.devices[0].events;

    let (read, sum) =
        measured(5, || events.iter().map(|(_, it)| it.size.0 ^ it.address).sum::<u64>());
    black_box(sum);
    let (checked, (replay, program)) = measured(2, || replay::follow(&trace, 0, config.clone()));
    let (free, outcome) = measured(5, || replay::what_if(&program, &config));
    let line = serde_json::json!({
        "events": events.len(),
        "mismatches": replay.n_mismatches,
        "same_peak": outcome.peak_reserved.bytes == replay.peak_reserved.bytes,
        "seconds_columns_once": read,
        "seconds_checked": checked,
        "seconds_what_if": free,
    });
    println!("{line}");
}

/// The least processor time of `n` runs, in seconds, and the last result.
fn measured<T>(n: usize, mut run: impl FnMut() -> T) -> (f64, T) {
    let mut timed = || {
        let began = on_processor();
        let res = run();
        (on_processor() - began, res)
    };
    let mut best = timed();
    for _ in 1..n {
        let (seconds, res) = timed();
        best = (seconds.min(best.0), res);
    }
    best
}

/// Seconds that this process was on a processor: others share the machine.
fn on_processor() -> f64 {
    let text =
        fs::read_to_string("/proc/self/schedstat").expect("Linux says how long a process ran");
    let nanos = text.split(' ').next().and_then(|it| it.parse::<f64>().ok());
    nanos.expect("a number of nanoseconds") / 1e9
}

/// What a training run asks for: steps of a forward pass that keeps activations, a backward pass that frees
/// them in reverse and has temporaries, and an optimizer; sequence lengths change the sizes.
fn requests(n: usize) -> Vec<Request> {
    let mut res = Vec::new();
    let mut next_name = 0;
    let mut name = || {
        next_name += 1;
        next_name
    };
    let mut seed = 7_u64;
    let mut random = move |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for layer in 0..LAYERS {
        for size in [4096 * (layer % 3 + 1) * 1024, 16 << 10, 3000] {
            res.push(Request::Alloc { name: name(), size });
        }
    }
    while 2 * res.len() < n {
        let tokens = 256 + 64 * random(12);
        let mut kept = Vec::new();
        for layer in 0..LAYERS {
            for part in 0..6 {
                let size = tokens * 1024 * (part % 3 + 1) * 2;
                let (activation, temporary) = (name(), name());
                res.push(Request::Alloc { name: activation, size });
                res.push(Request::Alloc {
                    name: temporary,
                    size: 512 + 512 * (layer % 7) + random(2000),
                });
                res.push(Request::Free { name: temporary });
                kept.push((activation, size));
            }
        }
        let mut gradient = None;
        for (activation, size) in kept.into_iter().rev() {
            let mine = name();
            res.push(Request::Alloc { name: mine, size });
            res.push(Request::Free { name: activation });
            res.extend(gradient.replace(mine).map(|name| Request::Free { name }));
        }
        res.extend(gradient.map(|name| Request::Free { name }));
    }
    res
}

enum Request {
    Alloc { name: usize, size: u64 },
    Free { name: usize },
}

/// The recording that the allocator leaves behind: addresses come from a free run over the requests.
fn recorded(requests: &[Request], config: &Config) -> Trace {
    let mut events = replay::Recorder::new(config.clone());
    for request in requests {
        match *request {
            Request::Alloc { name, size } => events.alloc(name, Bytes(size)),
            Request::Free { name } => events.free(name),
        }
    }
    let device = DeviceTrace { events: events.finish(), ..DeviceTrace::default() };
    Trace { devices: vec![device], settings: Some(Settings::default()), ..Trace::default() }
}
