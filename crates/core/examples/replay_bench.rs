//! Measures the replay over snapshots: one line for each, with what the checked replay disagrees with and
//! what the free run arrives at. `bench/instruments/replay.py` calls it.
#![expect(clippy::print_stdout, reason = "a measurement prints what it measured")]

use std::{collections::BTreeMap, env, fs, time::Instant};

use plimsoll_core::{
    replay::{self, Config},
    sources::snapshot,
    units::Bytes,
};

/// What is known of the device beside the recording: `capacity`, `total` and `limit` in bytes, from the file
/// with the recording's name and `.json`.
fn known(path: &str, index: usize) -> Option<(Option<u64>, Option<u64>, Option<u64>)> {
    let text = fs::read_to_string(std::path::Path::new(path).with_extension("json")).ok()?;
    let known: serde_json::Value = serde_json::from_str(&text).ok()?;
    let capacity = known.get("capacity")?.get(index.to_string())?.as_u64();
    Some((capacity, known["total"].as_u64(), known["limit"].as_u64()))
}

fn main() {
    for path in env::args().skip(1) {
        let bytes = fs::read(&path).expect("a file that can be read");
        let (trace, _) = snapshot::read(&bytes).expect("a snapshot");
        let settings = trace.settings.clone().unwrap_or_default();
        for (index, device) in trace.devices.iter().enumerate() {
            if device.events.is_empty() && device.segments.is_empty() {
                continue;
            }
            let began = Instant::now();
            let (torch, (checked, program)) = replay::follow_best(&trace, index);
            let seconds_checked = began.elapsed().as_secs_f64();
            let config = Config::of_recording(&settings, torch);
            let config = match known(&path, index) {
                Some((capacity, card, limit)) => Config {
                    capacity: capacity.map(Bytes),
                    card: card.map(Bytes),
                    known_limit: limit.map(Bytes),
                    ..config
                },
                None => Config {
                    capacity: program.observed_limit,
                    known_limit: program.known_limit,
                    ..config
                },
            };
            let began = Instant::now();
            let free = replay::what_if(&program, &config);
            let seconds_free = began.elapsed().as_secs_f64();
            let ruled = replay::what_if(&program.without_addresses(), &config);
            let mut kinds: BTreeMap<String, u32> = BTreeMap::new();
            for (_, mismatch) in &checked.mismatches {
                *kinds.entry(format!("{mismatch:?}")).or_default() += 1;
            }
            let mut line = serde_json::json!({
                "path": path,
                "device": index,
                "torch": torch.to_string(),
                "events": device.events.len(),
                "checked_events": checked.checked_events,
                "mismatches": checked.n_mismatches,
                "mismatch_kinds": kinds,
                "first_mismatch": checked.mismatches.first().map(|(it, m)| format!("{} {m:?}", it.0)),
                "reserved_before": checked.reserved_before.0,
                "allocated_before": checked.allocated_before.0,
                "final_reserved": checked.final_reserved.0,
                "peak_allocated": checked.peak_allocated.bytes.0,
                "peak_reserved": checked.peak_reserved.bytes.0,
                "peak_requested": checked.peak_requested.bytes.0,
                "observed_limit": checked.observed_limit.map(|it| it.0),
                "free_peak_allocated": free.peak_allocated.bytes.0,
                "ruled_peak_reserved": ruled.peak_reserved.bytes.0,
                "free_peak_reserved": free.peak_reserved.bytes.0,
                "free_final_reserved": free.stats.reserved_bytes.all.current,
                "free_retries": free.stats.num_alloc_retries,
                "free_ooms": free.stats.num_ooms,
                "free_ran_out": free.ran_out.is_some(),
                "seconds_checked": seconds_checked,
                "seconds_free": seconds_free,
                "stats": {},
            });
            let stats = line["stats"].as_object_mut().expect("an object");
            stats.extend(checked.stats.named().into_iter().map(|(name, it)| (name, it.into())));
            println!("{line}");
        }
    }
}
