//! Names that strangers chose, in recordings, logs, scripts, settings and on the disk: none of their bytes reaches a terminal as it is,
//! from any command, and none makes a line of its own. What is not printable is shown as Rust shows it: `\x1b`, `\u{202e}`, `\n`.

use std::{
    fs,
    io::Write as _,
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};

use crate::support::{BEGIN, Place, Ran};

/// What a terminal, a workflow of GitHub or of Azure, XML, HTML and Markdown would obey. It has no slash, so that it is the name of a file, too.
/// One colour is our own.
const HOSTILE: &str = "e\x1b]52;c;eA\x07\x1b[2J\x1b[1;32mv\x1b[0m\x08\x7f\u{9b}31m\u{202e}\u{2066}\u{200f}\u{200b}\u{feff}\u{2028}\u{2029}\t\r\n\
     FAKE\n::error::x\n##[error]y\n  ::warning::z ::notice::w ##vso[task.x]<img src=x>|`@team [a](b)**c**";

/// Characters that reorder what stands beside them, and those that nobody sees.
fn is_hidden(it: char) -> bool {
    matches!(it, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// What our own text may have of a terminal's commands: the colours of a report, where they are asked for.
const OWN_COLOURS: [&str; 6] =
    ["\x1b[1;32m", "\x1b[1;31m", "\x1b[33m", "\x1b[1m", "\x1b[2m", "\x1b[0m"];

/// What of `text` a terminal, or who reads a job's log, would obey.
fn obeyed(text: &str, is_coloured: bool) -> Option<String> {
    let mut plain = text.to_owned();
    if is_coloured {
        OWN_COLOURS.iter().for_each(|it| plain = plain.replace(it, ""));
    }
    for line in plain.split('\n') {
        let hidden: Vec<char> =
            line.chars().filter(|it| it.is_control() || is_hidden(*it)).collect();
        let begin = line.trim_start();
        let begins = ["::", "FAKE"].into_iter().find(|it| begin.starts_with(it));
        let command = begins.or(["##[", "##vso["].into_iter().find(|it| line.contains(it)));
        if !hidden.is_empty() || command.is_some() {
            return Some(format!("{hidden:?} {command:?} in {line:?}"));
        }
    }
    None
}

/// `value` as Python's pickler writes it with protocol 2. A list of two numbers is a pool's id, which is a tuple.
fn pickle(value: &Value) -> Vec<u8> {
    fn text(out: &mut Vec<u8>, it: &str) {
        out.push(b'X');
        out.extend(u32::try_from(it.len()).unwrap().to_le_bytes());
        out.extend(it.as_bytes());
    }
    fn write(out: &mut Vec<u8>, value: &Value) {
        match value {
            Value::Null => out.push(b'N'),
            Value::Bool(it) => out.push(if *it { 0x88 } else { 0x89 }),
            Value::Number(it) => {
                out.extend([0x8a, 9]);
                out.extend(it.as_u64().unwrap().to_le_bytes());
                out.push(0);
            }
            Value::String(it) => text(out, it),
            Value::Array(items) if items.len() == 2 && items.iter().all(Value::is_u64) => {
                items.iter().for_each(|it| write(out, it));
                out.push(0x86);
            }
            Value::Array(items) => {
                out.extend(b"](");
                items.iter().for_each(|it| write(out, it));
                out.push(b'e');
            }
            Value::Object(entries) => {
                out.extend(b"}(");
                for (key, it) in entries {
                    text(out, key);
                    write(out, it);
                }
                out.push(b'u');
            }
        }
    }
    let mut res = vec![0x80, 2];
    write(&mut res, value);
    res.push(b'.');
    res
}

/// A snapshot in which every name is hostile: two blocks that stay, one that goes, and a request that failed.
fn snapshot(name: &str) -> Value {
    const MIB: u64 = 1 << 20;
    const BASE: u64 = 1 << 30;
    let frames = |line: u32| {
        json!([
            { "filename": format!("{name}.py"), "name": name, "line": line },
            { "filename": format!("folder/{name}/{name}.py"), "name": name, "line": line + 1 },
        ])
    };
    let event = |action: &str, address: u64, mib: u64, line: u32| {
        json!({
            "action": action, "addr": address, "size": mib * MIB, "stream": 0, "time_us": line, "frames": frames(line),
            "user_metadata": name,
        })
    };
    let events = [
        event("segment_alloc", BASE, 40, 1),
        event("alloc", BASE, 8, 2),
        event("alloc", BASE + 8 * MIB, 16, 3),
        event("alloc", BASE + 24 * MIB, 4, 4),
        event("free_requested", BASE + 24 * MIB, 4, 5),
        event("free_completed", BASE + 24 * MIB, 4, 6),
        event("oom", 0, 512, 7),
    ];
    let block = |offset: u64, mib: u64, state: &str, line: u32| {
        json!({
            "address": BASE + offset * MIB, "size": mib * MIB, "requested_size": mib * MIB, "state": state, "frames": frames(line),
        })
    };
    json!({
        "segments": [{
            "device": 0, "address": BASE, "total_size": 40 * MIB, "allocated_size": 24 * MIB, "active_size": 24 * MIB,
            "segment_type": "large", "stream": 0, "segment_pool_id": [0, 0], "is_expandable": false, "frames": frames(1),
            "blocks": [
                block(0, 8, "active_allocated", 2), block(8, 16, "active_allocated", 3), block(24, 16, "inactive", 4),
            ],
        }],
        "device_traces": [events],
        "external_annotations": [
            { "name": name, "stage": "START", "device": 0, "time_us": 1 },
            { "name": name, "stage": "END", "device": 0, "time_us": 6 },
        ],
        "allocator_settings": { "PYTORCH_CUDA_ALLOC_CONF": name, "expandable_segments": false },
    })
}

/// What an agent would note of a script in which every name is hostile; `ends` says how it ended.
fn notes(ends: &str) -> Vec<String> {
    let at =
        json!({ "file": format!("{HOSTILE}.py"), "line": 3, "function": HOSTILE, "text": HOSTILE });
    let with = |mut it: Value, more: &Value| {
        it.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        it
    };
    let place = json!({ "allocs": [2], "frees": [0] });
    let message = format!("CUDA out of memory. Tried to allocate 512.00 MiB. {HOSTILE}");
    let entry = |address: u64, mib: u64| json!({ "name": HOSTILE, "role": "parameter", "address": address, "bytes": mib << 20, "model": HOSTILE });
    let mut begin: Value = serde_json::from_str(BEGIN).unwrap();
    begin["argv"] = json!([HOSTILE, HOSTILE]);
    begin["cwd"] = json!(format!("/{HOSTILE}"));
    begin["script"] = json!(format!("/{HOSTILE}.py"));
    begin["torch"] = json!(format!("2.11.0+{HOSTILE}"));
    let mark = |what: &str, phase: Value, allocs: u32| {
        json!({
            "kind": "mark", "what": what, "step": u32::from(what == "step_end"), "phase": phase, "t": 1.0, "allocs": [allocs], "frees": [0],
            "reserved": [40 << 20], "allocated": [8 << 20],
        })
    };
    let mut res = vec![
        begin,
        mark("training_begin", Value::Null, 0),
        mark("phase_begin", json!("forward"), 0),
        with(
            json!({ "kind": "tensors", "device": 0, "entries": [entry(1 << 30, 8), entry((1 << 30) + (8 << 20), 16)] }),
            &place,
        ),
        mark("phase_end", json!("forward"), 2),
        mark("step_end", Value::Null, 2),
        with(
            json!({ "kind": "read", "count": 3, "bytes": 12, "sizes": 1, "becomes_size": true }),
            &at,
        ),
        with(json!({ "kind": "asked_size", "call": HOSTILE }), &at),
        json!({ "kind": "note", "code": HOSTILE, "text": HOSTILE }),
        json!({ "kind": "redone", "step": 1, "phase": "forward", "user_frame": at, "asked": HOSTILE, "refused": HOSTILE }),
        json!({ "kind": "first_step", "peak_allocated": 1, "peak_reserved": 2, "torch": HOSTILE, "gpu": HOSTILE, "inputs": [HOSTILE] }),
        json!({
            "kind": "phantom", "devices": [{ "total_bytes": 16_u64 << 30, "context_bytes": 1 << 28, "used_bytes": 40 << 20, "peak_bytes": 40 << 20 }],
            "visible_devices": HOSTILE, "asked_size": HOSTILE, "not_imitated": [{ "name": HOSTILE, "library": HOSTILE, "answer": HOSTILE, "count": 1 }],
            "approximated": [{ "what": HOSTILE, "count": 1 }], "unknown_reads": { "count": 3, "bytes": 12 },
        }),
        json!({ "kind": "stats", "device": 0, "peak_allocated": 28 << 20, "peak_reserved": 40 << 20, "allocs": 3, "frees": 1, "ooms": 1, "segments": 1 }),
    ];
    let class = if ends == "oom" { "OutOfMemoryError" } else { HOSTILE };
    if ends == "oom" {
        res.push(with(
            json!({
                "kind": "oom", "device": 0, "step": 1, "phase": "forward", "requested": 512 << 20, "message": message, "stack": [at, at],
                "user_frame": at, "caught": false,
            }),
            &place,
        ));
    }
    let exception = json!({ "type": class, "message": message, "user_frame": at });
    res.push(json!({
        "kind": "end", "why": ends, "steps": 1, "steady": ends == "exit", "has_optimizer": true, "exit_code": u32::from(ends != "exit"),
        "exception": if ends == "exit" { Value::Null } else { exception }, "seconds_imports": 1.0, "seconds": 2.0,
    }));
    if ends == "unsupported" {
        res.push(
            json!({ "kind": "unsupported", "reason": HOSTILE, "text": HOSTILE, "torch": HOSTILE }),
        );
    }
    res.iter().map(Value::to_string).collect()
}

/// A folder full of what strangers left, and a process that says of itself what it likes.
struct Stage {
    place: Place,
    living: Child,
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.living.kill();
        let _ = self.living.wait();
    }
}

impl Stage {
    fn new() -> Stage {
        let place = Place::new();
        let write = |name: &str, bytes: &[u8]| {
            let path = place.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        };
        let whole = snapshot(HOSTILE);
        let bytes = pickle(&whole);
        write("s.json", whole.to_string().as_bytes());
        write("s.pickle", &bytes);
        write("other.pickle", &pickle(&snapshot("good")));
        write(&format!("{HOSTILE}.pickle"), &bytes);
        write(&format!("cut {HOSTILE}.pickle"), &bytes[..bytes.len() - 40]);
        write(&format!("job/{HOSTILE}_rank0.pickle"), &bytes);
        write(&format!("job/{HOSTILE}_rank1.pickle"), &pickle(&snapshot("good")));
        write(&format!("job/{HOSTILE}_rank2.pickle"), b"nothing");
        for ends in ["oom", "exit", "exception", "unsupported"] {
            let all = notes(ends);
            let all: Vec<&str> = all.iter().map(String::as_str).collect();
            let code = u32::from(ends != "exit");
            let pickle = place.path().join("s.pickle");
            let rest = format!("cp {} $p/snapshot.pickle; exit {code}", pickle.display());
            place.noting_script(ends, &all, &rest);
            place.noting_script(&format!("{ends}{HOSTILE}"), &all, &rest);
            let file = fs::File::create(place.path().join(format!("{ends}.zip"))).unwrap();
            let mut zip = zip::ZipWriter::new(file);
            for (name, bytes) in
                [("agent.jsonl", all.join("\n").as_bytes()), ("snapshot.pickle", bytes.as_slice())]
            {
                let options = zip::write::SimpleFileOptions::default();
                zip.start_file(format!("process-7/{name}"), options).unwrap();
                zip.write_all(bytes).unwrap();
            }
            zip.finish().unwrap();
        }
        place.script(&format!("fails{HOSTILE}"), "exit 3");
        write("log.txt", log().as_bytes());
        write(&format!("{HOSTILE}.log"), log().as_bytes());
        write("trace.json", trace().as_bytes());
        let quoted = Value::from(HOSTILE).to_string().replace('\u{7f}', "\\u007f");
        let leaky = "import torch\nmodel = torch.nn.Linear(8, 8).cuda()\nkept = []\nfor step in range(9):\n    loss = model(x).sum()\n    loss.backward()\n    kept.append(loss)\n";
        write(&format!("lint/{HOSTILE}.py"), leaky.as_bytes());
        write(
            &format!("lint/{HOSTILE}/broken {HOSTILE}.py"),
            format!("def f({HOSTILE}:\n").as_bytes(),
        );
        write("settings/plimsoll.toml", format!("gpu = {quoted}\n").as_bytes());
        write("settings2/plimsoll.toml", format!("{quoted} = 1\n").as_bytes());
        write("settings3/plimsoll.toml", format!("gpu = \"{HOSTILE}\n").as_bytes());
        write(&format!("{HOSTILE}/plimsoll.toml"), b"gpu = \"t4\"\n");
        write(
            "plan.toml",
            format!("version = 1\n[first_step]\nallocated_bytes = 1\nreserved_bytes = 2\ntorch = {quoted}\ngpu = {quoted}\ninputs = [{quoted}]\n[[remedy]]\nid = \"allocator\"\nsettings = {quoted}\n").as_bytes(),
        );
        write("plan2.toml", format!("version = 1\n[[remedy]]\nid = {quoted}\n").as_bytes());
        write("plan3.toml", format!("version = 1\n[[remedy]]\nid = \"{HOSTILE}\n").as_bytes());
        write(
            "plan4.toml",
            format!("version = 1\n[[remedy]]\nid = \"allocator\"\n{quoted} = 0.5\n").as_bytes(),
        );
        write("goldens.toml", goldens(&quoted).as_bytes());
        write(
            "goldens2.toml",
            format!("version = 1\n[scripts.{quoted}]\ncommand = 3\n").as_bytes(),
        );
        write(
            "card.toml",
            format!("id = {quoted}\nname = {quoted}\ntotal = {quoted}\n").as_bytes(),
        );
        write(
            &format!("cards/{HOSTILE}.toml"),
            format!("like = \"t4\"\nid = {quoted}\nname = {quoted}\ntotal = \"{HOSTILE}\n")
                .as_bytes(),
        );
        write("cards/other.toml", format!("like = {quoted}\nid = {quoted}\n").as_bytes());
        let python = format!(
            "cat <<'END'\n{}\nEND",
            json!({ "executable": HOSTILE, "version": HOSTILE, "implementation": HOSTILE, "libc": HOSTILE, "torch": {
                "version": HOSTILE, "cuda": HOSTILE, "path": HOSTILE, "standing": "unsupported", "why": HOSTILE } })
        );
        place.script(&format!("python{HOSTILE}"), &python);
        let living = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
        write(&format!("running/{}.json", living.id()), status(living.id()).as_bytes());
        Stage { place, living }
    }

    /// What these words print.
    fn command(&self, words: &[String]) -> Command {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut res = self.place.plimsoll(&words);
        res.stdin(Stdio::null())
            .env("PLIMSOLL_RUNNING", self.place.path().join("running"))
            .env("PLIMSOLL_CARDS", self.place.path().join("cards"))
            .env("PLIMSOLL_PYTHON", self.place.path().join(format!("python{HOSTILE}")));
        res
    }
}

/// What `plimsoll top` reads of a process.
fn status(pid: u32) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit_once(')').unwrap().1;
    let started: u64 = fields.split_whitespace().nth(19).unwrap().parse().unwrap();
    let device = json!({ "uuid": HOSTILE, "index": 0, "total": 1 << 30, "allocated": 5, "reserved": 6, "categories": { HOSTILE: 3 } });
    json!({
        "format": 1, "pid": pid, "started": started, "label": HOSTILE, "command": [HOSTILE], "updated": 1.0, "step": 7, "devices": [device],
        "alarms": [{ "code": HOSTILE, "step": 3, "text": HOSTILE }], "raises_alarms": true,
    })
    .to_string()
}

