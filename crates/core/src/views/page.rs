//! What the page (`web/`) is told, as JSON, and as columns where it is much ([`window`]). Sizes are
//! whole bytes.

use serde_json::{Value, json};

use crate::{
    cards::Card,
    explanation::Explanation,
    findings::Finding,
    scene::{
        Axis, BlockFacts, Change, Code, Counterfactual, Grouping, Happened, Layer, Line, Map,
        MapState, Moment, Position, Scene, Scenes, Selection, Tree, Trees, Window,
    },
    units::Bytes,
    views::{
        explain_text,
        explain_wire::{self, phase},
    },
};

/// The version of everything in this file; the page asks for no other.
const VERSION: u32 = 1;

/// Every device of every recording, in the order of their numbers. `damage` says of each recording why it
/// was not read to its end. `is_live` says that there is a run to follow instead.
pub fn overview(recordings: &[Scenes<'_>], damage: &[Option<String>], is_live: bool) -> String {
    let scenes = recordings.iter().zip(damage).enumerate().flat_map(|(index, (it, damage))| {
        it.scenes.iter().map(move |scene| overview_of(index, it, scene, damage.as_deref()))
    });
    let files: Vec<&str> = recordings.iter().map(Scenes::name).collect();
    json!({
        "version": VERSION,
        "files": files,
        "scenes": scenes.collect::<Vec<_>>(),
        "live": is_live,
    })
    .to_string()
}

fn overview_of(file: usize, scenes: &Scenes<'_>, scene: &Scene<'_>, damage: Option<&str>) -> Value {
    let it = scene.facts();
    let groups = |grouping: Grouping| -> Vec<Value> {
        let groups = scene.groups(grouping).iter();
        groups.map(|it| json!({ "key": it.key, "name": it.name })).collect()
    };
    let refusals: Vec<Value> = scene
        .refusals()
        .iter()
        .map(|refusal| {
            json!({
                "position": refusal.position,
                "requested": refusal.requested.0,
                "free": refusal.free.0,
                "line": refusal.line,
            })
        })
        .collect();
    json!({
        "file": file,
        "name": scenes.name(),
        "device": it.device,
        "devices": scenes.scenes.len(),
        "pid": it.pid,
        "rank": it.rank,
        "events": it.events,
        "lives": it.lives,
        "lives_before": it.lives_before,
        "made": scene.n_made(),
        "bytes_before": it.bytes_before.0,
        "overwritten": it.overwritten,
        "overwritten_allocations": it.overwritten_allocations,
        "peak_allocated": it.peak_allocated.0,
        "peak_position": it.peak_position,
        "peak_micros": scene.micros_at(it.peak_position),
        "peak_reserved": it.peak_reserved.0,
        "peak_reserved_position": it.peak_reserved_position,
        "reserved_at_peak": it.reserved_at_peak.0,
        "limit": it.limit.map(|it| it.0),
        "capacity": it.capacity.map(|(total, _)| total.0),
        "context": it.capacity.map(|(_, context)| context.0),
        "micros": it.micros,
        "stacks": it.stacks,
        "named": it.named,
        "ends_failing": it.ends_failing,
        "damage": damage,
        "phantom": scenes.is_phantom(),
        "alloc_conf": scene.alloc_conf(),
        "groups": {
            "category": groups(Grouping::Category),
            "line": groups(Grouping::Line),
            "pool": groups(Grouping::Pool),
        },
        "refusals": refusals,
    })
}

/// Steps, phases and names, on both axes.
pub fn marks(scene: &Scene<'_>) -> String {
    let phases: Vec<Value> = scene
        .bands()
        .iter()
        .map(|band| {
            let times = [scene.micros_at(band.from), scene.micros_at(band.to)];
            json!([band.from, band.to, times[0], times[1], phase(band.phase)])
        })
        .collect();
    let steps: Vec<Value> = scene
        .steps()
        .iter()
        .map(|row| {
            json!({
                "step": row.step,
                "end": row.end,
                "micros": scene.micros_at(row.end),
                "allocated": row.allocated.0,
                "reserved": row.reserved.0,
                "after": row.after.map(|it| it.0),
                "unfinished": row.unfinished,
                "peak": row.peak,
            })
        })
        .collect();
    let labels: Vec<Value> = scene
        .labels()
        .iter()
        .map(|it| json!([it.position, scene.micros_at(it.position), it.name, it.begins]))
        .collect();
    let refusals: Vec<u64> =
        scene.refusals().iter().map(|it| scene.micros_at(it.position)).collect();
    json!({ "phases": phases, "steps": steps, "labels": labels, "refusal_micros": refusals })
        .to_string()
}

/// What `explain` says of each recording, with its first sentence, and of each finding how many blocks it counts, their
/// bytes and the first moment at which all of them are live.
pub fn analysis<'a, 'b: 'a>(
    explanations: impl Iterator<Item = (&'a Scenes<'b>, &'a Explanation)>,
) -> String {
    let (mut all, mut headlines, mut blocks) = (Vec::new(), Vec::new(), Vec::new());
    for (scenes, it) in explanations {
        let (word, text) = explain_text::headline(it);
        headlines.push(json!({ "word": word, "text": text }));
        let counted = |finding: &Finding| {
            let scene = scenes.scenes.iter().find(|it| it.device() == finding.device);
            let lives = scene.map(|it| it.lives_of(&finding.shown)).unwrap_or_default();
            let most = scene.map(|it| it.most(&lives)).unwrap_or_default();
            json!([lives.len(), most.0.0, most.1])
        };
        blocks.push(it.findings.iter().map(counted).collect::<Vec<_>>());
        all.push(explain_wire::input(it));
    }
    json!({ "explanations": all, "headlines": headlines, "blocks": blocks }).to_string()
}

/// What was live at a moment.
pub fn moment(scene: &Scene<'_>, it: &Moment) -> String {
    let categories: Vec<Value> =
        it.categories.iter().map(|(bytes, blocks)| json!([bytes.0, blocks])).collect();
    let rows: Vec<Value> = it
        .rows
        .iter()
        .map(|row| {
            json!({
                "line": row.line.as_ref().map(line),
                "owner": row.owner,
                "category": row.category,
                "bytes": row.bytes.0,
                "blocks": row.blocks,
                "largest": row.largest,
            })
        })
        .collect();
    let (step, during) = scene.step_of(it.position);
    json!({
        "position": it.position,
        "micros": scene.micros_at(it.position),
        "step": step,
        "phase": during.map(phase),
        "allocated": it.allocated.0,
        "reserved": it.reserved.0,
        "blocks": it.blocks,
        "categories": categories,
        "rows": rows,
        "stacks": tree(&it.stacks),
        "modules": tree(&it.modules),
    })
    .to_string()
}

/// What changed between two moments.
pub fn changes(changes: &[Change]) -> String {
    let rows: Vec<Value> = changes
        .iter()
        .map(|change| {
            json!({
                "line": change.line.as_ref().map(line),
                "renamed": change.renamed.as_ref().map(line),
                "category": change.category,
                "before": [change.before.0.0, change.before.1],
                "after": [change.after.0.0, change.after.1],
                "owners": [change.owners.0, change.owners.1],
            })
        })
        .collect();
    json!({ "rows": rows }).to_string()
}

/// Everything that is known of a block.
pub fn block(scene: &Scene<'_>, it: &BlockFacts) -> String {
    block_value(scene, it).to_string()
}

fn block_value(scene: &Scene<'_>, it: &BlockFacts) -> Value {
    json!({
        "life": it.life,
        "address": format!("{:#x}", it.address),
        "size": it.size.0,
        "requested": it.requested.0,
        "start": it.start,
        "end": it.end,
        "start_micros": scene.micros_at(it.start),
        "end_micros": it.end.map(|it| scene.micros_at(it)),
        "micros": it.micros,
        "category": it.category,
        "name": it.name,
        "module": it.module,
        "stream": it.stream,
        "pool": it.pool,
        "step": it.step,
        "metadata": it.metadata,
        "line": it.line.as_ref().map(line),
        "stack": it.stack.iter().map(line).collect::<Vec<_>>(),
    })
}

/// The address space at a moment. Addresses are hexadecimal; blocks are offsets into their segment.
pub fn map(scene: &Scene<'_>, it: &Map) -> String {
    let segments: Vec<Value> = it
        .segments
        .iter()
        .map(|segment| {
            let blocks: Vec<Value> = segment
                .blocks
                .iter()
                .map(|block| {
                    let (life, category) = match block.state {
                        MapState::Live(life) => (Some(life), scene.category_of(life)),
                        MapState::Pending => (None, "pending"),
                    };
                    let offset = block.address.saturating_sub(segment.address);
                    json!([offset, block.size.0, life, category, block.requested.0])
                })
                .collect();
            json!({
                "address": format!("{:#x}", segment.address),
                "size": segment.size.0,
                "stream": segment.stream,
                "pool": [segment.pool.0, segment.pool.1],
                "small": segment.is_small,
                "expandable": segment.expandable,
                "blocks": blocks,
            })
        })
        .collect();
    json!({ "position": it.position, "segments": segments }).to_string()
}

/// Blocks that were selected.
pub fn selection(it: &Selection) -> String {
    let hits: Vec<Value> = it
        .hits
        .iter()
        .map(|it| json!({ "life": it.life, "size": it.size.0, "label": it.label, "start": it.start, "live": it.is_live }))
        .collect();
    json!({
        "by": it.by,
        "blocks": it.lives.len(),
        "live": [it.live.0.0, it.live.1],
        "most": [it.most.0.0, it.most.1],
        "hits": hits,
        "lives": it.lives,
    })
    .to_string()
}

/// What was live at a moment, from the bottom of a picture to its top.
pub fn layers(it: &[Layer]) -> String {
    let layers: Vec<Value> = it.iter().map(|it| json!([it.life, it.size.0, it.group])).collect();
    json!({ "layers": layers }).to_string()
}

/// Events.
pub fn happened(scene: &Scene<'_>, it: &[Happened]) -> String {
    let events: Vec<Value> = it
        .iter()
        .map(|event| {
            json!({
                "position": event.position,
                "micros": scene.micros_at(event.position),
                "action": event.action,
                "size": event.size.0,
                "loss": event.loss.0,
                "address": event.address.map(|it| format!("{it:#x}")),
                "life": event.life,
                "line": event.line.as_ref().map(line),
            })
        })
        .collect();
    json!({ "events": events }).to_string()
}

/// The events that some words mean: how many, and of the one that is next, its place among them and its position.
pub fn found_events(all: &[Position], next: Option<usize>) -> String {
    let position = next.and_then(|it| all.get(it));
    json!({ "count": all.len(), "index": next, "position": position }).to_string()
}

/// Flame graphs of a stretch of time.
pub fn trees(it: &Trees) -> String {
    json!({ "stacks": tree(&it.stacks), "modules": tree(&it.modules) }).to_string()
}

/// What was held and free, and the largest hole of it, at each of some moments.
pub fn holes(it: &[(Bytes, Bytes)]) -> String {
    let all = |part: fn(&(Bytes, Bytes)) -> u64| it.iter().map(part).collect::<Vec<_>>();
    json!({ "free": all(|it| it.0.0), "holes": all(|it| it.1.0) }).to_string()
}

/// What would have happened.
pub fn what_if(it: &Counterfactual) -> String {
    let outcome = &it.outcome;
    let ran_out = outcome.ran_out.map(|oom| {
        json!({
            "position": oom.event.0 + 1,
            "requested": oom.requested.0,
            "allocated": oom.allocated.0,
            "reserved": oom.reserved.0,
            "largest_hole": oom.largest_hole.0,
        })
    });
    json!({
        "peak_allocated": outcome.peak_allocated.bytes.0,
        "peak_reserved": outcome.peak_reserved.bytes.0,
        "slack_at_peak": outcome.slack_at_peak.0,
        "retries": outcome.stats.num_alloc_retries,
        "ran_out": ran_out,
        "served_now": outcome.served_now,
        "recorded_reserved": it.recorded_reserved.0,
        "columns": it.columns,
        "allocated": it.curve.iter().map(|it| it.allocated.0).collect::<Vec<_>>(),
        "reserved": it.curve.iter().map(|it| it.reserved.0).collect::<Vec<_>>(),
    })
    .to_string()
}

/// The cards to choose from.
pub fn cards(cards: &[Card]) -> String {
    let cards: Vec<Value> = cards
        .iter()
        .map(|it| json!({ "id": it.id, "name": it.name, "total": it.total.0, "context": it.context.0 }))
        .collect();
    json!({ "cards": cards }).to_string()
}

/// Lines of code, from line `first` on.
pub fn source(first: usize, lines: &[&str]) -> String {
    json!({ "first": first, "lines": lines }).to_string()
}

/// One sentence on what went wrong.
pub fn error(sentence: &str) -> String {
    json!({ "error": sentence }).to_string()
}

/// A window as columns of little-endian numbers, for typed arrays: a header of eight `u32`, then what
/// takes eight bytes, then four, then one.
pub fn window(scene: &Scene<'_>, axis: Axis, it: &Window) -> Vec<u8> {
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let (n_columns, n_pieces) = (it.columns.len(), it.pieces.len());
    let header = [
        VERSION,
        count(n_columns),
        count(n_pieces),
        count(it.rest.len()),
        it.lives,
        it.summed,
        it.between,
        u32::from(axis == Axis::Time),
    ];
    let mut res = Vec::with_capacity(32 + n_columns * (36 + 8 * it.rest.len()) + n_pieces * 21);
    header.iter().for_each(|it| res.extend(it.to_le_bytes()));
    let double = |it: u64| as_double(it).to_le_bytes();
    it.columns.iter().for_each(|it| res.extend(double(it.allocated.0)));
    it.columns.iter().for_each(|it| res.extend(double(it.lowest.0)));
    it.columns.iter().for_each(|it| res.extend(double(it.reserved.0)));
    it.columns.iter().for_each(|it| res.extend(double(scene.micros_at(it.position))));
    it.rest.iter().flatten().for_each(|it| res.extend(double(it.0)));
    it.pieces.iter().for_each(|it| res.extend(double(it.size.0)));
    it.columns.iter().for_each(|it| res.extend(it.position.to_le_bytes()));
    it.pieces.iter().for_each(|it| res.extend(it.life.to_le_bytes()));
    it.pieces.iter().for_each(|it| res.extend(it.first.to_le_bytes()));
    it.pieces.iter().for_each(|it| res.extend(it.end.to_le_bytes()));
    it.pieces.iter().for_each(|it| res.push(it.group));
    res
}

/// Exact up to 8 PiB, which no sum of a device's memory reaches.
#[expect(clippy::cast_precision_loss, reason = "sizes stay below two to the power of 53")]
fn as_double(it: u64) -> f64 {
    it as f64
}

/// `[file, line, function, whose code, backward]`.
pub(super) fn line(it: &Line) -> Value {
    json!([it.file, it.line, it.function, code(it.code), u8::from(it.is_backward)])
}

fn code(it: Code) -> u8 {
    match it {
        Code::Users => 0,
        Code::Library => 1,
        Code::Recorder => 2,
    }
}

/// `[parent, name, bytes, blocks, whose code, category, id, file, line]` for each node.
fn tree(it: &Tree) -> Vec<Value> {
    it.nodes
        .iter()
        .map(|node| {
            let (file, number) =
                node.line.as_ref().map_or(("", 0), |it| (it.file.as_str(), it.line));
            json!([
                node.parent,
                node.name,
                node.bytes.0,
                node.blocks,
                code(node.code),
                node.category,
                node.id,
                file,
                number
            ])
        })
        .collect()
}

/// The position that a text means: a number, or `peak`.
pub fn position(scene: &Scene<'_>, text: &str) -> Option<Position> {
    if text == "peak" {
        return Some(scene.facts().peak_position);
    }
    text.parse().ok().filter(|it| *it < scene.end())
}
