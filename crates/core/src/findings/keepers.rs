//! Who holds what stays allocated: the agent looked for it at the end of the run, and says the line that puts it there. A finding of
//! something that stays is told at that line; where it was allocated is evidence.

use std::{cmp::Reverse, collections::BTreeSet};

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Weight, as_rounded, place},
    prediction::timeline::{Places, Stage},
    recording::{CodeLine, Keeper, Keepers, Unlimited, is_users_code},
    replay::{BlockId, BlockLife},
    trace::EventId,
    units::Bytes,
};

/// Nodes of autograd's graphs that a few losses of one step have, too.
const FEW_NODES: u64 = 256;

/// Steps whose losses one step may have, too.
const FEW_STEPS: u64 = 8;

/// Names the keeper of each finding that is about something that stays.
pub(super) fn name(case: &Case<'_>, findings: &mut [Finding]) {
    let stays = |finding: &&mut Finding| {
        finding.code == ProblemCode::EarlierModels
            || finding.code == ProblemCode::ResultsKept
            || finding.weight == Weight::Problem
                && matches!(
                    finding.code,
                    ProblemCode::GraphRetained
                        | ProblemCode::EvalWithoutNoGrad
                        | ProblemCode::PerStep
                )
            // Of caches of texts that are over, and of what is there before anything else.
            || finding.code == ProblemCode::KvCache && finding.title.contains("stay")
            || finding.code == ProblemCode::AllOnDevice
    };
    for finding in findings.iter_mut().filter(|it| it.code == ProblemCode::StepBefore) {
        name_variable(case, finding);
    }
    for finding in findings.iter_mut().filter(stays) {
        if finding.code == ProblemCode::AllOnDevice {
            // What an evaluation collected is told with its keeper.
            if finding.title.starts_with('`') {
                continue;
            }
            if let Some(held) = keeper_of(case, finding) {
                tell_of_setup(finding, held.by, held.bytes);
            }
        } else if let Some(held) = keeper_of(case, finding) {
            as_stored(finding, held);
            tell(case, finding, held);
        }
    }
    // What grows with each token may be what a generation collects beside its cache.
    let grows = |it: &&mut Finding| it.code == ProblemCode::KvCache && !it.title.contains("stay");
    for finding in findings.iter_mut().filter(grows) {
        if let Some(held) = keeper_of(case, finding).filter(|it| collects(it.by)) {
            as_collected(finding, held.by);
        }
    }
}

/// The variable to delete, of outputs that are live a step too long: the one that holds most of them, or of the graphs that variables hold
/// by far the largest.
fn name_variable(case: &Case<'_>, finding: &mut Finding) {
    let Some(keepers) = looks(case).next() else { return };
    let of_graph = || {
        let mut nodes: Vec<(u64, usize)> =
            keepers.entries.iter().map(|it| it.nodes).zip(0..).collect();
        nodes.sort_unstable();
        let (most, at) = nodes.pop()?;
        (2 * nodes.last().map_or(0, |it| it.0) < most).then_some(at)
    };
    let Some(at) = main_keeper_of(case, keepers, &finding.blocks).or_else(of_graph) else { return };
    let keeper = &keepers.entries[at];
    let name = keeper.name.trim_end_matches("[...]");
    let is_plain = name.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_');
    if is_plain && keeper.at.as_ref().is_some_and(|it| it.function != "forward") {
        finding.remedy = finding.remedy.replace("`del outputs, loss`", &format!("`del {name}`"));
    }
}

/// Whether it is a list of a library's that is not called after a cache, nor after keys and values.
fn collects(keeper: &Keeper) -> bool {
    let name = keeper.name.to_ascii_lowercase();
    let is_users = keeper.at.as_ref().is_some_and(|at| is_users_code(&at.file, at.line));
    keeper.what == "container"
        && !is_users
        && !["cache", "past", "key", "value", "kv"].iter().any(|it| name.contains(it))
}

