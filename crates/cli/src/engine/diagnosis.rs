//! Why a run gave no prediction, in one sentence: what was found, what was expected, what to do. It looks
//! at how the command ended and at what the agent noted; whether memory fits is not its business.

use std::{borrow::Cow, path::Path};

use nix::sys::signal::Signal;
use plimsoll_core::{
    cards::Card,
    codes::RemarkCode,
    prediction::{Counted, found_nothing},
    printable::printable,
    recording::{
        self, CodeLine, ENGINES, EndReason, Exception, HostGrowth, HostOwner, Mark, MarkKind,
        Phase, ReadNote, Recording,
    },
    units::{Bytes, grouped},
};

use crate::{
    engine::{
        launch::{self, End, Ended, ScriptCommand},
        python,
        server::is_server,
    },
    files::bounded_file,
};

/// What is said where that is so.
const NO_KERNELS: &str = "this PyTorch has no kernels for that card";

/// The end of a sentence about a script whose output people see.
pub(crate) const OUTPUT_ABOVE: &str = "; its output above shows why";

/// What to do when the machine itself, not the phantom, runs out.
const HOST_MEMORY: &str = "the script's CPU memory is real memory of this machine: use a machine with more, or fewer DataLoader workers";

/// `ended`, or a quiet end where the signal that ended the program says nothing of its memory: one that it sent itself when
/// all was done, an alarm included; or a crash after its last word, when Python took itself apart. A thread of C++ that wants
/// to enter Python then, as those of process groups that nobody destroyed may, is ended by `std::terminate`.
/// So is Ctrl-C on a server, which never ends by itself.
pub(crate) fn without_a_late_signal(ended: Ended, recordings: &[Recording]) -> Ended {
    if ended.interrupted.is_some() && has_served(recordings) {
        return Ended { end: End::Code(0), ..ended };
    }
    let killed_by = killed_by(ended.end);
    let is_abort = killed_by == Some(Signal::SIGABRT);
    // What came after the training steps may have missed the rest of an epoch that we ended.
    let said_it = |it: &Recording| it.notes.end.as_ref().is_some_and(|it| it.later.is_some());
    let ran_out = recordings.iter().any(Recording::ended_out_of_memory);
    if matches!(ended.end, End::Code(1..)) && !ran_out && recordings.iter().any(said_it) {
        return Ended { end: End::Code(0), ..ended };
    }
    let sent_itself =
        |it: &recording::End| it.signal.is_some() && it.signal == killed_by.map(|it| it as i32);
    if recordings.iter().any(|it| it.notes.end.as_ref().is_some_and(sent_itself)) {
        return Ended { end: End::Code(0), ..ended };
    }
    let said_its_last = |recording: &Recording| {
        recording
            .notes
            .end
            .as_ref()
            .is_some_and(|it| it.exception.is_none() && it.exit_code == Some(0))
    };
    let used_it = || recordings.iter().filter(|it| it.trace.is_some());
    let is_late = is_abort && used_it().next().is_some() && used_it().all(said_its_last);
    if is_late { Ended { end: End::Code(0), ..ended } } else { ended }
}

/// The sentence, or nothing when the run went as runs do. An out-of-memory error on the phantom is an
/// answer, not a failure.
pub(crate) fn diagnose(
    command: &ScriptCommand,
    ended: &Ended,
    recordings: &[Recording],
) -> Option<String> {
    let why = cause(command, ended, recordings)?;
    let waited = ended.waited_in_vain || recordings.iter().any(|it| it.notes.waited.is_some());
    let why = if waited {
        format!("{why}; after that the script waited without end, and plimsoll ended it")
    } else {
        why
    };
    // It quotes files and messages, which may be a stranger's.
    Some(printable(&why).into_owned())
}

