//! Steps of what is proposed, and of the script as it is, on the machine's own device: what an estimate cannot know.

use anyhow::Context as _;
use plimsoll_core::{
    cards::Card,
    plan::Plan,
    recording::Spread,
    views::plan::{Measured, Seen},
};

use super::{plans::Search, ranking::Candidate};
use crate::devices::{self, DeviceNow};

/// Steps of each run. The first ones are left out, and of the last ones the device may not be done.
const STEPS: u32 = 16;
/// Everything is run so often, in turns: a machine is not as fast at one moment as at the next.
const ROUNDS: u32 = 2;

/// The device to measure on.
pub(super) fn device() -> anyhow::Result<DeviceNow> {
    devices::first().context(
        "--measure runs steps on this machine's own GPU, and none was found; leave it out, and step times are estimates",
    )
}

impl Search<'_> {
    /// Measures what fits on the device beside what others hold there, and puts the fastest plan first.
    pub(super) fn measure(
        &mut self,
        device: &DeviceNow,
        card: &Card,
        plain: &mut Candidate,
        found: &mut Vec<Candidate>,
        seen: &mut Seen,
    ) -> anyhow::Result<()> {
        let mut plans: Vec<Option<Plan>> = Vec::new();
        for it in std::iter::once(&*plain).chain(found.iter()) {
            let (needs, free) = (it.prediction.safe, device.free);
            if free < needs {
                let shown = it.plan.shown();
                self.say(&format!(
                    "{shown} needs {needs} of the device, of which {free} are free: not measured"
                ));
            }
            plans.push((needs <= free).then(|| it.plan.clone()));
        }
        let mut taken: Vec<Vec<Spread>> = vec![Vec::new(); plans.len()];
        for _ in 0..ROUNDS {
            for (plan, taken) in plans.iter().zip(&mut taken) {
                let Some(plan) = plan.as_ref().filter(|_| !self.interrupted) else { continue };
                taken.extend(self.steps_of(plan)?);
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
        self.fastest_first(card, found, seen)
    }

    /// One run of `plan` on the device; nothing if it ended too soon, or as nobody expected, which is said.
    fn steps_of(&mut self, plan: &Plan) -> anyhow::Result<Option<Spread>> {
        let settings = self.settings(plan);
        let trial = self.trials.measure(self.words, &settings, STEPS, plan.gpus())?;
        self.interrupted |= trial.interrupted.is_some();
        let times = trial.recordings.iter().filter_map(|it| it.notes.step_times);
        // Several devices wait for the slowest one.
        let slowest = times
            .map(|it| it.device.unwrap_or(it.host))
            .max_by(|a, b| a.median.total_cmp(&b.median));
        let shown = plan.shown();
        match (&trial.failure, slowest) {
            _ if self.interrupted => return Ok(None),
            (Some(why), _) => self.say(&format!("{shown}, on the device: {why}")),
            (None, None) => self
                .say(&format!("{shown}, on the device: it ended before a step could be measured")),
            (None, Some(it)) => {
                self.say(&format!("{shown}, on the device: {:.4} s a step", it.median));
                return Ok(Some(it));
            }
        }
        Ok(None)
    }

    /// The order by what was measured. Only the first plan was proven on the card itself; another one that comes
    /// first now is, too.
    fn fastest_first(
        &mut self,
        card: &Card,
        found: &mut Vec<Candidate>,
        seen: &mut Seen,
    ) -> anyhow::Result<()> {
        let Some(proven) = found.first().map(|it| it.plan.clone()) else { return Ok(()) };
        found.sort_by_key(Candidate::rank);
        while let Some(best) = found.first_mut().filter(|it| it.plan != proven) {
            if self.interrupted {
                // What was proven stays first.
                let at = found.iter().position(|it| it.plan == proven).unwrap_or(0);
                found[..=at].rotate_right(1);
            } else if let Some(now) = self.proves(card, best)? {
                *seen = now;
                break;
            } else if !self.interrupted {
                found.remove(0);
            }
        }
        Ok(())
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
