//! `plimsoll calibrate`: measures on the machine's own card what predictions rest on, asks a phantom of what was measured the same
//! questions, and keeps it as a card that every command knows from then on.

use std::{fs, io, path::Path, process::Command};

use anyhow::{Context as _, bail, ensure};
use plimsoll_core::{cards, units::Bytes};
use serde_json::Value;

use crate::{
    cache::{Cache, bundle::Bundle, reason},
    engine::{
        launch::{self, Device, Ranks, ScriptCommand, ScriptOutput, Signals, Stop},
        phantom_run::{Run, Runner},
        python,
    },
    exit::Exit,
    files::bounded_file,
    gpu::{devices, own_cards},
    options::{
        cli::{CalibrateArgs, WorldArgs, Writes},
        ghost_weights::GhostWeights,
    },
    output::{self, Output, say},
};

/// The agent's modules that ask, one card and several.
const QUESTIONS: &str = "plimsoll_agent.calibrate.card";
const OF_SEVERAL: &str = "plimsoll_agent.calibrate.ranks";
/// How the source of a card begins that this wrote.
const WRITTEN_BY: &str = "measured here by plimsoll calibrate";
/// The parts of a context may add up to so much more or less than a training held, and still tell the same.
const ALIKE: Bytes = Bytes::mib(8);
/// What the first library loads beside its handle.
const CODE: Bytes = Bytes::mib(2);
/// No handle of a library takes more.
const LARGEST_HANDLE: Bytes = Bytes::mib(256);
/// Of how many operations in a hundred the phantom has to know the scratch memory for cuDNN to count as measured.
const MOSTLY: usize = 95;

pub(crate) fn run(args: &CalibrateArgs, out: &mut Output) -> anyhow::Result<Exit> {
    ensure!(
        devices::are_there(),
        "found no NVIDIA GPU on this machine, so there is nothing to measure; `plimsoll cards` lists the known cards"
    );
    let cache = Cache::open()?;
    let bundle = Bundle::unpack(&cache)?;
    let interpreter = launch::python()?;
    let folder = tempfile::tempdir().context("cannot create a folder for the measurements")?;
    say(
        "measuring this machine's GPU for 1 to 2 minutes; other programs should not use it meanwhile",
    );
    let mut real = on_the_card(&interpreter, &bundle, QUESTIONS, &folder.path().join("real.json"))?;
    if 2 <= devices::visible_count() {
        say("measuring NCCL's memory and the bandwidth between the GPUs");
        let answer = folder.path().join("several.json");
        // Who has no NCCL has a card all the same.
        match on_the_card(&interpreter, &bundle, OF_SEVERAL, &answer) {
            Ok(several) => real["several"] = several,
            Err(error) => say(&format!("did not measure NCCL's memory: {error:#}")),
        }
    }
    if let Some(path) = &args.raw {
        fs::write(path, real.to_string())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let measured = Measured::of(&real)?;
    let id = args.id.as_deref();
    let card = cards::parse(&measured.text(id, "derived", "calibrated"))
        .context("the measurement does not describe a card")?;
    let path = match &args.output {
        Some(path) => path.clone(),
        None => {
            let folder = own_cards::folder();
            let problem =
                "found no folder for your cards: set PLIMSOLL_CARDS, or use --output FILE";
            let path = folder.context(problem)?.join(format!("{}.toml", card.id));
            check_what_is_there(&path)?;
            path
        }
    };
    say(&format!("measuring the same on a phantom {}", card.name));
    let runner = Runner::new(
        Cache::open()?,
        &WorldArgs { writes: Writes::Through, ..WorldArgs::default() },
    )?;
    let phantom = folder.path().join("phantom.json");
    let phantom = on_the_phantom(&interpreter, &runner, &card.phantom_conf(1), &phantom)?;
    let compared = Compared::of(&real, &phantom);
    let knows = if MOSTLY * compared.all <= 100 * compared.alike { "measured" } else { "derived" };
    let source = format!(
        "{WRITTEN_BY} {}: driver {}, torch {}, cuDNN {}; of {} operations, the phantom requests the same workspace in {}{}",
        env!("CARGO_PKG_VERSION"),
        devices::driver().unwrap_or_else(|| "unknown".to_owned()),
        measured.word("torch"),
        measured.word("cudnn"),
        compared.all,
        compared.alike,
        if measured.beside.is_empty() {
            ""
        } else {
            "; the context was measured as a whole, in one training process"
        },
    );
    let text = measured.text(id, knows, &source);
    let card = cards::parse(&text).context("the measurement does not describe a card")?;
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
    }
    fs::write(&path, &text).with_context(|| format!("cannot write {}", path.display()))?;
    out.text(&report(&card, &measured, &compared, &path, args.output.is_none()))?;
    Ok(Exit::Fits)
}

