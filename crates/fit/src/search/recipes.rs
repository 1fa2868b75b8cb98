//! What a plan does, in the switches of the framework that the script has: each is run on the phantom with exactly those lines
//! changed, and what ran and fits is said.

use plimsoll_core::{
    plan::{Numbers, Plan},
    recording::Framework,
    units::{Bytes, times},
};

use super::{
    ask::{Look, On, Rewritten, Run, Until},
    candidate::Candidate,
    program::Program,
    tuning,
};
use crate::change::{Recipe, Switch};

/// So many are run at most; of a script with adapters or DeepSpeed there are more to choose from.
const MOST_RUNS: usize = 6;
const MOST_RUNS_OF_MANY: usize = 10;
/// A program's environment holds no longer text.
const LONGEST_TEXT: usize = 100_000;

/// What came of the recipes.
#[derive(Clone, Debug, Default)]
pub(super) struct Tries {
    /// Those that fit, in the order in which they were tried.
    pub(super) fit: Vec<Tried>,
    /// Switches that could not be tried, and why.
    pub(super) not_tried: Vec<NotTried>,
}

/// Switches that could not be tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotTried {
    /// Which.
    pub switches: Vec<Switch>,
    /// Why.
    pub why: WhyNot,
}

/// Why a switch was not tried further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhyNot {
    /// The script's environment does not have this library.
    Missing(&'static str),
    /// The script fails with it, as this sentence says.
    Fails(String),
}

/// A recipe that fits, as it ran.
#[derive(Clone, Debug)]
pub struct Tried {
    /// What changes.
    pub recipe: Recipe,
    /// What of the limit the script needs with it, allowance included.
    pub needs: Bytes,
    /// How often the allocator was full, gave its free memory back and went on.
    pub retries: u64,
}

/// What is tried: what the plans do, from the best on, then from the mildest on. `pads`: what makes fewer sizes of many comes first, since it takes no
/// time.
fn wanted(plans: &[Candidate], pads: bool) -> Vec<Vec<Switch>> {
    use Switch::{
        Adafactor, AdamIn8Bits, AttentionOnly, Cache, Checkpointing, EmptyCache, FourBits,
        GroupedLengths, HalfPrecision, PaddedTo, PagedAdamIn8Bits, Parts, Pipeline, Rank,
        ZeroBuckets, ZeroOptimizerOnHost, ZeroStage, ZeroWeightsOnHost,
    };
    let slices = Pipeline("vae.enable_slicing");
    let offloads = Pipeline("enable_model_cpu_offload");
    let mut res: Vec<Vec<Switch>> = Vec::new();
    if pads {
        res.push(vec![PaddedTo(64)]);
    }
    res.extend(plans.iter().map(|it| Switch::of(&it.plan)));
    if pads {
        res.extend([
            vec![EmptyCache],
            vec![PaddedTo(64), Parts(2)],
            vec![PaddedTo(64), Parts(4), Checkpointing],
            vec![GroupedLengths],
        ]);
    }
    res.extend([
        vec![slices],
        vec![offloads],
        vec![slices, offloads],
        vec![slices, Pipeline("enable_attention_slicing")],
        vec![slices, Pipeline("vae.enable_tiling"), offloads],
        vec![Cache("offloaded")],
        vec![Cache("static")],
        vec![ZeroBuckets],
        vec![ZeroStage(2)],
        vec![ZeroStage(3), ZeroBuckets],
        vec![ZeroOptimizerOnHost],
        vec![ZeroBuckets, ZeroOptimizerOnHost],
        vec![ZeroWeightsOnHost, ZeroBuckets, ZeroOptimizerOnHost],
        vec![Parts(2)],
        vec![Checkpointing],
        vec![FourBits],
        vec![Parts(4)],
        vec![HalfPrecision],
        vec![Parts(2), Checkpointing],
        vec![ZeroBuckets, ZeroOptimizerOnHost, Parts(8), Checkpointing],
        vec![ZeroWeightsOnHost, ZeroBuckets, ZeroOptimizerOnHost, Parts(8), Checkpointing],
        vec![FourBits, Checkpointing],
        vec![Parts(8), Checkpointing],
        vec![FourBits, Parts(2)],
        vec![FourBits, Parts(8), Checkpointing],
        vec![Parts(8), Checkpointing, HalfPrecision],
        vec![PagedAdamIn8Bits],
        vec![Rank(4)],
        vec![AttentionOnly],
        vec![Rank(4), AttentionOnly],
        vec![Parts(8), Checkpointing, Rank(4), AttentionOnly],
        vec![FourBits, Parts(8), Checkpointing, PagedAdamIn8Bits],
        vec![FourBits, Parts(8), Checkpointing, PagedAdamIn8Bits, Rank(4), AttentionOnly],
        vec![Parts(8), Checkpointing, HalfPrecision, AdamIn8Bits],
        vec![Parts(8), Checkpointing, HalfPrecision, Adafactor],
    ]);
    res.retain(|it| !it.is_empty());
    let mut known: Vec<Vec<Switch>> = Vec::new();
    for it in res {
        if !known.contains(&it) {
            known.push(it);
        }
    }
    known
}