/// A log with an error, and with tables that people paste.
fn log() -> String {
    format!(
        "trainer-1 | {HOSTILE}\nTraceback (most recent call last):\n  File \"/home/{HOSTILE}.py\", line 3, in {HOSTILE}\n    {HOSTILE}\n  \
         File \"/home/e\x1b[31m\u{9b}\u{202e}.py\", line 3, in e\x07\u{202e}\n    y = \u{202e}\x08model(x)\ntorch.OutOfMemoryError: CUDA out of memory. \
         Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.00 GiB is free. Process 7 has 78.00 GiB memory in use. \
         {HOSTILE}\n\n$ python \u{202e}\u{9b}.py\nNVIDIA H100 \u{202e}\x07 | 100MiB / 81559MiB | {HOSTILE}\n"
    )
}

/// A trace of torch's profiler.
fn trace() -> String {
    let event = |ts: u64, bytes: i64| {
        json!({ "ph": "i", "name": "[memory]", "cat": "cpu_instant_event", "ts": ts, "pid": HOSTILE, "tid": HOSTILE, "args": {
            "Device Type": 1, "Device Id": 0, "Bytes": bytes, "Total Allocated": bytes, "Total Reserved": 1 << 24, "Addr": 1 } })
    };
    let operator = json!({ "ph": "X", "cat": "cpu_op", "name": HOSTILE, "pid": HOSTILE, "tid": HOSTILE, "ts": 1, "dur": 50 });
    json!({ "schemaVersion": 1, "traceName": HOSTILE, "traceEvents": [operator, event(5, 1 << 20), event(9, 1 << 21)] })
        .to_string()
}