/// Refuses the file of a card that somebody wrote by hand, or was sent. One of an earlier calibration is replaced.
fn check_what_is_there(path: &Path) -> anyhow::Result<()> {
    match bounded_file::bytes(path, bounded_file::WRITTEN_BY_HAND) {
        Ok(text) => ensure!(
            String::from_utf8_lossy(&text).contains(WRITTEN_BY),
            "{} exists, and `plimsoll calibrate` did not write it; move it away, or use --output FILE",
            path.display()
        ),
        Err(error) if error.kind() == io::ErrorKind::NotFound => (),
        Err(error) => bail!("cannot read {}: {}", path.display(), reason(&error)),
    }
    Ok(())
}

/// Everything, of the real card, in processes without us.
fn on_the_card(
    interpreter: &Path,
    bundle: &Bundle,
    module: &str,
    answer: &Path,
) -> anyhow::Result<Value> {
    let mut process = Command::new(interpreter);
    process.args(["-W", "ignore", "-c"]).arg(python::our_module(module)).arg(answer).arg("context");
    let path = python::path(Some(bundle.agent().as_os_str()));
    process.env(python::PATH, path).env("PYTHONDONTWRITEBYTECODE", "1");
    let ended =
        process.status().with_context(|| format!("cannot run {}", interpreter.display()))?;
    ensure!(ended.success(), "cannot measure the GPU ({ended}); Python's error is above");
    read(answer)
}

/// The operations, of a phantom.
fn on_the_phantom(
    interpreter: &Path,
    runner: &Runner,
    conf: &str,
    answer: &Path,
) -> anyhow::Result<Value> {
    let arguments = vec!["-c".into(), python::our_module(QUESTIONS), answer.into()];
    let environment = vec![(python::PATH.into(), python::path(None))];
    let command = ScriptCommand { program: interpreter.to_owned(), arguments, environment };
    let signals = Signals::hold().context("cannot hold signals")?;
    let run = Run {
        command: &command,
        conf,
        stop: Stop::UntilExit,
        ranks: &Ranks::All,
        ghost_weights: GhostWeights::Off,
        output: ScriptOutput::InSession,
        settings: &[],
        device: Device::Phantom,
    };
    let left = runner.run(run, &signals, None)?;
    read(answer).with_context(|| left.last_words.unwrap_or_default())
}

fn read(answer: &Path) -> anyhow::Result<Value> {
    let text = bounded_file::bytes(answer, bounded_file::REPORT)
        .context("the measuring process wrote no answer")?;
    serde_json::from_slice(&text).context("the answer is not JSON")
}

/// What the real card was measured as.
struct Measured {
    properties: Value,
    gpcs: Vec<u64>,
    context: Bytes,
    blas: Option<Bytes>,
    dnn: Option<Bytes>,
    /// What each kind of process held, for people.
    seen: Vec<(String, Bytes)>,
    /// What NCCL takes, and how fast the machine is, as far as that was measured.
    nccl: Option<cards::Nccl>,
    speeds: cards::Speeds,
    /// Why the context is not the sum of its parts; empty if it is.
    beside: String,
}

