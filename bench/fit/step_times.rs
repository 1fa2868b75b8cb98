//! Fits the constants of the step times (`plan/time.rs`) to measured steps, and says how good they are.
//!
//! ```text
//! cargo run --release -p plimsoll-core --example step_times -- work.jsonl bench/fit/h200-steps.json bench/fit/h200-unseen-steps-quiet.json
//! cargo run --release -p plimsoll-core --example step_times -- work.jsonl > predicted.json
//! ```
//!
//! The second tells the seconds and the ratios with the constants in the code, before anything was measured.
//!
//! `work.jsonl` is what the steps compute and move, counted on the phantom by work.py; h200-steps.json has their seconds and
//! those of their kernels, measured by steps.py. Each further file was measured on another host, whose speed is found beside the
//! constants and is of no use to anybody else: ratios of models that were left out are told with the speed in the middle.
//! Prints the error of step-time ratios with the constants in the code, with those that are found now, and with those that are
//! found without the model in question; then the constants.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench for the people who work on the code"
)]

use std::{collections::BTreeMap, env, fs};

use plimsoll_core::{
    cards,
    plan::{FITTED, Figures, Work, factor},
};
use serde_json::{Value, json};

/// A step: what it is, what it does, and what was measured.
struct Step {
    model: String,
    batch: u64,
    plan: String,
    work: Vec<Work>,
    seconds: f64,
    /// The file that it was measured in, and so the host.
    host: usize,
    /// By the kind of kernel; nothing where they were not looked at.
    kernels: BTreeMap<String, f64>,
}

