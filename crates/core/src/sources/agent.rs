//! `agent.jsonl`: the notes of the agent, one JSON object a line, each with its `kind`. Format
//! version 1. Unknown kinds and keys are a later agent's and are left out without a word; a line that
//! is broken is left out with one.

use serde::{Deserialize, Deserializer};

use crate::{
    codes::{AlarmCode, RemarkCode},
    recording::{
        Alarm, AlarmNote, AskedSize, Begin, CodeLine, DeviceStats, End, EndReason, Exception,
        FirstStep, HostNote, Later, Mark, MarkKind, NamedTensor, Notes, OomNote, PhantomReport,
        Phase, Place, ReadNote, Redone, RedoneNote, RedoneWay, Remark, Role, Spread, StacksNote,
        StepTimes, Tensors, Unsupported, contract::ProcessFile,
    },
    sources::{
        Problem, Warning,
        json_lines::{for_each_line, one_line},
        modes::{self, Mode},
        phantom::ReportLine,
    },
    units::Bytes,
};

/// The newest format that we read.
const NEWEST: u64 = 1;

/// Sentences that a recording has at most, and the bytes of one.
const MOST_REMARKS: usize = 500;
const MOST_REMARK: usize = 4000;

/// Reads the agent's notes, and the phantom's report if the agent passed it on.
pub fn read(bytes: &[u8], warnings: &mut Vec<Warning>) -> (Notes, Option<PhantomReport>) {
    let mut notes = Notes::default();
    let mut phantom = None;
    let mut seen_modes = Vec::new();
    for_each_line(bytes, ProcessFile::Notes, warnings, |line: Line| {
        match line {
            Line::Begin(it) => {
                if NEWEST < it.format {
                    return Err(Problem::NewerFormat { found: it.format, newest: NEWEST });
                }
                notes.begin = Some(it.into());
            }
            Line::Architectures { values } => notes.architectures = values,
            Line::Mark(it) => {
                let evaluation = it.mode.as_deref().map(|it| it == "evaluation");
                let mark = it.into_mark();
                if let (Some(_), Some(evaluation)) = (&mark, evaluation) {
                    seen_modes.push(Mode { mark: notes.marks.len(), evaluation });
                }
                notes.marks.extend(mark);
            }
            Line::Tensors(it) => notes.tensors.push(it.into()),
            Line::Oom(it) => notes.ooms.push(it.into()),
            Line::Redone(it) => notes.redone.extend(it.into_note()),
            Line::Read(it) => notes.reads.push(it.into()),
            Line::AskedSize { call, at } => {
                notes.asked_size.push(AskedSize { call: one_line(call), at: Some(at.into()) });
            }
            // The agent writes each sentence once, and has few.
            Line::Note { code, text } if notes.remarks.len() < MOST_REMARKS => {
                let code = RemarkCode::of_word(clipped(code));
                notes.remarks.push(Remark { code, text: clipped(text) });
            }
            Line::Note { .. } => {}
            Line::Unsupported { reason, text, torch } => {
                let (reason, text) = (one_line(reason), one_line(text));
                let torch = torch.map(one_line);
                notes.unsupported = Some(Unsupported { reason, text, torch });
            }
            Line::Stacks { kept, place } => {
                notes.stacks.push(StacksNote { kept, place: place.into() });
            }
            Line::Phantom(it) => phantom = Some(it.into()),
            Line::FirstStep(it) => notes.first_steps.push(it.into()),
            Line::StepTimes(it) => notes.step_times = Some(it.into()),
            Line::Host(it) => notes.host = Some(it.into()),
            Line::Stats(it) => notes.stats.push(it.into()),
            Line::Alarm(it) => notes.alarms.extend(it.into_note()),
            Line::Cut { why } => notes.cut = Some(clipped(why)),
            Line::Waited { seconds } => notes.waited = Some(seconds),
            Line::End(it) => notes.end = Some(it.into()),
            Line::Unknown => {}
        }
        Ok(())
    });
    modes::settle(&mut notes.marks, &seen_modes);
    let marks = std::mem::take(&mut notes.marks);
    notes.ooms.iter_mut().for_each(|it| modes::settle_oom(it, &marks));
    notes.marks = marks;
    (notes, phantom)
}