fn cause(command: &ScriptCommand, ended: &Ended, recordings: &[Recording]) -> Option<String> {
    let steps = &Reached::of(recordings);
    // A server does not end by itself: what was seen of it is its answer.
    if ended.interrupted.is_some() && has_served(recordings) {
        return None;
    }
    // Who asks a script to stop that failed, and does not end, has waited for its answer.
    if let Some(signal) = ended.interrupted.filter(|_| !recordings.iter().any(has_failed)) {
        let after = after(steps);
        return Some(match signal {
            Signal::SIGINT => format!("interrupted {after}"),
            other => format!("stopped by {other} {after}"),
        });
    }
    if let Some(max) = ended.wrote_too_much {
        return Some(format!(
            "the script wrote more than {max}, the limit of its private layer, {}; raise the limit with --writes-max, or let the script write into your files with --writes through",
            after(steps)
        ));
    }
    let begun = || recordings.iter().filter_map(|it| it.notes.begin.as_ref());
    // A Python that has no torch leaves a beginning, too, when the script dies of it.
    let reached_torch = begun().any(|it| !it.torch.is_empty());
    if let (false, Some(it)) = (reached_torch, begun().next()) {
        let version = &it.python;
        return Some(format!(
            "the script needs torch, and its Python {version} has no torch; activate the environment that has torch, or install it: pip install torch"
        ));
    }
    // A helper with another Python may be refused while the training itself goes on.
    let unsupported = recordings.iter().find_map(|it| it.notes.unsupported.as_ref());
    if let Some(it) = unsupported.filter(|_| !reached_torch || ended.end != End::Code(0)) {
        return Some(it.text.clone());
    }
    if recordings.iter().any(|it| it.ended_out_of_memory() || it.lacked() != Bytes::ZERO) {
        return None;
    }
    if let Some(it) = recordings.iter().find(|it| ended.interrupted.is_some() && has_failed(it)) {
        return raised(it, steps);
    }
    // Its parent ends everything then, and itself.
    let of_an_engine = |it: &&Recording| it.notes.engine.is_some() && uncaught(it).is_some();
    if let Some(it) = recordings.iter().find(of_an_engine) {
        return raised(it, steps);
    }
    if let Some(signal) = killed_by(ended.end) {
        let grew = recordings.iter().find_map(|it| it.notes.host_growth());
        return Some(killed(signal, ended.host_ran_out, steps, grew.as_ref()));
    }
    // The ranks of a job know why; the launcher only knows that one of them failed.
    let ranks = || recordings.iter().filter(|it| rank(it).is_some());
    if let Some(it) = ranks().find(|it| uncaught(it).is_some()) {
        return raised(it, steps);
    }
    if let (true, Some(it)) = (ended.end != End::Code(0), ranks().find(|it| it.notes.end.is_none()))
    {
        let rank = rank(it).unwrap_or_default();
        return Some(format!(
            "rank {rank} ended without an error message {}: it crashed, or the kernel killed it because the machine ran out of memory; {HOST_MEMORY}",
            after(steps),
        ));
    }
    // A child that failed is its parent's affair, as long as that goes on. SGLang's fails, and exits with 0.
    let is_child = |it: &Recording| it.notes.begin.as_ref().is_some_and(|it| it.is_child);
    let goes_on = ended.end == End::Code(0)
        && !recordings.iter().any(|it| !is_child(it) && uncaught(it).is_some());
    let matters = |it: &&Recording| uncaught(it).is_some() && !(goes_on && is_child(it));
    // A serving engine's parent reports only that its engine ended, a loader's that its worker did.
    let tells_why = |it: &&Recording| {
        uncaught(it).is_some_and(|it| {
            let message = it.message.to_lowercase();
            let elsewhere =
                ["root cause", "scheduler died during", "error messages above", "output above has"];
            !elsewhere.iter().any(|it| message.contains(it))
                && !message.ends_with("exited unexpectedly")
        })
    };
    let failed: Vec<&Recording> = recordings.iter().filter(matters).collect();
    if let Some(it) = failed.iter().copied().find(tells_why).or(failed.first().copied()) {
        return raised(it, steps);
    }
    let code = match ended.end {
        End::Code(code) => code,
        End::Signal(_) => return None,
    };
    if !reached_torch {
        return Some(never_reached_torch(command, code));
    }
    if code != 0 {
        let after = after(steps);
        // Of a flag that it refuses, say: argparse prints why, and raises nothing.
        let why = if steps.serves && !steps.engine { OUTPUT_ABOVE } else { "" };
        return Some(format!("the script exited with code {code} {after}{why}"));
    }
    // A process that was killed left nothing, and the others have nothing to show.
    if recordings.iter().any(was_killed_at_work) && !recordings.iter().any(has_requests) {
        return Some(left_no_recording());
    }
    if recordings.iter().all(|it| it.trace.is_none()) {
        let used_it = recordings.iter().any(|recording| {
            let phantom = recording.phantom.as_ref();
            phantom.is_some_and(|it| 0 < it.launches)
                || recording.notes.end.is_none() && phantom.is_some()
        });
        return Some(match &steps.cut {
            Some(_) => format!(
                "the script ended {}; raise the limit on file sizes (`ulimit -f`), or free space on the disk of plimsoll's cache",
                after(steps),
            ),
            None if used_it => left_no_recording(),
            None => never_used_the_gpu(recordings),
        });
    }
    None
}

/// Whether a serving engine has planned its memory, and so started; or a server of the script's own has used the device.
pub(crate) fn has_served(recordings: &[Recording]) -> bool {
    let planned = |it: &Recording| it.notes.engine.as_ref().is_some_and(|it| it.blocks.is_some());
    let serves =
        |it: &Recording| it.notes.remarks.iter().any(|it| it.code == RemarkCode::ServerRuns);
    let of_its_own =
        || recordings.iter().any(serves) && recordings.iter().any(|it| it.trace.is_some());
    (recordings.iter().any(planned) || of_its_own()) && !recordings.iter().any(has_failed)
}

/// A signal's name and what it means, for the signals that programs die of.
fn killed(
    signal: Signal,
    host_ran_out: bool,
    steps: &Reached,
    grew: Option<&HostGrowth>,
) -> String {
    let after = after(steps);
    let grew = grew.map(grown).unwrap_or_default();
    match signal {
        Signal::SIGKILL if host_ran_out => {
            format!(
                "the kernel killed the script {after} because this machine ran out of memory{grew}; {HOST_MEMORY}"
            )
        }
        Signal::SIGKILL => format!(
            "the script was killed (SIGKILL) {after}; unless somebody killed it, the machine or its container ran out of memory{grew}: {HOST_MEMORY}"
        ),
        Signal::SIGSEGV | Signal::SIGBUS | Signal::SIGILL | Signal::SIGFPE | Signal::SIGABRT => {
            format!(
                "the script crashed ({signal}) {after}; if it does not crash on a real GPU, this is a bug in the phantom: please report it with the command and the output of `plimsoll doctor`"
            )
        }
        other => format!("the script was ended by {other} {after}"),
    }
}

/// What grew, as a part of a sentence.
fn grown(it: &HostGrowth) -> String {
    let whose = match it.owner {
        HostOwner::Process => "its own memory had",
        HostOwner::Workers => "that of its workers had",
    };
    let at = it
        .at
        .as_ref()
        .map(|it| format!(", the amount that {}:{} copies from the device", it.file, it.line));
    format!(" ({whose} grown by {} a step, to {}{})", it.each, it.to.1, at.unwrap_or_default())
}

fn raised(recording: &Recording, steps: &Reached) -> Option<String> {
    let Exception { class, message, user_frame } = uncaught(recording)?;
    // What the agent refuses is no error of the script.
    if let Some(sentence) = message.strip_prefix("plimsoll: ").filter(|_| class == "CannotApply") {
        return Some(sentence.to_owned());
    }
    let in_worker = said_in_a_worker(class, message);
    let message = in_worker.map(Cow::from).or_else(|| telling_line(message)).unwrap_or_default();
    let message = message.as_ref();
    let worker = if in_worker.is_some() { " in a worker of its DataLoader" } else { "" };
    let colon = if message.is_empty() { "" } else { ": " };
    let place =
        user_frame.as_ref().map_or_else(String::new, |it| format!(" at {}:{}", it.file, it.line));
    let after = after(steps);
    let why = ours(recording, message)
        .or_else(|| of_this_machine(class, message))
        .or_else(|| a_zero_of_ours(recording, class, message, user_frame.as_ref()))
        .unwrap_or_default();
    Some(format!("the script raised {class}{worker}{colon}{message}{place}, {after}{why}"))
}

/// Of Python's message about a process that is spawned while it is itself being started.
const BOOTSTRAPPING: &str = "has finished its bootstrapping phase";