/// A constant: its name, and what somebody would have said before anything was measured. What no step decides stays
/// near that.
type Constant = (&'static str, f64, fn(&mut Figures) -> &mut f64);

const CONSTANTS: [Constant; 31] = [
    ("matmul.single", 0.6, |it| &mut it.matmul.single),
    ("matmul.tf32", 0.5, |it| &mut it.matmul.tf32),
    ("matmul.half", 0.5, |it| &mut it.matmul.half),
    ("by_4", 0.5, |it| &mut it.by_4),
    ("by_2", 0.25, |it| &mut it.by_2),
    ("convolution.tf32", 0.5, |it| &mut it.convolution.tf32),
    ("convolution.half", 0.5, |it| &mut it.convolution.half),
    ("layouts.tf32", 2.0, |it| &mut it.layouts.tf32),
    ("layouts.half", 2.0, |it| &mut it.layouts.half),
    ("attention.single", 0.4, |it| &mut it.attention.single),
    ("attention.half", 0.4, |it| &mut it.attention.half),
    ("recurrent.single", 0.3, |it| &mut it.recurrent.single),
    ("recurrent.tf32", 0.3, |it| &mut it.recurrent.tf32),
    ("recurrent.half", 0.3, |it| &mut it.recurrent.half),
    ("depthwise.single", 0.03, |it| &mut it.depthwise.single),
    ("depthwise.half", 0.05, |it| &mut it.depthwise.half),
    ("memory", 0.6, |it| &mut it.memory),
    ("batch_norm", 0.4, |it| &mut it.batch_norm),
    ("native_batch_norm", 0.2, |it| &mut it.native_batch_norm),
    ("block", 0.8, |it| &mut it.block),
    ("link", 0.8, |it| &mut it.link),
    ("kernel", 3e-6, |it| &mut it.kernel),
    ("time_step", 10e-6, |it| &mut it.time_step),
    ("host", 10e-6, |it| &mut it.host),
    ("host_convolution", 20e-6, |it| &mut it.host_convolution),
    ("host_matmul", 15e-6, |it| &mut it.host_matmul),
    ("host_time_step", 25e-6, |it| &mut it.host_time_step),
    ("host_look", 5e-6, |it| &mut it.host_look),
    ("host_hook", 8e-6, |it| &mut it.host_hook),
    ("host_listed", 1.5e-6, |it| &mut it.host_listed),
    ("overlap", 3.0, |it| &mut it.overlap),
];

/// The constants, and how much longer the host of each file takes than that.
#[derive(Clone)]
struct Found {
    figures: Figures,
    hosts: Vec<f64>,
}

impl Found {
    /// As somebody has them who does not know the host.
    fn everywhere(&self) -> Figures {
        self.figures
    }

    fn on_host(&self, host: usize) -> Figures {
        self.figures.with_host(self.hosts[host])
    }
}

/// What was guessed of those that are looked for; the others were measured by themselves.
fn guess() -> Figures {
    let mut res = FITTED;
    for (_, value, of) in CONSTANTS {
        *of(&mut res) = value;
    }
    res
}

/// Errors below this, as logarithms, are as good as none.
const SOFT: f64 = 0.05;
/// How strongly a constant is held where it was guessed.
const HELD: f64 = 0.02;

fn main() {
    let mut words = env::args().skip(1);
    let work = fs::read_to_string(words.next().unwrap()).unwrap();
    let files: Vec<String> = words.map(|it| fs::read_to_string(it).unwrap()).collect();
    if files.is_empty() {
        return predict(&counted(&work));
    }
    let steps: Vec<Step> =
        files.iter().enumerate().flat_map(|(host, it)| steps(&work, it, host)).collect();
    let mut models: Vec<&str> = steps.iter().map(|it| it.model.as_str()).collect();
    models.sort_unstable();
    models.dedup();
    println!(
        "{} steps of {} models, {} with kernels",
        steps.len(),
        models.len(),
        steps.iter().filter(|it| !it.kernels.is_empty()).count()
    );

    let all: Vec<&Step> = steps.iter().collect();
    let found = fitted(&all);
    let without = |model: &str| {
        let others: Vec<&Step> = steps.iter().filter(|it| it.model != model).collect();
        fitted(&others).everywhere()
    };
    let left_out: BTreeMap<&str, Figures> =
        models.iter().map(|model| (*model, without(model))).collect();
    tell("with the constants in the code", &ratios(&all, |_| FITTED));
    tell("with those that are found now", &ratios(&all, |_| found.everywhere()));
    let held_out = ratios(&all, |model| left_out[model]);
    tell("with those found without the model", &held_out);
    tell_range(&all);

    println!("\nworst, without the model:");
    let mut worst: Vec<&Ratio> = held_out.iter().collect();
    worst.sort_by(|a, b| b.error().total_cmp(&a.error()));
    for it in worst.iter().take(14) {
        println!(
            "  {:12} batch {:6} {:40} {:.2} for {:.2}",
            it.step.model, it.step.batch, it.step.plan, it.told, it.measured
        );
    }
    println!("\nhosts, by file: {:.2?} times as long as that of the constants", found.hosts);
    println!(
        "\n{:20} {:>10} {:>10}   without a model: least, most",
        "constant", "in code", "found"
    );
    for (name, _, of) in CONSTANTS {
        let value = |figures: &Figures| *of(&mut figures.clone());
        let others: Vec<f64> = left_out.values().map(value).collect();
        let (least, most) = (
            others.iter().copied().fold(f64::MAX, f64::min),
            others.iter().copied().fold(0.0, f64::max),
        );
        println!(
            "{name:20} {:>10.3e} {:>10.3e}   {least:.3e} {most:.3e}",
            value(&FITTED),
            value(&found.figures)
        );
    }
}

/// One line for each step: model, batch, plan, seconds, ratio to the plain one and its range.
fn predict(steps: &[Step]) {
    let card = cards::find("h200").unwrap();
    let all: Vec<&Step> = steps.iter().collect();
    let rows: Vec<Value> = steps
        .iter()
        .map(|it| {
            let told = plain(&all, it).and_then(|plain| factor(&plain.work, &it.work, card));
            let (ratio, low, high) =
                told.map_or((0.0, 0.0, 0.0), |it| (it.estimate, it.low, it.high));
            let round = |it: f64, by: f64| (it * by).round() / by;
            let ratios = [ratio, low, high].map(|it| round(it, 1e4));
            json!([it.model, it.batch, it.plan, round(FITTED.seconds(&it.work, card), 1e6), ratios])
        })
        .collect();
    let rows: Vec<String> = rows.iter().map(|it| format!("  {it}")).collect();
    println!("[\n{}\n]", rows.join(",\n"));
}

/// The ratio of a step to the plain one.
struct Ratio<'a> {
    step: &'a Step,
    told: f64,
    measured: f64,
}