impl Measured {
    fn of(answer: &Value) -> anyhow::Result<Measured> {
        let properties = answer["properties"].clone();
        ensure!(properties.is_object(), "the driver did not report the GPU's name");
        let before = answer["before"].as_u64().unwrap_or(0);
        let held = |name: &str, step: usize| held(&answer["context"][name], step, before);
        let training = ["training", "training-half"].into_iter().filter_map(|it| held(it, 0)).max();
        let training = training.context("cannot measure the memory of any process on the GPU")?;
        // The first comes with code, and the driver takes 2 MiB for itself now and then: the smaller of both is the handle.
        let handle = |name: &str| {
            let (none, one, two) = (held(name, 0)?, held(name, 1)?, held(name, 2)?);
            let it = two.saturating_sub(one).min(one.saturating_sub(none));
            (Bytes::ZERO < it && it <= LARGEST_HANDLE).then_some(it)
        };
        let (blas, dnn, kernel) = (handle("blas"), handle("dnn"), held("kernel", 0));
        let parts = match (kernel, blas, dnn) {
            (Some(kernel), Some(blas), Some(dnn)) => Some(kernel + CODE + blas * 2 + dnn * 2),
            _ => None,
        };
        let is_like = |it: &Bytes| it.0.abs_diff(training.0) <= ALIKE.0;
        let (context, beside) = match parts {
            Some(it) if is_like(&it) => (it, String::new()),
            Some(it) => (training, format!("its parts add up to {it}")),
            None => (training, "its parts were not measured".to_owned()),
        };
        let gpcs = answer["clusters"].as_array().cloned().unwrap_or_default();
        let gpcs = gpcs.iter().filter_map(Value::as_u64).collect();
        let mut seen = Vec::new();
        for name in ["kernel", "blas", "dnn", "training", "training-half"] {
            let last = if matches!(name, "blas" | "dnn") { 2 } else { 0 };
            seen.extend(held(name, last).map(|it| (name.to_owned(), it)));
        }
        let context = context.round_up_to(Bytes::mib(2));
        let nccl = nccl(&answer["several"]);
        let speeds = speeds(answer);
        Ok(Measured { properties, gpcs, context, blas, dnn, seen, nccl, speeds, beside })
    }

    fn word(&self, key: &str) -> String {
        match &self.properties[key] {
            Value::String(text) => text.clone(),
            Value::Null => "unknown".to_owned(),
            it => it.to_string(),
        }
    }

    /// What the driver keeps of the card for no process.
    fn kept(&self) -> Option<Bytes> {
        self.size("kept")
    }

    fn size(&self, key: &str) -> Option<Bytes> {
        self.properties[key].as_u64().filter(|it| *it != 0).map(Bytes)
    }

    /// The card's file.
    fn text(&self, id: Option<&str>, cudnn_known: &str, source: &str) -> String {
        let mut res = String::from(
            "# A card that plimsoll calibrate measured. To share it: others save it in ~/.config/plimsoll/cards,\n# or give the file to --gpu.\n\n",
        );
        let mut line = |key: &str, value: String| res += &format!("{key} = {value}\n");
        let quoted = |text: &str| Value::from(text).to_string();
        line("format", "1".to_owned());
        if let Some(id) = id {
            line("id", quoted(id));
        }
        line("name", quoted(&self.word("name")));
        line("compute_capability", quoted(&self.word("compute_capability")));
        line("total", self.word("total"));
        line("total_known", quoted("measured"));
        for (key, it) in [("kept", self.kept()), ("hidden", self.size("hidden"))] {
            if let Some(it) = it {
                line(key, it.0.to_string());
            }
        }
        line("context", self.context.0.to_string());
        line("context_known", quoted("measured"));
        for (key, handle) in [("blas", self.blas), ("dnn", self.dnn)] {
            if let Some(it) = handle {
                line(key, it.0.to_string());
            }
        }
        if !self.gpcs.is_empty() {
            line("gpcs", format!("{:?}", self.gpcs));
        }
        for key in [
            "sm_count",
            "max_threads_per_sm",
            "max_blocks_per_sm",
            "shared_per_block_optin",
            "shared_per_sm",
            "registers_per_sm",
            "l2",
            "memory_bus_bits",
        ] {
            if let Some(it) = self.properties[key].as_u64() {
                line(key, it.to_string());
            }
        }
        for (key, property) in
            [("clock_mhz", "clock_khz"), ("memory_clock_mhz", "memory_clock_khz")]
        {
            if let Some(it) = self.properties[property].as_u64() {
                line(key, (it / 1000).max(1).to_string());
            }
        }
        for (key, speed) in
            [("link_per_second", self.speeds.link), ("between_per_second", self.speeds.between)]
        {
            if let Some(it) = speed {
                line(key, it.0.to_string());
            }
        }
        if let Some(it) = self.speeds.host_step_us {
            line("host_step_us", it.to_string());
        }
        if let Some(it) = &self.nccl {
            let [library, tables, alone, ring, ring_kernels, peer_kernels, send, receive] =
                it.sizes().map(|it| it.0);
            let ranks = it.ranks;
            line(
                "nccl",
                format!(
                    "{{ ranks = {ranks}, library = {library}, tables = {tables}, alone = {alone}, ring = {ring}, \
                     ring_kernels = {ring_kernels}, peer_kernels = {peer_kernels}, send = {send}, receive = {receive} }}"
                ),
            );
        }
        line("cudnn_known", quoted(cudnn_known));
        line("source", quoted(source));
        res
    }
}