/// The line of an exception's message that says what is wrong: of pydantic, which serving engines check their settings with, the first
/// that is indented, below the name of the field if there is one; and of that the first sentence, with the name and what it was set to.
fn telling_line(message: &str) -> Option<Cow<'_, str>> {
    if message.contains(BOOTSTRAPPING) {
        return Some(format!("a new process was started before its parent {BOOTSTRAPPING}").into());
    }
    let mut lines = message.lines();
    let first = lines.next()?;
    if !first.contains("validation error") || !first.contains(" for ") {
        let alone = first.trim_end().trim_end_matches(':');
        return Some(alone.strip_suffix(" from one of").unwrap_or(alone).into());
    }
    let mut field = None;
    let detail = loop {
        match lines.next() {
            Some(line) if line.starts_with("  ") => break line.trim(),
            Some(line) => field = Some(line.trim()).filter(|it| !it.is_empty()),
            None => return Some(first.into()),
        }
    };
    let (detail, more) = detail.split_once(" [type=").unwrap_or((detail, ""));
    let detail = detail.strip_prefix("Value error, ").unwrap_or(detail);
    let detail = detail.split_once(". ").map_or(detail, |it| it.0).trim_end_matches('.');
    let Some(field) = field else { return Some(detail.into()) };
    let set = more.split_once("input_value=").and_then(|it| it.1.split_once(", input_type="));
    let set = set.map_or_else(String::new, |it| format!(" (it is {})", it.0));
    Some(format!("{field}: {detail}{set}").into())
}

/// What to do about what is missing or taken on this machine, or in the folder of a model: the last part of a sentence.
fn of_this_machine(class: &str, message: &str) -> Option<String> {
    if let Some(rest) =
        message.strip_prefix("No module named ").filter(|_| class == "ModuleNotFoundError")
    {
        let name = rest.trim_matches('\'').split('.').next().unwrap_or(rest);
        return Some(format!("; activate the environment that has {name}, or install it there"));
    }
    if let Some((_, rest)) = message.split_once("World size (")
        && message.contains("is larger than the number of available GPUs")
    {
        let ranks = rest.split(')').next().unwrap_or_default();
        return Some(format!("; the phantom machine has one GPU: add --gpus {ranks}"));
    }
    let derived = ENGINES.iter().find_map(|it| {
        Some(message.split_once(&format!("greater than the derived {} (", it.length))?.1)
    });
    if let Some(rest) = derived
        && let Some(longest) =
            rest.split(['=', '.', ' ', ')']).find_map(|it| it.parse::<u64>().ok())
    {
        return Some(format!("; the model allows {} tokens at most", grouped(longest)));
    }
    let what = if message.to_lowercase().contains("address already in use") {
        "another program listens on that port: end it, or give the script another port"
    } else if message.contains("Cannot find any model weights") {
        "memory does not depend on their values: `--load-format dummy` starts the engine without them"
    } else if message.contains("not a valid JSON file") {
        "correct that file, or download the model again"
    } else if message.contains("Invalid repository ID or local directory") {
        "a folder needs the model's config.json; a name needs the network or Hugging Face's cache"
    } else if message.contains("Repo id must be in the form") {
        "there is no such folder: check its path, or give a model's name on the hub"
    } else if message.contains("Couldn't instantiate the backend tokenizer") {
        "the model's folder has no tokenizer: download it, or give --skip-tokenizer-init"
    } else if message.to_lowercase().contains("root cause above") {
        "the script's output above has it"
    } else if message.contains(BOOTSTRAPPING) {
        "each process that the script spawns runs the file once more: put what starts them below `if __name__ == \"__main__\":`"
    } else if message.contains("outgoing traffic has been disabled") {
        "the model is not in Hugging Face's cache, and HF_HUB_OFFLINE forbids the network: give a folder with its config.json"
    } else if message.contains("does not recognize this architecture") {
        "a newer transformers may know it"
    } else if message.contains("We couldn't connect to") {
        "the model is neither a folder here nor in Hugging Face's cache: check the path, or give a folder with its config.json"
    } else if message.contains("Cannot find the config file for ") {
        "the model is not quantized this way: use one that is, or no --quantization"
    } else {
        return None;
    };
    Some(format!("; {what}"))
}

/// What an exception said that a `DataLoader` raises again with the worker's traceback (`ExceptionWrapper` of `torch/_utils.py`).
fn said_in_a_worker<'a>(class: &str, message: &'a str) -> Option<&'a str> {
    let (first, rest) = message.split_once('\n')?;
    first.contains(" in DataLoader worker process ").then_some(())?;
    let said = |it: &'a str| it.split_once(": ").filter(|(raised, _)| raised.ends_with(class));
    rest.lines().rev().find_map(said).map(|it| it.1)
}

/// The same sentence, with what to install for a card that this PyTorch has no kernels for.
pub(crate) fn with_kernels(sentence: String, card: &Card) -> String {
    match card.torch_with_kernels() {
        Some(what) if sentence.contains(NO_KERNELS) => {
            sentence.replacen(NO_KERNELS, &format!("{NO_KERNELS} ({what} has some)"), 1)
        }
        _ => sentence,
    }
}

/// What on our side the exception may come from: the last part of a sentence.
fn ours(recording: &Recording, message: &str) -> Option<String> {
    let lower = message.to_lowercase();
    if lower.contains("bus error") || lower.contains("to file </torch_") {
        return Some(
            "; /dev/shm of this machine, through which workers send batches, was full: enlarge it (`docker run --shm-size=8g`), or use fewer workers"
                .to_owned(),
        );
    }
    if message.contains("no kernel image is available") {
        return Some(format!("; {NO_KERNELS}, so the script would fail on a real one, too"));
    }
    if let Some(why) = hidden(recording).filter(|_| message.contains("CUDA")) {
        return Some(format!("; {why}"));
    }
    if let Some(why) = too_few_devices(recording, message) {
        return Some(why);
    }
    if message.to_lowercase().contains("nccl error") {
        return Some(
            "; the phantom does not answer NCCL yet: predict one process without it".to_owned(),
        );
    }
    let refused: Vec<&str> = recording
        .phantom
        .iter()
        .flat_map(|it| &it.not_imitated)
        .map(|it| it.name.as_str())
        .collect();
    (!refused.is_empty()).then(|| {
        let refused = refused.join(", ");
        format!("; probably a limit of plimsoll, not an error of the script: the phantom does not imitate {refused}")
    })
}

