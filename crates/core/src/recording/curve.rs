//! What a profiler keeps of memory: levels over time, and the operator that asked; no stacks, no
//! segments.

use crate::units::Bytes;

/// The curves of one profiler trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Curve {
    /// The version of torch, when the trace says it.
    pub torch_version: Option<String>,
    /// The GPUs that it has memory events of.
    pub devices: Vec<CurveDevice>,
    /// Why the trace was not read to its end, when it is cut off or damaged; what came before was read.
    pub cut_off: Option<String>,
}

/// One GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CurveDevice {
    /// Its index.
    pub index: u32,
    /// Memory events.
    pub events: u64,
    /// Most allocated.
    pub peak_allocated: Bytes,
    /// Most reserved.
    pub peak_reserved: Bytes,
    /// Out-of-memory events.
    pub ooms: u64,
    /// Who asked for what was live at the peak, as far as it was asked for in the trace; the most first.
    pub operators: Vec<(String, Bytes)>,
}
