//! What one process noted of its run: steps, phases, names, errors, how it ended.

use serde::Deserialize;

use super::lines::{CodeText, PlaceKeys, clipped, or_default};
use crate::{
    codes::AlarmCode,
    failures::Verdict,
    recording::{
        Ahead, Alarm, AlarmNote, Begin, CodeLine, CutLoop, DeviceStats, End, EndReason, EngineNote,
        Exception, FirstGpu, FirstStep, Form, GraphNote, HostNote, InPieces, Keeper, Keepers,
        LargeBatch, Later, LoopLines, LoopStage, Mark, MarkKind, Mentions, Models, NamedTensor,
        OomNote, Operand, OtherFlag, Padding, Phase, ReadNote, Recast, Redone, RedoneNote,
        RedoneWay, Refusal, Role, Shape, Spread, StepTimes, Table, Tensors, Unfolded, Unlimited,
        Unowned, WaitsIn, WrittenOut,
    },
    sources::{json_lines::one_line, oom_text},
    units::Bytes,
};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct BeginLine {
    #[serde(deserialize_with = "or_default")]
    pub(super) format: u64,
    #[serde(deserialize_with = "or_default")]
    argv: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    cwd: String,
    #[serde(deserialize_with = "or_default")]
    python: String,
    #[serde(deserialize_with = "or_default")]
    torch: String,
    script: Option<String>,
    rank: Option<u32>,
    world_size: Option<u32>,
    machine: Option<u32>,
    #[serde(deserialize_with = "or_default")]
    child: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct EngineLine {
    #[serde(deserialize_with = "or_default")]
    name: String,
    total: Option<u64>,
    share: Option<f64>,
    weights: Option<i64>,
    forward: Option<i64>,
    beside: Option<i64>,
    graphs: Option<i64>,
    states: Option<u64>,
    available: Option<i64>,
    longest_asked: Option<u64>,
    dtype: Option<String>,
    batched_tokens: Option<u64>,
    #[serde(deserialize_with = "or_default")]
    eager: bool,
    #[serde(deserialize_with = "or_default")]
    needs: Vec<(u64, u64)>,
    shortest: Option<u64>,
    blocks: Option<u64>,
    cache: Option<u64>,
    tokens: Option<u64>,
    refused: Option<String>,
    free_at_start: Option<u64>,
    at_once: Option<u64>,
    longest: Option<u64>,
    users: Option<u64>,
    #[serde(deserialize_with = "or_default")]
    ready: bool,
    free_when_ready: Option<u64>,
    least: Option<f64>,
    least_for_longest: Option<f64>,
    longest_pass: Option<u64>,
    #[serde(deserialize_with = "or_default")]
    instead: Vec<(String, u64, i64)>,
    #[serde(deserialize_with = "or_default")]
    own_share: bool,
}

impl From<EngineLine> for EngineNote {
    fn from(it: EngineLine) -> EngineNote {
        // An engine may find less than nothing.
        let size = |it: Option<i64>| it.map(|it| Bytes(u64::try_from(it).unwrap_or(0)));
        EngineNote {
            name: one_line(it.name),
            total: it.total.map(Bytes),
            share: it.share,
            weights: size(it.weights),
            forward: size(it.forward),
            beside: size(it.beside),
            graphs: size(it.graphs),
            states: it.states.map(Bytes),
            available: size(it.available),
            longest_asked: it.longest_asked,
            dtype: it.dtype.map(one_line),
            batched_tokens: it.batched_tokens,
            eager: it.eager,
            needs: it.needs.into_iter().map(|(length, bytes)| (length, Bytes(bytes))).collect(),
            shortest: it.shortest.map(Bytes),
            blocks: it.blocks,
            cache: it.cache.map(Bytes),
            tokens: it.tokens,
            refused: it.refused.map(|text| refusal(clipped(text))),
            free_at_start: it.free_at_start.map(Bytes),
            at_once: it.at_once,
            longest: it.longest,
            users: it.users,
            is_ready: it.ready,
            free_when_ready: it.free_when_ready.map(Bytes),
            least: it.least,
            least_for_longest: it.least_for_longest,
            longest_pass: it.longest_pass,
            instead: (it.instead.into_iter())
                .map(|(flag, tokens, freed)| OtherFlag {
                    flag: one_line(flag),
                    tokens,
                    freed: Bytes(u64::try_from(freed).unwrap_or(0)),
                })
                .collect(),
            is_own_share: it.own_share,
        }
    }
}

/// What an engine says when it does not start; its words, where they are not known.
fn refusal(text: String) -> Refusal {
    match oom_text::read(&text).into_iter().next().map(|it| it.verdict()) {
        Some(Verdict { why, remedies, .. }) => Refusal { why, remedies },
        None => Refusal { why: text, remedies: Vec::new() },
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct MarkLine {
    what: String,
    #[serde(default, deserialize_with = "or_default")]
    step: u32,
    phase: Option<String>,
    mode: Option<String>,
    #[serde(flatten)]
    place: PlaceKeys,
    #[serde(default, deserialize_with = "or_default")]
    reserved: Vec<u64>,
    #[serde(default, deserialize_with = "or_default")]
    allocated: Vec<u64>,
    #[serde(default, deserialize_with = "or_default")]
    t: f64,
    host: Option<u64>,
    workers: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct HostLine {
    peak: Option<u64>,
    swapped: Option<u64>,
    pinned: Option<u64>,
    total: Option<u64>,
    shm: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct TensorsLine {
    #[serde(flatten)]
    place: PlaceKeys,
    #[serde(default, deserialize_with = "or_default")]
    device: usize,
    #[serde(default, deserialize_with = "or_default")]
    entries: Vec<TensorLine>,
}

#[derive(Debug, Deserialize)]
pub(super) struct TensorLine {
    #[serde(default, deserialize_with = "or_default")]
    name: String,
    role: String,
    address: u64,
    #[serde(default, deserialize_with = "or_default")]
    bytes: u64,
    #[serde(default)]
    model: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct KeepersLine {
    #[serde(flatten)]
    place: PlaceKeys,
    #[serde(default, deserialize_with = "or_default")]
    device: usize,
    #[serde(default, deserialize_with = "or_default")]
    entries: Vec<KeeperLine>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct KeeperLine {
    #[serde(rename = "where", deserialize_with = "or_default")]
    name: String,
    #[serde(deserialize_with = "or_default")]
    what: String,
    #[serde(deserialize_with = "or_default")]
    tensors: u64,
    #[serde(deserialize_with = "or_default")]
    bytes: u64,
    #[serde(deserialize_with = "or_default")]
    nodes: u64,
    members: Option<u64>,
    limit: Option<u64>,
    #[serde(deserialize_with = "or_default")]
    addresses: Vec<u64>,
    line: Option<CodeText>,
    inner: Option<CodeText>,
    link: Option<String>,
    #[serde(deserialize_with = "or_default")]
    shape: Vec<u64>,
    #[serde(rename = "type", deserialize_with = "or_default")]
    dtype: String,
    #[serde(rename = "sparse", deserialize_with = "or_default")]
    is_sparse: bool,
    unlimited: Option<UnlimitedKeys>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct UnlimitedKeys {
    #[serde(deserialize_with = "or_default")]
    kind: String,
    #[serde(deserialize_with = "or_default")]
    entries: u64,
}

impl From<KeepersLine> for Keepers {
    fn from(it: KeepersLine) -> Keepers {
        let keeper = |keeper: KeeperLine| Keeper {
            name: clipped(one_line(keeper.name)),
            what: keeper.what,
            tensors: keeper.tensors,
            nodes: keeper.nodes,
            limit: keeper.members.zip(keeper.limit),
            addresses: keeper.addresses,
            at: keeper.line.map(CodeLine::from),
            inner: keeper.inner.map(CodeLine::from),
            link: keeper.link.map(one_line).map(clipped),
            is_sparse: keeper.is_sparse,
            of_largest: Shape { sizes: keeper.shape, dtype: clipped(one_line(keeper.dtype)) },
            unlimited: keeper.unlimited.and_then(|it| {
                let waits_in = match it.kind.as_str() {
                    "queue" => WaitsIn::Queue,
                    "deque" => WaitsIn::Deque,
                    "results" => WaitsIn::Results,
                    _ => return None,
                };
                // Of an empty one, what was taken from it last is told.
                let each = Bytes(keeper.bytes / it.entries.max(1));
                Some(Unlimited { waits_in, entries: it.entries, each })
            }),
        };
        let entries = it.entries.into_iter().map(keeper).collect();
        Keepers { place: it.place.into(), device: it.device, entries }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct GraphLine {
    #[serde(deserialize_with = "or_default")]
    attention: Vec<WrittenOutKeys>,
    #[serde(deserialize_with = "or_default")]
    casts: Vec<RecastKeys>,
    #[serde(deserialize_with = "or_default")]
    unowned: Vec<UnownedKeys>,
    #[serde(deserialize_with = "or_default")]
    tables: Vec<TableKeys>,
    #[serde(deserialize_with = "or_default")]
    unused: Vec<UnusedKeys>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct UnusedKeys {
    name: String,
    #[serde(flatten)]
    lines: LoopText,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WrittenOutKeys {
    shape: [u64; 3],
    count: u64,
    saved: Vec<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RecastKeys {
    name: String,
    bytes: u64,
    copies: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct UnownedKeys {
    model: Option<String>,
    part: Option<String>,
    names: Vec<String>,
    bytes: u64,
    needed: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TableKeys {
    name: String,
    bytes: u64,
    rows: u64,
    used: u64,
    bags: bool,
}

impl From<GraphLine> for GraphNote {
    fn from(it: GraphLine) -> GraphNote {
        let written_out = |keys: WrittenOutKeys| WrittenOut {
            shape: keys.shape,
            count: keys.count,
            saved: keys.saved.into_iter().map(Bytes).collect(),
        };
        let recast = |keys: RecastKeys| Recast {
            name: clipped(one_line(keys.name)),
            bytes: Bytes(keys.bytes),
            copies: keys.copies,
        };
        let unowned = |keys: UnownedKeys| Unowned {
            model: keys.model.map(one_line).map(clipped),
            part: keys.part.map(one_line).map(clipped),
            names: keys.names.into_iter().map(one_line).collect(),
            bytes: Bytes(keys.bytes),
            is_needed: keys.needed,
        };
        let table = |keys: TableKeys| Table {
            name: clipped(one_line(keys.name)),
            bytes: Bytes(keys.bytes),
            rows: keys.rows,
            used: keys.used,
            is_of_bags: keys.bags,
        };
        GraphNote {
            attention: it.attention.into_iter().map(written_out).collect(),
            casts: it.casts.into_iter().map(recast).collect(),
            unowned: it.unowned.into_iter().map(unowned).collect(),
            tables: it.tables.into_iter().map(table).collect(),
            unused: it
                .unused
                .into_iter()
                .map(|it| (clipped(one_line(it.name)), it.lines.into()))
                .collect(),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PaddingLine {
    length: u64,
    longest: u64,
    batches: u64,
}

impl From<PaddingLine> for Padding {
    fn from(it: PaddingLine) -> Padding {
        let PaddingLine { length, longest, batches } = it;
        Padding { length, longest, batches }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct InPiecesLine {
    module: String,
    bytes: u64,
}

impl From<InPiecesLine> for InPieces {
    fn from(it: InPiecesLine) -> InPieces {
        InPieces { module: clipped(one_line(it.module)), bytes: Bytes(it.bytes) }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct UnfoldedLine {
    copies: u64,
    bytes: u64,
}

impl From<UnfoldedLine> for Unfolded {
    fn from(it: UnfoldedLine) -> Unfolded {
        Unfolded { copies: it.copies, bytes: Bytes(it.bytes) }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ModelsLine {
    model: String,
    count: u64,
    bytes: u64,
}

impl From<ModelsLine> for Models {
    fn from(it: ModelsLine) -> Models {
        Models { model: one_line(it.model), count: it.count, bytes: Bytes(it.bytes) }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LargeBatchLine {
    rows_in_training: u64,
    elements_in_training: u64,
    rows: u64,
    elements: u64,
}

impl From<LargeBatchLine> for LargeBatch {
    fn from(it: LargeBatchLine) -> LargeBatch {
        let LargeBatchLine { rows_in_training, elements_in_training, rows, elements } = it;
        LargeBatch { rows_in_training, elements_in_training, rows, elements }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct FirstGpuLine {
    #[serde(default, deserialize_with = "or_default")]
    way: String,
    #[serde(default, deserialize_with = "or_default")]
    bytes: u64,
    at: CodeText,
}

impl From<FirstGpuLine> for FirstGpu {
    fn from(it: FirstGpuLine) -> FirstGpu {
        FirstGpu { is_load: it.way == "load", bytes: Bytes(it.bytes), at: it.at.into() }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct OomLine {
    #[serde(deserialize_with = "or_default")]
    device: usize,
    #[serde(deserialize_with = "or_default")]
    step: u32,
    phase: Option<String>,
    #[serde(deserialize_with = "or_default")]
    requested: u64,
    #[serde(deserialize_with = "or_default")]
    message: String,
    #[serde(deserialize_with = "or_default")]
    stack: Vec<CodeText>,
    user_frame: Option<CodeText>,
    caught: Option<bool>,
    #[serde(deserialize_with = "or_default")]
    goes_back: bool,
    #[serde(rename = "loop")]
    around: Option<LoopText>,
    #[serde(deserialize_with = "or_default")]
    written: Vec<WrittenText>,
    #[serde(deserialize_with = "or_default")]
    operands: Vec<OperandKeys>,
    gpu: Option<String>,
    #[serde(flatten)]
    place: PlaceKeys,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LoopText {
    file: String,
    line: u32,
    last: u32,
}

impl From<LoopText> for LoopLines {
    fn from(it: LoopText) -> LoopLines {
        LoopLines { file: it.file, first: it.line, last: it.last }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WrittenText {
    form: String,
    #[serde(flatten)]
    lines: LoopText,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OperandKeys {
    name: String,
    value: Option<i64>,
    #[serde(deserialize_with = "or_default")]
    shape: Vec<u64>,
    #[serde(rename = "type", deserialize_with = "or_default")]
    dtype: String,
    members: Option<u64>,
}

impl From<OperandKeys> for Operand {
    fn from(it: OperandKeys) -> Operand {
        let of_tensor = Shape { sizes: it.shape, dtype: clipped(one_line(it.dtype)) };
        Operand {
            name: clipped(one_line(it.name)),
            value: it.value,
            of_tensor,
            members: it.members,
        }
    }
}

impl WrittenText {
    fn known(self) -> Option<(LoopLines, Form)> {
        Form::of_word(&self.form).map(|form| (self.lines.into(), form))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RedoneLine {
    #[serde(deserialize_with = "or_default")]
    step: u32,
    phase: Option<String>,
    user_frame: Option<CodeText>,
    #[serde(deserialize_with = "or_default")]
    asked: String,
    way: Option<String>,
    #[serde(deserialize_with = "or_default")]
    seconds: f64,
    refused: Option<String>,
}

impl RedoneLine {
    /// None if it is a way that we do not know.
    pub(super) fn into_note(self) -> Option<RedoneNote> {
        let how = match self.refused {
            Some(why) => Redone::Refused(clipped(why)),
            None => Redone::As(way(&self.way?)?, self.seconds),
        };
        Some(RedoneNote {
            step: self.step,
            phase: self.phase.as_deref().and_then(phase),
            user_frame: self.user_frame.map(CodeLine::from),
            asked: clipped(self.asked),
            how,
        })
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct AlarmLine {
    code: String,
    #[serde(deserialize_with = "or_default")]
    step: u64,
    #[serde(deserialize_with = "or_default")]
    device: u32,
    #[serde(deserialize_with = "or_default")]
    unix: f64,
    #[serde(deserialize_with = "or_default")]
    room: u64,
    #[serde(deserialize_with = "or_default")]
    per_step: u64,
    #[serde(deserialize_with = "or_default")]
    grown: u64,
    #[serde(deserialize_with = "or_default")]
    since: u64,
    #[serde(deserialize_with = "or_default")]
    runs_out_at: u64,
    look: Option<String>,
    #[serde(deserialize_with = "or_default")]
    expected: u64,
    #[serde(deserialize_with = "or_default")]
    reserved: u64,
    #[serde(deserialize_with = "or_default")]
    needed: u64,
    #[serde(deserialize_with = "or_default")]
    taken: u64,
    #[serde(deserialize_with = "or_default")]
    free: u64,
    uuid: Option<String>,
    #[serde(deserialize_with = "or_default")]
    useless: u64,
    #[serde(deserialize_with = "or_default")]
    retries: u64,
}

impl AlarmLine {
    /// None if its code is one that we do not know.
    pub(super) fn into_note(self) -> Option<AlarmNote> {
        let what = match AlarmCode::of_word(&self.code)? {
            AlarmCode::Growth => Alarm::Growth {
                per_step: Bytes(self.per_step),
                grown: Bytes(self.grown),
                since: self.since,
                runs_out_at: self.runs_out_at,
                look: self.look,
            },
            AlarmCode::OverPlan => {
                Alarm::OverPlan { expected: Bytes(self.expected), reserved: Bytes(self.reserved) }
            }
            AlarmCode::Drift => Alarm::Drift {
                per_step: Bytes(self.per_step),
                needed: Bytes(self.needed),
                since: self.since,
                runs_out_at: self.runs_out_at,
            },
            AlarmCode::Neighbour => Alarm::Neighbour {
                taken: Bytes(self.taken),
                free: Bytes(self.free),
                uuid: self.uuid.map(one_line),
            },
            AlarmCode::Fragmentation => {
                Alarm::Fragmentation { useless: Bytes(self.useless), retries: self.retries }
            }
        };
        let Self { step, device, unix, room, .. } = self;
        Some(AlarmNote { step, device, at: unix, room: Bytes(room), what })
    }
}

fn way(word: &str) -> Option<RedoneWay> {
    match word.split_once(':') {
        Some(("parts", n)) => Some(RedoneWay::Parts(n.parse().ok()?)),
        Some(_) => None,
        None => match word {
            "again" => Some(RedoneWay::Again),
            "host" => Some(RedoneWay::OnHost),
            "room" => Some(RedoneWay::WithRoom),
            "chunks" => Some(RedoneWay::InChunks),
            _ => None,
        },
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct ReadLine {
    #[serde(flatten)]
    at: CodeText,
    #[serde(default, deserialize_with = "or_default")]
    count: u64,
    #[serde(default, deserialize_with = "or_default")]
    bytes: u64,
    #[serde(default, deserialize_with = "or_default")]
    sizes: u64,
    #[serde(default, deserialize_with = "or_default")]
    becomes_size: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct FirstStepLine {
    #[serde(deserialize_with = "or_default")]
    peak_allocated: u64,
    #[serde(deserialize_with = "or_default")]
    peak_reserved: u64,
    #[serde(deserialize_with = "or_default")]
    torch: String,
    #[serde(deserialize_with = "or_default")]
    gpu: String,
    #[serde(deserialize_with = "or_default")]
    inputs: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    retries: u64,
    device_free: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct StepTimesLine {
    device: Option<SpreadKeys>,
    #[serde(deserialize_with = "or_default")]
    host: SpreadKeys,
    #[serde(deserialize_with = "or_default")]
    left_out: u64,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SpreadKeys {
    count: u64,
    median: f64,
    low: f64,
    high: f64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct StatsLine {
    #[serde(deserialize_with = "or_default")]
    device: usize,
    #[serde(deserialize_with = "or_default")]
    peak_allocated: u64,
    #[serde(deserialize_with = "or_default")]
    peak_reserved: u64,
    #[serde(deserialize_with = "or_default")]
    allocs: u64,
    #[serde(deserialize_with = "or_default")]
    frees: u64,
    #[serde(deserialize_with = "or_default")]
    retries: u64,
    #[serde(deserialize_with = "or_default")]
    ooms: u64,
    #[serde(deserialize_with = "or_default")]
    segments: u64,
    #[serde(deserialize_with = "or_default")]
    limit: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct EndLine {
    #[serde(deserialize_with = "or_default")]
    why: String,
    #[serde(deserialize_with = "or_default")]
    steps: u32,
    #[serde(deserialize_with = "or_default")]
    steady: bool,
    #[serde(deserialize_with = "or_default")]
    has_optimizer: bool,
    exit_code: Option<i32>,
    signal: Option<i32>,
    exception: Option<ExceptionLine>,
    later: Option<LaterLine>,
    #[serde(deserialize_with = "or_default")]
    mentions: Vec<String>,
    failed_later: Option<String>,
    after_loops: Option<Box<CodeText>>,
    #[serde(deserialize_with = "or_default")]
    ahead: Box<AheadLine>,
    #[serde(deserialize_with = "or_default")]
    seconds_imports: f64,
    #[serde(deserialize_with = "or_default")]
    seconds: f64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct AheadLine {
    batches: Option<u64>,
    batches_an_epoch: Option<u64>,
    epochs: Option<u64>,
    steps: Option<u64>,
    stage: Option<Box<StageKeys>>,
    turns: Option<u64>,
    #[serde(deserialize_with = "or_default")]
    turned_at: Vec<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StageKeys {
    line: Option<CodeText>,
    name: String,
    turn: u64,
    turns: Option<u64>,
    from: Option<u64>,
    left_bytes: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LaterLine {
    #[serde(deserialize_with = "or_default")]
    steps_before: u32,
    #[serde(deserialize_with = "or_default")]
    evaluation: bool,
    #[serde(deserialize_with = "or_default")]
    evaluation_cut: bool,
    #[serde(deserialize_with = "or_default")]
    epochs_cut: bool,
    #[serde(deserialize_with = "or_default")]
    spoken_of: bool,
    awaited: Option<CodeText>,
    cut_loop: Option<Box<CutLoopKeys>>,
    #[serde(deserialize_with = "or_default")]
    brought_forward: bool,
    #[serde(deserialize_with = "or_default")]
    evaluated_at: Vec<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CutLoopKeys {
    line: Option<CodeText>,
    taken: u64,
    of: Option<u64>,
    rise: u64,
    lives: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ExceptionLine {
    #[serde(rename = "type")]
    #[serde(deserialize_with = "or_default")]
    class: String,
    #[serde(deserialize_with = "or_default")]
    message: String,
    user_frame: Option<CodeText>,
}

impl MarkLine {
    /// Whether the model was in evaluation mode, where that is said.
    pub(super) fn is_evaluation(&self) -> Option<bool> {
        self.mode.as_deref().map(|it| it == "evaluation")
    }

    /// None for a mark that a later agent makes.
    pub(super) fn into_mark(self) -> Option<Mark> {
        let phase = self.phase.as_deref().and_then(phase);
        let kind = match self.what.as_str() {
            "phase_begin" => MarkKind::Begin(phase?),
            "phase_end" => MarkKind::End(phase?),
            "step_end" => MarkKind::StepEnd,
            "training_begin" => MarkKind::TrainingBegin,
            _ => return None,
        };
        let bytes = |it: Vec<u64>| it.into_iter().map(Bytes).collect();
        Some(Mark {
            kind,
            step: self.step,
            place: self.place.into(),
            reserved: bytes(self.reserved),
            allocated: bytes(self.allocated),
            seconds: self.t,
            with_gradients: false,
            host: self.host.map(Bytes),
            workers: self.workers.map(Bytes),
        })
    }
}

fn phase(word: &str) -> Option<Phase> {
    Some(match word {
        "forward" => Phase::Forward,
        "backward" => Phase::Backward,
        "optimizer" => Phase::Optimizer,
        "zero_grad" => Phase::ZeroGrad,
        "evaluation" => Phase::Evaluation,
        "saving" => Phase::Saving,
        "merging" => Phase::Merging,
        _ => return None,
    })
}

impl From<BeginLine> for Begin {
    fn from(it: BeginLine) -> Begin {
        let BeginLine { format: _, argv, cwd, python, torch, script, .. } = it;
        let BeginLine { rank, world_size, machine, child, .. } = it;
        let argv = argv.into_iter().map(one_line).collect();
        let [cwd, python, torch] = [cwd, python, torch].map(one_line);
        Begin {
            argv,
            cwd,
            python,
            torch,
            script: script.map(one_line),
            rank,
            world_size,
            machine,
            is_child: child,
        }
    }
}

impl From<TensorsLine> for Tensors {
    fn from(it: TensorsLine) -> Tensors {
        let entries = it.entries.into_iter().filter_map(|entry| {
            let role = match entry.role.as_str() {
                "parameter" => Role::Parameter,
                "gradient" => Role::Gradient,
                "buffer" => Role::Buffer,
                "optimizer_state" => Role::OptimizerState,
                "input" => Role::Input,
                _ => return None,
            };
            let TensorLine { name, address, bytes, model, .. } = entry;
            let [name, model] = [name, model.unwrap_or_default()].map(one_line);
            Some(NamedTensor { name, role, address, size: Bytes(bytes), model })
        });
        let entries = entries.collect();
        Tensors { place: it.place.into(), device: it.device, entries }
    }
}

impl From<OomLine> for OomNote {
    fn from(it: OomLine) -> OomNote {
        OomNote {
            device: it.device,
            step: it.step,
            phase: it.phase.as_deref().and_then(phase),
            requested: Bytes(it.requested),
            message: it.message,
            stack: it.stack.into_iter().map(CodeLine::from).collect(),
            user_frame: it.user_frame.map(CodeLine::from),
            caught: it.caught,
            goes_back: it.goes_back,
            around: it.around.map(LoopLines::from),
            written: it.written.into_iter().filter_map(WrittenText::known).collect(),
            operands: it.operands.into_iter().map(Operand::from).collect(),
            gpu: it.gpu,
            place: it.place.into(),
        }
    }
}

impl From<ReadLine> for ReadNote {
    fn from(it: ReadLine) -> ReadNote {
        ReadNote {
            at: it.at.into(),
            count: it.count,
            bytes: Bytes(it.bytes),
            sizes: it.sizes,
            becomes_size: it.becomes_size,
        }
    }
}

impl From<FirstStepLine> for FirstStep {
    fn from(it: FirstStepLine) -> FirstStep {
        FirstStep {
            allocated: Bytes(it.peak_allocated),
            reserved: Bytes(it.peak_reserved),
            torch: one_line(it.torch),
            gpu: one_line(it.gpu),
            inputs: it.inputs.into_iter().map(one_line).collect(),
            retries: it.retries,
            free: it.device_free.map(Bytes),
        }
    }
}

impl From<StepTimesLine> for StepTimes {
    fn from(it: StepTimesLine) -> StepTimes {
        let spread = |SpreadKeys { count, median, low, high }| Spread { count, median, low, high };
        StepTimes { device: it.device.map(spread), host: spread(it.host), left_out: it.left_out }
    }
}

impl From<HostLine> for HostNote {
    fn from(it: HostLine) -> HostNote {
        let HostLine { peak, swapped, pinned, total, shm } = it;
        let [peak, swapped, pinned, total, shm] =
            [peak, swapped, pinned, total, shm].map(|it| it.map(Bytes));
        HostNote { peak, swapped, pinned, total, shm }
    }
}

impl From<StatsLine> for DeviceStats {
    fn from(it: StatsLine) -> DeviceStats {
        DeviceStats {
            device: it.device,
            peak_allocated: Bytes(it.peak_allocated),
            peak_reserved: Bytes(it.peak_reserved),
            allocs: it.allocs,
            frees: it.frees,
            retries: it.retries,
            ooms: it.ooms,
            segments: it.segments,
            limit: it.limit.map(Bytes),
        }
    }
}

impl From<EndLine> for End {
    fn from(mut it: EndLine) -> End {
        let awaited = it.later.as_mut().and_then(|later| later.awaited.take());
        let cut_loop = it.later.as_mut().and_then(|later| later.cut_loop.take());
        let stage = it.ahead.stage.take().and_then(|stage| {
            let line = CodeLine::from(stage.line?);
            let name = clipped(one_line(stage.name));
            let adds_up = stage.left_bytes.map(Bytes);
            let StageKeys { turn, turns, from, .. } = *stage;
            Some(LoopStage { line, name, turn, turns, from, adds_up })
        });
        End {
            stage,
            why: match it.why.as_str() {
                "steady" => EndReason::Steady,
                "steps" => EndReason::Steps,
                "hopeless" => EndReason::Hopeless,
                "exception" => EndReason::Exception,
                "oom" => EndReason::Oom,
                "interrupt" => EndReason::Interrupt,
                _ => EndReason::Exit,
            },
            steps: it.steps,
            steady: it.steady,
            has_optimizer: it.has_optimizer,
            exit_code: it.exit_code,
            signal: it.signal,
            exception: it.exception.map(|exception| Exception {
                class: one_line(exception.class),
                message: exception.message,
                user_frame: exception.user_frame.map(CodeLine::from),
            }),
            awaited: awaited.map(CodeLine::from),
            after_loops: it.after_loops.map(|it| CodeLine::from(*it)),
            cut_loop: cut_loop.and_then(|it| {
                let CutLoopKeys { line, taken, of, rise, lives } = *it;
                let line = CodeLine::from(line?);
                Some(CutLoop { line, taken, of, rise: Bytes(rise), lives: Bytes(lives) })
            }),
            mentions: Mentions {
                evaluation: it.mentions.iter().any(|it| it == "evaluation"),
                checkpoint: it.mentions.iter().any(|it| it == "checkpoint"),
            },
            later: it.later.map(|later| Later {
                steps_before: later.steps_before,
                evaluation: later.evaluation,
                evaluation_cut: later.evaluation_cut,
                epochs_cut: later.epochs_cut,
                spoken_of: later.spoken_of,
                brought_forward: later.brought_forward,
                evaluated_at: match later.evaluated_at[..] {
                    [first, second] => Some((first, second)),
                    _ => None,
                },
            }),
            failed_later: it.failed_later.map(clipped),
            ahead: Ahead {
                batches: it.ahead.batches,
                batches_an_epoch: it.ahead.batches_an_epoch,
                epochs: it.ahead.epochs,
                steps: it.ahead.steps,
                turns: it.ahead.turns,
            },
            turned_at: match it.ahead.turned_at[..] {
                [first, second] => Some((first, second)),
                _ => None,
            },
            seconds_imports: it.seconds_imports,
            seconds: it.seconds,
        }
    }
}