/// Results of each pass of a generation in a list, and no cache.
fn as_collected(finding: &mut Finding, keeper: &Keeper) {
    let name = keeper.name.trim_end_matches("[...]");
    finding.code = ProblemCode::ResultsKept;
    finding.weight = Weight::Problem;
    finding.title = format!(
        "`{name}` collects what each pass returns: {}, {} more in each",
        finding.bytes, finding.per_step
    );
    finding.remedy = "without `output_attentions=True`, `output_hidden_states=True` and `output_scores=True` a generation collects none of it; where you need a part, store that part by a hook; or generate for fewer texts at a time".to_owned();
    finding.evidence.insert(0, format!("{} (a container)", keeper.shown()));
}

/// Where tensors themselves are stored, and not what hangs on a few of them, no graph is the cause, and no `.detach()` gives them back.
fn as_stored(finding: &mut Finding, held: Held<'_>) {
    let is_all = finding.bytes.0 / 8 * 7 <= held.bytes.0;
    if finding.code == ProblemCode::GraphRetained && is_all && held.by.what != "variable" {
        finding.code = ProblemCode::ResultsKept;
        finding.title = format!(
            "tensors of each step stay on the device: {}, {} more in each",
            finding.bytes, finding.per_step
        );
        finding.remedy =
            "empty it after each step, or store them on the CPU (`.cpu()`); `.detach()` alone gives nothing back"
                .to_owned();
    }
}

/// Who holds what a finding is about.
#[derive(Clone, Copy)]
struct Held<'a> {
    by: &'a Keeper,
    /// How much of it, when the agent looked.
    bytes: Bytes,
    /// Much more of it came after that.
    goes_on: bool,
}

/// What the agent found each time that it looked, the last one first: at the end of the run, and before that where epochs ended early, since
/// functions that return have no variables.
fn looks<'a>(case: &Case<'a>) -> impl Iterator<Item = &'a Keepers> {
    let index = case.run.index;
    case.run.recording.notes.keepers.iter().rev().filter(move |it| it.device == index)
}

/// Who holds most of `blocks`, if somebody holds most of them: which look it was, and the place of that keeper among all.
pub(super) fn main_keeper(case: &Case<'_>, blocks: &[BlockId]) -> Option<(usize, usize)> {
    let mut all = looks(case).enumerate();
    all.find_map(|(look, it)| Some((look, main_keeper_of(case, it, blocks)?)))
}

/// Whether somebody holds most of `blocks` as tensors that have no graph: these were stored, and no graph holds them.
pub(super) fn is_stored_without_graph(case: &Case<'_>, blocks: &[BlockId]) -> bool {
    let keeper = |it: &Keepers| Some(it.entries[main_keeper_of(case, it, blocks)?].nodes);
    looks(case).find_map(keeper) == Some(0)
}

fn main_keeper_of(case: &Case<'_>, keepers: &Keepers, blocks: &[BlockId]) -> Option<usize> {
    let blocks = live(case, keepers, blocks);
    let all: u64 = blocks.iter().map(|(_, size)| size).sum();
    let known = keepers.entries.iter().enumerate().filter(|(_, it)| it.at.is_some());
    let (place, most) =
        known.map(|(n, it)| (n, held_of(&blocks, it))).max_by_key(|(_, bytes)| *bytes)?;
    (all / 2 < most.0).then_some(place)
}

/// The user's variables, containers and attributes that hold some of `blocks` as tensors, as they are shown, and how much
/// each holds, most first.
pub(crate) fn holders(case: &Case<'_>, blocks: &[BlockId]) -> Vec<(String, Bytes)> {
    let Some(keepers) = looks(case).next() else { return Vec::new() };
    let mut rest = live(case, keepers, blocks);
    let is_users = |it: &&Keeper| it.at.as_ref().is_some_and(|at| is_users_code(&at.file, at.line));
    let mut res: Vec<(String, Bytes)> = Vec::new();
    for keeper in keepers.entries.iter().filter(is_users) {
        let bytes = held_of(&rest, keeper);
        if bytes != Bytes::ZERO {
            rest.retain(|it| held_of(&[*it], keeper) == Bytes::ZERO);
            res.push((keeper.shown(), bytes));
        }
    }
    res.sort_by_key(|it| Reverse(it.1));
    res
}