impl Ratio<'_> {
    fn error(&self) -> f64 {
        (self.told / self.measured - 1.0).abs()
    }
}

impl Step {
    /// Whether this is what the other one is a change of.
    fn is_plain_of(&self, of: &Self) -> bool {
        self.plan == "plain"
            && self.model == of.model
            && self.batch == of.batch
            && self.host == of.host
    }
}

fn plain<'a>(steps: &[&'a Step], of: &Step) -> Option<&'a Step> {
    steps.iter().copied().find(|it| it.is_plain_of(of))
}

/// Every step that has a plain one, told with the figures for its model.
fn ratios<'a>(steps: &[&'a Step], figures: impl Fn(&str) -> Figures) -> Vec<Ratio<'a>> {
    let card = cards::find("h200").unwrap();
    let ratio = |step: &&'a Step| {
        let before = plain(steps, step).filter(|_| step.plan != "plain")?;
        let figures = figures(&step.model);
        Some(Ratio {
            step,
            told: figures.seconds(&step.work, card) / figures.seconds(&before.work, card),
            measured: step.seconds / before.seconds,
        })
    };
    steps.iter().filter_map(ratio).collect()
}

fn tell(what: &str, ratios: &[Ratio<'_>]) {
    let line = |name: &str, chosen: Vec<&Ratio<'_>>| {
        let mut errors: Vec<f64> = chosen.iter().map(|it| it.error()).collect();
        errors.sort_by(f64::total_cmp);
        let at = |share: usize| errors[(errors.len() * share / 100).min(errors.len() - 1)] * 100.0;
        println!(
            "  {name:42} {:3}  median {:5.1} %  90th percentile {:5.1} %  most {:5.1} %",
            errors.len(),
            at(50),
            at(90),
            at(100)
        );
    };
    println!("\nerror of step-time ratios {what}:");
    line("all", ratios.iter().collect());
    let mut plans: Vec<&str> = ratios.iter().map(|it| it.step.plan.as_str()).collect();
    plans.sort_unstable();
    plans.dedup();
    for plan in plans {
        line(plan, ratios.iter().filter(|it| it.step.plan == plan).collect());
    }
}

/// How often what was measured lies in the range that is told.
fn tell_range(steps: &[&Step]) {
    let card = cards::find("h200").unwrap();
    let (mut inside, mut all) = (0, 0);
    for step in steps {
        if let Some(before) = plain(steps, step).filter(|_| step.plan != "plain") {
            let told = factor(&before.work, &step.work, card).unwrap();
            all += 1;
            inside +=
                usize::from((told.low..=told.high).contains(&(step.seconds / before.seconds)));
        }
    }
    println!("\nin the range that is told, with the constants in the code: {inside} of {all}");
}

/// The constants that suit these steps best, found one after the other.
fn fitted(steps: &[&Step]) -> Found {
    let hosts = steps.iter().map(|it| it.host + 1).max().unwrap_or(0);
    let mut best = Found { figures: guess(), hosts: vec![1.0; hosts] };
    let mut least = misfit(&best, steps);
    for width in [1.4, 1.15, 1.05, 1.02, 1.01] {
        for _ in 0..12 {
            let before = least;
            for which in 0..CONSTANTS.len() + hosts {
                for by in [width, 1.0 / width] {
                    loop {
                        let mut tried = best.clone();
                        match CONSTANTS.get(which) {
                            Some((_, _, of)) => *of(&mut tried.figures) *= by,
                            None => tried.hosts[which - CONSTANTS.len()] *= by,
                        }
                        let it = misfit(&tried, steps);
                        if least <= it {
                            break;
                        }
                        (best, least) = (tried, it);
                    }
                }
            }
            if before - least < 1e-4 {
                break;
            }
        }
    }
    in_the_middle(best)
}

/// The same, but of the hosts none is ahead of the others: somebody else's may be any.
fn in_the_middle(mut found: Found) -> Found {
    let logarithms: f64 = found.hosts.iter().map(|it| it.ln()).sum();
    let middle = (logarithms / found.hosts.len().max(1) as f64).exp();
    found.figures = found.figures.with_host(middle);
    found.hosts.iter_mut().for_each(|it| *it /= middle);
    found
}

