//! Finds the constants of the step times (`plan/time.rs`) from measured steps, and says how good they are on models that
//! they were not found from. It is the one way in which these constants are made.
//!
//! ```text
//! cd bench/fit; xz -dk work.jsonl.xz
//! cargo run --release -p plimsoll-core --example step_times -- work.jsonl h200-steps.json h200-unseen-steps.json \
//!     h200-unseen-steps-quiet.json h200-strangers-steps.json h200-fresh-turns.json h200-fresh-turns-2.json
//! cargo run --release -p plimsoll-core --example step_times -- work.jsonl > predicted.json
//! ```
//!
//! The second tells the seconds and the ratios with the constants in the code, before anything was measured.
//!
//! `work.jsonl` is what the steps compute and move, counted on the phantom by work.py; the other files have their seconds,
//! those of their kernels by kind, those of the host, or the ratio to the plain step measured in turns, as their columns say. Each
//! was measured on a host of its own, whose speed is found beside the constants and is of no use to anybody else: what is held out
//! is told with the speed in the middle. Steps of a host that varies are taken at their least to find constants, and at their median
//! to judge them.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench for the people who work on the code"
)]

use std::{collections::BTreeMap, env, fs};

use plimsoll_core::{
    cards,
    plan::{FITTED, Figures, RANGE, Range, Work, factor},
};
use serde_json::{Value, json};

/// A step: what it is, what it does, and what was measured.
#[derive(Clone)]
struct Step {
    model: String,
    batch: u64,
    plan: String,
    work: Vec<Work>,
    median: f64,
    least: f64,
    /// Until the host had started everything.
    on_host: Option<f64>,
    /// To the plain step, where both were measured in turns.
    in_turns: Option<f64>,
    /// The file that it was measured in, and so the host.
    host: usize,
    /// By the kind of kernel; nothing where they were not looked at.
    kernels: BTreeMap<String, f64>,
}