/// The sparse tensor that is as large as `bytes` where it is made dense, as it is shown.
pub(crate) fn as_large_when_dense(case: &Case<'_>, bytes: Bytes) -> Option<String> {
    let is_it =
        |it: &&Keeper| it.is_sparse && as_rounded(bytes) == as_rounded(it.of_largest.dense());
    looks(case).next()?.entries.iter().find(is_it).map(Keeper::shown)
}

/// The container that most of `blocks` are in as tensors without a graph, and those; not one that a model's `forward` fills, which needs them.
/// Or an attribute of modules.
pub(super) fn collected<'a>(
    case: &Case<'a>,
    blocks: &[BlockId],
) -> Option<(&'a Keeper, Vec<BlockId>)> {
    let keepers = looks(case).next()?;
    let keeper = &keepers.entries[main_keeper_of(case, keepers, blocks)?];
    let in_forward = keeper.at.as_ref().is_some_and(|it| it.function == "forward")
        && !keeper.name.starts_with("all_");
    let addresses: BTreeSet<u64> = keeper.addresses.iter().copied().collect();
    let is_held = |it: &&BlockId| {
        let life = case.life(**it);
        addresses.range(life.address..life.address + life.size.0).next().is_some()
    };
    let is_one = keeper.what == "attribute" || keeper.what == "container" && !in_forward;
    (is_one && keeper.nodes == 0)
        .then(|| (keeper, blocks.iter().filter(is_held).copied().collect()))
}

/// Address and size of those of `blocks` that were live when the agent looked, by address.
fn live(case: &Case<'_>, keepers: &Keepers, blocks: &[BlockId]) -> Vec<(u64, u64)> {
    let moment = moment_of(case, keepers);
    let is_live = |block: &&BlockId| {
        let life = case.life(**block);
        life.alloc < moment && life.free.is_none_or(|free| moment <= free)
    };
    let mut res: Vec<(u64, u64)> = (blocks.iter().filter(is_live))
        .map(|it| (case.life(*it).address, case.life(*it).size.0))
        .collect();
    res.sort_unstable();
    res
}

/// When the agent looked.
fn moment_of(case: &Case<'_>, keepers: &Keepers) -> EventId {
    let stats = &case.run.recording.notes.stats;
    Places::new(&case.run.replay, case.run.index, stats).event(&keepers.place)
}

/// How much of `blocks` it holds: their addresses and sizes, by address.
fn held_of(blocks: &[(u64, u64)], keeper: &Keeper) -> Bytes {
    let found: BTreeSet<(u64, u64)> = (keeper.addresses.iter())
        .filter_map(|address| {
            let at = blocks.partition_point(|(begin, _)| begin <= address).checked_sub(1)?;
            Some(blocks[at]).filter(|(begin, size)| *address < begin + size)
        })
        .collect();
    Bytes(found.iter().map(|(_, size)| size).sum())
}

/// Whether it is of passes of evaluations, of which none in this run was with gradients.
fn has_no_graph(case: &Case<'_>, finding: &Finding) -> bool {
    let evaluates = finding.blocks.iter().all(|it| case.stage(*it) == Stage::Evaluation);
    evaluates && !case.run.recording.notes.marks.iter().any(|it| it.with_gradients)
}

/// Who holds most of its blocks; of a graph, which has no tensors of its own, who holds the most of autograd's nodes.
fn keeper_of<'a>(case: &Case<'a>, finding: &Finding) -> Option<Held<'a>> {
    looks(case).find_map(|keepers| {
        let moment = moment_of(case, keepers);
        let later = finding.blocks.iter().filter(|it| moment <= case.life(**it).alloc).count();
        // The run ends a little after the last look.
        let goes_on = finding.blocks.len() < 8 * later;
        let (by, bytes) = keeper_in(case, keepers, finding, goes_on)?;
        Some(Held { by, bytes, goes_on })
    })
}

