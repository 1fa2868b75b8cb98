//! OOM messages: the real ones, ones as logs have them, and anything else, through the parser.

use std::fmt::Write as _;

use expect_test::{expect, expect_file};
use plimsoll_core::{
    explanation,
    failures::{Backend, Cause, Failure, Kind},
    printed::PrintedText,
    sources::oom_text,
    units::Bytes,
    views::{explain_text, text::Styles},
};
use proptest::prelude::*;

const MESSAGES: &str = include_str!("../../../../fixtures/oom-messages.jsonl");
const ONE: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 192.00 MiB. GPU 1 has a total capacity of 23.65 GiB of which 11.06 MiB is free. Process 881 has 4.81 GiB memory in use. Including non-PyTorch memory, this process has 18.60 GiB memory in use. Of the allocated memory 17.90 GiB is allocated by PyTorch, and 194.87 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.";

fn messages() -> impl Iterator<Item = (String, String)> {
    MESSAGES.lines().map(|line| {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        let text = |key: &str| value[key].as_str().unwrap().to_owned();
        (text("id"), text("message"))
    })
}

fn told(it: &Failure) -> String {
    let mut res = format!("{} {}", it.kind.word(), it.backend.word());
    let mut add = |name: &str, value: Option<Bytes>| {
        if let Some(value) = value {
            write!(res, " {name}={value}").unwrap();
        }
    };
    add("asked", it.requested);
    add("capacity", it.capacity);
    add("free", it.free);
    add("allocated", it.allocated);
    add("reserved", it.reserved);
    add("slack", it.slack);
    add("private", it.private_pools);
    add("process", it.process);
    add("limit", it.limit);
    add("others", it.others());
    for (pid, bytes) in &it.processes {
        write!(res, " [{pid}: {bytes}]").unwrap();
    }
    for (label, bytes) in &it.numbers {
        write!(res, " [{label}: {bytes}]").unwrap();
    }
    if it.clipped {
        res += " clipped";
    }
    write!(res, " -> {}", it.verdict().cause.word()).unwrap();
    res
}

fn one(text: &str) -> Failure {
    let mut found = oom_text::read(text);
    assert_eq!(found.len(), 1, "{text}\n{found:#?}");
    found.pop().unwrap()
}

#[test]
fn every_real_message_is_understood() {
    let mut table = String::new();
    for (id, message) in messages() {
        let it = one(&message);
        let decoy = matches!(it.kind, Kind::Warning | Kind::NotMemory(_));
        assert_eq!(
            decoy,
            ["oom-067", "oom-146", "oom-154", "oom-155"].contains(&id.as_str()),
            "{id}"
        );
        writeln!(table, "{id} {}", told(&it)).unwrap();
    }
    expect_file!["oom_texts.txt"].assert_eq(&table);
}

#[test]
fn whatever_logs_do_to_it_the_numbers_stay() {
    let expected = one(ONE);
    let json = serde_json::json!({ "log": format!("step 3\n{ONE}\n") }).to_string();
    for text in [
        format!("[rank1]: {ONE}"),
        format!("\x1b[31m{ONE}\x1b[0m"),
        format!("2026-01-02 03:04:05,678 ERROR trainer {ONE}\r\nbye"),
        format!("Ошибка: {ONE} — конец"),
        ONE.replace(". ", ".\n    "),
        ONE.replace(" of which", "\n of which").replace("in use. Of", "in use.\nOf"),
        json,
        format!("{ONE}\n{ONE}"),
    ] {
        let it = one(&text);
        assert_eq!(
            (it.requested, it.capacity, it.free, it.allocated, it.slack, it.process, it.device),
            (
                expected.requested,
                expected.capacity,
                expected.free,
                expected.allocated,
                expected.slack,
                expected.process,
                Some(1)
            ),
            "{text}"
        );
    }
}