/// What two scripts took, in names of a stranger's; one of them is not what it was.
fn goldens(quoted: &str) -> String {
    let took = |of: &str| {
        format!(
            "[scripts.{of}.took]\nplimsoll = {:?}\ntorch = {}\ncard = \"t4\"\noutcome = {quoted}\nallocated = 1\nreserved = 1\ndevice = 1\n\
             [scripts.{of}.took.categories]\n{quoted} = 4096\n[[scripts.{of}.took.lines]]\nbytes = 4096\nfile = {quoted}\nline = 3\nfunction = {quoted}\n\
             category = {quoted}\ntext = {quoted}\n",
            env!("CARGO_PKG_VERSION"),
            Value::from(format!("2.11.0+{HOSTILE}")).to_string().replace('\u{7f}', "\\u007f"),
        )
    };
    let fails =
        Value::from(format!("./exception{HOSTILE}")).to_string().replace('\u{7f}', "\\u007f");
    format!(
        "version = 1\n[scripts.a]\ncommand = [\"./exit\"]\ngpu = \"t4\"\n{}[scripts.{quoted}]\ncommand = [{fails}]\ngpu = \"t4\"\n{}",
        took("a"),
        took(quoted),
    )
}

/// All commands of the grammar, as a test of its own holds.
const COMMANDS: [&str; 24] = [
    "predict",
    "fit",
    "layouts",
    "lint",
    "check",
    "run",
    "replay",
    "explain",
    "glossary",
    "diff",
    "export",
    "view",
    "watch",
    "top",
    "exporter",
    "cards",
    "verify",
    "calibrate",
    "agent",
    "doctor",
    "config",
    "completions",
    "man",
    "help",
];

