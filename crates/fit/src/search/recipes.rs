//! What a plan does, in the switches of the framework that the script has: each is run on the phantom with exactly those lines
//! changed, and what ran and fits is said.

use plimsoll_core::{
    plan::{Numbers, Plan},
    recording::Framework,
    units::Bytes,
};

use super::{
    ask::{Look, On, Rewritten, Run, Until},
    candidate::Candidate,
    program::Program,
};
use crate::change::{Recipe, Switch};

/// So many are run at most; of a script with adapters there are more to choose from.
const MOST_RUNS: usize = 6;
const MOST_RUNS_OF_ADAPTERS: usize = 10;
/// A program's environment holds no longer text.
const LONGEST_TEXT: usize = 100_000;

/// A recipe that fits, as it ran.
#[derive(Clone, Debug)]
pub struct Tried {
    /// What changes.
    pub recipe: Recipe,
    /// What of the limit the script needs with it, allowance included.
    pub needs: Bytes,
}

/// What is tried: what the plans do, from the best on, then from the mildest on.
fn wanted(plans: &[Candidate]) -> Vec<Vec<Switch>> {
    use Switch::{
        Adafactor, AdamIn8Bits, Cache, Checkpointing, FourBits, HalfPrecision, PagedAdamIn8Bits,
        Parts, Pipeline, Rank,
    };
    let slices = Pipeline("vae.enable_slicing");
    let offloads = Pipeline("enable_model_cpu_offload");
    let mut res: Vec<Vec<Switch>> = plans.iter().map(|it| Switch::of(&it.plan)).collect();
    res.extend([
        vec![slices],
        vec![offloads],
        vec![slices, offloads],
        vec![slices, Pipeline("enable_attention_slicing")],
        vec![slices, Pipeline("vae.enable_tiling"), offloads],
        vec![Cache("offloaded")],
        vec![Cache("static")],
        vec![Parts(2)],
        vec![Checkpointing],
        vec![FourBits],
        vec![Parts(4)],
        vec![HalfPrecision],
        vec![Parts(2), Checkpointing],
        vec![FourBits, Checkpointing],
        vec![Parts(8), Checkpointing],
        vec![FourBits, Parts(2)],
        vec![FourBits, Parts(8), Checkpointing],
        vec![Parts(8), Checkpointing, HalfPrecision],
        vec![PagedAdamIn8Bits],
        vec![Rank(4)],
        vec![FourBits, Parts(8), Checkpointing, PagedAdamIn8Bits],
        vec![FourBits, Parts(8), Checkpointing, PagedAdamIn8Bits, Rank(4)],
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

/// Recipes that fit, in the order in which they were tried; `plans`: what fits, the best first.
pub(super) async fn recipes(program: &mut Program, plans: &[Candidate]) -> Vec<Tried> {
    let mut res: Vec<Tried> = Vec::new();
    let mut n_runs = 0;
    let has_adapters = program.known.places.sites.of(Framework::Adapters).is_some();
    let most_runs = if has_adapters { MOST_RUNS_OF_ADAPTERS } else { MOST_RUNS };
    let mut ignored: Vec<Vec<String>> = Vec::new();
    for switches in wanted(plans) {
        // One that leaves the numbers as they are is enough.
        let is_enough = res.iter().any(|it| it.recipe.numbers < Numbers::Precision);
        if program.interrupted || is_enough || most_runs <= n_runs {
            break;
        }
        let Some(mut recipe) = of(program, &switches) else { continue };
        recipe.numbers = program.known.numbers(recipe.numbers);
        // What was enough with less.
        if res.iter().any(|it| it.recipe.asks_less_than(&recipe)) {
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
            Came::Fits(needs) => res.push(Tried { recipe, needs }),
            Came::Ignored if recipe.lines.is_empty() && !options.is_empty() => {
                ignored.push(options);
            }
            Came::Ignored | Came::TooMuch => {}
        }
    }
    res
}

/// The recipe that does this in the script, if there is one and it may be tried.
fn of(program: &Program, switches: &[Switch]) -> Option<Recipe> {
    let may_edit = program.rules.may_edit && program.rules.gpus == 1 && !switches.is_empty();
    let may_be = |it: &Switch| match it {
        // What the remedies of that name do is for a person to do.
        Switch::FourBits | Switch::Rank(_) => program.rules.bears(it.remedy(), it.numbers()),
        it => program.may(it.remedy()),
    };
    let may = may_edit && switches.iter().all(may_be);
    if may { Recipe::of(switches, &program.known.places) } else { None }
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
    let until = if program.rules.until_exit { Until::Exit } else { Until::OneValidation };
    let run = Run::of(&Plan::default(), until, On::Card);
    let (words, look) = (recipe.words.clone(), Some(Look::Sites));
    let (limit_reserved, give_up_above) =
        (program.limit_of_proof(), Some(program.most_allocated()));
    is_short.then_some(Run { files, words, look, limit_reserved, give_up_above, ..run })
}

/// What came of a recipe.
enum Came {
    /// It fits, with its validation too, and needs so much.
    Fits(Bytes),
    /// The script did not do what it says.
    Ignored,
    TooMuch,
}

async fn fits(program: &mut Program, recipe: &Recipe, run: Run) -> Came {
    let mut ran = program.trial(run.clone()).await;
    if run.until == Until::OneValidation && ran.is_strange() && !ran.interrupted {
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
        None if is_enough => format!("fits, {needs} to be safe"),
        None => format!("{needs} to be safe, too much"),
    };
    program.line.say(format!("{}: {said} ({:.1} s)", recipe.shown(), ran.seconds));
    match ran.failure {
        None if ran_out => Came::TooMuch,
        None if !is_as_wanted => Came::Ignored,
        None if is_enough => Came::Fits(needs),
        _ => Came::TooMuch,
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
