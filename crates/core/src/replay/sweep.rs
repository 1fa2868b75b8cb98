//! The allocator settings that are worth trying on a recording.

use std::cmp::Reverse;

use crate::replay::{Config, Program, TorchVersion, WhatIf, what_if};

/// One setting, and what would have happened under it.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The value of `PYTORCH_CUDA_ALLOC_CONF`; empty for torch's own defaults.
    pub alloc_conf: String,
    /// What would have happened.
    pub outcome: WhatIf,
}

/// Runs `program` under every useful setting that the torch of `on` has, on its device and within its limit:
/// first those that fit, by peak reserved, then by retries; then the others, the one that comes
/// farthest first.
pub fn candidates(program: &Program, on: &Config) -> Vec<Candidate> {
    let Config { torch, capacity, card, fraction, known_limit, .. } = *on;
    let mut res: Vec<Candidate> = Vec::new();
    for alloc_conf in settings(torch, capacity.is_some(), fraction) {
        // What this torch does not have is not worth trying.
        let Ok(config) = Config::of_alloc_conf(&alloc_conf, torch) else { continue };
        let fraction = fraction.or(config.fraction);
        let config = Config { capacity, card, fraction, known_limit, ..config };
        res.push(Candidate { outcome: what_if(program, &config), alloc_conf });
    }
    res.sort_by_key(|variant| {
        let WhatIf { ran_out, peak_reserved, stats, .. } = &variant.outcome;
        let ran_out_at = ran_out.map(|it| Reverse(it.event));
        (ran_out_at, peak_reserved.bytes, stats.num_alloc_retries)
    });
    res
}

fn settings(torch: TorchVersion, has_capacity: bool, fraction: Option<f64>) -> Vec<String> {
    let mut res = vec![String::new(), "expandable_segments:True".to_owned()];
    res.extend([32, 64, 128, 256, 512].map(|it| format!("max_split_size_mb:{it}")));
    res.extend([2, 4, 8, 16].map(|it| format!("roundup_power2_divisions:{it}")));
    res.extend([12, 64, 128, 256].map(|it| format!("large_segment_size_mb:{it}")));
    res.push("expandable_segments:True,roundup_power2_divisions:8".to_owned());
    res.push("expandable_segments:True,large_segment_size_mb:64".to_owned());
    if has_capacity {
        // Garbage is collected only below a limit, which since 2.10 a setting can bring.
        let collecting = ["garbage_collection_threshold:0.6", "garbage_collection_threshold:0.8"];
        let limit = match fraction {
            Some(_) => Some(""),
            None if TorchVersion::two(10) <= torch => Some(",per_process_memory_fraction:0.99"),
            None => None,
        };
        res.extend(collecting.iter().filter_map(|it| Some(format!("{it}{}", limit?))));
    }
    res
}