/// How many lines above a `raise` its condition stands, at most.
const DECIDES_WITHIN: u32 = 6;

/// The last part of a sentence about an exception that a value which nobody computed may have led to: one that the line
/// itself read, or a division by one.
fn a_zero_of_ours(
    recording: &Recording,
    class: &str,
    message: &str,
    at: Option<&CodeLine>,
) -> Option<String> {
    let reads = &recording.notes.reads;
    // What a script raises by itself it decides a few lines above.
    if let Some(at) = at.filter(|at| at.text.starts_with("raise ")) {
        let decides = |read: &&ReadNote| {
            read.at.file == at.file
                && (at.line.saturating_sub(DECIDES_WITHIN)..=at.line).contains(&read.at.line)
        };
        return reads.iter().find(decides).map(read_as_zero);
    }
    let of_numbers = class == "ZeroDivisionError" || message.contains("math domain error");
    // What values lead to; a missing file on the line that trains has other reasons.
    let of_values = ["ValueError", "IndexError", "RuntimeError", "AssertionError", "OverflowError"];
    let values = of_values.contains(&class);
    let here = |note: &&ReadNote| {
        values && at.is_some_and(|at| note.at.file == at.file && note.at.line == at.line)
    };
    let read = reads.iter().find(here).or_else(|| reads.first().filter(|_| of_numbers));
    let Some(read) = read else {
        return values
            .then(|| a_size_of_ours(recording).or_else(|| an_answer_of_ours(recording)))
            .flatten();
    };
    Some(read_as_zero(read))
}

fn read_as_zero(ReadNote { at, count, bytes, .. }: &ReadNote) -> String {
    // The same truth value in each turn of a loop would let it turn for ever.
    if bytes.0 == *count {
        return format!(
            "; on a phantom, values that the GPU computes are zero, and the script read a truth value at {}:{}. If that caused the exception, run fewer steps with `--steps N`",
            at.file, at.line
        );
    }
    format!(
        "; on a phantom, values that the GPU computes are zero, and the script read one at {}:{}. If that caused the exception, give the value with `--assume {at}=NUMBER`, the share that masks or unique() find with `--assume nonzero=SHARE` or `unique=SHARE`, or stop earlier with `--steps N`",
        at.file, at.line
    )
}

/// Likewise, where another line read a number of the width of sizes.
fn a_size_of_ours(recording: &Recording) -> Option<String> {
    let is_size = |it: &&ReadNote| it.at.line != 0 && it.sizes != 0;
    recording.notes.reads.iter().find(is_size).map(read_as_zero)
}

/// Likewise, where sizes follow from what was found in values that nobody computed.
fn an_answer_of_ours(recording: &Recording) -> Option<String> {
    let approximated = recording.phantom.iter().flat_map(|it| &it.approximated);
    let answers: Vec<&str> = approximated
        .map(|it| it.what.as_str())
        .filter(|value| {
            ["assume", "answered", "random on a phantom"].iter().any(|word| value.contains(word))
        })
        .collect();
    (!answers.is_empty())
        .then(|| format!("; a possible cause is unknown to the phantom: {}", answers.join("; ")))
}

/// No process of the command imported torch with the agent in it.
fn never_reached_torch(command: &ScriptCommand, code: i32) -> String {
    if command.is_python() {
        let (options, script) = command.python_words();
        if let Some(script) = script.filter(|it| !it.exists()) {
            return launch::no_such_script(script);
        }
        // `-I`, `-E` and `-S`, alone or in a group such as `-uE`.
        let shuts_out = options.iter().find(|option| {
            let text = option.to_string_lossy();
            let is_group = text.starts_with('-') && !text.starts_with("--");
            is_group
                && !text.starts_with("-c")
                && !text.starts_with("-m")
                && text.contains(['I', 'E', 'S'])
        });
        if let Some(option) = shuts_out {
            let option = option.display();
            return format!(
                "python {option} keeps plimsoll's agent from loading, which needs PYTHONPATH and sitecustomize; run the script without {option}"
            );
        }
        if let Ok(probe) = python::probe(&command.program, None)
            && probe.torch.is_none()
        {
            let python = &probe.executable;
            return format!(
                "{python} runs the script and has no torch; activate the environment that has torch, or install it: {python} -m pip install torch"
            );
        }
        if let Some(script) = script.filter(|script| is_empty(script)) {
            return format!(
                "the script {} is empty; give the script that trains",
                script.display()
            );
        }
        if let Some(script) = script.filter(|_| code == 0) {
            return format!(
                "{} ended and imported no torch; is it the script that trains? (plimsoll does not see what runs under env -i, sudo or docker)",
                script.display()
            );
        }
    }
    if code != 0 {
        return format!(
            "the command exited with code {code} before it imported torch; its output above shows why"
        );
    }
    "no process of the command imported torch where plimsoll could see it; give the command that trains, and do not clear its environment (env -i, sudo, python -I)"
        .to_owned()
}

/// Whether it is a file without a word.
fn is_empty(script: &Path) -> bool {
    bounded_file::text(script, bounded_file::SOURCE).is_ok_and(|text| text.trim().is_empty())
}

/// Whether it used the device, and was ended before it wrote what it asked for.
fn was_killed_at_work(it: &Recording) -> bool {
    let worked = it.phantom.as_ref().is_some_and(|it| 0 < it.launches);
    worked && it.trace.is_none() && it.notes.end.is_none()
}

fn has_requests(it: &Recording) -> bool {
    let devices = it.trace.iter().flat_map(|it| &it.devices);
    devices.into_iter().any(|it| !it.events.is_empty() || !it.segments.is_empty())
}

fn left_no_recording() -> String {
    "the script used the GPU, but ended without a recording: a limit on file sizes (ulimit -f), or a library ended the process; let the script end normally, or use --steps N"
        .to_owned()
}

fn never_used_the_gpu(recordings: &[Recording]) -> String {
    if let Some(why) = recordings.iter().find_map(hidden) {
        return format!("the script used no GPU: {why}");
    }
    "the script ended without using a GPU; does it move its model to \"cuda\" when there is one?"
        .to_owned()
}

