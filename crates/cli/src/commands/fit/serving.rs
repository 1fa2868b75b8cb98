//! What a serving engine can hold: the runs, each a process of its own, that a search of `plimsoll_fit::serving` asks for.

use std::{ffi::OsString, time::Instant};

use anyhow::Context as _;
use plimsoll_core::{
    cards::{self, Card},
    prediction::{self, Outcome},
    recording::{ENGINES, EngineNote, EngineWords},
    spelling,
};
use plimsoll_fit::{
    serving::{self, Came, Flags, Lever, Order, Trial, Wanted},
    views::serving::{self as view, Report},
};

use super::{Template, card::chosen};
use crate::{
    cache::Cache,
    contract,
    engine::{
        diagnosis,
        launch::{Device, Ranks, ScriptCommand, ScriptOutput, Signals, Stop},
        phantom_run::{self, How, Run, Runner},
        server::is_server,
    },
    exit::Exit,
    files::requested_file::RequestedFile,
    options::{cli::FitArgs, ghost_weights::GhostWeights},
    output::{Output, say},
    shell,
};

/// Some version of an engine plans its cache where nobody looks.
const NO_PLAN: &str = "the engine started, and plimsoll did not see how it plans its cache: this version plans it elsewhere";
/// What a search sets for vLLM where the user does not: it does not store what it compiles, because each run has a store of its own, which no
/// other length finds; and the process of its engine is forked from that of `vllm serve`, which has imported the same.
const VARIABLES: [(&str, &str); 2] =
    [("VLLM_DISABLE_COMPILE_CACHE", "1"), ("VLLM_WORKER_MULTIPROC_METHOD", "fork")];

pub(super) fn run(args: &FitArgs, out: &mut Output) -> anyhow::Result<Exit> {
    let wanted =
        Wanted { users: args.users, context: args.context, allowed: allowed(&args.allow)? };
    let (card, how) = chosen(args)?;
    let is_any_card = matches!(how, Some(How::Largest(_))) && args.memory.is_none();
    if is_any_card && (args.users.is_none() || args.context.is_none()) {
        anyhow::bail!(
            "nothing says which card the engine is to fit: name one with --gpu; or give both --users and --context, and plimsoll looks for the smallest card"
        );
    }
    let words = Template::new(&args.command, &args.set)?.words();
    let json = args.json.as_deref().map(RequestedFile::open).transpose()?;
    let started = Instant::now();
    let command = ScriptCommand::resolve(&words)?;
    let mut runner = Runner::new(Cache::open()?, &args.world)?;
    runner.share_what_is_compiled()?;
    let mut maker = Maker { args, runner, command: &command, engine: engine_of(&words) };
    let mut make = |order: Order<'_>| maker.make(order);
    let found = if is_any_card {
        let mut cards: Vec<&Card> = cards::catalogue().iter().filter(|it| it.usual).collect();
        cards.sort_by_key(|it| it.total);
        serving::smallest_card(&wanted, &cards, &card, &mut make)?
    } else {
        serving::search(&wanted, &card, &mut make)?
    };
    let best_card = found.best().and_then(|it| cards::find(&it.card).ok());
    let report = Report {
        card: best_card.filter(|_| is_any_card).unwrap_or(&card),
        is_any_card,
        command: found
            .best()
            .map(|it| command_with(&words, &it.flags_with_length(), found.words())),
        seconds: started.elapsed().as_secs_f64(),
        reached: maker.runner.reached(),
        wanted,
        found: &found,
    };
    if let Some(sink) = json {
        let to_stdout = sink.is_stdout();
        sink.json(&view::json(&report), out)?;
        if to_stdout {
            return Ok(exit(&found));
        }
    }
    if !args.quiet {
        out.report(&view::text(&report), args.full, &[])?;
    }
    Ok(exit(&found))
}

fn exit(found: &serving::Found) -> Exit {
    match found.best {
        Some(_) if found.is_so_far() => Exit::CouldNotTell,
        Some(_) => Exit::Fits,
        None if found.interrupted || found.failure().is_some() => Exit::CouldNotTell,
        None => Exit::DoesNotFit,
    }
}

fn allowed(names: &[String]) -> anyhow::Result<Vec<Lever>> {
    let mut known: Vec<String> =
        ENGINES.iter().flat_map(|it| Lever::ALL.map(|lever| lever.id(it))).collect();
    known.dedup();
    let of = |name: &String| {
        let is_it =
            |lever: &Lever| ENGINES.iter().any(|it| lever.id(it) == name.trim_start_matches('-'));
        let found = Lever::ALL.into_iter().find(is_it);
        found.with_context(|| {
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            let rest = format!("there are {}", known.join(", "));
            let meant = spelling::meant_or(name, &known, &rest);
            format!("there is no flag {name} that the search for an engine may set{meant}")
        })
    };
    names.iter().map(of).collect()
}

/// The command with the engine's flags, as somebody would type it; of a script that starts the engine itself, its arguments.
fn command_with(words: &[OsString], flags: &Flags, engine: &EngineWords) -> String {
    if !is_server(words) {
        let one = |(name, value): (String, Option<String>)| {
            let value = value.unwrap_or_else(|| "True".to_owned());
            let is_text = value.parse::<f64>().is_err() && value != "True";
            if is_text { format!("{name}=\"{value}\"") } else { format!("{name}={value}") }
        };
        let all: Vec<String> = flags.options(engine).into_iter().map(one).collect();
        return format!("{}(..., {})", engine.call, all.join(", "));
    }
    let mut res: Vec<OsString> = Vec::new();
    let options: Vec<_> = (flags.options(engine).into_iter())
        .map(|(name, value)| (format!("--{}", name.replace('_', "-")), value))
        .collect();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        let is_said = |(name, _): &(String, Option<String>)| {
            text == name.as_str() || text.starts_with(&format!("{name}="))
        };
        match options.iter().find(|it| is_said(it)) {
            // Its value goes with it.
            Some((_, Some(_))) if !text.contains('=') => drop(words.next()),
            Some(_) => {}
            None => res.push(word.clone()),
        }
    }
    for (name, value) in options {
        res.push(name.into());
        res.extend(value.map(OsString::from));
    }
    shell::shown(&res)
}

