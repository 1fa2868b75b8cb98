//! The words that a snapshot uses. All are interned first, so that a key is known by its id and no
//! text is compared while millions of events arrive.

use crate::{
    sources::pickle::Value,
    trace::{Action, Interner, TextId},
};

macro_rules! words {
    ($($name:ident = $text:literal,)*) => {
        /// A word of the format; its number is its text's id in the trace.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub(super) enum Word {
            /// The empty text comes first in every interner.
            Empty,
            $(
                #[doc = $text]
                $name,
            )*
        }

        const WORDS: &[(Word, &str)] = &[$((Word::$name, $text)),*];
    };
}

words! {
    // Of events.
    Action = "action",
    Addr = "addr",
    Size = "size",
    Stream = "stream",
    Frames = "frames",
    TimeUs = "time_us",
    UserMetadata = "user_metadata",
    PoolId = "pool_id",
    // Of events, and only to tell the version of torch.
    CompileContext = "compile_context",
    ForwardFrames = "forward_frames",
    InternalMetadata = "internal_metadata",
    DeviceFree = "device_free",
    // Of frames.
    Filename = "filename",
    Line = "line",
    Name = "name",
    // Of annotations; `name` as well.
    Stage = "stage",
    Device = "device",
    // Of segments and blocks; `frames`, `size`, `stream` and `device` as well.
    Address = "address",
    TotalSize = "total_size",
    SegmentType = "segment_type",
    SegmentPoolId = "segment_pool_id",
    IsExpandable = "is_expandable",
    Blocks = "blocks",
    RequestedSize = "requested_size",
    State = "state",
    // torch 1.13 to 2.0 kept a block's stack in here.
    History = "history",
    RealSize = "real_size",
    // Of the whole.
    DeviceTraces = "device_traces",
    Segments = "segments",
    AllocatorSettings = "allocator_settings",
    ExternalAnnotations = "external_annotations",
    HostSegments = "host_segments",
    HostTraces = "host_traces",
    // Of the settings.
    AllocConf = "PYTORCH_CUDA_ALLOC_CONF",
    MaxSplitSize = "max_split_size",
    GarbageCollectionThreshold = "garbage_collection_threshold",
    ExpandableSegments = "expandable_segments",
    RoundupPower2Divisions = "roundup_power2_divisions",
    CaptureReuse = "graph_capture_record_stream_reuse",
    MaxRoundThreshold = "max_round_threshold",
    // The intervals of `roundup_power2_divisions`, by their lower bound in MiB.
    D0 = "1",
    D1 = "2",
    D2 = "4",
    D3 = "8",
    D4 = "16",
    D5 = "32",
    D6 = "64",
    D7 = "128",
    D8 = "256",
    D9 = "512",
    D10 = "1024",
    D11 = "2048",
    D12 = "4096",
    D13 = "8192",
    D14 = "16384",
    D15 = "32768",
    // From here on values, not keys.
    Alloc = "alloc",
    FreeRequested = "free_requested",
    FreeCompleted = "free_completed",
    SegmentAlloc = "segment_alloc",
    SegmentFree = "segment_free",
    SegmentMap = "segment_map",
    SegmentUnmap = "segment_unmap",
    Snapshot = "snapshot",
    Oom = "oom",
    Annotate = "annotate",
    Small = "small",
    Large = "large",
    ActiveAllocated = "active_allocated",
    ActivePendingFree = "active_pending_free",
    // The documentation's name for it.
    ActiveAwaitingFree = "active_awaiting_free",
    Inactive = "inactive",
    Start = "START",
}

/// How many words can be keys of a [`Record`].
const N_KEYS: usize = Word::D15 as usize + 1;

impl Word {
    /// Whether `id` is this word.
    pub(super) fn is(self, id: TextId) -> bool {
        id.0 == self as u32
    }
}

/// Keys that older versions of torch do not write, with the minor version of torch 2 that was the first to;
/// read off its sources. Each is of one kind of dict: events, segments, settings, the whole.
const SINCE: &[(Word, u8)] = &[
    (Word::SegmentPoolId, 1),
    (Word::IsExpandable, 1),
    (Word::TimeUs, 2),
    (Word::AllocatorSettings, 3),
    (Word::ExternalAnnotations, 5),
    (Word::CompileContext, 8),
    (Word::CaptureReuse, 9),
    (Word::UserMetadata, 10),
    (Word::ForwardFrames, 11),
    (Word::PoolId, 12),
    (Word::MaxRoundThreshold, 13),
    (Word::HostSegments, 14),
    (Word::HostTraces, 14),
    (Word::InternalMetadata, 15),
];