/// Why a process saw no GPU, if it saw none.
fn hidden(recording: &Recording) -> Option<String> {
    let phantom = recording.phantom.as_ref().filter(|it| it.devices.is_empty())?;
    let is = match phantom.visible_devices.as_deref()? {
        "" => "empty".to_owned(),
        it => format!("\"{it}\""),
    };
    Some(format!("CUDA_VISIBLE_DEVICES is {is}, so PyTorch sees no GPU; set it to 0, or remove it"))
}

/// Why a process had not as many GPUs as it asked for: the last part of a sentence.
fn too_few_devices(recording: &Recording, message: &str) -> Option<String> {
    let phantom = recording.phantom.as_ref()?;
    // What PyTorch looks at before it asks CUDA.
    let by_torch = ["invalid device ordinal", "Invalid device id", "on CUDA device "];
    by_torch.iter().any(|it| message.contains(it)).then_some(())?;
    let named = message.split_once("on CUDA device ").and_then(|halves| {
        let digits = halves.1.split(|it: char| !it.is_ascii_digit()).next()?;
        Some(digits.parse::<u64>().ok()? + 1)
    });
    let seen = u64::try_from(phantom.devices.len().max(1)).unwrap_or(1);
    let asked = named.unwrap_or(0).max(phantom.devices_asked).max(seen + 1);
    let gpus = if seen == 1 { "GPU" } else { "GPUs" };
    Some(format!(
        "; it asked for cuda:{}, and the phantom machine has {seen} {gpus}: use --gpus {asked}",
        asked - 1
    ))
}

/// How far a run came, as far as that was recorded.
struct Reached {
    steps: u32,
    /// Why it was recorded in part only; then it may have come further.
    cut: Option<String>,
    /// A serving engine had planned its memory: it has no optimizer steps.
    engine: bool,
    /// The command starts a server, or a serving engine had begun: they have none either.
    serves: bool,
    /// Forward passes that were finished, if it made no optimizer.
    passes: Option<u32>,
    /// What its steps are, if they are no optimizer's.
    counted: Option<Counted>,
}

impl Reached {
    fn of(recordings: &[Recording]) -> Reached {
        let mut ends = recordings.iter().filter_map(|it| it.notes.end.as_ref()).peekable();
        let has_none = ends.peek().is_some() && !ends.any(|it| it.has_optimizer);
        let mut engines = recordings.iter().filter_map(|it| it.notes.engine.as_ref());
        Reached {
            steps: recordings.iter().map(steps_seen).max().unwrap_or(0),
            cut: recordings.iter().find_map(|it| it.notes.cut.clone()),
            engine: engines.any(|it| it.blocks.is_some()),
            serves: serves(recordings),
            passes: has_none.then(|| recordings.iter().map(passes_seen).max().unwrap_or(0)),
            counted: recordings.iter().find_map(counted),
        }
    }
}

/// Whether the command of a run starts a server, or a serving engine had begun in it.
fn serves(recordings: &[Recording]) -> bool {
    let mut begun = recordings.iter().filter_map(|it| it.notes.begin.as_ref());
    recordings.iter().any(|it| it.notes.engine.is_some()) || begun.any(|it| is_server(&it.argv))
}

/// Whether a run that failed may have missed what its masks would have found. A server fails before its first request, when nobody has
/// looked at values.
pub(crate) fn may_miss_what_masks_find(recordings: &[Recording]) -> bool {
    recordings.iter().any(found_nothing) && !serves(recordings)
}

fn after(reached: &Reached) -> String {
    if reached.engine {
        return "after the serving engine had planned its memory".to_owned();
    }
    let Some(why) = &reached.cut else {
        return match reached.steps {
            // Its first passes are its own.
            _ if reached.serves => "before the engine was ready".to_owned(),
            0 => match reached.passes {
                Some(0) => "before the first forward pass was finished".to_owned(),
                Some(n) => format!("after {}", Counted::ForwardPasses.times(n)),
                None => "before the first optimizer step was finished".to_owned(),
            },
            n => match reached.counted {
                Some(what) => format!("after {}", what.times(n)),
                None => format!("after {}", optimizer_steps(n)),
            },
        };
    };
    match reached.steps {
        0 => format!(
            "after an unknown number of optimizer steps (plimsoll's notes could not be written: {why})"
        ),
        n => format!(
            "after {} or more (plimsoll's notes could not be written any further: {why})",
            optimizer_steps(n)
        ),
    }
}

fn optimizer_steps(n: u32) -> String {
    if n == 1 { "1 optimizer step".to_owned() } else { format!("{n} optimizer steps") }
}

fn steps_seen(recording: &Recording) -> u32 {
    let marked = recording.notes.marks.iter().map(|it| it.step).max().unwrap_or(0);
    let ended = recording.notes.end.as_ref().map_or(0, |it| it.steps);
    marked.max(ended)
}

fn counted(recording: &Recording) -> Option<Counted> {
    recording.notes.remarks.iter().find_map(|it| match it.code {
        RemarkCode::StepsByForward => Some(Counted::ForwardPasses),
        RemarkCode::StepsByBackward => Some(Counted::BackwardPasses),
        _ => None,
    })
}

fn passes_seen(recording: &Recording) -> u32 {
    let is_one = |it: &&Mark| matches!(it.kind, MarkKind::End(Phase::Forward | Phase::Evaluation));
    u32::try_from(recording.notes.marks.iter().filter(is_one).count()).unwrap_or(u32::MAX)
}

fn rank(recording: &Recording) -> Option<u32> {
    recording.notes.begin.as_ref()?.rank
}

fn uncaught(recording: &Recording) -> Option<&Exception> {
    recording.notes.end.as_ref()?.exception.as_ref()
}

/// Whether it is known that it failed, whatever came later.
fn has_failed(recording: &Recording) -> bool {
    let end = recording.notes.end.as_ref();
    end.is_some_and(|it| matches!(it.why, EndReason::Oom | EndReason::Exception))
}

/// The signal that ended the script. A shell in between turns it into 128 and its number.
fn killed_by(end: End) -> Option<Signal> {
    let number = match end {
        End::Signal(number) => number,
        End::Code(code @ 129..=165) => code - 128,
        End::Code(_) => return None,
    };
    Signal::try_from(number).ok()
}

#[cfg(test)]
mod tests {
    use plimsoll_core::{
        recording::{Approximated, EngineNote, Notes, PhantomDevice, PhantomReport},
        trace::Trace,
    };

    use super::*;