/// What came of each recipe that there is for the program; `plans`: what fits, the best first.
pub(super) async fn recipes(program: &mut Program, plans: &[Candidate]) -> Tries {
    let mut res = Tries::default();
    let mut n_runs = 0;
    let with_many = [Framework::Adapters, Framework::DeepSpeed];
    let has_many = with_many.iter().any(|it| program.known.places.sites.of(*it).is_some());
    let most_runs = if has_many { MOST_RUNS_OF_MANY } else { MOST_RUNS };
    let mut ignored: Vec<Vec<String>> = Vec::new();
    let mut tried: Vec<Vec<Switch>> = Vec::new();
    // Settings of the allocator do more against that, and change nothing else.
    let pads = program.wants_allocator() && tuning::first(program).is_empty();
    for switches in wanted(plans, pads) {
        // One that leaves the numbers as they are is enough.
        let is_enough = res.fit.iter().any(|it| it.recipe.numbers < Numbers::Precision);
        if program.interrupted || is_enough || most_runs <= n_runs {
            break;
        }
        let Some(mut recipe) = of(program, &switches, &mut res.not_tried) else { continue };
        // What could not be done was left out of it.
        if tried.contains(&recipe.switches) {
            continue;
        }
        tried.push(recipe.switches.clone());
        recipe.numbers = program.known.numbers(recipe.numbers);
        // What was enough with less.
        if res.fit.iter().any(|it| it.recipe.asks_less_than(&recipe)) {
            continue;
        }
        // Options that the script does not read are not read beside others either.
        let options = recipe.options();
        if ignored.iter().any(|it| it.iter().all(|it| options.contains(it))) {
            continue;
        }
        let Some(run) = with(program, &recipe) else { continue };
        n_runs += 1;
        match fits(program, &recipe, run).await {
            Came::Fits { needs, retries } => res.fit.push(Tried { recipe, needs, retries }),
            Came::Ignored if recipe.lines.is_empty() && !options.is_empty() => {
                ignored.push(options);
            }
            // Of several it is not known which one the script does not bear.
            Came::Fails(why) if recipe.switches.len() == 1 => {
                let switches = recipe.switches;
                res.not_tried.push(NotTried { switches, why: WhyNot::Fails(why) });
            }
            Came::Ignored | Came::TooMuch | Came::Fails(_) => {}
        }
    }
    res
}

/// The recipe that does this in the script, as far as it may be tried and there is one. Takes in what is not tried for want of a library.
fn of(program: &Program, switches: &[Switch], not_tried: &mut Vec<NotTried>) -> Option<Recipe> {
    if !program.rules.may_edit || program.rules.gpus != 1 {
        return None;
    }
    let may_be = |it: &Switch| match (it, it.remedy()) {
        // What the remedies of that name do is for a person to do.
        (Switch::FourBits | Switch::Rank(_) | Switch::AttentionOnly, Some(id)) => {
            program.rules.bears(id, it.numbers())
        }
        (_, Some(id)) => program.may(id),
        (it, None) => program.rules.bears_other(it.numbers()),
    };
    let places = &program.known.places;
    // Of a combination that the script has no place for nothing is left.
    Recipe::of(switches, places)?;
    let mut able: Vec<Switch> = switches.iter().copied().filter(may_be).collect();
    able.retain(|it| !not_tried.iter().any(|out| out.switches.contains(it)));
    let missing = |it: &Switch| it.library().filter(|name| places.sites.is_missing(name));
    for (switch, name) in able.iter().filter_map(|it| Some((*it, missing(it)?))) {
        // Only what the script has a place for.
        if Recipe::of(&[switch], places).is_some() {
            let is_it = |out: &&mut NotTried| out.why == WhyNot::Missing(name);
            match not_tried.iter_mut().find(is_it) {
                Some(out) => out.switches.push(switch),
                None => {
                    not_tried.push(NotTried { switches: vec![switch], why: WhyNot::Missing(name) })
                }
            }
        }
    }
    able.retain(|it| missing(it).is_none());
    Recipe::of(&able, places)
}