fn keeper_in<'a>(
    case: &Case<'_>,
    keepers: &'a Keepers,
    finding: &Finding,
    goes_on: bool,
) -> Option<(&'a Keeper, Bytes)> {
    let blocks = live(case, keepers, &finding.blocks);
    let held = |keeper: &Keeper| held_of(&blocks, keeper);
    let known = || keepers.entries.iter().filter(|it| it.at.is_some());
    let most = known().map(|it| (it, held(it))).max_by_key(|(_, bytes)| *bytes);
    if goes_on {
        // A variable holds what the step made in which the agent looked: one block of them.
        let all: u64 = blocks.iter().map(|(_, size)| size).sum();
        return most.filter(|(_, it)| 2 < blocks.len() && all / 2 < it.0);
    }
    let is_graph =
        matches!(finding.code, ProblemCode::GraphRetained | ProblemCode::EvalWithoutNoGrad);
    let least = Bytes(finding.bytes.0 / if is_graph { 2 } else { 8 });
    let by_bytes = most.filter(|(_, it)| *it != Bytes::ZERO && least <= *it);
    // What is saved for a backward pass has no tensor in Python; results may be saved, too.
    let of_graph = || {
        let is_of_another =
            matches!(finding.code, ProblemCode::PerStep | ProblemCode::EarlierModels);
        if is_of_another || has_no_graph(case, finding) {
            return None;
        }
        // One that has a tensor of each step tells more than the loss of the last, whose graph may be the larger one.
        let steps = finding.bytes.0 / finding.per_step.0.max(1);
        let is_of_each =
            |it: &&Keeper| it.nodes != 0 && FEW_STEPS <= steps && steps / 4 * 3 <= it.tensors;
        let of_each = known().filter(is_of_each).max_by_key(|it| it.tensors);
        let most = || known().max_by_key(|it| it.nodes).filter(|it| FEW_NODES < it.nodes);
        of_each.or_else(most).map(|it| (it, held(it)))
    };
    by_bytes.or_else(of_graph)
}

/// Every block that was live at the end and is held by `keeper`; the finding leaves out those of the newest step.
fn all_of(case: &Case<'_>, keeper: &Keeper) -> Bytes {
    let addresses: BTreeSet<u64> = keeper.addresses.iter().copied().collect();
    let over = case.evidence.over();
    let is_held = |life: &&BlockLife| {
        life.free.is_none_or(|free| over <= free)
            && addresses.range(life.address..life.address + life.size.0).next().is_some()
    };
    case.run.replay.blocks.iter().filter(is_held).map(|it| it.size).sum()
}

/// What is there before a first forward pass is data, unless its keeper is called a cache: that of a generation that is over.
fn tell_of_setup(finding: &mut Finding, keeper: &Keeper, bytes: Bytes) {
    let name = keeper.name.trim_end_matches("[...]");
    finding.evidence.insert(0, format!("`{}` holds {bytes} of it", keeper.name));
    let last = name.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    // A place for keys and values, or for results, is no data.
    if keeper.at.as_ref().is_some_and(|it| it.text.contains("torch.empty(")) {
        finding.weight = Weight::Fact;
        finding.title =
            format!("`{name}` is made at its final size before the first forward pass: {bytes}");
        finding.remedy.clear();
    } else if last.contains("cache") || last.contains("past_key") {
        finding.title = format!(
            "`{name}` holds a cache of {bytes} that was made before the first forward pass"
        );
        finding.remedy = format!(
            "set `{name} = None` when the generation that needs this cache is over, or make it only as long as the texts are"
        );
    }
}