/// What is run of a command.
fn invocations(command: &str) -> Vec<Vec<String>> {
    let h = HOSTILE;
    let all: &[&[&str]] = match command {
        "predict" => &[
            &["--gpu", "t4", "--", "./exit"],
            &["--gpu", "t4", "--", "./oom"],
            &["--gpu", "t4", "--json", "-", "--", "./exit"],
            &["--gpu", "t4", "--record", "{h}.zip", "--", "./exit{h}"],
            &["--gpu", "t4", "--", "./exception{h}"],
            &["--gpu", "t4", "--", "./unsupported{h}"],
            &["--", "./oom{h}"],
            &["--", "./fails{h}"],
            &["--", "./none{h}"],
            &["--", "{h}"],
            &["--", "none{h}.py"],
            &["--gpu", "{h}", "--", "./exit"],
            &["--gpu", "card.toml", "--", "./exit"],
            &["--gpu", "{h}.toml", "--", "./exit"],
            &["--gpu", "cards/other.toml", "--", "./exit"],
            &["--json", "{h}/{h}/{h}", "--", "./exit"],
            &["--assume", "{h}=3", "--", "./exit"],
            &["--{h}", "--", "./exit"],
            &["--until", "{h}", "./exit"],
        ],
        "fit" => &[
            &["--gpu", "t4", "--", "./exit{h}"],
            &["--gpu", "t4", "--", "./exception{h}"],
            &["--gpu", "t4", "--find-max", "{h}=1..4", "--", "./exit"],
            &["--gpu", "t4", "--find-max", "lint/{h}.py:4=1..4", "--", "./exit"],
            &["--gpu", "t4", "--find-max", "n=1..2", "--", "./exit{h}", "{n}"],
            &["--gpu", "t4", "--plan", "{h}/{h}/{h}", "--", "./exit"],
            &["--gpu", "t4", "--plan", "plan.toml", "--", "./exit{h}"],
            &["--allow", "{h}", "--", "./exit"],
        ],
        "layouts" => &[
            &["--gpu", "t4", "--gpus", "2", "--", "./fails{h}", "{tp}"],
            &["--gpu", "t4", "--gpus", "2", "--", "./exception{h}", "{tp}"],
            &["--gpu", "t4", "--gpus", "2", "--values", "x={h}", "--", "./fails", "{x}"],
            &["--gpu", "t4", "--gpus", "2", "--where", "{h}<=2", "--", "./exit", "{tp}"],
            &["--gpu", "t4", "--gpus", "2", "--json", "-", "--", "{h}", "{tp}"],
        ],
        "lint" => &[
            &["lint/{h}.py"],
            &["lint"],
            &["lint", "--format", "json"],
            &["lint", "--format", "sarif"],
            &["lint", "--confirm", "--gpu", "t4", "--", "./exit{h}"],
            &["lint/none{h}.py"],
            &["job/{h}_rank0.pickle"],
            &["--explain", "{h}"],
            &["--list"],
            &["--select", "{h}", "lint"],
        ],
        "check" => &[
            &["--goldens", "goldens.toml"],
            &["--goldens", "goldens.toml", "--format", "json"],
            &["--goldens", "goldens.toml", "--format", "markdown"],
            &["--goldens", "goldens.toml", "--format", "junit"],
            &["--goldens", "goldens.toml", "--format", "sarif"],
            &["--goldens", "goldens.toml", "{h}"],
            &["--goldens", "goldens.toml", "--update"],
            &["--goldens", "goldens.toml", "none{h}"],
            &["--goldens", "goldens2.toml"],
            &["--goldens", "plan.toml"],
            &["--goldens", "none{h}.toml"],
            &["--goldens", "goldens.toml", "-o", "{h}.docx"],
            &["--goldens", "new{h}.toml", "--add", "{h}", "--gpu", "t4", "--", "./exit{h}"],
        ],
        "run" => &[
            &["--no-gpu", "--", "./exit{h}"],
            &["--no-gpu", "--record", "{h}{h}.zip", "--", "./oom{h}"],
            &["--no-gpu", "--record", "ran{h}.zip", "--", "./oom{h}"],
            &["--no-gpu", "--survive", "--json", "-", "--", "./exit"],
            &["--no-gpu", "--plan", "plan.toml", "--", "./exit{h}"],
            &["--no-gpu", "--plan", "plan2.toml", "--", "./exit"],
            &["--no-gpu", "--plan", "plan3.toml", "--", "./exit"],
            &["--no-gpu", "--plan", "plan4.toml", "--", "./exit"],
            &["--no-gpu", "--plan", "none{h}.toml", "--", "./exit"],
            &["--no-gpu", "--watch", "--label", "{h}", "--on-alarm", "{h}", "--", "./exit"],
            &["--no-gpu", "--alarms", "{h}/{h}/{h}", "--", "./exit"],
            &["--no-gpu", "--webhook", "{h}", "--", "./exit"],
            &["--no-gpu", "--expect", "none{h}", "--", "./exit"],
            &["--", "./exit"],
            &["--no-gpu", "--", "./none{h}"],
        ],
        "replay" => &[
            &["s.json"],
            &["s.pickle", "--capacity", "1GiB"],
            &["s.pickle", "--capacity", "30MiB"],
            &["s.pickle", "--capacity", "1GiB", "--sweep"],
            &["s.json", "--capacity", "1GiB", "--json", "-"],
            &["{h}.pickle"],
            &["cut {h}.pickle"],
            &["oom.zip"],
            &["none{h}"],
            &["log.txt"],
            &["s.pickle", "--alloc-conf", "{h}"],
            &["s.pickle", "--torch", "{h}"],
        ],
        "explain" => &[
            &["s.json"],
            &["s.pickle"],
            &["s.pickle", "--json", "-"],
            &["{h}.pickle"],
            &["cut {h}.pickle"],
            &["oom.zip"],
            &["exit.zip"],
            &["exception.zip"],
            &["oom.zip", "--json", "-"],
            &["log.txt"],
            &["log.txt", "--json", "-"],
            &["{h}.log"],
            &["trace.json"],
            &["job"],
            &["job", "--json", "-"],
            &["s.pickle", "log.txt", "oom.zip", "none{h}"],
            &["none{h}"],
            &["lint/{h}.py"],
            &["--code", "{h}"],
            &["--list"],
            &["s.pickle", "--fix", "--", "./exit{h}"],
        ],
        "glossary" => &[&[], &["{h}"]],
        "diff" => &[
            &["s.pickle", "other.pickle"],
            &["s.pickle", "oom.zip"],
            &["oom.zip", "exit.zip"],
            &["other.pickle", "{h}.pickle", "--json", "-"],
            &["{h}.pickle@event:2", "{h}.pickle@end"],
            &["{h}.pickle", "--steps", "1..2"],
            &["job"],
            &["job", "--json", "-"],
            &["{h}.pickle"],
            &["s.pickle@{h}"],
            &["s.pickle", "none{h}"],
            &["cut {h}.pickle", "s.pickle"],
        ],
        "export" => &[
            &["s.pickle", "--to", "flamegraph", "-o", "-"],
            &["s.pickle", "--to", "perfetto", "-o", "-"],
            &["{h}.pickle", "--to", "flamegraph"],
            &["{h}.pickle", "--to", "perfetto", "-o", "{h}.json"],
            &["{h}.pickle", "--to", "parquet"],
            &["oom.zip", "--to", "html", "-o", "{h}.html"],
            &["oom.zip", "--to", "html", "-o", "{h}.html"],
            &["cut {h}.pickle", "--to", "flamegraph"],
            &["job", "--to", "flamegraph"],
            &["none{h}", "--to", "flamegraph"],
            &["s.pickle", "--to", "perfetto", "-o", "{h}/none/{h}"],
        ],
        "view" => &[
            &["s.pickle", "--html", "{h}.view.html"],
            &["cut {h}.pickle", "--html", "cut{h}.html"],
            &["none{h}", "--html", "-"],
            &["log.txt", "{h}.log", "--html", "-"],
            &["trace.json", "--html", "-"],
            &["s.pickle", "--token", "{h}"],
        ],
        "watch" => &[&["{h}{h}"], &["none"]],
        "top" => &[&["--once"], &["--json"], &["--once", "--filter", "{h}"], &["--sort", "{h}"]],
        "exporter" => &[
            &["--listen", "127.0.0.1:0", "--token-file", "none{h}"],
            &["--listen", "127.0.0.1:0", "--token-file", "{h}.log"],
            &["--listen", "{h}"],
        ],
        "cards" => &[&[], &["--json"], &["{h}"], &["none{h}"]],
        "verify" => &[&["--", "./exit{h}"], &["--report", "{h}/{h}/{h}", "--", "./exit"]],
        "calibrate" => &[&["-o", "{h}.toml"], &["--id", "{h}"]],
        "agent" => &[&[]],
        "doctor" => &[&[], &["--json"]],
        "config" => &[&[], &["--json"]],
        "completions" => &[&["bash"], &["zsh"], &["{h}"]],
        "help" => &[&[], &["{h}"]],
        "man" => &[&[], &["predict"], &["{h}"], &["--all", "{h}/pages"]],
        other => panic!(
            "no test says what strangers can do to `plimsoll {other}`: add what it is run with"
        ),
    };
    let words = |it: &&[&str]| {
        let more = it.iter().map(|it| it.replace("{h}", h));
        [command.to_owned()].into_iter().chain(more).collect()
    };
    all.iter().map(words).collect()
}