/// What NCCL takes, from what each rank held after each step (`ranks.py`); none if one of these does not follow.
fn nccl(several: &Value) -> Option<cards::Nccl> {
    let held = |row: &Value, step: &str| row[step].as_u64().map(Bytes);
    let more = |row: &Value, step: &str, before: &str| {
        held(row, step)?.0.checked_sub(held(row, before)?.0).map(Bytes)
    };
    let of_each = several["of_each"].as_array()?;
    // Ranks differ by a little; who is told "it fits" must be right.
    let most = |step: &str, before: &str| -> Option<Bytes> {
        of_each
            .iter()
            .map(|it| more(it, step, before))
            .collect::<Option<Vec<_>>>()?
            .into_iter()
            .max()
    };
    let less = |it: Bytes, by: Bytes| it.0.checked_sub(by.0).map(Bytes);
    let tables = most("second", "first")?;
    let library = less(most("first", "kernel")?, tables)?;
    let ring = most("second collective", "collective")?;
    let ring_kernels = less(most("collective", "second")?, ring)?;
    let (first, second) = (of_each.first()?, of_each.get(1)?);
    // The first sends there, and receives what comes back.
    let send = more(second, "back", "there")?;
    let receive = more(first, "back", "there")?;
    let peer_kernels = less(more(first, "there", "second collective")?, send)?;
    let alone = less(more(&several["alone"], "first", "kernel")?, library)?;
    let ranks = u32::try_from(several["ranks"].as_u64()?).ok()?;
    Some(cards::Nccl {
        ranks,
        library,
        tables,
        alone,
        ring,
        ring_kernels,
        peer_kernels,
        send,
        receive,
    })
}

fn speeds(answer: &Value) -> cards::Speeds {
    let least = |value: &Value, of: &dyn Fn(&Value) -> Option<u64>| {
        let all = value.as_array()?.iter().filter_map(of).filter(|it| *it != 0);
        all.min().map(Bytes)
    };
    let several = &answer["several"];
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some thousands")]
    let in_us = |it: f64| (it * 1e6).clamp(1.0, 1e9) as u32;
    cards::Speeds {
        link: least(&answer["link"], &Value::as_u64),
        between: least(&several["of_each"], &|it| it["all-gather"].as_u64()),
        host_step_us: answer["host_step"].as_f64().map(in_us),
    }
}

/// What a process held beside the allocator after a step: the least of what was seen, of itself if NVML tells, else of all
/// that was not there before.
fn held(samples: &Value, step: usize, before: u64) -> Option<Bytes> {
    let of = |rows: &Value| {
        let row = &rows[step];
        row[0].as_u64().or_else(|| row[1].as_u64()?.checked_sub(before)).map(Bytes)
    };
    samples.as_array()?.iter().filter_map(of).min()
}

/// What card and phantom were asked for by the same operations.
struct Compared {
    all: usize,
    alike: usize,
    others: Vec<String>,
}

impl Compared {
    fn of(real: &Value, phantom: &Value) -> Compared {
        let mut res = Compared { all: 0, alike: 0, others: Vec::new() };
        let empty = serde_json::Map::new();
        for (name, of_card) in real["operations"].as_object().unwrap_or(&empty) {
            let of_phantom = &phantom["operations"][name];
            res.all += 1;
            if is_alike(of_card, of_phantom) {
                res.alike += 1;
            } else {
                res.others.push(format!("{name}: {} and {}", sizes(of_card), sizes(of_phantom)));
            }
        }
        res
    }
}

/// Whether both are as many and as large, but for what cublasLt asks for in a few plans of cuDNN's (272 bytes).
fn is_alike(of_card: &Value, of_phantom: &Value) -> bool {
    const SMALL: u64 = 4096;
    let numbers =
        |it: &Value| -> Option<Vec<u64>> { it.as_array()?.iter().map(Value::as_u64).collect() };
    match (numbers(of_card), numbers(of_phantom)) {
        (Some(a), Some(b)) => {
            a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| a.abs_diff(*b) <= SMALL)
        }
        _ => of_card == of_phantom,
    }
}

fn sizes(of_passes: &Value) -> String {
    let Some(passes) = of_passes.as_array() else { return of_passes.to_string() };
    let shown =
        passes.iter().map(|it| it.as_u64().map_or_else(String::new, |it| Bytes(it).to_string()));
    shown.collect::<Vec<_>>().join(" + ")
}