    fn reached(steps: u32) -> Reached {
        Reached { steps, cut: None, engine: false, serves: false, passes: None, counted: None }
    }

    #[test]
    fn what_was_not_recorded_is_not_told_as_not_done() {
        let cut = |steps| {
            after(&Reached { steps, cut: Some("File too large".to_owned()), ..reached(steps) })
        };
        assert_eq!(
            cut(0),
            "after an unknown number of optimizer steps (plimsoll's notes could not be written: File too large)"
        );
        assert_eq!(
            cut(1),
            "after 1 optimizer step or more (plimsoll's notes could not be written any further: File too large)"
        );
        assert_eq!(after(&reached(0)), "before the first optimizer step was finished");
        assert_eq!(after(&reached(6)), "after 6 optimizer steps");
        let passes = |n| after(&Reached { passes: Some(n), ..reached(0) });
        assert_eq!(passes(0), "before the first forward pass was finished");
        assert_eq!(passes(3), "after 3 forward passes");
        let counted = Some(Counted::ForwardPasses);
        assert_eq!(after(&Reached { counted, ..reached(4) }), "after 4 forward passes");
        assert_eq!(after(&Reached { serves: true, ..reached(2) }), "before the engine was ready");
        assert_eq!(
            after(&Reached { engine: true, ..reached(1) }),
            "after the serving engine had planned its memory"
        );
    }

    #[test]
    fn a_request_to_stop_after_an_error_does_not_hide_it() {
        let failed = |why, class: &str| {
            let exception = Some(Exception { class: class.to_owned(), ..Exception::default() });
            let end = Some(recording::End { why, exception, ..Default::default() });
            Recording {
                notes: Notes { end, begin: begun(), ..Notes::default() },
                ..Recording::default()
            }
        };
        let command = ScriptCommand {
            program: "python".into(),
            arguments: Vec::new(),
            environment: Vec::new(),
        };
        let told = |it: Recording, interrupted| {
            let end = End::Signal(Signal::SIGTERM as i32);
            let ended = Ended { end, interrupted, ..quiet_end() };
            diagnose(&command, &ended, &[it])
        };
        let asked = Some(Signal::SIGTERM);
        assert_eq!(told(failed(EndReason::Oom, "torch.OutOfMemoryError"), asked), None);
        assert_eq!(
            told(failed(EndReason::Exception, "ValueError"), asked).unwrap(),
            "the script raised ValueError, before the first forward pass was finished"
        );
        assert_eq!(
            told(failed(EndReason::Interrupt, "KeyboardInterrupt"), asked).unwrap(),
            "stopped by SIGTERM before the first forward pass was finished"
        );
    }

    #[test]
    fn a_child_that_failed_matters_where_its_parent_failed_too() {
        let exception = Some(Exception { class: "ValueError".to_owned(), ..Exception::default() });
        let end =
            Some(recording::End { why: EndReason::Exception, exception, ..Default::default() });
        let begin = begun().map(|it| recording::Begin { is_child: true, ..it });
        let child = Recording {
            trace: Some(Trace::default()),
            notes: Notes { begin, end, ..Notes::default() },
            ..Recording::default()
        };
        let command = ScriptCommand {
            program: "python".into(),
            arguments: Vec::new(),
            environment: Vec::new(),
        };
        let told = |end, waited_in_vain| {
            let ended = Ended { end, waited_in_vain, ..quiet_end() };
            diagnose(&command, &ended, std::slice::from_ref(&child))
        };
        assert_eq!(told(End::Code(0), false), None);
        let said = "the script raised ValueError, before the first forward pass was finished";
        let engine = "SGLang ended itself; the script's output above has the reason";
        let exception = Some(Exception { message: engine.to_owned(), ..Exception::default() });
        let end =
            Some(recording::End { why: EndReason::Exception, exception, ..Default::default() });
        let parent = Recording {
            notes: Notes { begin: begun(), end, ..Notes::default() },
            ..Recording::default()
        };
        let ended = Ended { end: End::Code(0), ..quiet_end() };
        assert_eq!(diagnose(&command, &ended, &[parent, child.clone()]).unwrap(), said);
        assert_eq!(told(End::Code(1), false).unwrap(), said);
        assert_eq!(
            told(End::Code(1), true).unwrap(),
            format!("{said}; after that the script waited without end, and plimsoll ended it")
        );
    }

    #[test]
    fn who_was_killed_at_work_is_not_said_to_have_used_no_gpu() {
        let phantom = PhantomReport { launches: 1, ..PhantomReport::default() };
        let killed = Recording { phantom: Some(phantom), ..Recording::default() };
        let began = Notes { begin: begun(), ..Notes::default() };
        let parent =
            Recording { trace: Some(Trace::default()), notes: began, ..Recording::default() };
        let command = ScriptCommand {
            program: "python".into(),
            arguments: Vec::new(),
            environment: Vec::new(),
        };
        let why = diagnose(&command, &quiet_end(), &[parent, killed]).unwrap();
        assert!(why.contains("ended without a recording"), "{why}");
    }

