//! The allocator settings that are worth trying on a recording.

use crate::{
    replay::{ConfError, Config, Program, TorchVersion, WhatIf, what_if},
    units::Bytes,
};

/// One setting, and what would have happened under it.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The value of `PYTORCH_CUDA_ALLOC_CONF`; empty for torch's own defaults.
    pub alloc_conf: String,
    /// What would have happened.
    pub outcome: WhatIf,
}

/// Runs `program` under every useful setting that `torch` has, on a device that gives `capacity` and no
/// more: first those that fit, then by peak reserved, then by retries.
pub fn candidates(
    program: &Program,
    torch: TorchVersion,
    capacity: Option<Bytes>,
    fraction: Option<f64>,
) -> Vec<Candidate> {
    let mut res: Vec<Candidate> = Vec::new();
    for alloc_conf in settings(capacity.is_some()) {
        // What this torch does not have is not worth trying.
        let Ok(mut config) = of(&alloc_conf, torch) else { continue };
        config.capacity = capacity;
        config.fraction = fraction.or(config.fraction);
        if 0.0 < config.garbage_collection_threshold && config.limit().is_none() {
            // Garbage is collected only below a limit; the whole card is one until 2.9.
            config.fraction = Some(if torch < TorchVersion::two(10) { 1.0 } else { 0.999 });
        }
        res.push(Candidate { outcome: what_if(program, &config), alloc_conf });
    }
    res.sort_by_key(|it| {
        let WhatIf { ran_out, peak_reserved, stats, .. } = &it.outcome;
        (ran_out.is_some(), peak_reserved.bytes, stats.num_alloc_retries)
    });
    res
}

fn of(alloc_conf: &str, torch: TorchVersion) -> Result<Config, ConfError> {
    Config::of_alloc_conf(alloc_conf, torch)
}

fn settings(has_capacity: bool) -> Vec<String> {
    let mut res = vec![String::new(), "expandable_segments:True".to_owned()];
    res.extend([32, 64, 128, 256, 512].map(|it| format!("max_split_size_mb:{it}")));
    res.extend([2, 4, 8, 16].map(|it| format!("roundup_power2_divisions:{it}")));
    res.extend([12, 64, 128, 256].map(|it| format!("large_segment_size_mb:{it}")));
    res.push("expandable_segments:True,roundup_power2_divisions:8".to_owned());
    res.push("expandable_segments:True,large_segment_size_mb:64".to_owned());
    if has_capacity {
        res.extend(["0.6", "0.8"].map(|it| format!("garbage_collection_threshold:{it}")));
        res.push("garbage_collection_threshold:0.8,max_split_size_mb:128".to_owned());
    }
    res
}