/// The first minor version of torch 2 that writes all of `keys`, of which each has its bit. None when these
/// were there before 2.1.
pub(super) fn first_version(keys: u64) -> Option<u8> {
    let new = SINCE.iter().filter(|(key, _)| keys & (1 << *key as u8) != 0);
    new.map(|(_, minor)| *minor).max()
}

/// An interner that knows the words.
pub(super) fn interner() -> Interner {
    let mut texts = Interner::default();
    debug_assert!(Word::Empty.is(texts.intern("")), "the empty text comes first");
    for (word, text) in WORDS {
        let id = texts.intern(text);
        debug_assert!(word.is(id), "ids count up in the order of the enum");
    }
    texts
}

/// The action that the text `id` names.
pub(super) fn action(id: TextId) -> Action {
    let is = |word: Word| word.is(id);
    match id {
        _ if is(Word::Alloc) => Action::Alloc,
        _ if is(Word::FreeRequested) => Action::FreeRequested,
        _ if is(Word::FreeCompleted) => Action::FreeCompleted,
        _ if is(Word::SegmentAlloc) => Action::SegmentAlloc,
        _ if is(Word::SegmentFree) => Action::SegmentFree,
        _ if is(Word::SegmentMap) => Action::SegmentMap,
        _ if is(Word::SegmentUnmap) => Action::SegmentUnmap,
        _ if is(Word::Snapshot) => Action::Snapshot,
        _ if is(Word::Oom) => Action::Oom,
        _ if is(Word::Annotate) => Action::Annotate,
        _ => Action::Other,
    }
}

/// A dict of the snapshot while its items arrive: one field for each known key, whatever the dict
/// turns out to be. Unknown keys are left out.
#[derive(Clone, Debug)]
pub(super) struct Record {
    fields: [Value; N_KEYS],
    /// One bit for each field that is set; the others are stale.
    is_set: u64,
}

const _: () = assert!(N_KEYS <= u64::BITS as usize, "`Record::is_set` has a bit for each key");

impl Record {
    pub(super) fn new() -> Record {
        Record { fields: [Value::None; N_KEYS], is_set: 0 }
    }

    pub(super) fn clear(&mut self) {
        self.is_set = 0;
    }

    /// Takes over keys and values in turn; a later value wins.
    #[inline]
    pub(super) fn set(&mut self, items: &[Value]) {
        for pair in items.chunks_exact(2) {
            if let Value::Text(TextId(key)) = pair[0]
                && let Some(field) = self.fields.get_mut(key as usize)
            {
                *field = pair[1];
                self.is_set |= 1 << key;
            }
        }
    }

    /// One bit for each key that the dict has.
    #[inline]
    pub(super) fn keys(&self) -> u64 {
        self.is_set
    }

    #[inline]
    pub(super) fn has(&self, key: Word) -> bool {
        self.is_set & (1 << key as u8) != 0
    }

    #[inline]
    pub(super) fn get(&self, key: Word) -> Option<Value> {
        self.has(key).then(|| self.fields[key as usize])
    }

    #[inline]
    pub(super) fn int(&self, key: Word) -> Option<i64> {
        match self.get(key) {
            Some(Value::Int(it)) => Some(it),
            _ => None,
        }
    }

    /// An address: C++ writes those from 2^63 on as negative numbers.
    #[inline]
    pub(super) fn address(&self, key: Word) -> Option<u64> {
        self.int(key).map(i64::cast_unsigned)
    }

    /// A size; none when it is negative.
    #[inline]
    pub(super) fn size(&self, key: Word) -> Option<crate::units::Bytes> {
        self.int(key).and_then(|it| u64::try_from(it).ok()).map(crate::units::Bytes)
    }

    #[inline]
    pub(super) fn text(&self, key: Word) -> Option<TextId> {
        match self.get(key) {
            Some(Value::Text(it)) => Some(it),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn object(&self, key: Word) -> Option<u32> {
        match self.get(key) {
            Some(Value::Object(it)) => Some(it),
            _ => None,
        }
    }

    pub(super) fn bool(&self, key: Word) -> bool {
        matches!(self.get(key), Some(Value::Bool(true)))
    }

    /// The entries of `roundup_power2_divisions`; none if the dict has none.
    pub(super) fn divisions(&self) -> Option<[u32; 16]> {
        let first = Word::D0 as usize;
        let mut res = [0; 16];
        let mut is_some = false;
        for (i, entry) in res.iter_mut().enumerate() {
            if self.is_set & (1 << (first + i)) != 0
                && let Value::Int(it) = self.fields[first + i]
            {
                *entry = u32::try_from(it).unwrap_or(0);
                is_some = true;
            }
        }
        is_some.then_some(res)
    }
}