#[test]
fn no_command_lets_a_terminal_obey_a_name() {
    check_commands(4, 40);
}

#[test]
#[ignore = "part of `make soak`: four times as many as the test above"]
fn no_command_whatever_lets_a_terminal_obey_a_name() {
    check_commands(1, 150);
}

/// Every `nth` of all commands; at least so many texts show a name.
fn check_commands(nth: usize, least: usize) {
    let stage = Stage::new();
    let (mut wrong, mut shown) = (Vec::new(), 0);
    let all = COMMANDS.iter().flat_map(|it| invocations(it));
    for (n, mut words) in all.step_by(nth).enumerate() {
        // Every other one as on a terminal.
        let has_styles = ["predict", "lint", "replay", "explain", "diff"].contains(&&*words[0]);
        let color = if has_styles && n % 2 == 0 { "always" } else { "never" };
        // What follows `--` is the script's.
        let at = words.iter().position(|it| it == "--").unwrap_or(words.len());
        words.splice(at..at, ["--color", color].map(str::to_owned));
        let output = stage.command(&words).output().unwrap();
        assert!(std::str::from_utf8(&output.stdout).is_ok(), "{words:?}");
        assert!(std::str::from_utf8(&output.stderr).is_ok(), "{words:?}");
        let ran = Ran::from(output);
        assert!(!ran.stderr.contains("panicked"), "{words:?}: {ran:?}");
        for text in [&ran.stdout, &ran.stderr] {
            shown += usize::from(text.contains(r"]52;c;eA\x07"));
            // A picture in XML is no text for people, and no log.
            let is_picture = text.starts_with("<svg");
            let text = if is_picture { text.replace("##", "") } else { text.clone() };
            let found = obeyed(&text, color == "always");
            wrong.extend(found.map(|it| format!("{it} of {words:?}")));
        }
        if words.contains(&"--json".to_owned()) && !ran.stdout.is_empty() {
            let read = serde_json::from_str::<Value>(&ran.stdout);
            assert!(read.is_ok(), "{words:?}: {read:?}");
        }
    }
    assert!(wrong.is_empty(), "{} of them:\n{}", wrong.len(), wrong.join("\n"));
    assert!(least < shown, "the names are shown in {shown} texts only");
}

