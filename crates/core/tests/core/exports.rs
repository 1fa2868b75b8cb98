//! What leaves for other programs says the same as the report: the same peak to the byte, every byte of a
//! difference in one row, and no text of a recording that is anything but text.

use std::{collections::BTreeMap, fs, path::Path};

use plimsoll_core::{
    explanation::{self, At, Difference, Side},
    recording::Recording,
    sources::{self, ProcessFiles, snapshot},
    trace::{Action, DeviceTrace, Event, Frame, PoolId, StackId, StreamId, TextId, Trace},
    units::Bytes,
    views::{
        flamegraph, perfetto,
        tables::{self, Tables, Value},
    },
};

const MIB: u64 = 1 << 20;

/// Every recording among the fixtures.
fn fixtures() -> Vec<(String, Recording)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let mut res = Vec::new();
    for entry in fs::read_dir(root.join("snapshots")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|it| it == "pickle") {
            let (trace, _) = snapshot::read(&fs::read(&path).unwrap()).unwrap();
            let recording = Recording { trace: Some(trace), ..Recording::default() };
            res.push((path.file_name().unwrap().to_str().unwrap().to_owned(), recording));
        }
    }
    for name in ["train", "oom"] {
        let folder = root.join("recordings").join(name);
        let notes = fs::read(folder.join("agent.jsonl")).unwrap();
        let snapshot = fs::read(folder.join("snapshot.pickle")).unwrap();
        let files =
            ProcessFiles { pid: 1, notes: &notes, snapshot: Some(&snapshot), phantom_log: None };
        res.push((name.to_owned(), sources::read_process(files).recording));
    }
    res.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(7 <= res.len());
    res
}

fn peak(name: &str, recording: &Recording) -> Bytes {
    explanation::of_recording(name, recording, &[]).peak_allocated.unwrap()
}

/// A program that allocates and frees.
#[derive(Default)]
struct Program {
    trace: Trace,
    device: DeviceTrace,
    next: u64,
}

impl Program {
    fn stack(&mut self, frames: &[(&str, &str, u32)]) -> StackId {
        frames.iter().fold(StackId::EMPTY, |caller, (file, function, line)| {
            let file = self.trace.texts.intern(file);
            let function = self.trace.texts.intern(function);
            let frame = self.trace.stacks.frame(Frame { file, function, line: *line });
            self.trace.stacks.push(caller, frame)
        })
    }

    fn event(&mut self, action: Action, address: u64, size: u64, stack: StackId) {
        let time_micros = 10 * i64::try_from(self.device.events.len()).unwrap();
        self.device.events.push(Event {
            action,
            address,
            size: Bytes(size),
            stream: StreamId(0),
            pool: PoolId(0),
            stack,
            time_micros: time_micros + 1,
            metadata: TextId(0),
        });
    }

    /// A block in a segment of its own.
    fn alloc(&mut self, size: u64, stack: StackId) -> u64 {
        let address = 0x7f00_0000_0000 + self.next;
        self.next += size;
        self.event(Action::SegmentAlloc, address, size, stack);
        self.event(Action::Alloc, address, size, stack);
        address
    }

    fn free(&mut self, address: u64, size: u64) {
        self.event(Action::FreeRequested, address, size, StackId::EMPTY);
        self.event(Action::FreeCompleted, address, size, StackId::EMPTY);
    }

    fn recording(mut self) -> Recording {
        self.trace.streams.push(0);
        self.trace.pools.push((0, 0));
        self.trace.devices.push(self.device);
        Recording { trace: Some(self.trace), ..Recording::default() }
    }
}

/// `main` calls `f` and `g`, at these lines; each keeps this much.
fn two_functions(path: &str, main: [u32; 2], keeps: [u64; 2]) -> Recording {
    let mut it = Program::default();
    for (n, (function, line)) in [("f", 3), ("g", 7)].into_iter().enumerate() {
        let stack = it.stack(&[(path, "main", main[n]), (path, function, line)]);
        it.alloc(keeps[n] * MIB, stack);
    }
    it.recording()
}

