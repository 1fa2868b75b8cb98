//! A card as the phantom reads it: `phantom.conf` and cuDNN's device description.

use std::fmt::Write;

use crate::{cards::Card, units::Bytes};

/// The driver that we claim to be: CUDA 13.0, what the torch 2.11 wheels are built for.
const DRIVER_VERSION: u32 = 13_000;

impl Card {
    /// The text of `phantom.conf` for `devices` of this card: `key = value` a line.
    pub fn phantom_conf(&self, devices: u32) -> String {
        let (major, minor) = self.compute_capability;
        let mut res = String::new();
        let mut line = |key: &str, value: &dyn std::fmt::Display| {
            writeln!(res, "{key} = {value}").expect("a string takes everything");
        };
        line("devices", &devices);
        line("name", &self.name);
        line("compute_capability", &format_args!("{major}.{minor}"));
        line("total_bytes", &self.total.0);
        let beside = self.total.saturating_sub(self.usable());
        if beside != Bytes::ZERO {
            line("beside_bytes", &beside.0);
        }
        if self.hidden != Bytes::ZERO {
            line("hidden_bytes", &self.hidden.0);
        }
        if self.lent != Bytes::ZERO {
            line("lent_bytes", &self.lent.0);
        }
        line("context_bytes", &self.context.0);
        line("blas_bytes", &self.blas.0);
        line("dnn_bytes", &self.dnn.0);
        if let Some(nccl) = &self.nccl {
            let sizes = nccl.sizes().map(|it| it.0.to_string());
            line("nccl_bytes", &sizes.join(","));
        }
        line("sm_count", &self.sm_count);
        let gpcs: Vec<String> = self.gpcs.iter().map(u32::to_string).collect();
        line("gpcs", &gpcs.join(","));
        line("max_threads_per_sm", &self.max_threads_per_sm);
        line("max_blocks_per_sm", &self.max_blocks_per_sm);
        line("shared_per_block_optin", &self.shared_per_block_optin.0);
        line("shared_per_sm", &self.shared_per_sm.0);
        line("registers_per_sm", &self.registers_per_sm);
        line("l2_bytes", &self.l2.0);
        line("clock_khz", &self.clock_khz);
        line("memory_clock_khz", &self.memory_clock_khz);
        line("memory_bus_bits", &self.memory_bus_bits);
        line("driver_version", &DRIVER_VERSION);
        line("cudnn_json", &self.cudnn_json());
        res
    }

    /// What cuDNN is told of the card, as one line of JSON: in the form that cuDNN 9 serialises a device itself (descriptor 38, attribute 2702); it names the
    /// member that it misses, so all of these are needed.
    pub fn cudnn_json(&self) -> String {
        let (major, minor) = self.compute_capability;
        let name = serde_json::Value::from(self.name.as_str());
        format!(
            concat!(
                r#"{{"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"#,
                r#""regsPerBlock":65536,"multiProcessorCount":{},"warpSize":32,"#,
                r#""maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":{},"#,
                r#""reservedSharedMemoryPerBlock":{},"maxRegistersPerSM":{},"maxCtasPerSM":{},"#,
                r#""maxThreadsPerBlock":1024,"maxThreadsPerSM":{},"pciDeviceId":6,"isTccDriver":0,"#,
                r#""supportCoopLaunch":1,"totalGlobalMem":{},"smClockRateKHz":{},"#,
                r#""memClockRateKHz":{},"l2CacheSize":{},"cudaDeviceId":0,"deviceVer":{},"#,
                r#""driverVer":{},"deviceName":{}}}"#
            ),
            self.sm_count,
            self.shared_per_block_optin.0,
            // CUDA keeps 1 KiB of each block for itself since compute capability 8.0 (CUDA C++
            // Programming Guide, "Shared Memory" of each architecture).
            if 8 <= major { 1024 } else { 0 },
            self.registers_per_sm,
            self.max_blocks_per_sm,
            self.max_threads_per_sm,
            self.total.0,
            self.clock_khz,
            self.memory_clock_khz,
            self.l2.0,
            major * 100 + minor * 10,
            DRIVER_VERSION,
            name,
        )
    }
}
