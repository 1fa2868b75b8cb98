//! Random snapshots, written as every pickler writes them, read the same; and whatever is done to
//! the bytes, reading them ends, and never with a panic.

use crate::common::{Py, Style, pickle, s};
use plimsoll_core::{
    sources::{Problem, ReadError, snapshot},
    trace::{Event, Frame, Trace},
};
use proptest::prelude::*;

const STYLES: [Style; 7] = [
    Style::Python(0),
    Style::Python(1),
    Style::Python(2),
    Style::Python(3),
    Style::Python(4),
    Style::Python(5),
    Style::Cpp,
];

/// A stack of a few frames, shared by its number.
fn stack(id: u32) -> Py {
    let frame = |line: u32| {
        let frame = Py::Dict(vec![
            ("name", s(&format!("function{}", line % 3))),
            ("filename", s("/home/user/trän.py")),
            ("line", Py::Int(line.into())),
        ]);
        Py::Shared(1000 + line, Box::new(frame))
    };
    Py::Shared(id, Box::new(Py::List((0..id).map(frame).collect())))
}

fn event() -> impl Strategy<Value = Py> {
    let action = prop::sample::select(vec!["alloc", "free_requested", "free_completed", "dance"]);
    let addresses = prop_oneof![
        Just(0x7f00_0000_0000_i128),
        (0_i128..1 << 62),
        // Python writes these in nine bytes.
        (1_i128 << 63..1 << 64),
    ];
    let size = prop_oneof![0..600_i128, 0..1_i128 << 40];
    (action, addresses, size, 0..3_i128, 0..5_u32, 0..2_i128).prop_map(
        |(action, addr, size, stream, stack_id, pool)| {
            Py::Dict(vec![
                ("action", s(action)),
                ("addr", Py::Int(addr)),
                ("size", Py::Int(size)),
                ("stream", Py::Int(stream * 0x5555_0000_1111)),
                ("time_us", Py::Int(1_795_198_625_160_383)),
                ("user_metadata", s(&format!("m=layer.{stream}"))),
                ("something_new", Py::List(vec![Py::Float(1.5), Py::None, Py::Bool(true)])),
                ("pool_id", Py::Tuple(vec![Py::Int(0), Py::Int(pool)])),
                ("frames", stack(stack_id)),
            ])
        },
    )
}

fn snapshot_of(devices: Vec<Vec<Py>>) -> Py {
    let block = |state: &str, size: i128| {
        Py::Dict(vec![
            ("address", Py::Int(1 << 21)),
            ("size", Py::Int(size)),
            ("requested_size", Py::Int(size - 3)),
            ("state", s(state)),
            ("frames", stack(2)),
        ])
    };
    let segment = Py::Dict(vec![
        ("device", Py::Int(0)),
        ("address", Py::Int(1 << 21)),
        ("total_size", Py::Int(1 << 21)),
        ("stream", Py::Int(0)),
        ("segment_type", s("small")),
        ("segment_pool_id", Py::Tuple(vec![Py::Int(0), Py::Int(1)])),
        ("is_expandable", Py::Bool(false)),
        ("frames", Py::List(Vec::new())),
        ("blocks", Py::List(vec![block("active_allocated", 512), block("inactive", 2_096_640)])),
    ]);
    let settings = Py::Dict(vec![
        ("PYTORCH_CUDA_ALLOC_CONF", s("max_split_size_mb:64")),
        ("max_split_size", Py::Int(64 << 20)),
        ("expandable_segments", Py::Bool(true)),
        ("garbage_collection_threshold", Py::Float(0.75)),
        (
            "roundup_power2_divisions",
            Py::Dict(vec![("1", Py::Int(0)), ("2", Py::Int(4)), ("32768", Py::Int(8))]),
        ),
    ]);
    Py::Dict(vec![
        ("segments", Py::List(vec![segment])),
        ("device_traces", Py::List(devices.into_iter().map(Py::List).collect())),
        ("allocator_settings", settings),
        (
            "external_annotations",
            Py::List(vec![Py::Dict(vec![
                ("name", s("step")),
                ("stage", s("START")),
                ("device", Py::Int(0)),
                ("time_us", Py::Int(7)),
            ])]),
        ),
    ])
}

