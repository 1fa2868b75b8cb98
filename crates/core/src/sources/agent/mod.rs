//! `agent.jsonl`: the notes of the agent, one JSON object a line, each with its `kind`. Format
//! version 1. Unknown kinds and keys are a later agent's and are left out without a word; a line that
//! is broken is left out with one.

mod lines;
mod plan_notes;
mod run_notes;
mod weights;

use serde::Deserialize;

use self::{
    lines::{CodeText, PlaceKeys, clipped, or_default},
    plan_notes::{ReadingKeys, RefusedLine, SitesLine, SplitLine, WorkKeys},
    run_notes::{
        AlarmLine, BeginLine, EndLine, EngineLine, FirstGpuLine, FirstStepLine, GraphLine,
        HostLine, InPiecesLine, KeepersLine, LargeBatchLine, MarkLine, ModelsLine, OomLine,
        PaddingLine, ReadLine, RedoneLine, StatsLine, StepTimesLine, TensorsLine, UnfoldedLine,
    },
    weights::WeightsLine,
};
use crate::{
    codes::RemarkCode,
    recording::{
        AskedSize, EngineNote, MarkKind, Models, Notes, PhantomReport, Remark, SettingsNote,
        StacksNote, Unsupported, WeightsNote,
        contract::{NoteKind, ProcessFile},
    },
    sources::{
        Problem, Warning,
        json_lines::{for_each_line, one_line},
        modes::{self, Mode},
        phantom::ReportLine,
    },
};

/// The newest format that we read.
const NEWEST: u64 = 1;

/// Sentences that a recording has at most.
const MOST_REMARKS: usize = 500;

/// Lines about graphs and batches that are read at most.
const MOST_GRAPHS: usize = 1000;
/// The agent writes so many ranks at most.
const MOST_STAGES: usize = 64;