    #[test]
    fn what_is_missing_or_taken_comes_with_what_to_do() {
        // As Python, vLLM 0.24 and pydantic 2.14 word it.
        let said = |class: &str, message: &str| {
            let line = telling_line(message).unwrap();
            format!("{line}{}", of_this_machine(class, &line).unwrap_or_default())
        };
        let rows = [
            (
                "ModuleNotFoundError",
                "No module named 'vllm.entrypoints'",
                "; activate the environment that has vllm, or install it there",
            ),
            (
                "OSError",
                "[Errno 98] Address already in use",
                "; another program listens on that port: end it, or give the script another port",
            ),
            (
                "RuntimeError",
                "Cannot find any model weights with `/m`",
                "; memory does not depend on their values: `--load-format dummy` starts the engine without them",
            ),
            (
                "OSError",
                "It looks like the config file at '/m/config.json' is not a valid JSON file.",
                "; correct that file, or download the model again",
            ),
            (
                "HFValidationError",
                "Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/m'. Use `repo_type` argument if needed.",
                "; there is no such folder: check its path, or give a model's name on the hub",
            ),
            (
                "OSError",
                "We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the cached files.",
                "; the model is neither a folder here nor in Hugging Face's cache: check the path, or give a folder with its config.json",
            ),
            ("RuntimeError", "shapes do not match", ""),
        ];
        // As Python 3.12 words it.
        let spawned = "\n        An attempt has been made to start a new process before the\n        current process has finished its bootstrapping phase.\n\n        This probably means";
        assert_eq!(
            said("RuntimeError", spawned),
            "a new process was started before its parent has finished its bootstrapping phase; each process that the script spawns runs the file once more: put what starts them below `if __name__ == \"__main__\":`"
        );
        // As transformers 5 words it, with what it looked for in lines of their own.
        let tokenizer = "Couldn't instantiate the backend tokenizer from one of: \n(1) a `tokenizers` library serialization file, \n(2) a slow tokenizer instance to convert or";
        assert_eq!(
            said("ValueError", tokenizer),
            "Couldn't instantiate the backend tokenizer; the model's folder has no tokenizer: download it, or give --skip-tokenizer-init"
        );
        for (class, message, advice) in rows {
            assert_eq!(said(class, message), format!("{message}{advice}"));
        }
        let of_pydantic = [
            (
                "Invalid repository ID or local directory specified: '/m'.\nPlease verify the following requirements:\n1. Provide a valid Hugging Face repository ID.",
                "Invalid repository ID or local directory specified: '/m'; a folder needs the model's config.json; a name needs the network or Hugging Face's cache",
            ),
            (
                "World size (2) is larger than the number of available GPUs (1) in this node. If this is intentional and you are using:\n- ray, set '--distributed-executor-backend ray'.\n- multiprocessing, set '--nnodes' appropriately.",
                "World size (2) is larger than the number of available GPUs (1) in this node; the phantom machine has one GPU: add --gpus 2",
            ),
            (
                "The checkpoint you are trying to load has model type `foo` but Transformers does not recognize this architecture. This could be because of an issue with the checkpoint.\n\nYou can update Transformers with the command `pip install --upgrade transformers`.",
                "The checkpoint you are trying to load has model type `foo` but Transformers does not recognize this architecture; a newer transformers may know it",
            ),
            (
                "User-specified max_model_len (100000) is greater than the derived max_model_len (max_position_embeddings=8192.0 or model_max_length=None in model's config.json). To allow overriding this maximum, set the env var VLLM_ALLOW_LONG_MAX_MODEL_LEN=1.",
                "User-specified max_model_len (100000) is greater than the derived max_model_len (max_position_embeddings=8192.0 or model_max_length=None in model's config.json); the model allows 8,192 tokens at most",
            ),
        ];
        for (message, sentence) in of_pydantic {
            let whole = format!(
                "1 validation error for ModelConfig\n  Value error, {message} [type=value_error, input_value=ArgsKwargs(()), input_type=ArgsKwargs]\n    For further information visit https://errors.pydantic.dev/2.14/v/value_error"
            );
            assert_eq!(said("ValidationError", &whole), sentence);
        }
        let of_a_field = "1 validation error for CacheConfig\ncache_dtype\n  Input should be 'auto' or 'fp8' [type=literal_error, input_value='x', input_type=str]";
        assert_eq!(
            said("ValidationError", of_a_field),
            "cache_dtype: Input should be 'auto' or 'fp8' (it is 'x')"
        );
    }

    #[test]
    fn masks_that_find_nothing_are_no_matter_of_a_server_whatever_starts_it() {
        let phantom = Some(PhantomReport { assumed_sizes: 3, ..Default::default() });
        let begin = |argv: &str| {
            let argv = argv.split(' ').map(str::to_owned).collect();
            Some(recording::Begin { argv, ..begun().unwrap() })
        };
        let ran = |argv: &str, engine: Option<EngineNote>| {
            let notes = Notes { begin: begin(argv), engine, ..Default::default() };
            let it = Recording { phantom: phantom.clone(), notes, ..Recording::default() };
            may_miss_what_masks_find(&[it])
        };
        let engine = Some(EngineNote { name: "vllm".to_owned(), ..EngineNote::default() });
        assert!(ran("train.py", None));
        assert!(!ran("/env/bin/vllm serve m", None));
        assert!(!ran("my_server.py --model m", engine), "the engine's note tells it");
    }

    fn begun() -> Option<recording::Begin> {
        Some(recording::Begin { torch: "2.11.0".to_owned(), ..Default::default() })
    }

    fn quiet_end() -> Ended {
        Ended {
            host: Default::default(),
            end: End::Code(0),
            seconds: 1.0,
            interrupted: None,
            n_left_running: 0,
            waited_in_vain: false,
            host_ran_out: false,
            wrote_too_much: None,
        }
    }

    #[test]
    fn a_host_that_is_full_is_told_with_what_grew() {
        let at = CodeLine { file: "train.py".to_owned(), line: 9, ..CodeLine::default() };
        let (from, to) = ((2, Bytes::gib(1)), (40, Bytes::gib(20)));
        let grew =
            HostGrowth { owner: HostOwner::Process, each: Bytes::mib(512), from, to, at: Some(at) };
        let told = killed(Signal::SIGKILL, true, &reached(40), Some(&grew));
        let part = "because this machine ran out of memory (its own memory had grown by 512.0 MiB a step, to 20.00 GiB, the amount that train.py:9 copies from the device); ";
        assert!(told.contains(part), "{told}");
        let bus = "DataLoader worker (pid 7) is killed by signal: Bus error.";
        let why = ours(&Recording::default(), bus).unwrap();
        assert!(why.starts_with("; /dev/shm of this machine"), "{why}");
    }

    #[test]
    fn a_device_too_many_names_the_option() {
        let seen = |devices_asked, message: &str| {
            let devices = vec![PhantomDevice::default()];
            let phantom = PhantomReport { devices, devices_asked, ..PhantomReport::default() };
            let it = Recording { phantom: Some(phantom), ..Recording::default() };
            ours(&it, message)
        };
        let two = "; it asked for cuda:1, and the phantom machine has 1 GPU: use --gpus 2";
        assert_eq!(seen(2, "CUDA error: invalid device ordinal").as_deref(), Some(two));
        assert_eq!(seen(0, "Invalid device id").as_deref(), Some(two));
        let message =
            "Attempting to deserialize object on CUDA device 3 but torch.cuda.device_count() is 1";
        assert!(seen(0, message).unwrap().ends_with(": use --gpus 4"));
        assert_eq!(seen(2, "mat1 and mat2 shapes cannot be multiplied"), None);
    }