/// Everything that a trace says, without ids.
fn told(trace: &Trace) -> String {
    let mut res = String::new();
    for device in &trace.devices {
        res += "device\n";
        for (_, it) in device.events.iter() {
            let Event { action, address, size, stream, pool, stack, time_micros, metadata } = it;
            let stream = trace.streams[stream.index()];
            let pool = trace.pools[pool.index()];
            let metadata = trace.text(metadata);
            let frames: Vec<String> = trace
                .frames(stack)
                .map(|Frame { file, function, line }| {
                    format!("{}:{line}:{}", trace.text(file), trace.text(function))
                })
                .collect();
            res += &format!(
                "{action:?} {address:x} {size:#} {stream} {pool:?} {time_micros} {metadata} {frames:?}\n"
            );
        }
        res += &format!("{:?}\n{:?}\n", device.segments, device.blocks)
            // Ids count up by first appearance, which is the same for all writers.
            .replace("StackId", "");
    }
    res += &format!("{:?} {:?}", trace.settings, trace.annotations.len());
    res
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_writer_says_the_same(
        devices in prop::collection::vec(prop::collection::vec(event(), 0..30), 1..4),
    ) {
        let object = snapshot_of(devices.clone());
        let mut first = None;
        for style in STYLES {
            let mut bytes = pickle(&object, style);
            bytes.extend([0; 17]); // Padding after STOP, as in base64 in a page.
            let (trace, warnings) = snapshot::read(&bytes).unwrap();
            prop_assert_eq!(warnings, vec![]);
            let lens: Vec<usize> = trace.devices.iter().map(|it| it.events.len()).collect();
            let expected: Vec<usize> = devices.iter().map(Vec::len).collect();
            prop_assert_eq!(lens, expected, "{:?}", style);
            let told = told(&trace);
            match &first {
                None => first = Some(told),
                Some(first) => prop_assert_eq!(first, &told, "{:?}", style),
            }
        }
    }

    #[test]
    fn a_file_cut_off_anywhere_gives_what_came_before(
        events in prop::collection::vec(event(), 1..30),
        style in prop::sample::select(STYLES.to_vec()),
        at in any::<prop::sample::Index>(),
    ) {
        let n_events = events.len();
        let bytes = pickle(&snapshot_of(vec![Vec::new(), events]), style);
        let (whole, _) = snapshot::read(&bytes).unwrap();
        let cut = at.index(bytes.len());
        match snapshot::read(&bytes[..cut]) {
            Ok((trace, warnings)) => {
                prop_assert!(warnings.iter().any(|it| matches!(it.problem, Problem::Damaged(_))));
                prop_assert!(warnings.iter().all(|it| it.at <= cut as u64));
                let found: usize = trace.devices.iter().map(|it| it.events.len()).sum();
                prop_assert!(found <= n_events);
                // What is there is where it belongs, and is what the whole file says.
                for (device, part) in trace.devices.iter().enumerate() {
                    for (id, event) in part.events.iter() {
                        let told = whole.devices[device].events.get(id.index());
                        prop_assert_eq!((event.action, event.address), (told.action, told.address));
                    }
                }
                let after = b"allocator_settings";
                let after = bytes.windows(after.len()).position(|it| it == after).unwrap();
                if after < cut {
                    prop_assert_eq!(found, n_events);
                }
            }
            Err(ReadError::RunsCode { .. }) => prop_assert!(false, "it runs no code"),
            Err(error) => {
                // Nothing was complete, and it says so.
                let first = b"action";
                let first = bytes.windows(first.len()).position(|it| it == first);
                prop_assert!(first.is_none_or(|it| cut < it + 300), "{cut}: {error}");
                prop_assert!(!error.to_string().is_empty());
            }
        }
    }

    #[test]
    fn changed_bytes_never_panic(
        events in prop::collection::vec(event(), 0..20),
        style in prop::sample::select(STYLES.to_vec()),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
    ) {
        let mut bytes = pickle(&snapshot_of(vec![events]), style);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok((trace, _)) = snapshot::read(&bytes) {
            // Whatever it holds can be looked at.
            let _ = told(&trace);
            let settings = trace.settings.clone().unwrap_or_default();
            for device in &trace.devices {
                let _ = plimsoll_core::replay::checked(device, &settings);
            }
        }
    }

    #[test]
    fn any_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = snapshot::read(&bytes);
        let mut pickled = vec![0x80, 4];
        pickled.extend(bytes);
        let _ = snapshot::read(&pickled);
    }
}