fn difference(a: &Recording, b: &Recording) -> Difference {
    let side = |name: &str, recording| Side {
        name: name.to_owned(),
        recording,
        device: None,
        at: At::Peak,
    };
    explanation::difference(&side("a", a), &side("b", b)).unwrap()
}

#[test]
fn a_flame_graph_holds_the_peak() {
    for (name, recording) in fixtures() {
        let graph = flamegraph::flamegraph(&recording, None, At::Peak, &name).unwrap();
        assert_eq!(graph.bytes, peak(&name, &recording), "{name}");
        assert_eq!(graph.svg.matches("<script").count(), 1, "{name}");
        let end = flamegraph::flamegraph(&recording, None, At::Event(2), &name).unwrap();
        assert!(end.bytes <= graph.bytes, "{name}");
    }
}

#[test]
fn a_frame_that_looks_like_markup_is_shown() {
    let mut it = Program::default();
    let evil = "<script>alert(\"1\")</script>";
    let stack = it.stack(&[("</title>&.py", evil, 1), ("]]>.py", "\u{1}]]>", 2)]);
    it.alloc(MIB, stack);
    let graph = flamegraph::flamegraph(&it.recording(), None, At::Peak, "<x>.pickle").unwrap();
    assert!(
        graph
            .svg
            .contains("&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt; (title&gt;&amp;.py:1)")
    );
    assert!(graph.svg.contains("&lt;x&gt;.pickle"));
    assert_eq!(graph.svg.matches("<script").count(), 1);
    assert_eq!(graph.svg.matches("</script").count(), 1);
    assert_eq!(graph.svg.matches("]]>").count(), 1);
    assert!(!graph.svg.contains('\u{1}'));
}

#[test]
fn frames_lie_below_their_callers_outermost_first() {
    let recording = two_functions("/home/u/train.py", [11, 12], [3, 1]);
    let graph = flamegraph::flamegraph(&recording, None, At::Peak, "a").unwrap();
    let number = |frame: &str, name: &str| -> f64 {
        let frame = graph.svg.split(&format!("<g><title>{frame}")).nth(1).unwrap();
        let value = frame.split(&format!(" {name}=\"")).nth(1).unwrap();
        value.split('"').next().unwrap().parse().unwrap()
    };
    for (outer, inner) in
        [("main (train.py:11)", "f (train.py:3)"), ("main (train.py:12)", "g (train.py:7)")]
    {
        assert!(number(outer, "y") < number(inner, "y"));
        assert_eq!(number(outer, "x"), number(inner, "x"));
        assert_eq!(number(outer, "width"), number(inner, "width"));
    }
    let (f, g) = (number("f (", "width"), number("g (", "width"));
    assert!((f / g - 3.0).abs() < 0.01, "{f} {g}");
    assert!(graph.svg.contains("f (train.py:3)\n3.0 MiB (75.0 %), 1 block\n/home/u/train.py:3"));
}

#[test]
fn without_stacks_blocks_are_grouped_by_size_and_that_is_said() {
    let mut it = Program::default();
    for size in [2, 2, 5] {
        it.alloc(size * MIB, StackId::EMPTY);
    }
    let graph = flamegraph::flamegraph(&it.recording(), None, At::Peak, "a").unwrap();
    assert!(graph.svg.contains("blocks of 2.0 MiB\n4.0 MiB (44.4 %), 2 blocks"), "{}", graph.svg);
    assert!(graph.notes[0].starts_with("the recording has no call stacks"), "{:?}", graph.notes);
}

#[test]
fn moments_that_are_not_there_are_sentences() {
    let recording = two_functions("train.py", [1, 2], [1, 1]);
    let error = |at| flamegraph::flamegraph(&recording, None, at, "a").unwrap_err().to_string();
    assert_eq!(
        error(At::Event(4)),
        "there is no event 4: this recording has 4 of device 0, counted from 0"
    );
    assert!(error(At::Oom).contains("no request failed"));
    assert!(error(At::Step(2)).contains("there is no step 2: 0 were seen"));
    assert_eq!(error(At::Event(0)), "nothing is allocated after event 0 on device 0");
    let error = flamegraph::flamegraph(&recording, Some(3), At::Peak, "a").unwrap_err();
    assert_eq!(error.to_string(), "nothing happened on device 3; this recording has 0");
    assert!(flamegraph::flamegraph(&Recording::default(), None, At::Peak, "a").is_err());
}