/// A constant: its name, and what somebody would have said before anything was measured. What no step decides stays
/// near that.
type Constant = (&'static str, f64, fn(&mut Figures) -> &mut f64);

const CONSTANTS: [Constant; 35] = [
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
    ("depthwise_last.single", 0.03, |it| &mut it.depthwise_last.single),
    ("depthwise_last.half", 0.05, |it| &mut it.depthwise_last.half),
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
    ("host_around", 100e-6, |it| &mut it.host_around),
    ("host_listed", 1.5e-6, |it| &mut it.host_listed),
    ("host_sorted", 100e-6, |it| &mut it.host_sorted),
    ("overlap", 3.0, |it| &mut it.overlap),
];

/// Errors below this, as logarithms, are as good as none.
const SOFT: f64 = 0.05;
/// How strongly a constant is held where it was guessed.
const HELD: f64 = 0.02;
/// So many groups of models are left out, one after the other.
const FOLDS: usize = 6;
/// Of a hundred ratios so many are to lie in the range that is told.
const COVERED: usize = 80;
/// Kernels that the host may be ahead; once it is, it waits, and its seconds are the device's.
const AHEAD: f64 = 900.0;

/// The constants, and how much longer the host of each file takes than that.
#[derive(Clone)]
struct Found {
    figures: Figures,
    hosts: Vec<f64>,
}

fn main() {
    let mut words = env::args().skip(1);
    let work = fs::read_to_string(words.next().unwrap()).unwrap();
    let files: Vec<String> = words.collect();
    if files.is_empty() {
        return predict(&counted(&work));
    }
    let read = |it: &String| fs::read_to_string(it).unwrap();
    let steps: Vec<Step> =
        files.iter().enumerate().flat_map(|(host, it)| steps(&work, &read(it), host)).collect();
    let models = models(&steps);
    println!("{} steps of {} models in {} files", steps.len(), models.len(), files.len());
    tell("with the constants in the code", &ratios(&steps, |_| FITTED), RANGE);

    // No constant that a ratio is told with has seen its model.
    let fold = |model: &str| models.iter().position(|it| *it == model).unwrap() % FOLDS;
    let without: Vec<Figures> = (0..FOLDS)
        .map(|n| fitted(steps.iter().filter(|it| fold(&it.model) != n)).figures)
        .collect();
    let held_out = ratios(&steps, |model| without[fold(model)]);
    let range = covering(&held_out.iter().collect::<Vec<_>>());
    tell("with constants found without the model", &held_out, range);
    for (host, file) in files.iter().enumerate() {
        let here: Vec<Ratio<'_>> =
            held_out.iter().filter(|it| it.step.host == host).cloned().collect();
        if !here.is_empty() {
            tell_line(file.rsplit('/').next().unwrap(), &here.iter().collect::<Vec<_>>(), range);
        }
    }
    // Nor has the width of the range.
    let inside = held_out.iter().filter(|it| {
        let others =
            held_out.iter().filter(|other| fold(&other.step.model) != fold(&it.step.model));
        it.is_in(covering(&others.collect::<Vec<_>>()))
    });
    println!(
        "\nin a range that was chosen without the model, too: {} of {}",
        inside.count(),
        held_out.len()
    );
    println!("\nworst, without the model:");
    let mut worst: Vec<&Ratio<'_>> = held_out.iter().collect();
    worst.sort_by(|a, b| b.error().total_cmp(&a.error()));
    for it in worst.iter().take(24) {
        println!(
            "  {:12} batch {:6} {:40} {:.2} for {:.2}",
            it.step.model, it.step.batch, it.step.plan, it.told.0, it.measured
        );
    }

    let found = fitted(steps.iter());
    tell("with constants found from all", &ratios(&steps, |_| found.figures), range);
    println!("\nhosts, by file: {:.2?} times as long as that of the constants", found.hosts);
    println!(
        "\n{:20} {:>10} {:>10}   without a sixth: least, most",
        "constant", "in code", "found"
    );
    for (name, _, of) in CONSTANTS {
        let value = |figures: &Figures| *of(&mut figures.clone());
        let others = without.iter().map(value);
        let (least, most) = (others.clone().fold(f64::MAX, f64::min), others.fold(0.0, f64::max));
        let (code, now) = (value(&FITTED), value(&found.figures));
        println!("{name:20} {code:>10.3e} {now:>10.3e}   {least:.3e} {most:.3e}");
    }
    println!("\nrange: {range:?}");
}

fn models(steps: &[Step]) -> Vec<&str> {
    let mut res: Vec<&str> = steps.iter().map(|it| it.model.as_str()).collect();
    res.sort_unstable();
    res.dedup();
    res
}

/// One line for each step: model, batch, plan, seconds, ratio to the plain one and its range.
fn predict(steps: &[Step]) {
    let card = cards::find("h200").unwrap();
    let rows = steps.iter().map(|it| {
        let told = plain(steps, it).and_then(|plain| factor(&plain.work, &it.work, card));
        let (ratio, low, high) = told.map_or((0.0, 0.0, 0.0), |it| (it.estimate, it.low, it.high));
        let round = |it: f64, by: f64| (it * by).round() / by;
        let ratios = [ratio, low, high].map(|it| round(it, 1e4));
        json!([it.model, it.batch, it.plan, round(FITTED.seconds(&it.work, card), 1e6), ratios])
    });
    let rows: Vec<String> = rows.map(|it| format!("  {it}")).collect();
    println!("[\n{}\n]", rows.join(",\n"));
}

/// The ratio of a step to the plain one.
#[derive(Clone)]
struct Ratio<'a> {
    step: &'a Step,
    /// With the host that is assumed, with a slower and with a faster one.
    told: (f64, f64, f64),
    measured: f64,
}

impl Ratio<'_> {
    fn error(&self) -> f64 {
        (self.told.0 / self.measured - 1.0).abs()
    }

    fn is_in(&self, range: Range) -> bool {
        let it = range.around(self.told.0, self.told.1, self.told.2);
        (it.low..=it.high).contains(&self.measured)
    }

    /// What the least part of the width would have to be for this one to be in the range.
    fn needs(&self) -> f64 {
        let it = Range { at_least: 0.0, ..RANGE }.around(self.told.0, self.told.1, self.told.2);
        (it.low / self.measured).ln().max((self.measured / it.high).ln()).max(0.0)
    }
}

/// The range that so many of these lie in as are to.
fn covering(ratios: &[&Ratio<'_>]) -> Range {
    let mut needs: Vec<f64> = ratios.iter().map(|it| it.needs()).collect();
    needs.sort_by(f64::total_cmp);
    let at = (COVERED * needs.len()).div_ceil(100);
    Range { at_least: needs[at.min(needs.len() - 1)], ..RANGE }
}

fn plain<'a>(steps: &'a [Step], of: &Step) -> Option<&'a Step> {
    let is_plain = |it: &&Step| {
        it.plan == "plain" && (&it.model, it.batch, it.host) == (&of.model, of.batch, of.host)
    };
    steps.iter().find(is_plain)
}