#[test]
fn more_events_than_a_batch_holds() {
    let event = Py::Dict(vec![
        ("action", s("alloc")),
        ("addr", Py::Int(512)),
        ("size", Py::Int(1)),
        ("frames", stack(3)),
    ]);
    for style in STYLES {
        let bytes = pickle(&snapshot_of(vec![vec![event.clone(); 2500]; 2]), style);
        let (trace, warnings) = snapshot::read(&bytes).unwrap();
        assert_eq!(warnings, []);
        assert_eq!(trace.devices.iter().map(|it| it.events.len()).collect::<Vec<_>>(), [2500; 2]);
        assert_eq!(trace.stacks.n_nodes(), 1 + 3 + 2, "two stacks of 3 and 2 frames share nothing");
    }
}

#[test]
fn a_bare_list_of_segments_is_a_snapshot() {
    let segment = Py::Dict(vec![
        ("device", Py::Int(1)),
        ("address", Py::Int(-(1_i128 << 40))),
        ("total_size", Py::Int(2 << 20)),
        (
            "blocks",
            Py::List(vec![
                Py::Dict(vec![("size", Py::Int(512)), ("state", s("active_allocated"))]),
                Py::Dict(vec![("size", Py::Int(1024)), ("state", s("active_awaiting_free"))]),
            ]),
        ),
    ]);
    let (trace, warnings) = snapshot::read(&pickle(&Py::List(vec![segment]), Style::Cpp)).unwrap();
    assert_eq!(warnings, []);
    assert_eq!(trace.devices.len(), 2);
    let device = &trace.devices[1];
    let start = 0_u64.wrapping_sub(1 << 40);
    assert_eq!(device.segments[0].address, start, "C++ writes high addresses as negative numbers");
    // Before torch 2.1 a block does not say where it is.
    assert_eq!(device.blocks.iter().map(|it| it.address).collect::<Vec<_>>(), [start, start + 512]);
}

#[test]
fn what_would_run_code_is_refused_by_name() {
    let refused = |bytes: &[u8]| snapshot::read(bytes).unwrap_err().to_string();
    let start = "refused: this pickle contains the opcode ";
    let end = ", which runs code; a memory snapshot never does. Do not load it with Python either";
    assert_eq!(
        refused(b"cos\nsystem\n(S'echo hello'\ntR."),
        format!("{start}GLOBAL (os.system) at byte 0{end}")
    );
    assert_eq!(
        refused(b"\x80\x04\x8c\x05posix\x94\x8c\x06system\x94\x93\x8c\x02ls\x85R."),
        format!("{start}STACK_GLOBAL (posix.system) at byte 19{end}")
    );
    // However deep in a good snapshot it hides.
    let mut bytes = pickle(&snapshot_of(vec![Vec::new()]), Style::Python(4));
    bytes.pop();
    for (opcode, name) in [
        (b'R', "REDUCE"),
        (b'b', "BUILD"),
        (0x81, "NEWOBJ"),
        (0x92, "NEWOBJ_EX"),
        (b'i', "INST"),
        (b'o', "OBJ"),
        (b'P', "PERSID"),
        (b'Q', "BINPERSID"),
        (0x82, "EXT1"),
        (0x83, "EXT2"),
        (0x84, "EXT4"),
    ] {
        let mut bytes = bytes.clone();
        bytes.push(opcode);
        let error = refused(&bytes);
        assert!(error.starts_with(&format!("{start}{name} ")), "{error}");
    }
}

