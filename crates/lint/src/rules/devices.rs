//! Devices, processes, loaders: PLM4xx.

use std::collections::BTreeSet;

use ruff_python_ast::{
    Expr, ExprCall, Stmt,
    visitor::{self, Visitor},
};
use ruff_text_size::{Ranged, TextRange};

use crate::{
    reading::{events::What, file::dotted, story::Story, value::Kind},
    rules::found::{Found, Mend, clipped},
};

/// So many workers are too many on most machines: each holds some batches, and a copy of what the dataset has.
const MANY_WORKERS: u64 = 17;

pub(super) fn find(story: &Story<'_, '_>, acc: &mut Vec<Found>) {
    loads(story, acc);
    kept_on_device(story, acc);
    no_set_device(story, acc);
    before_choice(story, acc);
    in_workers(story, acc);
    // Where nothing goes through the model in a loop, or in another file, nothing is gathered.
    let runs = !story.file.is_of_tests;
    for event in &story.events {
        let What::Library { path, call } = &event.what else { continue };
        match path.as_str() {
            "torch.nn.DataParallel" | "torch.nn.parallel.DataParallel" if runs => acc.push(Found {
                code: "PLM404",
                at: event.at,
                statement: event.statement,
                message: "`DataParallel` gathers all outputs on the first GPU and copies the model in each step: use `DistributedDataParallel`, one process for each GPU".to_owned(),
                mend: Vec::new(),
            }),
            it if it.ends_with(".DataLoader") => loader(story, call, event.statement, acc),
            _ => {}
        }
    }
}

/// `torch.load` of a checkpoint, to where it was saved from.
fn loads(story: &Story<'_, '_>, acc: &mut Vec<Found>) {
    if !story.file.text.contains("cuda") && !story.file.text.contains(".to(") {
        return;
    }
    if story.file.is_of_tests {
        return;
    }
    for event in &story.events {
        let What::Library { path, call } = &event.what else { continue };
        if path != "torch.load" {
            continue;
        }
        let has_place = call.arguments.find_keyword("mmap").is_some()
            || call.arguments.find_argument("map_location", 1).is_some()
            || call.arguments.keywords.iter().any(|it| it.arg.is_none());
        let is_weights = weights_go_into_a_model(story, event.at, event.function, event.statement);
        if !has_place && is_weights {
            let end = |call: &str| {
                let open = call.trim_end().trim_end_matches(')').trim_end().trim_end_matches(',');
                vec![Mend::Replace(event.at, format!("{open}, map_location=\"cpu\")"))]
            };
            acc.push(Found {
                code: "PLM401",
                at: event.at,
                statement: event.statement,
                message: "PyTorch loads the checkpoint onto the GPU that it was saved from, beside the model's own weights: pass `map_location=\"cpu\"`, and `del` the checkpoint afterwards".to_owned(),
                mend: story.file.piece(event.at).map(end).unwrap_or_default(),
            });
        }
    }
}

/// `torch.load(path, map_location="cuda")`, of which the file keeps a name while it trains.
fn kept_on_device(story: &Story<'_, '_>, acc: &mut Vec<Found>) {
    let text = story.file.text;
    for event in &story.events {
        let What::Library { path, call } = &event.what else { continue };
        let place = call.arguments.find_argument("map_location", 1).map(|it| it.value());
        let Some(place) = place.filter(|_| path == "torch.load") else { continue };
        let Some(name) = assigned(story, event.statement) else { continue };
        let is_weights = weights_go_into_a_model(story, event.at, event.function, event.statement);
        if !is_weights || !is_gpu(story, place) {
            continue;
        }
        // What follows reads the whole text.
        story.file.steps.take_text(text.len());
        let function = &story.file.functions[event.function];
        let body = if event.function == 0 { text } else { story.file.text_at(function.at) };
        let code = |line: &'_ str| line.split(" #").next().unwrap_or_default().trim().to_owned();
        let is_dropped = body.lines().map(code).any(|line| {
            let of_none = line.ends_with("= None") && line.split('=').any(|it| it.trim() == name);
            of_none || line.strip_prefix("del ").is_some_and(|it| names(it).any(|it| it == name))
        });
        // It lives while steps run: those of this function, or those of whoever gets it.
        let after = |index: &usize| {
            let it = &story.loops[*index];
            it.function == event.function && event.at.end() < it.at.start()
        };
        let trains_after = story.step_loops().iter().any(after);
        let is_returned = story.in_function(event.function).any(|event| {
            matches!(event.what, What::Return { .. })
                && names(story.file.text_at(event.at)).any(|it| it == name)
        });
        if is_dropped || !(trains_after || is_returned || name.starts_with("self.")) {
            continue;
        }
        acc.push(Found {
            code: "PLM401",
            at: event.at,
            statement: event.statement,
            message: format!("the checkpoint stays on the GPU beside the model and the optimizer's state for as long as `{name}` is there: pass `map_location=\"cpu\"`, or `del {name}` after it was loaded"),
            mend: vec![Mend::Replace(place.range(), "\"cpu\"".to_owned())],
        });
    }
}