/// The finding's blocks are held by this keeper.
fn tell(case: &Case<'_>, finding: &mut Finding, held: Held<'_>) {
    let keeper = held.by;
    let Some(at) = keeper.at.clone() else { return };
    let limited = held.limited(finding);
    finding.evidence.insert(0, held.sentence(limited, &at));
    let name = keeper.name.trim_end_matches("[...]");
    if keeper.unlimited.is_some() {
        finding.title = format!(
            "a thread fills `{name}` faster than the training takes from it, and nothing limits it"
        );
    } else if let Some((members, limit)) = limited {
        let all = all_of(case, keeper);
        let full = u128::from(all.0) * u128::from(limit) / u128::from(members);
        let full = Bytes(full.try_into().unwrap_or(u64::MAX));
        finding.title = format!(
            "a buffer of limited length fills up on the device: {all} so far, {full} when full"
        );
    }
    if let Some(made) = finding.at.replace(at.clone()).filter(|it| it.line != at.line) {
        finding.evidence.insert(1, format!("allocated at {}", place(&made)));
        finding.made_at = Some(made);
    }
    if finding.code == ProblemCode::EarlierModels && keeper.what == "garbage" {
        // Nobody can use them.
        finding.weight = Weight::Problem;
    }
    let has_pools = case.run.trace.pools.iter().any(|it| *it != (0, 0));
    if let Some(remedy) = remedy(finding, held, limited.is_some(), has_pools) {
        finding.remedy = remedy;
    }
}

impl Held<'_> {
    /// How many members it has, and may have, of one that limits itself and holds most of what the finding is about.
    fn limited(&self, finding: &Finding) -> Option<(u64, u64)> {
        let is_most = self.bytes != Bytes::ZERO && finding.bytes.0 / 2 <= self.bytes.0;
        self.by.limit.filter(|(members, limit)| is_most && *members != 0 && members < limit)
    }

    /// Who holds how much, as what; `at` is the line that stores it.
    fn sentence(&self, limited: Option<(u64, u64)>, at: &CodeLine) -> String {
        let Held { by: keeper, bytes, goes_on } = *self;
        let what = match keeper.what.as_str() {
            "gradient" => "tensors whose `.grad` stays",
            "hook" => "filled by a hook",
            "closure" => "a variable of a closure",
            "cache" => "the cache of functools.lru_cache",
            "cycle" => "what itertools.cycle stores, to repeat it",
            "generator" => "a variable of a generator",
            "context" => "an attribute of the context of an autograd function",
            "traceback" => "a variable in an error's traceback",
            "attribute" => "an attribute",
            "variable" => "a variable",
            _ => "a container",
        };
        let how_much = match bytes {
            Bytes::ZERO => format!("autograd's graph of it, {} nodes", keeper.nodes),
            // How much it was at the end, nobody saw.
            _ if goes_on => "it".to_owned(),
            bytes => format!("{bytes} of it"),
        };
        let so_many = limited.map_or(String::new(), |(members, limit)| {
            format!(" with {members} of at most {limit} members")
        });
        let inner = keeper.inner.as_ref().filter(|it| *it != at);
        let inner = inner.map_or(String::new(), |it| format!("; {} puts it there", place(it)));
        if keeper.what == "garbage" {
            format!(
                "{how_much} is of `{}` objects that nothing but a cycle of references holds: they wait for Python's garbage collector{inner}",
                keeper.name
            )
        } else {
            format!("`{}` holds {how_much} ({what}{so_many}){inner}", keeper.name)
        }
    }
}