#[test]
fn claims_are_not_believed() {
    let claims: [&[u8]; 6] = [
        // A text of 2^60 bytes, a text of 4 GB, a number of 2 GB, memo entries and gets far away.
        b"\x80\x04\x8d\x00\x00\x00\x00\x00\x00\x00\x10",
        b"\x80\x04X\xff\xff\xff\xff",
        b"\x80\x04\x8b\xff\xff\xff\x7f",
        b"\x80\x02]r\xff\xff\xff\xff.",
        b"\x80\x02j\xff\xff\xff\xff.",
        b"(lp99999999999999999999\n.",
    ];
    for bytes in claims {
        assert!(matches!(snapshot::read(bytes), Err(ReadError::Unreadable { .. })), "{bytes:?}");
    }
    // 4 KB of a good snapshot, and then 2^60 of anything that can be claimed: text, bytes, a bytearray.
    let good =
        pickle(&snapshot_of(vec![vec![Py::Dict(vec![("frames", stack(3))]); 200]]), STYLES[0]);
    for opcode in [0x8d, 0x8e, 0x96] {
        let claim = [&good[..4000], &[opcode, 0, 0, 0, 0, 0, 0, 0, 0x10], &[b'x'; 80]].concat();
        let text = match snapshot::read(&claim) {
            Ok((_, warnings)) => format!("{warnings:?}"),
            Err(error) => error.to_string(),
        };
        assert!(text.contains("cut off") || text.contains("CutOff"), "{opcode:x}: {text}");
    }
    let deep = [b"\x80\x04".to_vec(), vec![b'('; 100_000]].concat();
    assert!(matches!(snapshot::read(&deep), Err(ReadError::Unreadable { .. })));
    let high = [b"\x80\x04".to_vec(), vec![b'N'; 100_000]].concat();
    assert!(matches!(snapshot::read(&high), Err(ReadError::Unreadable { .. })));
}

#[test]
fn what_is_no_snapshot_says_so() {
    let error = |bytes: &[u8]| snapshot::read(bytes).unwrap_err().to_string();
    assert_eq!(error(b""), "the file is empty; expected a memory snapshot");
    assert_eq!(
        error(b"Traceback (most recent call last):"),
        "not a memory snapshot: it begins with \"Traceback (most rece\"; expected a file of `torch.cuda.memory._dump_snapshot` or `plimsoll predict --record`"
    );
    assert_eq!(
        error(b"\x80\x04}\x94."),
        "a pickle, but not a memory snapshot: it has neither `device_traces` nor `segments`"
    );
    assert_eq!(
        error(b"\x80\x04\x95\x00"),
        "unreadable at byte 2, before anything of a memory snapshot: the file is cut off here"
    );
}

#[test]
fn the_newest_key_tells_the_oldest_writer() {
    let since = |event: &str, settings: &str| {
        let text = format!(
            r#"{{"segments": [], "device_traces": [[{{"action": "alloc", "addr": 512, "size": 512, "stream": 0{event}}}]]{settings}}}"#
        );
        snapshot::read(text.as_bytes()).unwrap().0.written_since
    };
    assert_eq!(since("", ""), None);
    assert_eq!(since(r#", "time_us": 7"#, ""), Some(2));
    assert_eq!(since("", r#", "allocator_settings": {"max_split_size": -1}"#), Some(3));
    assert_eq!(since(r#", "compile_context": "N/A""#, ""), Some(8));
    let settings = r#", "allocator_settings": {"max_split_size": -1, "graph_capture_record_stream_reuse": false}"#;
    assert_eq!(since("", settings), Some(9));
    assert_eq!(since(r#", "user_metadata": """#, settings), Some(10));
    assert_eq!(since(r#", "user_metadata": "", "pool_id": [0, 0]"#, settings), Some(12));
    // The word alone, as somebody's metadata, is no key.
    assert_eq!(since(r#", "time_us": 7, "zone": "pool_id""#, ""), Some(2));
}