/// The trace of a recording, parsed back: its events.
fn parsed(recording: &Recording) -> Vec<serde_json::Value> {
    let made = perfetto::perfetto(recording, None, "a \"name\" \u{7}").unwrap();
    let document: serde_json::Value = serde_json::from_str(&made.json).unwrap();
    document["traceEvents"].as_array().unwrap().clone()
}

#[test]
fn the_counters_of_a_trace_go_through_the_peak_and_their_parts_add_up() {
    for (name, recording) in fixtures() {
        let mut last: BTreeMap<String, u64> = BTreeMap::new();
        let mut highest = 0;
        let mut time = i64::MIN;
        let events = parsed(&recording);
        for it in events.iter().filter(|it| it["ph"] == "C") {
            let now = it["ts"].as_i64().unwrap();
            assert!(time <= now, "{name}: time goes back");
            time = now;
            last.insert(
                it["name"].as_str().unwrap().to_owned(),
                it["args"]["bytes"].as_u64().unwrap(),
            );
            highest = highest.max(last["allocated"]);
        }
        assert_eq!(highest, peak(&name, &recording).0, "{name}");
        let parts: u64 =
            last.iter().filter(|(name, _)| name.starts_with("for: ")).map(|(_, bytes)| bytes).sum();
        assert_eq!(parts, last["allocated"], "{name}");
        assert!(last["allocated"] <= last["active"], "{name}");
    }
}

#[test]
fn slices_of_a_track_do_not_overlap_and_steps_are_counted() {
    for (name, recording) in fixtures() {
        let mut tracks: BTreeMap<(u64, u64), Vec<(i64, i64)>> = BTreeMap::new();
        let mut steps = 0;
        for it in parsed(&recording).iter().filter(|it| it["ph"] == "X") {
            let track = (it["pid"].as_u64().unwrap(), it["tid"].as_u64().unwrap());
            let from = it["ts"].as_i64().unwrap();
            let to = from + it["dur"].as_i64().unwrap();
            tracks.entry(track).or_default().push((from, to));
            let is_step = it["name"].as_str().unwrap().starts_with("step ");
            steps += u32::from(is_step && !it["name"].as_str().unwrap().ends_with("ran out"));
        }
        for slices in tracks.values_mut() {
            slices.sort_unstable();
            assert!(slices.windows(2).all(|it| it[0].1 <= it[1].0), "{name}: {slices:?}");
        }
        let seen = explanation::of_recording(&name, &recording, &[]).steps;
        assert!(steps <= seen, "{name}: {steps} of {seen}");
    }
}

#[test]
fn what_was_there_before_is_counted_and_a_recording_without_times_says_so() {
    let mut it = Program::default();
    let stack = it.stack(&[("train.py", "main", 1)]);
    let first = it.alloc(MIB, stack);
    it.free(first, MIB);
    let mut recording = it.recording();
    let made = perfetto::perfetto(&recording, None, "a").unwrap();
    assert_eq!(made.notes, Vec::<String>::new());
    let trace = recording.trace.as_mut().unwrap();
    let mut events = plimsoll_core::trace::Events::default();
    trace.devices[0].events.iter().for_each(|(_, it)| events.push(Event { time_micros: 0, ..it }));
    trace.devices[0].events = events;
    let made = perfetto::perfetto(&recording, None, "a").unwrap();
    assert_eq!(
        made.notes,
        ["the recording has no times; each event takes one microsecond of the trace"]
    );
}

/// A table as text, by column.
fn column(table: &tables::Table<'_>, name: &str) -> Vec<Option<i64>> {
    let index = table.columns.iter().position(|it| it.name == name).unwrap();
    let int = |it| match it {
        Value::Int(it) => Some(it),
        Value::Bool(it) => Some(i64::from(it)),
        _ => None,
    };
    (0..table.rows).map(|row| int(table.value(row, index))).collect()
}

