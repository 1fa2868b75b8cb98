//! Steps of what is proposed, and of the script as it is, on the machine's own device: what an estimate cannot know.

use plimsoll_core::{plan::Plan, recording::Spread, units::Bytes};

use super::{
    ask::Measure,
    candidate::{Candidate, Measured},
    program::Program,
    proof::{self, Seen},
};

/// Steps of each run. The first ones are left out, and of the last ones the device may not be done.
const STEPS: u32 = 16;
/// Everything is run so often, in turns: a machine is not as fast at one moment as at the next.
const ROUNDS: u32 = 2;

/// Measures what fits in the `free` memory of the device, and puts the fastest plan first.
pub(super) async fn measure(
    program: &mut Program,
    free: Bytes,
    plain: &mut Candidate,
    found: &mut Vec<Candidate>,
    seen: &mut Seen,
) {
    let mut plans: Vec<Option<Plan>> = Vec::new();
    for it in std::iter::once(&*plain).chain(found.iter()) {
        let needs = it.took.safe;
        if free < needs {
            let shown = it.plan.shown();
            program.line.say(format!(
                "not measured: {shown} needs {needs} of the device, and {free} are free"
            ));
        }
        plans.push((needs <= free).then(|| it.plan.clone()));
    }
    let mut taken: Vec<Vec<Spread>> = vec![Vec::new(); plans.len()];
    for _ in 0..ROUNDS {
        for (plan, taken) in plans.iter().zip(&mut taken) {
            let Some(plan) = plan.as_ref().filter(|_| !program.interrupted) else { continue };
            taken.extend(steps_of(program, plan).await);
        }
    }
    let mut measured = taken.iter().map(|it| summed(it));
    plain.measured = measured.next().flatten().map(|it| Measured { factor: Some(1.0), ..it });
    let as_it_is = plain.measured.map(|it| it.seconds);
    for (it, measured) in found.iter_mut().zip(measured) {
        let factor = |seconds: f64| as_it_is.map(|of| seconds / of);
        it.measured = measured.map(|it| Measured { factor: factor(it.seconds), ..it });
    }
    // Where the script as it is does not fit, plans are still told from each other.
    let its = |it: &Candidate| Some(it.measured?.seconds / it.time?.estimate);
    let reference = as_it_is.or_else(|| found.iter().find_map(its));
    for it in found.iter_mut() {
        it.slower = it.measured.zip(reference).map(|(it, of)| it.seconds / of);
    }
    fastest_first(program, found, seen).await;
}

/// One run of `plan` on the device; nothing if it ended too soon, or as nobody expected, which is said.
async fn steps_of(program: &mut Program, plan: &Plan) -> Option<Spread> {
    let steps = program.line.measure(Measure { plan: plan.clone(), steps: STEPS }).await;
    program.interrupted |= steps.interrupted;
    if program.interrupted {
        return None;
    }
    // Several devices wait for the slowest one.
    let slowest = steps.each.into_iter().max_by(|a, b| a.median.total_cmp(&b.median));
    let (said, res) = match (steps.failure, slowest) {
        (Some(why), _) => (why, None),
        (None, None) => ("it ended before a step could be measured".to_owned(), None),
        (None, Some(it)) => (format!("{:.4} s a step", it.median), Some(it)),
    };
    program.line.say(format!("{}, on the device: {said}", plan.shown()));
    res
}

/// The order by what was measured. Only the first plan was proven on the card itself; another one that comes first now
/// is, too.
async fn fastest_first(program: &mut Program, found: &mut Vec<Candidate>, seen: &mut Seen) {
    let Some(proven) = found.first().map(|it| it.plan.clone()) else { return };
    let prefers_speed = program.rules.prefers_speed;
    found.sort_by_key(|it| it.rank(prefers_speed));
    while let Some(best) = found.first_mut().filter(|it| it.plan != proven) {
        if program.interrupted {
            // What was proven stays first.
            let at = found.iter().position(|it| it.plan == proven).unwrap_or(0);
            found[..=at].rotate_right(1);
        } else if let Some(now) = proof::proves(program, best).await {
            *seen = now;
            break;
        } else if !program.interrupted {
            found.remove(0);
        }
    }
}

/// Of several runs.
fn summed(runs: &[Spread]) -> Option<Measured> {
    let n = f64::from(u32::try_from(runs.len()).ok().filter(|it| *it != 0)?);
    Some(Measured {
        seconds: runs.iter().map(|it| it.median).sum::<f64>() / n,
        low: runs.iter().map(|it| it.low).fold(f64::INFINITY, f64::min),
        high: runs.iter().map(|it| it.high).fold(0.0, f64::max),
        factor: None,
    })
}
