//! What the viewer shows of real recordings: in every window the blocks add up to what was allocated,
//! none is dropped, and the numbers are those of `explain`.

use std::{fs, path::Path};

use plimsoll_core::{
    explanation,
    recording::Recording,
    scene::{Axis, Code, Grouping, Map, MapState, Pick, Scene, Scenes, Selection, WindowRequest},
    sources::{self, ProcessFiles, snapshot},
    units::Bytes,
};

/// Every recording that the project carries.
fn recordings() -> Vec<(String, Recording)> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let mut res = Vec::new();
    for entry in fs::read_dir(fixtures.join("snapshots")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|it| it == "pickle") {
            let (trace, _) = snapshot::read(&fs::read(&path).unwrap()).unwrap();
            let recording = Recording { trace: Some(trace), ..Recording::default() };
            res.push((path.file_name().unwrap().to_string_lossy().into_owned(), recording));
        }
    }
    for entry in fs::read_dir(fixtures.join("recordings")).unwrap() {
        let path = entry.unwrap().path();
        let (notes, snapshot) =
            (fs::read(path.join("agent.jsonl")), fs::read(path.join("snapshot.pickle")));
        let (notes, snapshot) = (notes.unwrap(), snapshot.unwrap());
        let files =
            ProcessFiles { pid: 1, notes: &notes, snapshot: Some(&snapshot), phantom_log: None };
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        res.push((name, sources::read_process(files).recording));
    }
    assert!(5 < res.len());
    res.sort_by(|a, b| a.0.cmp(&b.0));
    res
}