/// Of seconds, of ratios to the plain step, and of the kernels' seconds by kind, each by its share.
fn misfit(found: &Found, steps: &[&Step]) -> f64 {
    let card = cards::find("h200").unwrap();
    let off = |told: f64, measured: f64| {
        let it = (told / measured).ln();
        (it * it + SOFT * SOFT).sqrt()
    };
    let on: Vec<Figures> = (0..found.hosts.len()).map(|it| found.on_host(it)).collect();
    let told: Vec<f64> = steps.iter().map(|it| on[it.host].seconds(&it.work, card)).collect();
    let mut sum = 0.0;
    for (step, told_now) in steps.iter().zip(&told) {
        sum += off(*told_now, step.seconds);
        if let Some(at) = steps.iter().position(|it| it.is_plain_of(step)) {
            sum += off(told_now / told[at], step.seconds / steps[at].seconds);
        }
        let all: f64 = step.kernels.values().sum();
        for (kind, measured) in &step.kernels {
            let of_kind = step.work.iter().filter(|it| kind_of(&it.op) == kind);
            let on_gpu = |it: &Work| it.count * found.figures.on_gpu(it, card);
            let told_kind: f64 = of_kind.map(on_gpu).sum();
            if 0.0 < told_kind {
                sum += off(told_kind, *measured) * measured / all;
            }
        }
    }
    let held = |(_, guess, of): &Constant| (*of(&mut found.figures.clone()) / guess).ln().powi(2);
    sum / steps.len() as f64
        + HELD * CONSTANTS.iter().map(held).sum::<f64>() / CONSTANTS.len() as f64
}

/// The kind of kernel that an operation comes to. cuDNN does some convolutions as matrix products.
fn kind_of(op: &str) -> &'static str {
    match op {
        "attention" => "attention",
        "batch-norm" | "native-batch-norm" => "batch-norm",
        "pointwise" => "pointwise",
        "look" | "link" | "recurrent" | "hook" | "listed" | "sharded" | "few-blocks" => "",
        _ => "products",
    }
}

/// The steps that were counted.
fn counted(work: &str) -> Vec<Step> {
    let step = |line: &str| {
        let it: Value = serde_json::from_str(line).unwrap();
        let read = |it: &Value| Work {
            op: it["op"].as_str().unwrap().to_owned(),
            dtype: it["dtype"].as_str().unwrap().to_owned(),
            count: it["count"].as_f64().unwrap(),
            flops: it["flops"].as_f64().unwrap(),
            bytes: it["bytes"].as_f64().unwrap(),
        };
        Some(Step {
            model: it["model"].as_str()?.to_owned(),
            batch: it["batch"].as_u64()?,
            plan: it["plan"].as_str()?.to_owned(),
            work: it["work"].as_array()?.iter().map(read).collect(),
            seconds: 0.0,
            host: 0,
            kernels: BTreeMap::new(),
        })
    };
    work.lines().filter_map(step).collect()
}

/// The steps that were both counted and measured.
fn steps(work: &str, measured: &str, host: usize) -> Vec<Step> {
    let measured: Value = serde_json::from_str(measured).unwrap();
    let name = |it: &Value| {
        (
            it[0].as_str().unwrap().to_owned(),
            it[1].as_u64().unwrap(),
            it[2].as_str().unwrap().to_owned(),
        )
    };
    let rows = |key: &str| measured[key].as_array().into_iter().flatten();
    let seconds: BTreeMap<_, f64> =
        rows("steps").map(|it| (name(it), it[3].as_f64().unwrap())).collect();
    let kernels: BTreeMap<_, BTreeMap<String, f64>> = rows("kernels")
        .map(|it| {
            let of_kind = it[3].as_object().unwrap().iter();
            (name(it), of_kind.map(|(kind, it)| (kind.clone(), it.as_f64().unwrap())).collect())
        })
        .collect();
    let measured = |step: Step| {
        let key = (step.model.clone(), step.batch, step.plan.clone());
        let (seconds, kernels) = (*seconds.get(&key)?, kernels.get(&key).cloned());
        Some(Step { seconds, host, kernels: kernels.unwrap_or_default(), ..step })
    };
    counted(work).into_iter().filter_map(measured).collect()
}