#[test]
fn ranks_that_write_at_once_are_told_apart() {
    let traceback = |rank: u32, line: u32| {
        [
            "Traceback (most recent call last):".to_owned(),
            format!("  File \"/home/u/train.py\", line {line}, in main"),
            "    loss.backward()".to_owned(),
            "  File \"/venv/lib/python3.11/site-packages/torch/autograd/__init__.py\", line 9, in backward".to_owned(),
            "    run()".to_owned(),
            ONE.replace("GPU 1", &format!("GPU {rank}")),
        ]
        .map(|it| format!("[rank{rank}]: {it}"))
    };
    let both: Vec<String> =
        traceback(0, 10).into_iter().zip(traceback(1, 20)).flat_map(|(a, b)| [a, b]).collect();
    let found = oom_text::read(&both.join("\n"));
    let told: Vec<String> = found
        .iter()
        .map(|it| {
            let at = it.user_frame.as_ref().unwrap();
            format!(
                "rank {:?} gpu {:?} {}:{} {} {:?}\n",
                it.rank, it.device, at.file, at.line, at.text, it.phase
            )
        })
        .collect();
    expect![[r#"
        rank Some(0) gpu Some(0) /home/u/train.py:10 loss.backward() Some(Backward)
        rank Some(1) gpu Some(1) /home/u/train.py:20 loss.backward() Some(Backward)
    "#]]
    .assert_eq(&told.concat());
}

#[test]
fn other_forms() {
    let text = "Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : 14.95 GiB\nRequested               : 2.00 GiB\nDevice limit            : 23.69 GiB\nFree (according to CUDA): 18.88 MiB\nPyTorch limit (set by user-supplied memory fraction)\n                        : 17179869184.00 GiB";
    expect!["out_of_memory cuda_malloc_async asked=2.00 GiB capacity=23.69 GiB free=18.9 MiB allocated=14.95 GiB others=7.72 GiB -> other_process"].assert_eq(&told(&one(text)));
    let text = "RuntimeError: CUDA out of memory. Allocation was preemptively rejected because it would exceed per_process_memory_fraction limit. Requested size: 2.00 GiB";
    assert_eq!(one(text).verdict().cause, Cause::Limit);
    let text =
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate more than 1EB memory.";
    assert_eq!((one(text).requested, one(text).verdict().cause), (None, Cause::Size));
    let text = "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 3.20 GiB for an array with shape (1, 2)";
    assert_eq!((one(text).backend, one(text).verdict().cause), (Backend::Host, Cause::Host));
    let text = "[W 1] memory allocation failed with OOM on device 0 while trying to allocate 2097152 bytes (free: 1048576, total: 85899345920)";
    assert_eq!((one(text).kind, one(text).requested), (Kind::Warning, Some(Bytes::mib(2))));
}

#[test]
fn what_was_caught_stands_behind_what_was_not() {
    let caught = ONE.replace("192.00", "64.00");
    let found = explanation::of_text(
        "log",
        oom_text::read(&format!(
            "| WARNING: {caught}\n Skipping batch\nstep 9\nstep 10\nstep 11\n{ONE}"
        )),
        PrintedText::default(),
    );
    let told: Vec<_> = found.ooms.iter().map(|it| (it.facts.kind, it.facts.requested)).collect();
    assert_eq!(
        told,
        [(Kind::OutOfMemory, Some(Bytes::mib(192))), (Kind::Caught, Some(Bytes::mib(64)))]
    );
}

/// What a text does not say is not said beside what it cannot say.
#[test]
fn a_text_is_told_without_contradictions() {
    let explained = |id: &str| {
        let (_, message) = messages().find(|(it, _)| it == id).unwrap();
        let call = "Traceback (most recent call last):\n  File \"train.py\", line 9, in <module>\n    out = model(x)\n  File \"net.py\", line 4, in forward\n    return self.a(x)\n";
        let failures = oom_text::read(&format!("{call}{message}"));
        let found = [explanation::of_text("log", failures, PrintedText::default())];
        explain_text::explanations(&found, None, Styles::default(), 300).to_string()
    };
    let much_reserved = explained("oom-016");
    assert!(!much_reserved.contains("first forward pass"), "{much_reserved}");
    assert!(!much_reserved.contains("wasted"), "{much_reserved}");
    let even = "716.8 MiB too much, even with the 9.35 GiB that PyTorch has reserved";
    assert!(much_reserved.contains(even), "{much_reserved}");
    let outside = explained("oom-017");
    let row = outside.lines().find(|it| it.contains("outside of PyTorch")).unwrap();
    assert!(row.ends_with(" 3.88 GiB"), "{outside}");
}

#[test]
fn talk_about_it_is_not_it() {
    for text in [
        "If you see CUDA out of memory, reduce the batch size",
        "except torch.cuda.OutOfMemoryError:",
        "        except (RuntimeError, torch.OutOfMemoryError) as e:",
        "to avoid CUDA error: out of memory, use gradient checkpointing",
        "loss 0.3 mem 12.3 GiB free",
        "the pool tried to allocate 3 workers and ran out of threads; memory is fine",
        "KeyError: 'allocated'",
        "",
    ] {
        assert_eq!(oom_text::read(text), [], "{text}");
    }
}

proptest! {
    #[test]
    fn it_never_panics(text in "\\PC{0,400}") {
        oom_text::read(&text);
    }

    #[test]
    fn nor_on_messages_with_holes(id in 0..112_usize, from in 0..600_usize, to in 0..600_usize, with in "\\PC{0,12}") {
        let (_, message) = messages().nth(id).unwrap();
        let chars: Vec<char> = message.chars().collect();
        let (from, to) = (from.min(chars.len()), to.min(chars.len()));
        let (from, to) = (from.min(to), from.max(to));
        let text: String = chars[..from].iter().chain(with.chars().collect::<Vec<_>>().iter()).chain(&chars[to..]).collect();
        for it in oom_text::read(&text) {
            it.verdict();
            it.others();
        }
    }
}