fn each_scene(mut check: impl FnMut(&str, &Scene<'_>)) {
    for (name, recording) in &recordings() {
        for scene in &Scenes::new(name, recording).scenes {
            check(name, scene);
        }
    }
}

fn request(from: u64, to: u64, columns: u32, least: u64) -> WindowRequest {
    let (axis, grouping) = (Axis::Events, Grouping::Category);
    WindowRequest { axis, from, to, columns, least: Bytes(least), grouping }
}

fn assert_adds_up(name: &str, scene: &Scene<'_>, request: &WindowRequest) {
    let window = scene.window(request);
    let mut sums = vec![Bytes::ZERO; window.columns.len()];
    for it in &window.pieces {
        sums[it.first as usize..it.end as usize].iter_mut().for_each(|sum| *sum += it.size);
    }
    for group in &window.rest {
        sums.iter_mut().zip(group).for_each(|(sum, rest)| *sum += *rest);
    }
    for (column, sum) in window.columns.iter().zip(sums) {
        assert_eq!(sum, column.allocated, "{name}: {request:?} at {}", column.position);
        assert!(column.lowest <= column.allocated);
    }
    let pieces = u32::try_from(window.pieces.len()).unwrap();
    assert_eq!(pieces + window.summed + window.between, window.lives, "{name}: {request:?}");
}

#[test]
fn blocks_add_up_in_every_window_and_none_is_dropped() {
    each_scene(|name, scene| {
        let end = u64::from(scene.end());
        for (from, to) in [(0, end), (0, end / 2), (end / 3, end / 3 + 40), (end - 1, end)] {
            for columns in [1, 7, 300, 4000] {
                for least in [0, 1 << 20, u64::MAX] {
                    let by_category = request(from, to, columns, least);
                    assert_adds_up(name, scene, &by_category);
                    let by_line = WindowRequest { grouping: Grouping::Line, ..by_category };
                    assert_adds_up(name, scene, &by_line);
                }
            }
        }
        let micros = scene.facts().micros;
        if micros != 0 {
            let by_time = WindowRequest { axis: Axis::Time, ..request(0, micros, 500, 1 << 20) };
            assert_adds_up(name, scene, &by_time);
            let part = WindowRequest { from: micros / 4, to: micros / 3, ..by_time };
            assert_adds_up(name, scene, &part);
        }
    });
}

#[test]
fn the_peak_is_in_every_window_that_holds_it_and_is_what_explain_says() {
    for (name, recording) in &recordings() {
        let scenes = Scenes::new(name, recording);
        let explanation = explanation::of_recording(name, recording, &[]);
        let largest = scenes.scenes.iter().map(Scene::facts);
        let Some(facts) = largest.max_by_key(|it| it.peak_allocated) else { continue };
        assert_eq!(Some(facts.peak_allocated), explanation.peak_allocated, "{name}");
        assert_eq!(Some(facts.peak_reserved), explanation.peak_reserved, "{name}");
        assert_eq!(scenes.explanation(&[]), explanation, "{name}");
        for scene in &scenes.scenes {
            let peak = scene.facts().peak_allocated;
            for columns in [1, 10, 1000] {
                let window = scene.window(&request(0, u64::from(scene.end()), columns, 1 << 20));
                let most = window.columns.iter().map(|it| it.allocated).max().unwrap();
                assert_eq!(most, peak, "{name}");
            }
        }
    }
}

#[test]
fn the_blocks_of_a_finding_are_those_that_its_words_count() {
    for (name, recording) in &recordings() {
        let scenes = Scenes::new(name, recording);
        crate::counted::agree(name, &scenes.explanation(&[]), &scenes);
    }
}

#[test]
fn every_block_is_alone_somewhere() {
    each_scene(|name, scene| {
        let facts = scene.facts();
        for life in (0..facts.lives).step_by(97) {
            let block = scene.block(life).unwrap();
            let from = u64::from(block.start);
            if block.end == Some(block.start) {
                continue;
            }
            let window = scene.window(&request(from, from + 1, 1, 1));
            assert!(window.pieces.iter().any(|it| it.life == life), "{name}: {life}");
        }
    });
}

#[test]
fn a_moment_is_told_four_times_alike() {
    each_scene(|name, scene| {
        let end = scene.end();
        for position in [0, end / 2, scene.facts().peak_position, end - 1] {
            let moment = scene.moment(position);
            let by_category: Bytes = moment.categories.iter().map(|it| it.0).sum();
            let by_line: Bytes = moment.rows.iter().map(|it| it.bytes).sum();
            assert_eq!(by_category, moment.allocated, "{name} at {position}");
            assert_eq!(by_line, moment.allocated, "{name} at {position}");
            assert_eq!(moment.stacks.nodes[0].bytes, moment.allocated, "{name} at {position}");
            // What is in a part of the tree is not more than the part.
            let mut inside = vec![Bytes::ZERO; moment.stacks.nodes.len()];
            for it in &moment.stacks.nodes[1..] {
                inside[it.parent as usize] += it.bytes;
            }
            let nodes = moment.stacks.nodes.iter().zip(inside);
            nodes.for_each(|(node, inside)| assert!(inside <= node.bytes, "{name}"));
            let map = scene.map(position);
            let blocks = map.segments.iter().flat_map(|it| &it.blocks);
            let live = blocks.filter(|it| matches!(it.state, MapState::Live(_)));
            let in_map: Bytes = live.map(|it| it.size).sum();
            assert_eq!(in_map, moment.allocated, "{name} at {position}");
            let held: Bytes = map.segments.iter().map(|it| it.size).sum();
            assert_eq!(held, moment.reserved, "{name} at {position}");
        }
    });
}

#[test]
fn what_would_have_happened_ends_at_the_same_peak_when_nothing_changes() {
    each_scene(|name, scene| {
        let same = scene.what_if(None, None, 200).unwrap();
        if scene.facts().limit.is_none() && scene.facts().lives_before == 0 {
            let most = same.curve.iter().map(|it| it.reserved).max().unwrap_or_default();
            assert_eq!(most, same.outcome.peak_reserved.bytes, "{name}");
        }
        let none = scene.what_if(Some(Bytes::kib(1)), None, 200).unwrap();
        let asks = 0 < scene.facts().peak_allocated.0 && scene.facts().lives_before == 0;
        assert_eq!(none.outcome.ran_out.is_some(), asks, "{name}");
        assert!(scene.what_if(None, Some("no_such_setting:1"), 10).is_err());
    });
}

fn words(scene: &Scene<'_>, text: &str) -> Selection {
    scene.select(&Pick::Words(text.to_owned(), Vec::new()), scene.facts().peak_position)
}

#[test]
fn what_is_selected_adds_up_to_what_is_told() {
    each_scene(|name, scene| {
        let peak = scene.facts().peak_position;
        let moment = scene.moment(peak);
        for row in &moment.rows {
            let found = scene.select(&Pick::Owner(row.owner, Some(row.category)), peak);
            assert_eq!(found.live, (row.bytes, row.blocks), "{name}");
            assert!(row.bytes <= found.most.0, "{name}");
        }
        for (index, (bytes, blocks)) in (0..).zip(&moment.categories) {
            let found = scene.select(&Pick::Category(index), peak);
            assert_eq!(found.live, (*bytes, *blocks), "{name}");
        }
        for node in moment.stacks.nodes.iter().filter(|it| it.id.is_some()) {
            let found = scene.select(&Pick::Stacks(node.id.into_iter().collect()), peak);
            assert_eq!(found.live, (node.bytes, node.blocks), "{name}: {}", node.name);
        }
        assert!(moment.rows.iter().flat_map(|it| &it.line).all(|it| it.code != Code::Recorder));
    });
}

#[test]
fn the_order_of_a_picture_does_not_depend_on_how_closely_one_looks() {
    each_scene(|name, scene| {
        let position = scene.facts().peak_position;
        let layers = scene.layers(position, Grouping::Category);
        let sum: Bytes = layers.iter().map(|it| it.size).sum();
        assert_eq!(sum, scene.facts().peak_allocated, "{name}");
        let at = u64::from(position);
        for least in [1, 1 << 12, 1 << 20, 1 << 24] {
            let window = scene.window(&request(at, at + 1, 1, least));
            let alone: Vec<u32> = window.pieces.iter().map(|it| it.life).collect();
            let lives = layers.iter().filter_map(|it| it.life).filter(|it| alone.contains(it));
            assert_eq!(lives.collect::<Vec<_>>(), alone, "{name} at {least}");
            // What is summed lies on top of its group.
            for group in 0..scene.groups(Grouping::Category).len() {
                let own: Vec<bool> = layers
                    .iter()
                    .filter(|it| usize::from(it.group) == group)
                    .map(|it| it.life.is_some_and(|it| alone.contains(&it)))
                    .collect();
                assert!(own.is_sorted_by(|a, b| a >= b), "{name} at {least}");
            }
        }
    });
}

fn holes_of(map: &Map) -> Vec<Bytes> {
    let mut res = Vec::new();
    for segment in &map.segments {
        let mut at = segment.address;
        for block in &segment.blocks {
            res.push(Bytes(block.address.saturating_sub(at)));
            at = at.max(block.address + block.size.0);
        }
        res.push(Bytes((segment.address + segment.size.0).saturating_sub(at)));
    }
    res
}

#[test]
fn the_largest_hole_is_the_one_that_the_map_shows() {
    each_scene(|name, scene| {
        let end = scene.end();
        let step = (end / 120).max(1) as usize;
        for position in (0..end).step_by(step) {
            let map = scene.map(position);
            let largest = holes_of(&map).into_iter().max().unwrap_or_default();
            assert_eq!(scene.free_at(position).1, largest, "{name} at {position}");
        }
    });
}

#[test]
fn columns_have_the_segments_of_every_moment() {
    each_scene(|name, scene| {
        let columns = scene.columns();
        for position in [0, scene.end() / 3, scene.facts().peak_position, scene.end() - 1] {
            let mut held: Vec<(u64, Bytes)> = columns
                .extents
                .iter()
                .filter(|it| it.from <= position && position < it.to)
                .map(|it| (it.address, it.size))
                .collect();
            held.sort_unstable();
            let map = scene.map(position);
            let there: Vec<(u64, Bytes)> =
                map.segments.iter().map(|it| (it.address, it.size)).collect();
            assert_eq!(held, there, "{name} at {position}");
        }
    });
}

#[test]
fn a_search_finds_by_size_address_and_name() {
    each_scene(|name, scene| {
        let Some(block) = scene.block(scene.facts().lives / 2) else { return };
        let by_address = words(scene, &format!("{:#x}", block.address));
        assert!(!by_address.lives.is_empty(), "{name}");
        let by_size = words(scene, &format!("{}B", block.size.0));
        assert!(
            by_size.hits.iter().all(|it| it.size.0.abs_diff(block.size.0) <= block.size.0 / 200)
        );
        assert!(!by_size.lives.is_empty(), "{name}");
        let everything = words(scene, ">0B");
        assert_eq!(everything.lives.len(), scene.facts().lives as usize, "{name}");
        if let Some(line) = block.stack.first() {
            assert!(!words(scene, &line.function).lives.is_empty(), "{name}");
        }
        assert_eq!(words(scene, "a name that nobody gave").lives.len(), 0);
    });
}

#[test]
fn pools_add_up_and_what_they_hold_is_what_the_map_says() {
    let mut n_private = 0;
    each_scene(|name, scene| {
        let end = u64::from(scene.end());
        let groups = scene.groups(Grouping::Pool);
        for (from, to, columns, least) in [(0, end, 300, 1 << 20), (end / 3, end / 3 + 40, 40, 0)] {
            let by_pool =
                WindowRequest { grouping: Grouping::Pool, ..request(from, to, columns, least) };
            let window = scene.window(&by_pool);
            for (at, column) in window.columns.iter().enumerate() {
                let mut sums: Vec<Bytes> = window.rest.iter().map(|it| it[at]).collect();
                let column_of = |it: u32| usize::try_from(it).unwrap();
                for it in &window.pieces {
                    if (column_of(it.first)..column_of(it.end)).contains(&at) {
                        sums[usize::from(it.group)] += it.size;
                    }
                }
                let of_key = |key: &str| -> Bytes {
                    let all = groups
                        .iter()
                        .zip(&sums)
                        .filter(|it| (it.0.key == "held") == (key == "held"));
                    all.map(|it| *it.1).sum()
                };
                assert_eq!(of_key("blocks"), column.allocated, "{name} at {}", column.position);
                let map = scene.map(column.position);
                let private = map.segments.iter().filter(|it| it.pool != (0, 0));
                let free: Bytes = private
                    .map(|it| {
                        let live =
                            it.blocks.iter().filter(|it| matches!(it.state, MapState::Live(_)));
                        it.size.saturating_sub(live.map(|it| it.size).sum())
                    })
                    .sum();
                assert_eq!(of_key("held"), free, "{name} at {}", column.position);
                n_private += u32::from(free != Bytes::ZERO);
            }
        }
    });
    assert_ne!(n_private, 0, "no recording has a private pool that holds more than its blocks");
}

#[test]
fn what_ends_with_the_recording_ends_after_its_last_event() {
    each_scene(|name, scene| {
        let micros = scene.facts().micros;
        assert_eq!(scene.micros_at(scene.end()), micros, "{name}");
        for it in scene.bands() {
            assert!(it.from < it.to, "{name}");
            assert!(scene.micros_at(it.from) <= scene.micros_at(it.to), "{name}");
        }
        for pair in scene.steps().windows(2) {
            assert!(scene.micros_at(pair[0].end) <= scene.micros_at(pair[1].end), "{name}");
        }
    });
}

/// After each earlier step the beginning of the next one has freed its gradients; a snapshot that ends with a step ends before that.
#[test]
fn what_stays_after_the_last_step_of_a_snapshot_is_unknown() {
    let mut seen = 0;
    each_scene(|name, scene| {
        let after: Vec<_> = scene.steps().iter().map(|it| it.after).collect();
        if name == "lstm-adam-b32-s128.pickle" {
            assert_eq!(after.len(), 3);
            assert!(after[0].is_some() && after[0] == after[1] && after[2].is_none(), "{after:?}");
            seen += 1;
        }
    });
    assert_eq!(seen, 1);
}