/// Every step that has a plain one, told with the figures for its model.
fn ratios<'a>(steps: &'a [Step], figures: impl Fn(&str) -> Figures) -> Vec<Ratio<'a>> {
    let card = cards::find("h200").unwrap();
    let ratio = |step: &'a Step| {
        let before = plain(steps, step).filter(|_| step.plan != "plain")?;
        let figures = figures(&step.model);
        let on = |it: Figures| it.seconds(&step.work, card) / it.seconds(&before.work, card);
        let host = |by: f64| on(figures.with_host(by));
        let told = (on(figures), host(RANGE.host), host(RANGE.host.recip()));
        let measured = step.in_turns.unwrap_or(step.median / before.median);
        Some(Ratio { step, told, measured })
    };
    steps.iter().filter_map(ratio).collect()
}

fn tell(what: &str, ratios: &[Ratio<'_>], range: Range) {
    println!("\nerror of step-time ratios {what}:");
    tell_line("all", &ratios.iter().collect::<Vec<_>>(), range);
    let mut plans: Vec<&str> = ratios.iter().map(|it| it.step.plan.as_str()).collect();
    plans.sort_unstable();
    plans.dedup();
    for plan in plans {
        let chosen: Vec<_> = ratios.iter().filter(|it| it.step.plan == plan).collect();
        tell_line(plan, &chosen, range);
    }
}

fn tell_line(name: &str, chosen: &[&Ratio<'_>], range: Range) {
    let mut errors: Vec<f64> = chosen.iter().map(|it| it.error()).collect();
    errors.sort_by(f64::total_cmp);
    let at = |share: usize| errors[(errors.len() * share / 100).min(errors.len() - 1)] * 100.0;
    let signed = chosen.iter().map(|it| (it.told.0 / it.measured).ln()).sum::<f64>();
    println!(
        "  {name:42} {:3}  median {:5.1} %  90th percentile {:5.1} %  mean with sign {:+5.1} %  in the range {}",
        errors.len(),
        at(50),
        at(90),
        signed / errors.len() as f64 * 100.0,
        chosen.iter().filter(|it| it.is_in(range)).count()
    );
}

/// What is compared of a step while constants are looked for.
struct Goal<'a> {
    step: &'a Step,
    /// Where the plain step of it is.
    plain: Option<usize>,
    /// Seconds of the host, where it never waited for the device.
    on_host: Option<f64>,
    kernels: Vec<(Vec<&'a Work>, f64)>,
}

fn goals<'a>(steps: &[&'a Step]) -> Vec<Goal<'a>> {
    let is_plain = |it: &Step, of: &Step| {
        it.plan == "plain" && (&it.model, it.batch, it.host) == (&of.model, of.batch, of.host)
    };
    let goal = |step: &&'a Step| {
        let n_kernels: f64 = step
            .work
            .iter()
            .filter(|it| !ON_HOST.contains(&it.op.as_str()))
            .map(|it| it.count)
            .sum();
        let is_free =
            |host: &f64| n_kernels * (1.0 - host / step.least) < AHEAD && *host < 0.85 * step.least;
        let all: f64 = step.kernels.values().sum();
        let kernels = step.kernels.iter().map(|(kind, measured)| {
            (step.work.iter().filter(|it| kind_of(&it.op) == kind).collect(), measured / all)
        });
        Goal {
            step,
            plain: steps.iter().position(|it| step.plan != "plain" && is_plain(it, step)),
            on_host: step.on_host.filter(is_free),
            kernels: kernels.collect(),
        }
    };
    steps.iter().map(goal).collect()
}