/// The bare names in a list of values: `state` of `return epoch, state`, not that of `return state["epoch"]`.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let values = text.trim_start().strip_prefix("return").unwrap_or(text);
    values.split(',').map(|it| it.trim_matches(|it: char| it.is_whitespace() || "()".contains(it)))
}

/// Whether a place is a GPU: `"cuda:0"`, `torch.device("cuda")`, a name that was set to one.
fn is_gpu(story: &Story<'_, '_>, place: &Expr) -> bool {
    let text = story.file.text_at(place.range());
    if text.contains("cuda") {
        return true;
    }
    let Some(name) = dotted(place) else { return false };
    story.file.text.lines().any(|line| {
        let set = line.trim_start().strip_prefix(name.as_str());
        set.is_some_and(|it| it.trim_start().starts_with('=') && it.contains("cuda"))
    })
}

/// Whether what is loaded here goes into `load_state_dict`.
fn weights_go_into_a_model(
    story: &Story<'_, '_>,
    at: TextRange,
    function: usize,
    statement: TextRange,
) -> bool {
    story.in_function(function).any(|event| match &event.what {
        What::LoadState { value, of } if !of.contains("scaler") && !of.contains("scheduler") => {
            event.at.contains_range(at)
                || value.is(&Kind::Loaded)
                    && value.at.is_some_and(|made| {
                        made == at || made == statement || statement.contains_range(made)
                    })
                || assigned(story, statement).is_some_and(|name| value.from.has(&name))
        }
        _ => false,
    })
}

/// The name that a statement assigns to.
fn assigned(story: &Story<'_, '_>, statement: TextRange) -> Option<String> {
    let text = story.file.text_at(statement);
    let (name, _) = text.split_once('=')?;
    let name = name.trim();
    name.chars().all(|it| it.is_alphanumeric() || it == '_' || it == '.').then(|| name.to_owned())
}

/// Ranks that are not told which GPU is theirs.
fn no_set_device(story: &Story<'_, '_>, acc: &mut Vec<Found>) {
    let text = story.file.text;
    let told = [
        "set_device",
        "CUDA_VISIBLE_DEVICES",
        "device_id",
        "cuda:{",
        "cuda:%",
        "cuda:\" +",
        "cuda:' +",
        "cuda(local_rank",
        "cuda(rank",
        "cuda(gpu",
        "cuda(args",
        "cuda(self",
        "torch.cuda.device(",
        "gloo",
        "device(\"cuda\", ",
        "device('cuda', ",
    ];
    if told.iter().any(|it| text.contains(it)) {
        return;
    }
    let uses = text.contains(".cuda()")
        || text.contains(".to(\"cuda\")")
        || text.contains(".to('cuda')")
        || text.contains("device(\"cuda\")")
        || text.contains("device('cuda')");
    if !uses {
        return;
    }
    for event in &story.events {
        let What::Library { path, .. } = &event.what else { continue };
        if path.ends_with("init_process_group") {
            acc.push(Found {
                code: "PLM402",
                at: event.at,
                statement: event.statement,
                message: "every rank creates a CUDA context on GPU 0, some 500 MiB each: call `torch.cuda.set_device(local_rank)` before this".to_owned(),
                mend: Vec::new(),
            });
            return;
        }
    }
}

/// `.cuda()`, or a place that is "cuda", above the call of `set_device` in the same function: a rank's GPU is GPU 0 until then.
fn before_choice(story: &Story<'_, '_>, acc: &mut Vec<Found>) {
    let file = story.file;
    if !file.text.contains("init_process_group") || file.text.contains("CUDA_VISIBLE_DEVICES") {
        return;
    }
    for event in &story.events {
        let What::Library { path, .. } = &event.what else { continue };
        if path != "torch.cuda.set_device" {
            continue;
        }
        let function = &file.functions[event.function];
        if !file.steps.take(function.at.len().to_usize()) {
            return;
        }
        let mut seen = ToDevice { found: Vec::new(), workers: false, statement: function.at };
        seen.visit_body(function.body);
        let first = seen.found.into_iter().find(|(at, statement)| {
            let text = file.text_at(*at);
            let is_bare =
                text.ends_with(".cuda()") || text.contains("\"cuda\"") || text.contains("'cuda'");
            is_bare && statement.end() <= event.at.start() && !is_in_definition(function.body, *at)
        });
        if let Some((at, statement)) = first {
            acc.push(Found {
                code: "PLM402",
                at,
                statement,
                message: "this line runs before `set_device`, so every rank creates a CUDA context on GPU 0 and allocates there: move the call of `torch.cuda.set_device` above it".to_owned(),
                mend: Vec::new(),
            });
            return;
        }
    }
}

/// Whether a place is inside a function or class that is only defined there.
fn is_in_definition(body: &[Stmt], at: TextRange) -> bool {
    body.iter().any(|it| {
        matches!(it, Stmt::FunctionDef(_) | Stmt::ClassDef(_)) && it.range().contains_range(at)
    })
}

