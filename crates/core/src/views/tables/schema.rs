//! The schema: every column of every table with its unit and meaning. docs/export.md repeats it, and a test
//! holds it to that. Columns only get added.

/// What kind of values a column has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A 64-bit integer: bytes, counts, ids.
    Int,
    /// UTF-8.
    Text,
    /// Yes or no.
    Bool,
}

/// A column: what it is called, and what it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name; a unit at the end of it is its unit.
    pub name: &'static str,
    /// What its values are.
    pub kind: Kind,
    /// What they mean, for the manual.
    pub meaning: &'static str,
}

const fn int(name: &'static str, meaning: &'static str) -> Column {
    Column { name, kind: Kind::Int, meaning }
}

const fn text(name: &'static str, meaning: &'static str) -> Column {
    Column { name, kind: Kind::Text, meaning }
}

const fn bool(name: &'static str, meaning: &'static str) -> Column {
    Column { name, kind: Kind::Bool, meaning }
}

/// The columns of `events`.
pub const EVENTS: &[Column] = &[
    int("device", "index of the device"),
    int("event", "number of the event on its device, from 0"),
    text(
        "action",
        "alloc, free_requested, free_completed, segment_alloc, segment_free, segment_map, segment_unmap, snapshot, oom, annotate or other",
    ),
    int("address", "where the block or segment begins; null for oom"),
    int(
        "size_bytes",
        "requested size: of blocks before rounding, of segments as the driver gave it",
    ),
    int("free_bytes", "of oom: the free memory that the device reported; null otherwise"),
    int("stream", "handle of the stream; 0 is the default stream"),
    int("pool", "number of the pool; 0 is the default pool, others are CUDA graphs' and MemPools"),
    int("stack", "key of `stacks`; 0 is no stack"),
    int("time_us", "microseconds of the recorder's clock, not monotone; null when not recorded"),
    text("annotation", "metadata that the program had set; null when none"),
    int("block", "of alloc, free_requested: key of `blocks`; null otherwise"),
    int("allocated_bytes", "allocated after this event"),
    int("reserved_bytes", "reserved after this event"),
    int("step", "optimizer step of the event, from 1; 0 before the first"),
    text("phase", "setup, forward, loss, backward, optimizer, zero_grad, evaluation or between"),
];

/// The columns of `blocks`.
pub const BLOCKS: &[Column] = &[
    int("device", "index of the device"),
    int(
        "block",
        "number of the block on its device, from 0, in order of allocation; then those from before the recording",
    ),
    int("address", "where it began"),
    int(
        "size_bytes",
        "allocated size: the request, rounded; PyTorch's allocated memory is the sum of these",
    ),
    int("requested_bytes", "requested size"),
    int(
        "alloc_event",
        "key of `events`: the event that allocated it; null when it was allocated before",
    ),
    int("free_event", "key of `events`: the event that freed it; null when it lived to the end"),
    int("alloc_time_us", "microseconds of the recorder's clock; null when not known"),
    int("free_time_us", "microseconds of the recorder's clock; null when not known"),
    int("stream", "handle of the stream; null when it was allocated before"),
    int("stack", "key of `stacks`: the call stack of the request; 0 is no stack"),
    text(
        "category",
        "category, as in the reports; 'before the recording' when it was allocated before",
    ),
    text(
        "name",
        "the tensor's or module's name when the agent recorded it, with * for a layer's number; null otherwise",
    ),
    text("line", "file and line of the user's own code that requested it; null without a stack"),
    int("step", "optimizer step of its allocation; null when it was allocated before"),
    text("phase", "phase of its allocation; null when it was allocated before"),
    bool("at_peak", "whether it was live at the peak: the sum of these sizes is the peak"),
];

/// The columns of `stacks`: one row for each frame of each stack that anything points to.
pub const STACKS: &[Column] = &[
    int("stack", "key"),
    int("frame", "0 is the innermost frame, the largest the outermost"),
    text("function", "name of the function"),
    text("file", "source file"),
    int("line", "line, from 1; null for C++ frames"),
    bool("is_user", "whether it is the user's own code rather than installed or C++"),
];

/// The columns of `segments`: what was held from the driver when the recording was written.
pub const SEGMENTS: &[Column] = &[
    int("device", "index of the device"),
    int("address", "where it begins"),
    int("size_bytes", "how much of it is mapped"),
    int("allocated_bytes", "allocated bytes in it"),
    int("blocks", "number of its blocks, free ones included"),
    int("stream", "handle of the stream that it serves"),
    int("pool", "number of the pool that owns it; 0 is the default pool"),
    text("size_class", "small (blocks of at most 1 MiB) or large"),
    bool("is_expandable", "a mapped run of an expandable segment"),
    int("stack", "key of `stacks`: the call stack that allocated it; 0 is no stack"),
];
