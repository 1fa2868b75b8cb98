//! What functions of torch, and of libraries that stand around it, give back.

use ruff_python_ast::{Expr, ExprCall};

use crate::reading::{
    events::Grad,
    guess,
    value::{Kind, Value},
};

/// The names of optimizers, wherever they come from.
const OPTIMIZERS: [&str; 24] = [
    "Adam",
    "AdamW",
    "SGD",
    "Adagrad",
    "Adadelta",
    "RMSprop",
    "Adamax",
    "NAdam",
    "RAdam",
    "LBFGS",
    "Rprop",
    "ASGD",
    "SparseAdam",
    "Adafactor",
    "Lion",
    "LAMB",
    "Lamb",
    "Adam8bit",
    "AdamW8bit",
    "PagedAdamW",
    "FusedAdam",
    "FusedLAMB",
    "ZeroRedundancyOptimizer",
    "DeepSpeedCPUAdam",
];

fn last(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

fn is_class(name: &str) -> bool {
    name.starts_with(|it: char| it.is_ascii_uppercase())
}

fn is_true(expr: &Expr) -> Option<bool> {
    match expr {
        Expr::BooleanLiteral(it) => Some(it.value),
        _ => None,
    }
}

/// What `path` gives, called with `values`.
pub(crate) fn result(path: &str, call: &ExprCall, values: &[Value], grad: Grad) -> Value {
    let name = last(path);
    let is_on = grad != Grad::Off;
    let first = values.first();
    let attached = is_on && values.iter().any(|it| it.attached);
    let mut tensor = Value::of(Kind::Tensor);
    for it in values {
        tensor = tensor.with(it);
    }
    tensor.attached = attached;
    let of_torch = path.starts_with("torch.");
    match name {
        "no_grad" | "inference_mode" if of_torch => {
            let mode = call.arguments.find_argument_value("mode", 0).and_then(is_true);
            return Value::of(if mode == Some(false) { Kind::Plain } else { Kind::NoGrad(true) });
        }
        "set_grad_enabled" => {
            return match call.arguments.find_argument_value("mode", 0).and_then(is_true) {
                Some(true) => Value::of(Kind::Plain),
                Some(false) => Value::of(Kind::NoGrad(true)),
                None => Value::of(Kind::NoGrad(false)),
            };
        }
        "autocast" => {
            let enabled = call.arguments.find_keyword("enabled").and_then(|it| is_true(&it.value));
            return Value::of(if enabled == Some(false) { Kind::Plain } else { Kind::Autocast });
        }
        "GradScaler" => return Value::of(Kind::Scaler),
        "DataLoader" => return Value::of(Kind::Loader),
        "DataParallel"
        | "DistributedDataParallel"
        | "FullyShardedDataParallel"
        | "compile"
        | "script"
            if first.is_some_and(Value::is_module) || is_class(name) && of_torch =>
        {
            return Value { of: first.and_then(|it| it.of.clone()), ..Value::of(Kind::Module) };
        }
        "deepcopy" | "copy" if path.starts_with("copy.") => {
            return first.cloned().unwrap_or_default();
        }
        "load" if path == "torch.load" => return Value::of(Kind::Loaded),
        "load" if path == "torch.jit.load" || path == "torch.hub.load" => {
            return Value::of(Kind::Module);
        }
        "tqdm" | "trange" | "iter" | "next" | "cycle" | "islice" | "track" | "chain" => {
            return first.cloned().unwrap_or_default();
        }
        // `torch.func.functional_call(model, parameters, inputs)`
        "functional_call" => {
            let of = first.and_then(|it| it.from.iter().last().map(str::to_owned));
            return Value { attached: is_on, is_output: true, of, ..tensor };
        }
        "deque" => {
            let bounded = call.arguments.find_argument("maxlen", 1).is_some();
            return Value { bounded, ..Value::of(Kind::List) };
        }
        "defaultdict" | "OrderedDict" => return Value::of(Kind::Dict),
        _ => {}
    }
    if OPTIMIZERS.contains(&name)
        || is_class(name)
            && path.contains(".optim.")
            && !path.contains("lr_scheduler")
            && !path.contains("swa_utils")
    {
        return Value::of(Kind::Optimizer);
    }
    if path.starts_with("torchmetrics.") && is_class(name) {
        return Value::of(Kind::Metric);
    }
    if path.starts_with("torch.nn.") && is_class(name) {
        let kind = match name.contains("Loss") {
            true => Kind::Criterion,
            false if matches!(name, "Parameter" | "UninitializedParameter") => {
                return Value { attached: true, ..Value::of(Kind::Tensor) };
            }
            false => Kind::Module,
        };
        return Value::of(kind);
    }
    if path.starts_with("torch.nn.functional.") || path.starts_with("torch.nn.utils.rnn.") {
        let is_scalar = guess::computes_loss(name)
            && call.arguments.find_keyword("reduction").is_none_or(
                |it| !matches!(&it.value, Expr::StringLiteral(it) if it.value.to_str() == "none"),
            );
        return Value { is_scalar, ..tensor };
    }
    if path.starts_with("torchvision.models.") && !is_class(name) || name == "create_model" {
        return Value::of(Kind::Module);
    }
    if name == "from_pretrained" || name == "from_config" {
        let before = path.rsplit('.').nth(1).unwrap_or_default();
        let is_plain = ["Tokenizer", "Processor", "Config", "Extractor", "Scheduler", "Pipeline"];
        let is_module = is_class(before) && !is_plain.iter().any(|it| before.contains(it));
        return Value::of(if is_module { Kind::Module } else { Kind::Plain });
    }
    if of_torch {
        return match name {
            "argmax" | "argmin" | "argsort" | "multinomial" | "eq" | "ne" | "gt" | "lt" | "ge"
            | "le" | "isnan" | "isfinite" | "bincount" | "nonzero" | "logical_and"
            | "logical_or" | "histc" | "is_grad_enabled" | "empty_like" | "zeros_like"
            | "ones_like" | "rand_like" | "randn_like" | "full_like" => {
                Value { attached: false, is_output: name.starts_with("arg"), ..tensor }
            }
            "mean" | "sum" | "norm" | "prod" => {
                let is_scalar = call.arguments.len() == 1;
                Value { is_scalar, ..tensor }
            }
            _ if path.starts_with("torch.cuda.")
                || path.starts_with("torch.distributed.")
                || path.starts_with("torch.backends.") =>
            {
                Value::default()
            }
            // Its log probabilities hang on what it was made of.
            _ if path.starts_with("torch.distributions.") => {
                Value { kind: Kind::Unknown, ..tensor }
            }
            "is_tensor" | "is_floating_point" | "numel" | "get_rng_state" => Value::number(),
            _ if is_class(name) => Value::default(),
            _ => Value { is_scalar: false, ..tensor },
        };
    }
    if path.starts_with("operator.") && attached {
        let is_scalar = values.iter().all(|it| it.is_scalar || !it.attached);
        return Value { is_scalar, ..tensor };
    }
    if path.starts_with("numpy.")
        || path.starts_with("math.")
        || path.starts_with("time.")
        || path.starts_with("sklearn.")
    {
        return Value::number();
    }
    if guess::computes_loss(name) {
        // A function from elsewhere that is called after a loss.
        let is_class = is_class(name);
        if is_class {
            return Value::of(Kind::Criterion);
        }
        return Value { is_scalar: true, ..tensor };
    }
    if is_class(name)
        && (name.ends_with("Model")
            || name.ends_with("Net")
            || name.contains("ResNet")
            || name.contains("UNet"))
    {
        return Value::of(Kind::Module);
    }
    Value { from: tensor.from, graph: tensor.graph, ..Value::default() }
}