/// What uses the GPU in a process that loads data.
fn in_workers(story: &Story<'_, '_>, acc: &mut Vec<Found>) {
    let file = story.file;
    let mut functions: BTreeSet<usize> = BTreeSet::new();
    for class in file.classes.iter().filter(|it| it.is_dataset()) {
        functions.extend(["__getitem__", "__iter__"].iter().filter_map(|it| class.methods.get(it)));
    }
    let mut workers = file.text.contains("num_workers") && !file.text.contains("num_workers=0");
    for event in &story.events {
        let What::Library { path, call } = &event.what else { continue };
        if !path.ends_with(".DataLoader") {
            continue;
        }
        for name in ["collate_fn", "worker_init_fn"] {
            let Some(given) = call.arguments.find_keyword(name) else { continue };
            // `functools.partial(collate, ...)`, or `Collator(...)`.
            let (given, is_made) = match &given.value {
                Expr::Call(call) => match file.import(&call.func) {
                    Some(path) if path == "functools.partial" => {
                        (call.arguments.args.first().and_then(dotted), false)
                    }
                    _ => (dotted(&call.func), true),
                },
                it => (dotted(it), false),
            };
            let Some(given) = given else { continue };
            let last = given.rsplit('.').next().unwrap_or_default().to_owned();
            if !file.steps.take(file.functions.len() / 8) {
                return;
            }
            if let (true, Some(class)) = (is_made, file.class_named(&last)) {
                functions.extend(file.classes[class].methods.get("__call__"));
                continue;
            }
            functions
                .extend((0..file.functions.len()).filter(|it| file.functions[*it].name == last));
        }
        workers |= call.arguments.find_keyword("num_workers").is_some_and(|it| !is_zero(&it.value));
    }
    for index in functions {
        let function = &file.functions[index];
        if !file.steps.take(function.at.len().to_usize()) {
            return;
        }
        let mut seen = ToDevice { found: Vec::new(), workers, statement: function.at };
        seen.visit_body(function.body);
        for (at, statement) in seen.found {
            acc.push(Found {
                code: "PLM403",
                at,
                statement,
                message: format!("`{}` runs in the data loader's workers, and each worker that uses the GPU creates its own CUDA context, some 500 MiB: return CPU tensors, and move them in the training loop", function.name),
                mend: Vec::new(),
            });
        }
    }
}

fn is_zero(expr: &Expr) -> bool {
    matches!(expr, Expr::NumberLiteral(it) if matches!(&it.value, ruff_python_ast::Number::Int(it) if *it == 0))
}

struct ToDevice {
    found: Vec<(TextRange, TextRange)>,
    workers: bool,
    statement: TextRange,
}

impl<'a> Visitor<'a> for ToDevice {
    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        let before = std::mem::replace(&mut self.statement, stmt.range());
        visitor::walk_stmt(self, stmt);
        self.statement = before;
    }

    fn visit_expr(&mut self, expr: &'a Expr) {
        if let Expr::Call(call) = expr
            && let Expr::Attribute(func) = &*call.func
        {
            let arg = call.arguments.args.first();
            let is_cuda =
                func.attr.as_str() == "cuda" && dotted(&func.value).is_none_or(|it| it != "torch");
            let is_to =
                func.attr.as_str() == "to" && arg.is_some_and(|it| names_device(it, self.workers));
            let is_made = call
                .arguments
                .find_keyword("device")
                .is_some_and(|it| names_device(&it.value, self.workers));
            if is_cuda || is_to || is_made {
                self.found.push((call.range(), self.statement));
            }
        }
        visitor::walk_expr(self, expr);
    }
}

fn names_device(expr: &Expr, workers: bool) -> bool {
    match expr {
        Expr::StringLiteral(it) => it.value.to_str().starts_with("cuda"),
        _ => {
            workers
                && dotted(expr)
                    .is_some_and(|it| it == "device" || it == "self.device" || it == "DEVICE")
        }
    }
}

/// Workers and pinned memory.
fn loader(story: &Story<'_, '_>, call: &ExprCall, statement: TextRange, acc: &mut Vec<Found>) {
    let at = call.range();
    if let Some(workers) = call.arguments.find_keyword("num_workers") {
        let text = story.file.text_at(workers.value.range());
        let many = text.parse::<u64>().is_ok_and(|it| MANY_WORKERS <= it)
            || text.contains("cpu_count()") && !text.contains("min(") && !text.contains("//");
        if many {
            acc.push(Found {
                code: "PLM405",
                at: workers.range(),
                statement,
                message: format!("`num_workers={}`: in host memory, each worker holds some batches and its own copy of the data that the dataset changes: begin with 4", clipped(text)),
                mend: Vec::new(),
            });
        }
        let pinned = call.arguments.find_keyword("pin_memory").is_some()
            || call.arguments.keywords.iter().any(|it| it.arg.is_none());
        if !pinned && story.file.says_anywhere(&["cuda"]) && text != "0" {
            acc.push(Found {
                code: "PLM406",
                at,
                statement,
                message: "batches are copied to the GPU from memory that is not pinned, and the script waits for each copy: pass `pin_memory=True`, and `non_blocking=True` to `.to()`".to_owned(),
                mend: Vec::new(),
            });
        }
    }
}