fn report(
    card: &cards::Card,
    measured: &Measured,
    compared: &Compared,
    path: &Path,
    is_known: bool,
) -> String {
    let mut res = format!("{}\n\n", card.name);
    let mut row = |what: &str, value: String| res += &format!("  {what:16}  {value}\n");
    row("memory", card.total.to_string());
    if let Some(it) = measured.kept() {
        row("", format!("{it} of it the driver keeps for no process"));
    }
    row("CUDA context", format!("{}, memory of a training process outside PyTorch", card.context));
    if !measured.beside.is_empty() {
        row("", format!("measured as a whole, in one training process; {}", measured.beside));
    }
    for (name, bytes) in &measured.seen {
        let what = match name.as_str() {
            "kernel" => "first kernel",
            "blas" => "with cuBLAS",
            "dnn" => "with cuDNN",
            "training-half" => "in bfloat16",
            other => other,
        };
        row(&format!("  {what}"), bytes.to_string());
    }
    row("handles", format!("cuBLAS {}, cuDNN {}", card.blas, card.dnn));
    if !card.gpcs.is_empty() {
        let gpcs: Vec<String> = card.gpcs.iter().map(u32::to_string).collect();
        row("clusters", gpcs.join(", "));
    }
    if let Some(it) = &card.nccl {
        let first = it.library + it.tables + it.ring + it.ring_kernels;
        let next = it.tables + it.ring;
        row(
            "NCCL",
            format!(
                "{first} with the first group of {} ranks, {next} with each further group",
                it.ranks
            ),
        );
    }
    let a_second = |it: Bytes| format!("{it} a second");
    if let Some(it) = card.speeds.link {
        row("link to the host", a_second(it));
    }
    if let Some(it) = card.speeds.between {
        row("between GPUs", a_second(it));
    }
    if let Some(it) = card.speeds.host_step_us {
        row("the host", format!("{it} µs for a small training step"));
    }
    row(
        "scratch memory",
        format!(
            "equal on the phantom in {} of {} convolutions and matrix products",
            compared.alike, compared.all
        ),
    );
    for it in compared.others.iter().take(6) {
        row("", format!("on the card and on the phantom, {it}"));
    }
    res += &format!("\nplimsoll saved the card in {}.\n", output::shown(path));
    res += &if is_known {
        format!(
            "Every command now knows it as {}. Next: plimsoll verify -- python train.py\n",
            card.id
        )
    } else {
        format!("Use it with --gpu {}\n", output::shown(path))
    };
    res
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_card_that_somebody_wrote_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("h200.toml");
        check_what_is_there(&path).unwrap();
        fs::write(&path, "id = \"h200\" # with my own numbers").unwrap();
        let refused = check_what_is_there(&path).unwrap_err().to_string();
        assert!(refused.contains("h200.toml exists, and"), "{refused}");
        fs::write(&path, format!("source = \"{WRITTEN_BY} 0.1.0\"")).unwrap();
        check_what_is_there(&path).unwrap();
    }

    /// As an H200 answers.
    fn answer() -> Value {
        let rows = |steps: &[u64]| {
            let rows: Vec<_> = steps.iter().map(|it| json!([it * MIB, (it + 500) * MIB])).collect();
            json!([rows, rows])
        };
        json!({
            "before": 500 * MIB,
            "properties": {
                "name": "NVIDIA H200", "compute_capability": "9.0", "sm_count": 132, "total": 150_109_880_320_u64, "kept": 9_240_576, "hidden": 644_939_776,
                "clock_khz": 1_980_000, "memory_clock_khz": 3_201_000, "memory_bus_bits": 6016, "l2": 62_914_560,
                "max_threads_per_sm": 2048, "shared_per_sm": 233_472, "registers_per_sm": 65_536,
                "shared_per_block_optin": 232_448, "max_blocks_per_sm": 32, "torch": "2.11.0", "cudnn": 91_900,
            },
            "clusters": [18, 18, 16, 16, 16, 16, 16, 8, 2, 2, 2, 2],
            "context": {
                "kernel": rows(&[610]), "blas": rows(&[610, 676, 740]), "dnn": rows(&[610, 620, 630]),
                "training": rows(&[760]), "training-half": rows(&[762]),
            },
            "operations": {"a": [1, 2], "b": [3, 4]},
        })
    }

    #[test]
    fn an_h200_that_nobody_knew_becomes_the_one_that_is_known() {
        let measured = Measured::of(&answer()).unwrap();
        let card = cards::parse(&measured.text(None, "measured", "here")).unwrap();
        let known = cards::find("h200").unwrap();
        assert_eq!(card.phantom_conf(1), known.phantom_conf(1));
        assert_eq!(card.context_range, Bytes::ZERO);
        assert_eq!(card.provenance.cudnn, known.provenance.cudnn);
    }

    /// As two H200s answer, in MiB.
    fn several() -> Value {
        let row = |there: u64, back: u64| {
            let mib = |it: u64| it * MIB;
            json!({
                "kernel": mib(610), "first": mib(972), "second": mib(1170), "collective": mib(1644),
                "second collective": mib(1932), "there": mib(1932 + there), "back": mib(1932 + back),
                "all-gather": 290_000_000_000_u64,
            })
        };
        json!({
            "ranks": 2,
            "of_each": [row(58 + 64, 58 + 64 + 320), row(58 + 320, 58 + 320 + 64)],
            "alone": {"kernel": 610 * MIB, "first": (610 + 164 + 388) * MIB},
        })
    }

    #[test]
    fn what_nccl_takes_is_told_apart() {
        let mut answer = answer();
        answer["several"] = several();
        answer["link"] = json!([54_000_000_000_u64, 53_000_000_000_u64]);
        answer["host_step"] = json!(0.0042);
        let measured = Measured::of(&answer).unwrap();
        let card = cards::parse(&measured.text(None, "measured", "here")).unwrap();
        let it = card.nccl.unwrap();
        assert_eq!(it.sizes().map(|it| it.0 / MIB), [164, 198, 388, 288, 186, 58, 64, 320]);
        assert_eq!(card.speeds.link, Some(Bytes(53_000_000_000)));
        assert_eq!(card.speeds.between, Some(Bytes(290_000_000_000)));
        assert_eq!(card.speeds.host_step_us, Some(4200));
        assert!(card.phantom_conf(2).contains("nccl_bytes = 171966464,207618048,406847488,"));
        answer["several"]["of_each"][1]["second"] = json!(0);
        assert_eq!(Measured::of(&answer).unwrap().nccl, None, "that is less than before");
    }

    #[test]
    fn where_nvml_hides_processes_the_whole_device_is_looked_at() {
        let mut answer = answer();
        for name in ["kernel", "blas", "dnn", "training", "training-half"] {
            for sample in answer["context"][name].as_array_mut().unwrap() {
                for row in sample.as_array_mut().unwrap() {
                    row[0] = Value::Null;
                }
            }
        }
        assert_eq!(Measured::of(&answer).unwrap().context, Bytes::mib(760));
        answer["context"]["kernel"] = Value::Null;
        let measured = Measured::of(&answer).unwrap();
        assert_eq!((measured.context, measured.beside.is_empty()), (Bytes::mib(762), false));
    }

    #[test]
    fn what_the_driver_takes_for_itself_is_no_handle() {
        // As on the first of two H200s: 2 MiB more with the first handle of cuBLAS, and with the second of cuDNN.
        let mut answer = answer();
        let rows = |steps: [u64; 3]| steps.map(|it| json!([it * MIB, (it + 600) * MIB]));
        answer["context"]["blas"] = json!([rows([610, 678, 742])]);
        answer["context"]["dnn"] = json!([rows([610, 620, 632])]);
        answer["context"]["training"] = json!([[[758 * MIB, 1382 * MIB]]]);
        answer["context"]["training-half"] = json!([[[758 * MIB, 1382 * MIB]]]);
        let measured = Measured::of(&answer).unwrap();
        let handles = (measured.context, measured.blas, measured.dnn);
        assert_eq!(handles, (Bytes::mib(760), Some(Bytes::mib(64)), Some(Bytes::mib(10))));
    }

    #[test]
    fn operations_are_compared_by_name() {
        let real = answer();
        let mut phantom = answer();
        phantom["operations"]["b"] = json!([3, 5 * MIB]);
        phantom["operations"]["a"] = json!([1, 274]);
        let compared = Compared::of(&real, &phantom);
        assert_eq!((compared.all, compared.alike), (2, 1));
        assert_eq!(compared.others, ["b: 3 B + 4 B and 3 B + 5.0 MiB"]);
        assert_eq!(Compared::of(&real, &json!({})).alike, 0);
    }
}
