//! What one process noted of a plan, of the places for one, and of the work in a step.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

use plimsoll_remedies::Op;

use super::lines::clipped;
use crate::{
    recording::{
        At, Averages, Batch, Blocks, Call, Framework, Reading, Refused, Setting, Site, SiteKind,
        Sites, Span, Split, Survey, Switches, Work,
    },
    sources::json_lines::one_line,
    units::Bytes,
};

#[derive(Debug, Deserialize)]
pub(super) struct RefusedLine {
    id: String,
    why: String,
}

/// `["enter", 3, 1000, 1200]`.
#[derive(Debug, Deserialize)]
pub(super) struct ReadingKeys(String, usize, u64, u64);

#[derive(Debug, Deserialize)]
pub(super) struct WorkKeys {
    #[serde(deserialize_with = "op")]
    op: Op,
    dtype: String,
    count: f64,
    flops: f64,
    bytes: f64,
}

#[derive(Debug, Deserialize)]
pub(super) struct SplitLine {
    exact: bool,
    #[serde(default)]
    loss: bool,
    weights: Option<String>,
    samples: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct SitesLine {
    sites: Vec<SiteKeys>,
    files: BTreeMap<String, FileKeys>,
    idle: Option<BTreeMap<String, Option<String>>>,
    trains: Option<bool>,
    #[serde(default)]
    switches: Vec<SwitchesKeys>,
    #[serde(default)]
    missing: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct FileKeys {
    torch: Option<u32>,
}

#[derive(Debug, Deserialize)]
struct SiteKeys {
    what: String,
    file: String,
    statement: SpanKeys,
    function: u64,
    name: Option<String>,
    call: Option<CallKeys>,
    model: Option<String>,
    #[serde(default)]
    blocks: Vec<String>,
    #[serde(default)]
    cache: bool,
    #[serde(default)]
    beside: Option<Vec<BlocksKeys>>,
    switch: Option<String>,
    from: Option<(u32, u32)>,
    batch: Option<BatchKeys>,
}

#[derive(Debug, Deserialize)]
struct BlocksKeys {
    model: String,
    blocks: Vec<String>,
    cache: bool,
}

#[derive(Debug, Deserialize)]
struct BatchKeys {
    name: String,
    at: SpanKeys,
    loss: String,
}

#[derive(Debug, Deserialize)]
struct CallKeys {
    span: SpanKeys,
    owner: Option<SpanKeys>,
    arguments: Vec<SpanKeys>,
    keywords: BTreeMap<String, SpanKeys>,
    end: Option<(u32, u32)>,
    #[serde(default)]
    plain: bool,
}

/// First line and byte, last line and the byte after it.
#[derive(Clone, Copy, Debug, Deserialize)]
struct SpanKeys(u32, u32, u32, u32);

#[derive(Debug, Deserialize)]
struct SwitchesKeys {
    what: String,
    name: String,
    values: BTreeMap<String, Value>,
    rest: String,
    site: Option<SiteKeys>,
    #[serde(default)]
    from_words: bool,
}

/// A word that nobody knows is a broken line: the words come from one table, and this process is of the same build.
fn op<'a, D: Deserializer<'a>>(from: D) -> Result<Op, D::Error> {
    let word = String::deserialize(from)?;
    Op::of(&word).ok_or_else(|| de::Error::custom(format!("there is no kind of work {word:?}")))
}

impl From<RefusedLine> for Refused {
    fn from(it: RefusedLine) -> Refused {
        Refused { id: one_line(it.id), why: clipped(it.why) }
    }
}

impl From<ReadingKeys> for Reading {
    fn from(ReadingKeys(what, block, current, peak): ReadingKeys) -> Reading {
        let at = match what.as_str() {
            "enter" => At::Enter(block),
            "leave" => At::Leave(block),
            "back" => At::Back(block),
            _ => At::End,
        };
        Reading { at, current: Bytes(current), peak: Bytes(peak) }
    }
}

impl From<WorkKeys> for Work {
    fn from(it: WorkKeys) -> Work {
        let WorkKeys { op, dtype, count, flops, bytes } = it;
        Work { op, dtype, count, flops, bytes }
    }
}

impl From<SplitLine> for Split {
    fn from(it: SplitLine) -> Split {
        let averages = it.weights.as_deref().and_then(|word| match word {
            "shifted labels" => Some(Averages::ShiftedLabels),
            "labels" => Some(Averages::Labels),
            "samples" => Some(Averages::Samples),
            _ => None,
        });
        Split { exact: it.exact, has_loss: it.loss, averages, samples: it.samples }
    }
}

impl From<SitesLine> for Survey {
    fn from(it: SitesLine) -> Survey {
        let torch = it.files.into_iter().filter_map(|(file, it)| Some((file, it.torch?)));
        let sites = Sites {
            all: it.sites.into_iter().map(Site::from).collect(),
            switches: it.switches.into_iter().filter_map(SwitchesKeys::into_switches).collect(),
            torch: torch.collect(),
            missing: it.missing.into_iter().map(one_line).collect(),
        };
        Survey { sites, idle: it.idle, trains_nothing: it.trains == Some(false) }
    }
}

impl From<SiteKeys> for Site {
    fn from(it: SiteKeys) -> Site {
        Site {
            kind: match it.what.as_str() {
                "optimizer" => SiteKind::Optimizer,
                "zero_grad" => SiteKind::ZeroGrad,
                "backward" => SiteKind::Backward,
                "step" => SiteKind::Step,
                "clip" => SiteKind::Clip,
                "evaluation" => SiteKind::Evaluation,
                "distributed" => SiteKind::Distributed,
                "to" => SiteKind::To,
                _ => SiteKind::Other,
            },
            file: it.file,
            statement: it.statement.into(),
            function: it.function,
            name: it.name,
            call: it.call.map(Call::from),
            model: it.model,
            blocks: it.blocks,
            cache: it.cache,
            beside: it.beside.into_iter().flatten().map(Blocks::from).collect(),
            switch: it.switch,
            forward: it.from,
            batch: it.batch.map(Batch::from),
        }
    }
}

impl From<BlocksKeys> for Blocks {
    fn from(it: BlocksKeys) -> Blocks {
        Blocks { model: it.model, blocks: it.blocks, cache: it.cache }
    }
}

impl From<BatchKeys> for Batch {
    fn from(it: BatchKeys) -> Batch {
        Batch { name: it.name, at: it.at.into(), loss: it.loss }
    }
}

impl From<CallKeys> for Call {
    fn from(it: CallKeys) -> Call {
        Call {
            span: it.span.into(),
            owner: it.owner.map(Span::from),
            arguments: it.arguments.into_iter().map(Span::from).collect(),
            keywords: it.keywords.into_iter().map(|(name, it)| (name, it.into())).collect(),
            end: it.end,
            plain: it.plain,
        }
    }
}

impl From<SpanKeys> for Span {
    fn from(SpanKeys(line, column, end_line, end_column): SpanKeys) -> Span {
        Span { first: (line, column), end: (end_line, end_column) }
    }
}

impl SwitchesKeys {
    /// None for a framework that a later agent knows.
    fn into_switches(self) -> Option<Switches> {
        let framework = match self.what.as_str() {
            "transformers" => Framework::Transformers,
            "lightning" => Framework::Lightning,
            "accelerate" => Framework::Accelerate,
            "loader" => Framework::Loader,
            "generate" => Framework::Generate,
            "pipeline" => Framework::Pipeline,
            "loading" => Framework::Loading,
            "adapters" => Framework::Adapters,
            "collator" => Framework::Collator,
            "deepspeed" => Framework::DeepSpeed,
            _ => return None,
        };
        Some(Switches {
            framework,
            name: self.name,
            values: self.values.into_iter().map(|(name, it)| (name, setting(it))).collect(),
            rest: self.rest,
            site: self.site.map(Site::from),
            from_words: self.from_words,
        })
    }
}

fn setting(value: Value) -> Setting {
    match value {
        Value::Null => Setting::Nothing,
        Value::Bool(it) => Setting::Flag(it),
        Value::String(it) => Setting::Text(it),
        Value::Number(it) => {
            it.as_i64().map_or_else(|| Setting::Other(it.to_string()), Setting::Whole)
        }
        it => Setting::Other(it.to_string()),
    }
}