/// Changes of the allocator's settings that are followed at most.
const MOST_CHANGES: usize = 10_000;

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
                let evaluation = it.is_evaluation();
                let mark = it.into_mark();
                if let (Some(_), Some(evaluation)) = (&mark, evaluation) {
                    seen_modes.push(Mode { mark: notes.marks.len(), evaluation });
                }
                notes.marks.extend(mark);
            }
            Line::Tensors(it) => notes.tensors.push(it.into()),
            Line::Keepers(it) => notes.keepers.push(it.into()),
            // The agent writes what is new, and 256 of each at most.
            Line::Graph(it) if notes.graphs.len() < MOST_GRAPHS => notes.graphs.push(it.into()),
            Line::Graph(_) => {}
            Line::LargeBatch(it) if notes.large_batches.len() < MOST_GRAPHS => {
                notes.large_batches.push(it.into());
            }
            Line::LargeBatch(_) => {}
            Line::Padding(it) => notes.padding = Some(it.into()),
            Line::InPieces(it) if notes.in_pieces.len() < MOST_GRAPHS => {
                notes.in_pieces.push(it.into());
            }
            Line::InPieces(_) => {}
            Line::Unfolded(it) if notes.unfolded.len() < MOST_GRAPHS => {
                notes.unfolded.push(it.into());
            }
            Line::Unfolded(_) => {}
            Line::Models(it) if notes.models.len() < MOST_GRAPHS => {
                let it = Models::from(it);
                notes.models.retain(|before| before.model != it.model);
                notes.models.push(it);
            }
            Line::Models(_) => {}
            Line::FirstGpu(it) if notes.first_gpu.len() < MOST_GRAPHS => {
                notes.first_gpu.push(it.into());
            }
            Line::FirstGpu(_) => {}
            Line::Stages { ranks } if ranks.len() <= MOST_STAGES => notes.stages = ranks,
            Line::Stages { .. } => {}
            Line::NamedRanks { ranks } if ranks.len() <= MOST_STAGES => notes.named_ranks = ranks,
            Line::NamedRanks { .. } => {}
            Line::Weights(it) => {
                let it = WeightsNote::from(it);
                notes.weights.retain(|before| before.model != it.model);
                notes.weights.push(it);
            }
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
            Line::Engine(it) => {
                let it = EngineNote::from(*it);
                notes.engine = Some(match notes.engine.take() {
                    Some(before) => before.and(it),
                    None => it,
                });
            }
            // A program that changes them in each step says the same again and again.
            Line::Settings { before, text, place } if notes.settings.len() < MOST_CHANGES => {
                let (before, text) = (clipped(before), clipped(text));
                notes.settings.push(SettingsNote { before, text, place: place.into() });
            }
            Line::Settings { .. } => {}
            Line::Phantom(it) => phantom = Some(it.into()),
            Line::FirstStep(it) => notes.first_steps.push(it.into()),
            Line::StepTimes(it) => notes.step_times = Some(it.into()),
            Line::Host(it) => notes.host = Some(it.into()),
            Line::Stats(it) => notes.stats.push(it.into()),
            Line::Alarm(it) => notes.alarms.extend(it.into_note()),
            Line::Cut { why } => notes.cut = Some(clipped(why)),
            Line::Waited { seconds } => notes.waited = Some(seconds),
            Line::End(it) => notes.end = Some(it.into()),
            Line::Refused(it) => notes.plan.refused.push(it.into()),
            Line::Blocks { names } => {
                notes.plan.blocks = Some(names.into_iter().map(one_line).collect());
            }
            Line::BlockMemory { readings } => {
                notes.plan.block_memory = Some(readings.into_iter().map(Into::into).collect());
            }
            Line::BlockWork { blocks } => {
                let of_one = |it: Vec<WorkKeys>| it.into_iter().map(Into::into).collect();
                notes.plan.block_work = Some(blocks.into_iter().map(of_one).collect());
            }
            Line::Work { ops } => {
                notes.plan.work = Some(ops.into_iter().map(Into::into).collect());
            }
            Line::Split(it) => notes.plan.split = Some(it.into()),
            Line::Exact { exact } => notes.plan.exact = Some(exact),
            Line::Worst { text, how } => {
                notes.plan.sizes_differ |= how.as_deref() == Some("order");
                notes.plan.sizes_are_drawn |= how.as_deref() == Some("draw");
                notes.plan.batches.extend(text.map(clipped));
            }
            Line::Sites(it) => notes.plan.survey = Some((*it).into()),
            Line::Compiles => notes.plan.compiles = true,
            Line::Compiled { found } => notes.plan.found_compiled = Some(found),
            Line::Hopeless => notes.plan.hopeless = true,
            Line::Unknown => {}
        }
        Ok(())
    });
    let goes_back = notes.ooms.last().is_some_and(|it| it.goes_back);
    modes::settle(&mut notes.marks, &seen_modes, goes_back);
    let marks = std::mem::take(&mut notes.marks);
    notes.ooms.iter_mut().for_each(|it| modes::settle_oom(it, &marks));
    notes.marks = marks;
    (notes, phantom)
}