#[test]
fn tables_add_up_to_the_peak_and_every_key_has_its_row() {
    for (name, recording) in fixtures() {
        let made = Tables::of(&recording, None).unwrap();
        let [events, blocks, stacks, segments] = made.all();
        let sizes = column(&blocks, "size_bytes");
        let at_peak = column(&blocks, "at_peak");
        let sum: i64 = (sizes.iter().zip(&at_peak))
            .filter(|(_, it)| **it == Some(1))
            .filter_map(|it| *it.0)
            .sum();
        assert_eq!(sum.unsigned_abs(), peak(&name, &recording).0, "{name}");
        let highest = column(&events, "allocated_bytes").into_iter().max().unwrap();
        assert_eq!(highest, Some(sum), "{name}");

        let known = column(&stacks, "stack");
        for table in [&events, &blocks, &segments] {
            for stack in column(table, "stack").into_iter().flatten().filter(|it| *it != 0) {
                assert!(known.binary_search(&Some(stack)).is_ok(), "{name}: {}", table.name);
            }
        }
        // A block's events name the block.
        let of_event = column(&events, "block");
        for key in ["alloc_event", "free_event"] {
            for (block, event) in column(&blocks, key).into_iter().enumerate() {
                let Some(event) = event else { continue };
                let named = of_event[usize::try_from(event).unwrap()];
                assert_eq!(named, i64::try_from(block).ok(), "{name}: {key}");
            }
        }
    }
}

#[test]
fn the_manual_has_every_column() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/export.md");
    let page = fs::read_to_string(page).unwrap();
    for (table, columns) in [
        ("events", tables::EVENTS),
        ("blocks", tables::BLOCKS),
        ("stacks", tables::STACKS),
        ("segments", tables::SEGMENTS),
    ] {
        for it in columns {
            let row = format!("| {table} | `{}` | {} |", it.name, it.meaning);
            assert!(page.contains(&row), "docs/export.md lacks\n{row}");
        }
    }
}

#[test]
fn every_byte_of_a_difference_is_in_a_row_or_in_the_rest() {
    let all = fixtures();
    let moments = [At::Peak, At::End, At::Event(9)];
    for (a, one) in &all {
        for (b, other) in &all {
            for (x, y) in moments.iter().flat_map(|x| moments.iter().map(move |y| (*x, *y))) {
                let side = |name: &str, recording, at| Side {
                    name: name.to_owned(),
                    recording,
                    device: None,
                    at,
                };
                let found = explanation::difference(&side(a, one, x), &side(b, other, y)).unwrap();
                let sum: i128 = found.rows.iter().map(explanation::Row::change).sum();
                assert_eq!(sum + found.rest(), found.change(), "{a} {x}, {b} {y}");
                assert_eq!(found.rest(), 0, "{a} {x}, {b} {y}");
                assert_eq!(found.is_empty(), a == b && x == y, "{a} {x}, {b} {y}");
            }
        }
    }
}

#[test]
fn moved_lines_are_the_same_lines() {
    let before = two_functions("/home/a/train.py", [11, 12], [3, 1]);
    let after = two_functions("/mnt/b/train.py", [21, 22], [3, 5]);
    let found = difference(&before, &after);
    let [row] = &found.rows[..] else { panic!("{found:?}") };
    assert_eq!((row.at.as_str(), row.change()), ("train.py:7", i128::from(4 * MIB)));
    assert_eq!(found.notes, ["paths differ; plimsoll matched them by their ends: train.py"]);
    let stack: Vec<(&str, u32)> =
        row.stack.iter().map(|it| (it.function.as_str(), it.line)).collect();
    assert_eq!(stack, [("main", 22), ("g", 7)]);

    // The allocating line itself moves.
    let mut edited = Program::default();
    for (function, line, keeps) in [("f", 5, 3), ("g", 9, 2)] {
        let stack = edited.stack(&[
            ("/home/a/train.py", "main", line + 10),
            ("/home/a/train.py", function, line),
        ]);
        edited.alloc(keeps * MIB, stack);
    }
    let found = difference(&before, &edited.recording());
    let [row] = &found.rows[..] else { panic!("{found:?}") };
    assert_eq!(row.at, "train.py:9");
    assert_eq!(row.moved_from.as_deref(), Some("train.py:7"));
    assert!(found.notes[0].contains("lines stand elsewhere in the second"), "{:?}", found.notes);
}
