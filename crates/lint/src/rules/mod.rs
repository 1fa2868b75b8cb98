//! The rules: their codes, names and pages, and who looks for them.

mod devices;
mod evaluation;
pub(crate) mod found;
mod gradients;
mod graph;
mod habits;
mod precision;

use crate::{reading::story::Story, rules::found::Found};

/// A mistake that is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// `PLM101`: the first digit says what it is about, and none is used twice.
    pub code: &'static str,
    /// `kept-loss`
    pub name: &'static str,
    /// In a few words.
    pub title: &'static str,
    /// What, why, how to fix it, when to leave it as it is; in Markdown.
    pub page: &'static str,
    /// It is looked for unless somebody says otherwise.
    pub on: bool,
    /// What it costs where it is there.
    pub weight: Weight,
}

/// What a mistake costs, the most first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// More with every step or batch, until memory is full.
    Grows,
    /// As much as a graph or as the weights, at the peak.
    Peak,
    /// A fixed amount, or time.
    Fixed,
}

macro_rules! rules {
    ($(($code:literal, $name:literal, $on:literal, $weight:ident, $title:literal)),* $(,)?) => {
        /// All of them, by code.
        pub const RULES: &[Rule] = &[$(Rule {
            code: $code,
            name: $name,
            title: $title,
            page: include_str!(concat!("pages/", $code, "-", $name, ".md")),
            on: $on,
            weight: Weight::$weight,
        }),*];
    };
}

rules! {
    ("PLM101", "kept-loss", true, Grows, "a sum keeps the autograd graph of every iteration"),
    ("PLM102", "kept-results", true, Grows, "a list keeps the autograd graph of every iteration"),
    ("PLM103", "results-on-device", true, Grows, "the outputs of all batches stay on the device"),
    ("PLM104", "cat-in-loop", true, Grows, "each iteration concatenates onto a growing tensor"),
    ("PLM105", "retain-graph", true, Grows, "`retain_graph=True` on a graph that is not used again"),
    ("PLM106", "create-graph", true, Grows, "`backward(create_graph=True)`"),
    ("PLM107", "carried-state", true, Grows, "a recurrent state keeps the graph of all earlier steps"),
    ("PLM108", "ctx-attribute", true, Grows, "an autograd function keeps a tensor on `ctx`"),
    ("PLM109", "hook-keeps", true, Grows, "a hook keeps every output, or hooks pile up"),
    ("PLM110", "average-with-graph", true, Grows, "a moving average of weights keeps its autograd graph"),
    ("PLM111", "lightning-outputs", true, Grows, "a LightningModule keeps the outputs of its steps"),
    ("PLM112", "metric-not-reset", true, Grows, "a metric that collects batches is never reset"),
    ("PLM201", "eval-without-no-grad", true, Peak, "an evaluation runs with gradients on"),
    ("PLM202", "frozen-with-grad", true, Peak, "a model that no optimizer trains runs with gradients on"),
    ("PLM203", "retry-in-except", true, Peak, "a retry runs while the exception holds the failed attempt"),
    ("PLM301", "zero-grad-missing", true, Grows, "the gradients are never cleared"),
    ("PLM302", "zero-grad-in-accumulation", true, Peak, "`zero_grad()` runs for each micro-batch"),
    ("PLM303", "accumulation-not-divided", true, Fixed, "the accumulated loss is not divided"),
    ("PLM304", "accumulation-drops-last", false, Fixed, "the last micro-batches get no step"),
    ("PLM305", "accumulation-steps-early", true, Fixed, "the first step has one micro-batch"),
    ("PLM306", "zeroed-not-freed", true, Peak, "gradients are set to zero instead of freed"),
    ("PLM307", "zero-grad-late", false, Peak, "`zero_grad()` runs after the forward pass"),
    ("PLM308", "optimizer-before-device", true, Fixed, "the optimizer is created before the model is moved"),
    ("PLM309", "weights-copied", true, Peak, "a copy of the best weights stays on the device"),
    ("PLM401", "load-without-map-location", true, Peak, "a checkpoint is loaded onto the GPU that it was saved from"),
    ("PLM402", "no-set-device", true, Fixed, "no rank selects its own GPU"),
    ("PLM403", "cuda-in-worker", true, Peak, "a data loader's worker uses the GPU"),
    ("PLM404", "data-parallel", true, Peak, "`nn.DataParallel`"),
    ("PLM405", "many-workers", false, Fixed, "very many workers"),
    ("PLM406", "unpinned-loader", false, Fixed, "batches are copied to the GPU from memory that is not pinned"),
    ("PLM501", "empty-cache-in-loop", true, Fixed, "`empty_cache()` runs in each step"),
    ("PLM502", "benchmark-varying", false, Fixed, "`cudnn.benchmark` is on with inputs of many sizes"),
    ("PLM503", "items-in-loop", false, Fixed, "each step calls `.item()` several times"),
    ("PLM504", "anomaly-detection", true, Fixed, "anomaly detection is on in training"),
    ("PLM601", "backward-in-autocast", true, Peak, "the backward pass runs under autocast"),
    ("PLM602", "loop-in-autocast", true, Peak, "the whole training loop runs under autocast"),
    ("PLM603", "scaler-half-used", true, Fixed, "a gradient scaler is only partly used"),
    ("PLM604", "cache-in-training", true, Peak, "the KV cache is on in training"),
}

/// The rule of this code or name.
pub fn rule(named: &str) -> Option<&'static Rule> {
    RULES
        .iter()
        .find(|it| it.code.eq_ignore_ascii_case(named) || it.name.eq_ignore_ascii_case(named))
}

/// All that is found.
pub(crate) fn find(story: &Story<'_, '_>) -> Vec<Found> {
    let mut res = Vec::new();
    for find in [
        graph::find,
        evaluation::find,
        gradients::find,
        devices::find,
        habits::find,
        precision::find,
    ] {
        if !story.file.steps.are_over() {
            find(story, &mut res);
        }
    }
    res
}