    #[test]
    fn a_size_that_does_not_fit_may_come_of_a_zero_that_another_line_read() {
        let of = |sizes: u64| {
            let exception = Exception {
                class: "RuntimeError".to_owned(),
                message: "Kernel size can't be greater than actual input size".to_owned(),
                user_frame: None,
            };
            let at = CodeLine { file: "/home/me/tts.py".to_owned(), line: 22, ..<_>::default() };
            let read = ReadNote { at, count: 3, bytes: Bytes(24), sizes, becomes_size: false };
            let end = recording::End { exception: Some(exception), ..Default::default() };
            let notes = Notes { end: Some(end), reads: vec![read], ..Notes::default() };
            raised(&Recording { notes, ..Recording::default() }, &reached(1)).unwrap()
        };
        assert!(of(3).contains("the script read one at /home/me/tts.py:22"), "{}", of(3));
        assert!(of(3).contains("give the value with `--assume tts.py:22=NUMBER`"));
        assert!(!of(0).contains("--assume"), "losses are read in every script");
    }

    #[test]
    fn what_the_agent_refuses_is_no_error_of_the_script() {
        let exception = Exception {
            class: "CannotApply".to_owned(),
            message: "plimsoll: --worst-seq found nothing to make longer".to_owned(),
            user_frame: Some(CodeLine::default()),
        };
        let end = recording::End { exception: Some(exception), ..Default::default() };
        let notes = Notes { end: Some(end), ..Notes::default() };
        let said = raised(&Recording { notes, ..Recording::default() }, &reached(1)).unwrap();
        assert_eq!(said, "--worst-seq found nothing to make longer");
    }

    #[test]
    fn a_size_that_does_not_fit_may_come_of_an_answer_of_ours() {
        let of = |class: &str| {
            let exception = Exception {
                class: class.to_owned(),
                message: "selected index k out of range".to_owned(),
                user_frame: None,
            };
            let end = recording::End { exception: Some(exception), ..Default::default() };
            let what = "nonzero() was assumed to find nothing".to_owned();
            let phantom = PhantomReport {
                approximated: vec![Approximated { what, count: 1 }],
                ..Default::default()
            };
            let notes = Notes { end: Some(end), ..Notes::default() };
            raised(
                &Recording { phantom: Some(phantom), notes, ..Recording::default() },
                &reached(1),
            )
            .unwrap()
        };
        let answer =
            "a possible cause is unknown to the phantom: nonzero() was assumed to find nothing";
        assert!(of("RuntimeError").ends_with(answer));
        assert!(!of("FileNotFoundError").contains(answer));
    }

    #[test]
    fn what_a_script_raises_by_itself_comes_of_a_value_only_if_one_was_read_just_above() {
        let at = |line, text: &str| CodeLine {
            file: "/home/me/tts.py".to_owned(),
            line,
            text: text.to_owned(),
            ..CodeLine::default()
        };
        let of = |read_at: u32| {
            let exception = Exception {
                class: "ValueError".to_owned(),
                message: "the label file has 3 columns".to_owned(),
                user_frame: Some(at(30, "raise ValueError(text)")),
            };
            let read = at(read_at, "if mask.any():");
            let reads =
                [ReadNote { at: read, count: 1, bytes: Bytes(8), sizes: 1, becomes_size: false }];
            let end = recording::End { exception: Some(exception), ..Default::default() };
            let what = "nonzero() was assumed to find nothing".to_owned();
            let phantom = PhantomReport {
                approximated: vec![Approximated { what, count: 1 }],
                ..Default::default()
            };
            let notes = Notes { end: Some(end), reads: reads.into(), ..Notes::default() };
            let it = Recording { phantom: Some(phantom), notes, ..Recording::default() };
            raised(&it, &reached(1)).unwrap()
        };
        assert!(of(29).contains("give the value with `--assume tts.py:29=NUMBER`"), "{}", of(29));
        assert!(!of(12).contains("phantom"), "{}", of(12));
    }

    #[test]
    fn a_signal_that_a_program_sends_itself_says_nothing_of_its_memory() {
        let ended = |end: End| Ended {
            host: Default::default(),
            end,
            seconds: 1.0,
            interrupted: None,
            n_left_running: 0,
            waited_in_vain: false,
            wrote_too_much: None,
            host_ran_out: false,
        };
        let recording = |signal: Option<i32>| {
            let end = recording::End { signal, ..Default::default() };
            Recording {
                notes: Notes { end: Some(end), ..Notes::default() },
                ..Recording::default()
            }
        };
        let after = |end: End, signal: Option<i32>| {
            without_a_late_signal(ended(end), &[recording(signal)]).end
        };
        assert_eq!(after(End::Signal(14), Some(14)), End::Code(0));
        // A shell in between.
        assert_eq!(after(End::Code(128 + 14), Some(14)), End::Code(0));
        assert_eq!(after(End::Signal(15), Some(14)), End::Signal(15));
        assert_eq!(after(End::Signal(15), None), End::Signal(15));
        assert_eq!(after(End::Code(3), None), End::Code(3));
    }

    #[test]
    fn a_crash_after_the_last_word_is_none() {
        let ended = |signal: Signal| Ended { end: End::Signal(signal as i32), ..quiet_end() };
        let recording = |exit_code: Option<i32>| {
            let end =
                exit_code.map(|it| recording::End { exit_code: Some(it), ..Default::default() });
            let notes = Notes { end, ..Notes::default() };
            Recording { trace: Some(Trace::default()), notes, ..Recording::default() }
        };
        let after = |signal, exit_codes: &[Option<i32>]| {
            let recordings: Vec<Recording> = exit_codes.iter().map(|it| recording(*it)).collect();
            without_a_late_signal(ended(signal), &recordings).end
        };
        assert_eq!(after(Signal::SIGABRT, &[Some(0)]), End::Code(0));
        for (signal, exit_codes) in [
            (Signal::SIGABRT, &[None][..]),
            (Signal::SIGABRT, &[Some(1)]),
            (Signal::SIGABRT, &[Some(0), None]),
            (Signal::SIGABRT, &[]),
            (Signal::SIGKILL, &[Some(0)]),
        ] {
            assert_eq!(after(signal, exit_codes), End::Signal(signal as i32), "{exit_codes:?}");
        }
    }
}