/// As much of a sentence as is shown.
fn clipped(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MOST_REMARK));
    one_line(text)
}

/// One line as it is written.
#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Line {
    Begin(BeginLine),
    Architectures {
        #[serde(default)]
        values: Vec<u32>,
    },
    Mark(MarkLine),
    Tensors(TensorsLine),
    Stacks {
        kept: bool,
        #[serde(flatten)]
        place: PlaceKeys,
    },
    Oom(OomLine),
    Redone(RedoneLine),
    Read(ReadLine),
    #[serde(rename = "asked_size")]
    AskedSize {
        call: String,
        #[serde(flatten)]
        at: CodeText,
    },
    Note {
        #[serde(default)]
        code: String,
        text: String,
    },
    Unsupported {
        #[serde(default)]
        reason: String,
        text: String,
        torch: Option<String>,
    },
    Phantom(ReportLine),
    #[serde(rename = "first_step")]
    FirstStep(FirstStepLine),
    #[serde(rename = "step_times")]
    StepTimes(StepTimesLine),
    Host(HostLine),
    Stats(StatsLine),
    Alarm(AlarmLine),
    Cut {
        #[serde(default)]
        why: String,
    },
    Waited {
        #[serde(default)]
        seconds: f64,
    },
    End(EndLine),
    #[serde(other)]
    Unknown,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct BeginLine {
    #[serde(deserialize_with = "or_default")]
    format: u64,
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
    #[serde(deserialize_with = "or_default")]
    child: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PlaceKeys {
    #[serde(deserialize_with = "or_default")]
    allocs: Vec<u64>,
    #[serde(deserialize_with = "or_default")]
    frees: Vec<u64>,
}

#[derive(Debug, Deserialize)]
struct MarkLine {
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
struct HostLine {
    peak: Option<u64>,
    swapped: Option<u64>,
    pinned: Option<u64>,
    total: Option<u64>,
    shm: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct TensorsLine {
    #[serde(flatten)]
    place: PlaceKeys,
    #[serde(default, deserialize_with = "or_default")]
    device: usize,
    #[serde(default, deserialize_with = "or_default")]
    entries: Vec<TensorLine>,
}

#[derive(Debug, Deserialize)]
struct TensorLine {
    #[serde(default, deserialize_with = "or_default")]
    name: String,
    role: String,
    address: u64,
    #[serde(default, deserialize_with = "or_default")]
    bytes: u64,
    #[serde(default)]
    model: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OomLine {
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
    #[serde(flatten)]
    place: PlaceKeys,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RedoneLine {
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
    fn into_note(self) -> Option<RedoneNote> {
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
struct AlarmLine {
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
    fn into_note(self) -> Option<AlarmNote> {
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

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CodeText {
    #[serde(deserialize_with = "or_default")]
    file: String,
    #[serde(deserialize_with = "or_default")]
    line: u32,
    #[serde(deserialize_with = "or_default")]
    function: String,
    text: Option<String>,
}

#[derive(Debug, Deserialize)]
struct ReadLine {
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
struct FirstStepLine {
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
struct StepTimesLine {
    device: Option<SpreadKeys>,
    #[serde(deserialize_with = "or_default")]
    host: SpreadKeys,
    #[serde(deserialize_with = "or_default")]
    left_out: u64,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct SpreadKeys {
    count: u64,
    median: f64,
    low: f64,
    high: f64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StatsLine {
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
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct EndLine {
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
    seconds_imports: f64,
    #[serde(deserialize_with = "or_default")]
    seconds: f64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LaterLine {
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
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ExceptionLine {
    #[serde(rename = "type")]
    #[serde(deserialize_with = "or_default")]
    class: String,
    #[serde(deserialize_with = "or_default")]
    message: String,
    user_frame: Option<CodeText>,
}

/// `null` is what Python writes for what it does not know.
fn or_default<'a, T: Default + Deserialize<'a>, D: Deserializer<'a>>(
    from: D,
) -> Result<T, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

impl MarkLine {
    /// None for a mark that a later agent makes.
    fn into_mark(self) -> Option<Mark> {
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
        _ => return None,
    })
}

impl From<BeginLine> for Begin {
    fn from(it: BeginLine) -> Begin {
        let BeginLine { format: _, argv, cwd, python, torch, script, rank, world_size, child } = it;
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
            is_child: child,
        }
    }
}

impl From<PlaceKeys> for Place {
    fn from(it: PlaceKeys) -> Place {
        Place { allocs: it.allocs, frees: it.frees }
    }
}

impl From<TensorsLine> for Tensors {
    fn from(it: TensorsLine) -> Tensors {
        let entries = it.entries.into_iter().filter_map(|it| {
            let role = match it.role.as_str() {
                "parameter" => Role::Parameter,
                "gradient" => Role::Gradient,
                "buffer" => Role::Buffer,
                "optimizer_state" => Role::OptimizerState,
                "input" => Role::Input,
                _ => return None,
            };
            let TensorLine { name, address, bytes, model, .. } = it;
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
            place: it.place.into(),
        }
    }
}

impl From<CodeText> for CodeLine {
    fn from(it: CodeText) -> CodeLine {
        let CodeText { file, line, function, text } = it;
        // A tab is a blank of any width.
        let text = text.unwrap_or_default().trim().replace('\t', " ");
        let [file, function, text] = [file, function, text].map(one_line);
        CodeLine { file, line, function, text }
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
        }
    }
}

impl From<EndLine> for End {
    fn from(it: EndLine) -> End {
        End {
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
            exception: it.exception.map(|it| Exception {
                class: one_line(it.class),
                message: it.message,
                user_frame: it.user_frame.map(CodeLine::from),
            }),
            later: it.later.map(|it| Later {
                steps_before: it.steps_before,
                evaluation: it.evaluation,
                evaluation_cut: it.evaluation_cut,
                epochs_cut: it.epochs_cut,
                spoken_of: it.spoken_of,
            }),
            seconds_imports: it.seconds_imports,
            seconds: it.seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::contract::NoteKind;

    #[test]
    fn sentences_are_few_and_short() {
        let line = format!(r#"{{"kind":"note","code":"c","text":"{}"}}"#, "\u{e9}".repeat(9000));
        let bytes = (line + "\n").repeat(1000);
        let remarks = read(bytes.as_bytes(), &mut Vec::new()).0.remarks;
        assert_eq!((remarks.len(), remarks[0].text.len()), (MOST_REMARKS, MOST_REMARK));
    }

    #[test]
    fn each_kind_that_we_read_is_called_as_the_contract_calls_it() {
        let known = |it: &NoteKind| {
            let line = format!(r#"{{"kind":"{}"}}"#, it.word());
            // A known kind that lacks its keys is an error; an unknown one is none.
            !matches!(serde_json::from_str(&line), Ok(Line::Unknown))
        };
        let read: Vec<&str> =
            NoteKind::ALL.iter().filter(|it| known(it)).map(|it| it.word()).collect();
        assert_eq!(
            read.join(" "),
            "begin architectures mark tensors stacks oom redone read asked_size note unsupported phantom first_step step_times host stats alarm cut waited end"
        );
    }

    fn read_all(text: &str) -> (Notes, Option<PhantomReport>, Vec<String>) {
        let mut warnings = Vec::new();
        let (notes, phantom) = read(text.as_bytes(), &mut warnings);
        (notes, phantom, warnings.iter().map(Warning::to_string).collect())
    }

    #[test]
    fn reads_each_kind_and_leaves_out_what_a_later_agent_adds() {
        let (notes, phantom, warnings) = read_all(
            r#"{"kind":"begin","format":1,"pid":7,"argv":["train.py","--lr","1"],"cwd":null,"python":"3.11.7","torch":"2.11.0+cu130","script":"/home/user/train.py","rank":null,"world_size":null,"moon":"full"}
{"kind":"weather","sun":true}
{"kind":"mark","what":"phase_begin","step":0,"phase":"forward","allocs":[12,0],"frees":[3,0],"reserved":[2097152],"allocated":[512],"t":1.5}
{"kind":"mark","what":"phase_begin","step":0,"phase":"daydream","allocs":[12],"frees":[3]}
{"kind":"mark","what":"step_end","step":1,"phase":null,"allocs":[20],"frees":[9],"reserved":[0],"allocated":[0],"t":2,"host":4096,"workers":null}
{"kind":"tensors","allocs":[12],"frees":[3],"device":0,"entries":[{"name":"wte.weight","role":"parameter","address":140737488355328,"bytes":4096,"model":"GPT2"},{"name":"x","role":"hat","address":1}]}
{"kind":"read","file":"/home/user/train.py","line":9,"function":"main","text":"  if loss.item() > 3:","count":4,"bytes":16}
{"kind":"note","code":"torch-compile","text":"torch.compile was used"}
{"kind":"host","peak":8192,"swapped":0,"pinned":null,"total":1048576,"shm":65536}
{"kind":"stats","device":0,"peak_allocated":1024,"peak_reserved":2097152,"allocs":20,"frees":9,"retries":0,"ooms":0,"segments":1}
{"kind":"phantom","devices":[{"total_bytes":1000,"context_bytes":100,"used_bytes":300,"peak_bytes":400,"other_peak_bytes":5}],"launches":9,"not_imitated":[{"name":"cudaFoo","library":"cudart","answer":"error 801","count":2}],"approximated":[],"unknown_reads":{"count":1,"bytes":4}}
{"kind":"end","why":"steady","steps":3,"steady":true,"exit_code":null,"exception":null,"seconds_imports":2.5,"seconds":4.0}
"#,
        );
        assert_eq!(warnings, Vec::<String>::new());
        assert_eq!(notes.begin.map(|it| it.argv.len()), Some(3));
        assert_eq!(notes.marks.len(), 2);
        assert_eq!(notes.marks[0].kind, MarkKind::Begin(Phase::Forward));
        assert_eq!(notes.marks[0].place, Place { allocs: vec![12, 0], frees: vec![3, 0] });
        assert_eq!((notes.marks[1].host, notes.marks[1].workers), (Some(Bytes::kib(4)), None));
        assert_eq!(notes.host.unwrap().total, Some(Bytes::mib(1)));
        assert_eq!(notes.tensors[0].entries.len(), 1);
        assert_eq!(notes.reads[0].at.text, "if loss.item() > 3:");
        assert_eq!(notes.stats[0].peak_allocated, Bytes::kib(1));
        assert_eq!(notes.end.map(|it| (it.why, it.steps)), Some((EndReason::Steady, 3)));
        let phantom = phantom.unwrap();
        assert_eq!(phantom.devices[0].other_peak, Bytes(5));
        assert_eq!((phantom.not_imitated[0].count, phantom.unknown_reads), (2, 1));
    }

    #[test]
    fn what_is_cut_or_was_ended_says_so() {
        let (notes, _, warnings) = read_all(
            "{\"kind\":\"begin\",\"child\":true}\n{\"kind\":\"cut\",\"why\":\"File too large\"}\n\
             {\"kind\":\"waited\",\"seconds\":3.2}\n",
        );
        assert_eq!((notes.cut.as_deref(), notes.waited), (Some("File too large"), Some(3.2)));
        assert!(notes.begin.unwrap().is_child);
        assert_eq!(warnings, [""; 0]);
    }

    #[test]
    fn a_torn_end_and_a_broken_line_are_warnings() {
        let (notes, _, warnings) = read_all(
            "{\"kind\":\"note\",\"text\":\"one\"}\nnot json\n\n{\"kind\":\"note\",\"text\":\"two\"}\n{\"kind\":\"no",
        );
        assert_eq!(notes.remarks.len(), 2);
        assert_eq!(
            warnings,
            [
                "agent.jsonl, line 2: left out a line: expected ident at line 1 column 2",
                "agent.jsonl, line 5: the last line is torn; left out",
            ]
        );
    }

    #[test]
    fn a_newer_format_says_what_to_do() {
        let (_, _, warnings) = read_all("{\"kind\":\"begin\",\"format\":2}\n");
        assert_eq!(
            warnings,
            [
                "agent.jsonl, line 1: format 2 is newer than this program, which reads up to 1; update it"
            ]
        );
    }
}