/// What to change, by how it is stored, the most particular first; none where the finding's own advice is better.
fn remedy(finding: &Finding, held: Held<'_>, is_limited: bool, has_pools: bool) -> Option<String> {
    let Held { by: keeper, bytes, .. } = held;
    let (name, what) = (keeper.name.trim_end_matches("[...]"), keeper.what.as_str());
    let of_results = finding.code == ProblemCode::ResultsKept;
    let is_leak = of_results || finding.code == ProblemCode::PerStep;
    let link = keeper.link.as_ref().filter(|_| is_leak).map(|link| {
        format!(
            "each of these objects still refers to an earlier one by `.{link}`, so none is ever freed: set `.{link} = None` where a new one takes over, or store what it holds on the CPU"
        )
    });
    if what == "gradient" {
        return Some("these tensors are no parameters, so no `zero_grad` clears their gradients: give the model a copy that wants a gradient (`x = x.detach().requires_grad_()`), or set `x.grad = None` after the step".to_owned());
    }
    if let Some(Unlimited { waits_in, .. }) = keeper.unlimited {
        return Some(format!("`{name}` has no limit: {}", waits_in.limit()));
    }
    if is_limited {
        return Some(format!(
            "store the members of `{name}` on the CPU (`.cpu()`, pictures as uint8) and move each sampled batch to the device; or lower its `maxlen`"
        ));
    }
    if of_results && bytes == Bytes::ZERO {
        return Some(format!(
            "`{name}` stores the autograd graph of each step: store `.item()` or `.detach()` of the value there"
        ));
    }
    if of_results && what == "container" {
        let change = link.as_ref().unwrap_or(&finding.remedy);
        return Some(format!("`{name}` stores them: {change}"));
    }
    let of_code = || match finding.code {
        ProblemCode::EarlierModels => Some(of_models(name, what)),
        ProblemCode::PerStep if has_pools && name.to_ascii_lowercase().contains("graph") => {
            Some(format!(
                "each CUDA graph in `{name}` has a memory pool of its own, which keeps all that was allocated while it was captured: capture a few lengths and pad to them, share one pool (`torch.cuda.graph(graph, pool=first.pool())`), or drop the graphs that are used least"
            ))
        }
        ProblemCode::PerStep if what == "container" => Some(format!(
            "`{name}` stores it: empty it after the step (of a metric: `reset()`), limit its length, or store `.item()` or `.cpu()` there; if it has a graph, `.detach()` it first"
        )),
        _ => None,
    };
    match what {
        "hook" if is_leak => Some(format!(
            "a hook fills `{name}`: call `.remove()` on what `register_forward_hook` (or `register_full_backward_hook`) returned as soon as nothing needs it any more, since each forward pass calls it; and empty what it fills after each step"
        )),
        _ if link.is_some() => link,
        "cycle" => Some(format!(
            "`{name}` is an `itertools.cycle`, which stores all that the first round gave: iterate anew instead, by a generator (`while True: yield from loader`), or move batches to the device in the loop, and not before it"
        )),
        "context" => {
            let attribute = name.rsplit('.').next().unwrap_or(name);
            Some(format!(
                "`ctx.{attribute}` stores an output, and its graph stores `ctx`: only Python's garbage collector frees that, late. Call `ctx.save_for_backward(...)` in `forward`, and read `ctx.saved_tensors` in `backward`"
            ))
        }
        "cache" if is_leak => Some(format!(
            "`{name}` is cached, and its cache keeps what it returned for each argument: give `lru_cache` a small `maxsize`, call `{name}.cache_clear()` now and then, or pad to a few sizes"
        )),
        _ => of_code(),
    }
}

/// What to change where earlier models are held.
fn of_models(name: &str, what: &str) -> String {
    match what {
        "cache" => format!(
            "`{name}` is cached, so its cache keeps the models that it was called with: remove `lru_cache`, or call `{name}.cache_clear()` when a model is done"
        ),
        "garbage" => format!(
            "`{name}` refers to itself (a hook or a function that speaks of `self`, a parent's attribute): use `weakref.ref(self)` there, or remove the hook when the model is done; or call `gc.collect()` before you make the next"
        ),
        "closure" => format!(
            "`{name}` keeps the model of each experiment: give the function numbers instead (`lambda loss=loss.item(): loss`), or empty its list when an experiment is done"
        ),
        _ => format!(
            "`{name}` keeps the models: store numbers or `state_dict()` copies on the CPU there, or delete each model when its experiment is done. If you still use the earlier models, nothing is wrong"
        ),
    }
}