/// Those lines of `notes` that are of `kinds`, where the others are not worth parsing while a script runs.
pub fn only(notes: &[u8], kinds: &[NoteKind]) -> Vec<u8> {
    let is_wanted = |line: &&[u8]| {
        let kind = line.strip_prefix(br#"{"kind":""#).unwrap_or_default();
        kinds.iter().any(|known| {
            kind.strip_prefix(known.word().as_bytes()).is_some_and(|it| it.first() == Some(&b'"'))
        })
    };
    notes.split_inclusive(|it| *it == b'\n').filter(is_wanted).flatten().copied().collect()
}

/// The last step whose end is noted in whole lines of `notes`; others are not parsed.
pub fn last_step(notes: &[u8]) -> Option<u32> {
    let marker = b"step_end";
    let ends = only(notes, &[NoteKind::Mark]);
    let ends = ends
        .split_inclusive(|it| *it == b'\n')
        .filter(|line| line.windows(marker.len()).any(|it| it == marker));
    let ends: Vec<u8> = ends.flatten().copied().collect();
    let marks = read(&ends, &mut Vec::new()).0.marks;
    marks.iter().filter(|it| it.kind == MarkKind::StepEnd).map(|it| it.step).max()
}

/// One line as it is written; what is in it is told by `run_notes` and `plan_notes`.
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
    Keepers(KeepersLine),
    Graph(GraphLine),
    #[serde(rename = "large_batch")]
    LargeBatch(LargeBatchLine),
    Padding(PaddingLine),
    Unfolded(UnfoldedLine),
    #[serde(rename = "in_pieces")]
    InPieces(InPiecesLine),
    Models(ModelsLine),
    #[serde(rename = "first_gpu")]
    FirstGpu(FirstGpuLine),
    Stages {
        #[serde(default)]
        ranks: Vec<u32>,
    },
    #[serde(rename = "named_ranks")]
    NamedRanks {
        #[serde(default)]
        ranks: Vec<u32>,
    },
    Weights(WeightsLine),
    Stacks {
        kept: bool,
        #[serde(flatten)]
        place: PlaceKeys,
    },
    Engine(Box<EngineLine>),
    Settings {
        #[serde(default, deserialize_with = "or_default")]
        before: String,
        #[serde(default, deserialize_with = "or_default")]
        text: String,
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
    Refused(RefusedLine),
    Blocks {
        names: Vec<String>,
    },
    #[serde(rename = "block-memory")]
    BlockMemory {
        readings: Vec<ReadingKeys>,
    },
    #[serde(rename = "block-work")]
    BlockWork {
        blocks: Vec<Vec<WorkKeys>>,
    },
    Work {
        ops: Vec<WorkKeys>,
    },
    Split(SplitLine),
    Exact {
        exact: bool,
    },
    Worst {
        text: Option<String>,
        how: Option<String>,
    },
    Sites(Box<SitesLine>),
    Compiles,
    Compiled {
        found: u64,
    },
    Hopeless,
    #[serde(other)]
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::{lines::MOST_SENTENCE, *};
    use crate::{
        recording::{At, EndReason, Phase, Place, Split},
        units::Bytes,
    };

    #[test]
    fn sentences_are_few_and_short() {
        let line = format!(r#"{{"kind":"note","code":"c","text":"{}"}}"#, "\u{e9}".repeat(9000));
        let bytes = (line + "\n").repeat(1000);
        let remarks = read(bytes.as_bytes(), &mut Vec::new()).0.remarks;
        assert_eq!((remarks.len(), remarks[0].text.len()), (MOST_REMARKS, MOST_SENTENCE));
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
            "begin architectures mark tensors keepers graph large_batch padding unfolded in_pieces models first_gpu stages named_ranks weights stacks settings oom redone read asked_size engine note unsupported phantom first_step step_times host stats alarm cut waited end refused blocks block-memory block-work work split exact worst sites compiles compiled hopeless"
        );
    }

    #[test]
    fn an_engines_refusal_is_read_as_explain_reads_it() {
        let line = r#"{"kind":"engine","name":"vllm","available":9481234567,"needs":[[1024,1],[131072,128]],"refused":"To serve at least one request with the model's max seq len (131072), (24.0 GiB KV cache is needed, which is larger than the available KV cache memory (8.83 GiB). Based on the available memory, the estimated maximum model length is 48192. Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."}"#;
        let engine = read(line.as_bytes(), &mut Vec::new()).0.engine.unwrap();
        assert_eq!(engine.needs, [(1024, Bytes(1)), (131_072, Bytes(128))]);
        let refused = engine.refused.unwrap();
        assert!(refused.why.contains("24.00 GiB, and 8.83 GiB are free"), "{}", refused.why);
        assert!(refused.remedies[0].contains("max_model_len=48192"), "{:?}", refused.remedies);
    }

    #[test]
    fn the_last_step_is_read_from_ends_of_steps_alone() {
        let step = |it: &str| last_step(it.as_bytes());
        let two = r#"{"kind":"mark","what":"step_end","step":2}
{"kind":"mark","what":"phase_end","phase":"forward","step":3}
{"kind":"note","text":"step_end"}
"#;
        assert_eq!(step(two), Some(2));
        assert_eq!(step(r#"{"kind":"note","text":"step_end"}"#), None);
        assert_eq!(step("{\"kind\":\"mark\",\"what\":\"step_end\",\"st"), None);
    }

    #[test]
    fn what_is_of_a_plan_is_read_and_the_last_of_it_counts() {
        let (notes, _, warnings) = read_all(
            r#"{"kind":"remedy","id":"checkpoint","blocks":[0]}
{"kind":"refused","id":"micro-batches","why":"MoCo: each call of it writes into its `queue`"}
{"kind":"blocks","names":["h.0"]}
{"kind":"blocks","names":["h.0","h.1"]}
{"kind":"block-memory","readings":[["enter",0,1000,1200],["back",1,900,1100],["end",0,10,20]]}
{"kind":"block-work","blocks":[[],[{"op":"matmul","dtype":"tf32","count":2,"flops":8,"bytes":0.5}]]}
{"kind":"work","ops":[{"op":"link","dtype":"uint8","count":1,"flops":0,"bytes":4}]}
{"kind":"split","samples":null,"loss":true,"exact":true}
{"kind":"exact","remedy":"attention","exact":false}
{"kind":"worst","length":64,"how":"loader","tensors":[],"text":"every batch is made 64 long"}
{"kind":"worst","length":64,"how":"loader","tensors":[]}
{"kind":"compiles"}
{"kind":"compiled","found":0}
{"kind":"hopeless","allocated":7}
{"kind":"sites","sites":[],"files":{"a.py":{"torch":null},"b.py":{"torch":3}},"idle":{"fused":null,"offload":"nothing is trained"},"trains":false}
"#,
        );
        assert_eq!(warnings, Vec::<String>::new());
        let plan = notes.plan;
        assert_eq!(plan.refused[0].id, "micro-batches");
        assert_eq!(plan.blocks.unwrap(), ["h.0", "h.1"]);
        let readings = plan.block_memory.unwrap();
        assert_eq!(
            readings.iter().map(|it| it.at).collect::<Vec<_>>(),
            [At::Enter(0), At::Back(1), At::End]
        );
        assert_eq!(plan.block_work.unwrap()[1][0].flops, 8.0);
        assert_eq!(plan.work.unwrap()[0].op, plimsoll_remedies::Op::Link);
        assert_eq!(plan.split, Some(Split { exact: true, has_loss: true, ..Split::default() }));
        assert_eq!((plan.exact, plan.compiles, plan.found_compiled), (Some(false), true, Some(0)));
        assert_eq!(plan.batches, ["every batch is made 64 long"]);
        assert!(plan.hopeless);
        let survey = plan.survey.unwrap();
        assert!(survey.trains_nothing && survey.sites.torch("a.py").is_none());
        assert_eq!(survey.idle.unwrap()["offload"].as_deref(), Some("nothing is trained"));
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
    fn a_torn_end_and_a_broken_line_are_warnings() {
        let (notes, _, warnings) = read_all(
            "{\"kind\":\"note\",\"text\":\"one\"}\nnot json\n\n{\"kind\":\"note\",\"text\":\"two\"}\n{\"kind\":\"no",
        );
        assert_eq!(notes.remarks.len(), 2);
        assert_eq!(
            warnings,
            [
                "agent.jsonl, line 2: skipped a line: expected ident at line 1 column 2",
                "agent.jsonl, line 5: skipped the last line, which is incomplete",
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