#[test]
fn neither_does_a_folder_with_settings() {
    let stage = Stage::new();
    let check = |words: &[&str], with: &dyn Fn(&mut Command)| {
        let words: Vec<String> = words.iter().map(|it| (*it).to_owned()).collect();
        let mut command = stage.command(&words);
        with(&mut command);
        let ran = Ran::from(command.output().unwrap());
        for text in [&ran.stdout, &ran.stderr] {
            assert_eq!(obeyed(text, false), None, "{words:?}: {ran:?}");
        }
    };
    for folder in ["settings", "settings2", "settings3", HOSTILE] {
        for words in [
            &["config"][..],
            &["config", "--json"],
            &["predict", "../exit"],
            &["fit", "--help"],
            &["predict", "--gpu", "t4", "../exit"],
        ] {
            check(words, &|it| _ = it.current_dir(stage.place.path().join(folder)));
        }
    }
    for variable in ["PLIMSOLL_GPU", "PLIMSOLL_CACHE", "PLIMSOLL_PYTHON"] {
        for words in [&["config"][..], &["config", "--json"], &["predict", "./exit"]] {
            check(words, &|it| _ = it.env(variable, HOSTILE));
        }
    }
}

#[test]
fn what_a_name_has_is_shown_and_what_is_printable_stays() {
    let place = Place::new();
    place
        .run(&["explain", "训练 é e\u{301} 🎉 \x1b[31m\u{202e}\n"])
        .assert_sentence("训练 é e\u{301} 🎉 \\x1b[31m\\u{202e}\\n");
}

/// A file that a program reads, too: what is written for GitHub is one command a line.
#[test]
fn a_name_makes_no_command_of_a_workflow_of_its_own() {
    let stage = Stage::new();
    let words = ["lint", "lint", "--format", "github"].map(str::to_owned);
    let ran = Ran::from(stage.command(&words).output().unwrap());
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{ran:?}");
    assert!(lines[0].starts_with("::warning title=plimsoll (PLM"), "{ran:?}");
    assert!(lines[1].starts_with("::error title=plimsoll::"), "{ran:?}");
    let rest = lines.join("\n").replace("::warning title", "").replace("::error title", "");
    assert_eq!(obeyed(&rest, false), None, "{ran:?}");
}
