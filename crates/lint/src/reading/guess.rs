//! What a name most likely holds where nothing in the file says so: a parameter called `model`, an import called
//! `compute_loss`. What is done with it counts more than how it is called.

use crate::reading::{file::File, value::Kind};

/// Names of models, whole or as the last word of a name.
const MODELS: [&str; 39] = [
    "model",
    "net",
    "network",
    "generator",
    "discriminator",
    "netg",
    "netd",
    "encoder",
    "decoder",
    "actor",
    "critic",
    "policy",
    "backbone",
    "unet",
    "vae",
    "student",
    "teacher",
    "classifier",
    "transformer",
    "module",
    "vgg",
    "resnet",
    "ema",
    "bert",
    "gpt",
    "lstm",
    "rnn",
    "gru",
    "trunk",
    "tower",
    "mlp",
    "cnn",
    "vit",
    "llm",
    "lm",
    "embedder",
    "detector",
    "segmenter",
    "disc",
];
const CRITERIA: [&str; 9] = [
    "criterion",
    "criteria",
    "loss_fn",
    "loss_func",
    "loss_function",
    "lossfn",
    "loss_f",
    "loss_module",
    "criterions",
];

/// Whether it is called a loss, which is one number.
pub(crate) fn is_loss(name: &str) -> bool {
    let is_name = name.chars().all(|it| it.is_alphanumeric() || "_.".contains(it));
    is_name && has_word(&last(name), &["loss"])
}

fn last(name: &str) -> String {
    let name = name.trim_end_matches("[]");
    name.rsplit('.').next().unwrap_or(name).to_ascii_lowercase()
}

/// Whether a word of the name, as underscores part it, is one of these.
fn has_word(name: &str, words: &[&str]) -> bool {
    name.split('_').any(|part| {
        let word = part.trim_end_matches(|it: char| it.is_ascii_digit());
        words.contains(&word)
    })
}

/// What `name` may be.
pub(crate) fn kind(file: &File<'_>, name: &str) -> Kind {
    let used = |method: &str| file.is_used(name, method);
    let last = last(name);
    if used("step") && used("zero_grad")
        || last.contains("optim") && !last.contains("optimiz") && used("step")
    {
        return Kind::Optimizer;
    }
    if is_optimizer(&last) {
        return Kind::Optimizer;
    }
    if used("unscale_") || used("scale") && used("step") || last == "scaler" && used("scale") {
        return Kind::Scaler;
    }
    if CRITERIA.contains(&last.as_str()) {
        return Kind::Criterion;
    }
    let is_module = used("parameters")
        || used("named_parameters")
        || used("eval")
        || used("train") && !last.contains("trainer")
        || used("state_dict") && used("cuda");
    if is_module || is_model(&last) && !makes_models(name) {
        return Kind::Module;
    }
    if last.contains("loader") || last.ends_with("_dl") {
        return Kind::Loader;
    }
    Kind::Unknown
}

/// Whether a call of this name makes a model, or does something with one, and is not the model: `build_model`, `UNet`.
fn makes_models(name: &str) -> bool {
    const VERBS: [&str; 20] = [
        "build",
        "make",
        "create",
        "get",
        "load",
        "init",
        "new",
        "setup",
        "construct",
        "prepare",
        "define",
        "train",
        "save",
        "wrap",
        "freeze",
        "convert",
        "export",
        "compile",
        "from",
        "copy",
    ];
    let last = name.rsplit('.').next().unwrap_or(name);
    let is_class = last.len() > 1 && last.starts_with(|it: char| it.is_ascii_uppercase());
    let has_verb = last.split_once('_').is_some_and(|(verb, _)| VERBS.contains(&verb));
    is_class || has_verb
}

fn is_optimizer(last: &str) -> bool {
    let last = last.trim_end_matches(|it: char| it.is_ascii_digit());
    ["optimizer", "optim", "opt", "optimiser"].iter().any(|word| {
        last == *word
            || last.starts_with(&format!("{word}_"))
            || last.ends_with(&format!("_{word}"))
    }) || last.starts_with("optimizer") && !last.contains("config")
}

/// Whether the last part of a name is a model's.
pub(crate) fn is_model(last: &str) -> bool {
    let words = [
        "config",
        "name",
        "path",
        "args",
        "file",
        "dir",
        "type",
        "cfg",
        "id",
        "size",
        "dim",
        "kwargs",
        "params",
        "fn",
        "class",
        "cls",
        "factory",
        "state",
        "dict",
        "ckpt",
        "list",
        "names",
        "output",
        "outputs",
        "out",
        "input",
        "inputs",
        "loss",
        "lr",
        "version",
        "card",
        "index",
        "key",
        "parallel",
        "opt",
        "optimizer",
        "info",
    ];
    // Words of many other things, unless they stand alone: `gen_kwargs`, `cell_state`.
    has_word(last, &MODELS) && !has_word(last, &words) || matches!(last, "g" | "d" | "gen" | "cell")
}

/// Whether a thing of this name is one of a few that come again and again: a window, a size, a device.
pub(crate) fn comes_again(name: &str) -> bool {
    let words = [
        "window",
        "shape",
        "size",
        "sizes",
        "len",
        "length",
        "lengths",
        "height",
        "width",
        "resolution",
        "bucket",
        "device",
        "dtype",
    ];
    has_word(&last(name), &words)
}

/// Whether what is put into a thing of this name leaves memory: a file, or what writes one.
pub(crate) fn writes_out(name: &str) -> bool {
    let name = last(name);
    name == "file"
        || has_word(&name, &["writer", "saver", "dumper", "sink", "memmap", "lmdb", "zarr"])
}

/// Whether a place of this name is the host.
pub(crate) fn is_host(place: &str) -> bool {
    place
        .to_ascii_lowercase()
        .split(|it: char| !it.is_ascii_alphanumeric())
        .any(|word| matches!(word, "cpu" | "host" | "offload" | "storage"))
}

/// Whether a model's method of this name runs it, or a part of it.
pub(crate) fn runs(method: &str) -> bool {
    let words = ["generate", "encode", "decode", "embed", "predict", "infer", "sample", "forward"];
    has_word(method, &words)
}

/// Whether a function of this name computes a loss.
pub(crate) fn computes_loss(name: &str) -> bool {
    let last = last(name);
    last.contains("loss")
        && !last.contains("log")
        && !last.contains("scale")
        && !last.contains("plot")
        && !last.contains("print")
        || matches!(
            last.as_str(),
            "cross_entropy"
                | "nll"
                | "kl_div"
                | "binary_cross_entropy"
                | "binary_cross_entropy_with_logits"
                | "criterion"
        )
}

/// Whether a loop over this goes over batches.
pub(crate) fn is_batches(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let words: Vec<&str> = text.split(|it: char| !it.is_ascii_alphanumeric()).collect();
    words.iter().any(|word| {
        word.contains("loader")
            || matches!(
                *word,
                "batches"
                    | "batch"
                    | "dl"
                    | "minibatches"
                    | "dataset"
                    | "testset"
                    | "valset"
                    | "trainset"
                    | "datasets"
            )
    })
}

/// Whether a function of this name judges a model.
pub(crate) fn evaluates(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let words = [
        "val",
        "valid",
        "validate",
        "validation",
        "eval",
        "evaluate",
        "evaluation",
        "test",
        "infer",
        "inference",
        "predict",
        "prediction",
    ];
    has_word(&name, &words) && !name.contains("train")
}