/// The engine that the command names, until a run shows which it is.
fn engine_of(words: &[OsString]) -> &'static EngineWords {
    let is_named =
        |it: &&EngineWords| words.iter().any(|word| word.to_string_lossy().contains(it.id));
    ENGINES.iter().find(is_named).unwrap_or_else(|| EngineNote::default().words())
}

/// Makes runs.
struct Maker<'a> {
    args: &'a FitArgs,
    runner: Runner,
    command: &'a ScriptCommand,
    engine: &'static EngineWords,
}

impl Maker<'_> {
    fn make(&mut self, order: Order<'_>) -> anyhow::Result<Trial> {
        let began = Instant::now();
        let assumed: String = self.args.assume.iter().map(|it| it.conf_line()).collect();
        let signals = Signals::hold().context("cannot hold signals")?;
        let mut settings = vec![(contract::ENGINE, view::for_agent(&order).into())];
        let free = |it: &(&str, &str)| self.command.variable(it.0).is_none();
        settings
            .extend(VARIABLES.into_iter().filter(free).map(|(name, value)| (name, value.into())));
        let run = Run {
            command: self.command,
            conf: &(order.card.phantom_conf(self.args.gpus) + &assumed),
            // The agent ends the run once the engine has shown what it holds.
            stop: Stop::UntilExit,
            ranks: &Ranks::OfLauncher { rank: 0 },
            ghost_weights: GhostWeights::Auto,
            output: ScriptOutput::InSession,
            settings: &settings,
            device: Device::Phantom,
        };
        let left = self.runner.run(run, &signals, None)?;
        let (recordings, _) = phantom_run::read(&left.folders);
        let ended = diagnosis::without_a_late_signal(left.ended, &recordings);
        let facts = phantom_run::facts(&ended, None);
        let prediction = prediction::predict(&recordings, order.card, facts);
        let notes = recordings.iter().filter_map(|it| it.notes.engine.clone());
        let note = notes.reduce(EngineNote::and).unwrap_or_default();
        let ran_out = || match &prediction.oom {
            Some(oom) => format!("{} more with {} in use", oom.requested, oom.reserved),
            None => "PyTorch does not report where".to_owned(),
        };
        let came = if ended.interrupted.is_some() {
            Came::Interrupted
        } else if let Some(refused) = &note.refused {
            Came::Refuses(refused.why.clone())
        } else if let (true, Some(held)) = (note.is_ready, note.users) {
            if order.users <= held { Came::Ready } else { Came::TooFew }
        } else if note.is_ready {
            Came::Fails(NO_PLAN.to_owned())
        } else if prediction.outcome == Outcome::OutOfMemory {
            Came::RanOut(ran_out())
        } else if note.users.is_some_and(|held| held < order.users) && note.blocks.is_some() {
            Came::TooFew
        } else {
            let why = diagnosis::diagnose(self.command, &ended, &recordings).unwrap_or_else(|| {
                let known = ENGINES.map(|it| it.name).join(", ");
                format!("the script started no engine that plimsoll knows ({known})")
            });
            let raised = recordings
                .iter()
                .any(|it| it.notes.end.as_ref().is_some_and(|it| it.exception.is_some()));
            Came::Fails(match left.last_words.filter(|_| !raised) {
                Some(words) => {
                    format!(
                        "{}; its last words: {words}",
                        why.trim_end_matches(diagnosis::OUTPUT_ABOVE)
                    )
                }
                None => why,
            })
        };
        if !note.name.is_empty() {
            self.engine = note.words();
        }
        let trial = Trial { came, note };
        if !self.args.quiet {
            let seconds = began.elapsed().as_secs_f64();
            say(&format!(
                "{} on {}: {} ({seconds:.1} s)",
                order.flags.shown(self.engine),
                order.card.id,
                view::outcome(&trial),
            ));
        }
        Ok(trial)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_fit::serving::Length;

    use super::*;

    #[test]
    fn flags_take_the_place_of_those_in_the_command() {
        let words_of =
            |text: &str| ENGINES.iter().find(|it| text.contains(it.id)).unwrap_or(&ENGINES[0]);
        let flags =
            Flags { length: Length::Tokens(4096), fp8: true, eager: true, ..Flags::default() };
        let with = |text: &str| {
            let words: Vec<OsString> = text.split(' ').map(OsString::from).collect();
            command_with(&words, &flags, words_of(text))
        };
        assert_eq!(
            with("vllm serve m --max-model-len 8192 --kv-cache-dtype=auto --port 1"),
            "vllm serve m --port 1 --max-model-len 4096 --kv-cache-dtype fp8 --enforce-eager"
        );
        assert_eq!(
            with("python -m vllm.entrypoints.openai.api_server --enforce-eager --model m"),
            "python -m vllm.entrypoints.openai.api_server --model m --max-model-len 4096 --kv-cache-dtype fp8 --enforce-eager"
        );
        assert_eq!(
            with("python -m sglang.launch_server --model-path m --context-length 8192"),
            "python -m sglang.launch_server --model-path m --context-length 4096 --kv-cache-dtype fp8_e5m2 --disable-cuda-graph"
        );
        assert_eq!(
            with("python serve.py"),
            "LLM(..., max_model_len=4096, kv_cache_dtype=\"fp8\", enforce_eager=True)"
        );
    }
}