/// A run of the script with these lines changed, on the card itself and through its first validation. Whether it leaves more behind
/// with each step is asked of the plans.
fn with(program: &Program, recipe: &Recipe) -> Option<Run> {
    let places = &program.known.places;
    let rewritten = |(file, text): (String, String)| {
        Some(Rewritten::between(&file, places.sources.get(&file)?, &text))
    };
    let files: Vec<_> = recipe.files(places)?.into_iter().map(rewritten).collect::<Option<_>>()?;
    let is_short = files.iter().map(|it| it.was.len() + it.is.len()).sum::<usize>() < LONGEST_TEXT;
    let is_of_sizes = |it: &Switch| {
        matches!(it, Switch::PaddedTo(_) | Switch::GroupedLengths | Switch::EmptyCache)
    };
    let until = match program.rules.until_exit {
        true => Until::Exit,
        // With batches as they are drawn, too.
        false if recipe.switches.iter().any(is_of_sizes) => Until::Validation,
        false => Until::OneValidation,
    };
    let run = Run::of(&Plan::default(), until, On::Card);
    let (words, look) = (recipe.words.clone(), Some(Look::Sites));
    let (limit_reserved, give_up_above) =
        (program.limit_of_proof(), Some(program.rules.most_allocated()));
    is_short.then_some(Run { files, words, look, limit_reserved, give_up_above, ..run })
}

/// What came of a recipe.
enum Came {
    /// It fits, with its validation too, and needs so much.
    Fits {
        needs: Bytes,
        retries: u64,
    },
    /// The script did not do what it says.
    Ignored,
    TooMuch,
    /// The script does not bear it, as this sentence says.
    Fails(String),
}

async fn fits(program: &mut Program, recipe: &Recipe, run: Run) -> Came {
    let mut ran = program.trial(run.clone()).await;
    if run.until != Until::Exit && ran.is_strange() && !ran.interrupted {
        // Not every loop bears an epoch that ends early.
        ran = program.trial(Run { until: Until::Steady, ..run }).await;
    }
    let needs = program.needs(&ran.took);
    let after = ran.noted.places.as_ref().map(|it| &it.sites);
    let is_as_wanted = after.is_some_and(|it| recipe.was_in_force(&program.known.places.sites, it));
    let ran_out = ran.was_cut || ran.n_ooms != 0;
    let is_enough = ran.fits() && needs <= program.rules.most();
    let said = match &ran.failure {
        _ if ran_out => format!("needs more than {}", program.rules.most()),
        Some(why) => why.clone(),
        None if !is_as_wanted => "the script does not follow these settings".to_owned(),
        None if is_enough && ran.n_retries != 0 => {
            format!("fits, {needs} to be safe; the card was full {}", times(ran.n_retries))
        }
        None if is_enough => format!("fits, {needs} to be safe"),
        None => format!("{needs} to be safe, too much"),
    };
    program.line.say(format!("{}: {said} ({:.1} s)", recipe.shown(), ran.seconds));
    match ran.failure {
        _ if ran_out || ran.interrupted => Came::TooMuch,
        Some(why) => Came::Fails(why),
        None if !is_as_wanted => Came::Ignored,
        None if is_enough => Came::Fits { needs, retries: ran.n_retries },
        None => Came::TooMuch,
    }
}

impl Recipe {
    /// The options that it adds to the command, without their values.
    fn options(&self) -> Vec<String> {
        self.words.iter().filter(|it| it.starts_with("--")).cloned().collect()
    }

    /// In a few words.
    fn shown(&self) -> String {
        let lines = self.lines.iter().map(|it| it.has.clone());
        let words = (!self.words.is_empty()).then(|| self.words.join(" "));
        lines.chain(words).collect::<Vec<_>>().join(" + ")
    }

    /// Whether it changes less, and no more in the numbers.
    fn asks_less_than(&self, other: &Recipe) -> bool {
        self.numbers <= other.numbers && self.has_all_in(other)
    }
}