/// The constants that suit these steps best, found one after the other.
fn fitted<'a>(steps: impl Iterator<Item = &'a Step>) -> Found {
    let steps: Vec<&Step> = steps.collect();
    let hosts = steps.iter().map(|it| it.host + 1).max().unwrap_or(0);
    let mut figures = FITTED;
    for (_, value, of) in CONSTANTS {
        *of(&mut figures) = value;
    }
    let goals = goals(&steps);
    let mut best = Found { figures, hosts: vec![1.0; hosts] };
    let mut least = misfit(&best, &goals);
    for width in [1.5, 1.2, 1.07, 1.02] {
        for _ in 0..8 {
            let before = least;
            for which in 0..CONSTANTS.len() + hosts {
                for by in [width, 1.0 / width] {
                    loop {
                        let mut tried = best.clone();
                        match CONSTANTS.get(which) {
                            Some((_, _, of)) => *of(&mut tried.figures) *= by,
                            None => tried.hosts[which - CONSTANTS.len()] *= by,
                        }
                        let it = misfit(&tried, &goals);
                        if least <= it {
                            break;
                        }
                        (best, least) = (tried, it);
                    }
                }
            }
            if before - least < 1e-3 {
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

/// Of seconds, of ratios to the plain step, of the host's seconds and of the kernels' by kind, each by its share.
fn misfit(found: &Found, goals: &[Goal<'_>]) -> f64 {
    let card = cards::find("h200").unwrap();
    let off = |told: f64, measured: f64| {
        let it = (told / measured).ln();
        (it * it + SOFT * SOFT).sqrt()
    };
    let on: Vec<Figures> = found.hosts.iter().map(|by| found.figures.with_host(*by)).collect();
    let seconds = |it: &Goal<'_>| on[it.step.host].seconds(&it.step.work, card);
    let told: Vec<f64> = goals.iter().map(seconds).collect();
    let mut sum = 0.0;
    for (goal, now) in goals.iter().zip(&told) {
        let step = goal.step;
        sum += off(*now, step.least);
        if let Some(at) = goal.plain {
            let measured = step.in_turns.unwrap_or(step.least / goals[at].step.least);
            sum += off(now / told[at], measured);
        }
        if let Some(host) = goal.on_host {
            let told = step.work.iter().map(|it| on[step.host].on_host(it, card)).sum::<f64>();
            sum += 0.5 * off(told, host);
        }
        for (work, measured) in &goal.kernels {
            let told = work.iter().map(|it| it.count * found.figures.on_gpu(it, card)).sum::<f64>();
            if 0.0 < told {
                let all: f64 = step.kernels.values().sum();
                sum += off(told, measured * all) * measured;
            }
        }
    }
    let held = |(_, guess, of): &Constant| (*of(&mut found.figures.clone()) / guess).ln().powi(2);
    sum / goals.len() as f64
        + HELD * CONSTANTS.iter().map(held).sum::<f64>() / CONSTANTS.len() as f64
}

/// What makes no kernel.
const ON_HOST: [&str; 6] = ["look", "hook", "around", "listed", "sorted", "sharded"];

/// The kind of kernel that an operation comes to. cuDNN does some convolutions as matrix products.
fn kind_of(op: &str) -> &'static str {
    match op {
        "attention" => "attention",
        "batch-norm" | "native-batch-norm" => "batch-norm",
        "elementwise" | "pointwise" | "gathered" | "waiting" => "pointwise",
        "link" | "recurrent" | "few-blocks" => "",
        _ if ON_HOST.contains(&op) => "",
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
            median: 0.0,
            least: 0.0,
            on_host: None,
            in_turns: None,
            host: 0,
            kernels: BTreeMap::new(),
        })
    };
    work.lines().filter_map(step).collect()
}

/// The steps that were both counted and measured.
fn steps(work: &str, measured: &str, host: usize) -> Vec<Step> {
    let measured: Value = serde_json::from_str(measured).unwrap();
    let columns = measured["columns"].as_array().unwrap();
    let column = |name: &str| columns.iter().position(|it| it == name);
    let name = |it: &Value| {
        (
            it[0].as_str().unwrap().to_owned(),
            it[1].as_u64().unwrap(),
            it[2].as_str().unwrap().to_owned(),
        )
    };
    let rows = |key: &str| measured[key].as_array().into_iter().flatten();
    let of_step: BTreeMap<_, &Value> = rows("steps").map(|it| (name(it), it)).collect();
    let kernels: BTreeMap<_, BTreeMap<String, f64>> = rows("kernels")
        .map(|it| {
            let of_kind = it[3].as_object().unwrap().iter();
            (name(it), of_kind.map(|(kind, it)| (kind.clone(), it.as_f64().unwrap())).collect())
        })
        .collect();
    let measured = |step: Step| {
        let key = (step.model.clone(), step.batch, step.plan.clone());
        let row = of_step.get(&key)?;
        let number = |name: &str| row[column(name)?].as_f64();
        let median = number("seconds")?;
        Some(Step {
            median,
            least: number("least").unwrap_or(median),
            on_host: number("least of host").or(number("host")),
            in_turns: number("ratio"),
            host,
            kernels: kernels.get(&key).cloned().unwrap_or_default(),
            ..step
        })
    };
    counted(work).into_iter().filter_map(measured).collect()
}
