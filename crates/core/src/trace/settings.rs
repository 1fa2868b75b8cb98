//! What `PYTORCH_CUDA_ALLOC_CONF` said, as the recording repeats it, and what the program set later.

use crate::{trace::EventId, units::Bytes};

/// The program changed the allocator's settings while it ran (`torch._C._accelerator_setAllocatorSettings`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsChange {
    /// The first event under the new settings.
    pub from: EventId,
    /// What the program passed to PyTorch, in the words of the variable.
    pub text: String,
}

/// The allocator's settings at the time the recording was written; a change during the run leaves
/// no event. Where the agent noted changes, the settings of the beginning.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// The text is that of the beginning, and all that is known of it; the program changed the settings later.
    pub is_of_beginning: bool,
    /// The text of the variable. It alone has the settings that the recorder does not repeat:
    /// memory fraction, `max_non_split_rounding_mb`, `large_segment_size_mb`.
    pub text: String,
    /// Blocks of at least this size are never split; none when unlimited.
    pub max_split_size: Option<Bytes>,
    /// Share of the memory limit above which free blocks are collected; 0 is off.
    pub garbage_collection_threshold: f64,
    /// Whether segments grow by mapping (`expandable_segments:True`).
    pub expandable_segments: bool,
    /// `roundup_power2_divisions`: how finely a power of two is divided, for requests from
    /// 1 MiB << index on (the first entry also serves all smaller ones); 0 and 1 are off.
    pub roundup_power2_divisions: [u32; 16],
}
