//! Runs of the values of a number in the command: which is the largest that fits, and whether it still does with a little
//! less memory.

use super::{
    ask::{On, Ran, Run, Until},
    dialogue::Line,
    rules::Rules,
};
use crate::{
    plan::{
        Plan,
        largest::{Largest, Tried},
    },
    prediction::{Peaks, allowance_for_addresses},
    units::Bytes,
};

/// So many steps are run of a value that gets through only because the allocator gives free memory back.
const ON_THE_EDGE: u32 = 12;
/// So many values are tried from such a one downwards for one that has room.
const DOWNWARDS: usize = 6;

/// The number whose largest value is wanted, and where to look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// Its name in the command.
    pub name: String,
    /// The smallest value.
    pub lowest: u64,
    /// The largest.
    pub highest: u64,
    /// How far apart values are.
    pub step: u64,
}

/// One value that was run.
#[derive(Clone, Debug)]
pub struct ValueRun {
    /// The value.
    pub value: u64,
    /// What came of it.
    pub tried: Tried,
    /// What it took, as far as it came.
    pub peak: Option<Peaks>,
    /// How often the allocator was full, gave its free memory back and went on.
    pub retries: u64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// What it took depends on numbers that nobody computed: which, in a sentence.
    pub depends: Option<String>,
}

/// Runs under a limit that is a little lower than asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WithLess {
    /// How much lower.
    pub less: Bytes,
    /// The largest value from the answer downwards that gets through; none if no value that was tried does.
    pub holds: Option<u64>,
}

/// Runs values.
pub(super) struct Values {
    pub(super) rules: Rules,
    pub(super) line: Line,
    pub(super) range: Range,
    pub(super) interrupted: bool,
}

impl Values {
    /// The search for the largest value.
    pub(super) fn search(&self) -> Largest {
        let Range { lowest, highest, step, .. } = self.range;
        Largest::new(lowest, highest, step, self.rules.most())
    }

    /// Runs what `search` wants until it knows, with the remedies of `plan`; `with`: what people are told of these.
    pub(super) async fn largest(
        &mut self,
        mut search: Largest,
        plan: &Plan,
        with: &str,
    ) -> (Largest, Vec<ValueRun>) {
        let mut runs: Vec<ValueRun> = Vec::new();
        let mut proven: Vec<u64> = Vec::new();
        loop {
            // On the edge each step leaves memory a little differently, and the next one may not get through. Only
            // what would be the answer is run for so long.
            let on_edge = |it: &ValueRun| search.found() == Some(it.value) && it.retries != 0;
            let again = || runs.iter().position(on_edge).filter(|_| search.next().is_none());
            let again = again().filter(|it| !proven.contains(&runs[*it].value));
            let next = again.map(|it| (runs[it].value, Until::Steps(ON_THE_EDGE)));
            let next = next.or_else(|| Some((search.next()?, Until::Steady)));
            let Some((value, until)) = next else { break };
            let ran = self.trial(self.run(value, plan, until)).await;
            if ran.interrupted {
                break;
            }
            let tried = self.tried(&ran);
            let (seconds, retries) = (ran.seconds, ran.n_retries);
            let (name, said) = (&self.range.name, said(&tried, self.rules.what()));
            self.line.say(format!("{with}{name}={value}: {said} ({seconds:.1} s)"));
            let is_unbearable =
                !with.is_empty() && runs.is_empty() && matches!(tried, Tried::Fails(_));
            let peak = (ran.took.peak != Peaks::default()).then_some(ran.took.peak);
            let depends = ran.took.depends;
            let run = ValueRun { value, tried: tried.clone(), peak, retries, seconds, depends };
            if let Some(at) = again {
                runs[at] = ValueRun { seconds: seconds + runs[at].seconds, ..run };
                search.correct(value, tried);
                proven.push(value);
                continue;
            }
            if matches!(tried, Tried::Fits(_)) {
                search.held(value, self.held(run.peak.unwrap_or_default()));
            }
            runs.push(run);
            search.tell(value, tried);
            if is_unbearable {
                break;
            }
        }
        (search, runs)
    }

    /// Whether `run`, which got through only because memory was given back, gets through with a little less memory,
    /// and if not, which smaller value does. None if somebody asked us to stop.
    pub(super) async fn with_less(&mut self, run: &ValueRun, step: u64) -> Option<WithLess> {
        let (less, limit) = a_little_less(&self.rules, run.peak.unwrap_or_default());
        let step = usize::try_from(step).unwrap_or(1);
        let below = (self.range.lowest..=run.value).rev().step_by(step).take(DOWNWARDS);
        for value in below {
            let run = self.run(value, &Plan::default(), Until::Steps(ON_THE_EDGE));
            let ran = self.trial(Run { limit_reserved: Some(limit), ..run }).await;
            if ran.interrupted {
                return None;
            }
            if ran.fits() {
                return Some(WithLess { less, holds: Some(value) });
            }
        }
        Some(WithLess { less, holds: None })
    }

    /// A run of this value, under the limit that there is.
    pub(super) fn run(&self, value: u64, plan: &Plan, until: Until) -> Run {
        let limit_reserved = self.rules.limit_reserved;
        Run { value: Some(value), limit_reserved, ..Run::of(plan, until, On::Card) }
    }

    /// Makes one run; none after somebody asked us to stop.
    pub(super) async fn trial(&mut self, run: Run) -> Ran {
        if self.interrupted {
            return Ran::not_made();
        }
        let ran = self.line.run(run).await;
        self.interrupted |= ran.interrupted;
        ran
    }

    /// What of the limit could not have been given back.
    fn held(&self, peak: Peaks) -> Bytes {
        let Peaks { allocated, reserved, device } = peak;
        match self.rules.limit_reserved {
            Some(_) => allocated,
            None => allocated + device.saturating_sub(reserved),
        }
    }

    fn tried(&self, ran: &Ran) -> Tried {
        if ran.fits() {
            let Peaks { reserved, device, .. } = ran.took.peak;
            return Tried::Fits(if self.rules.limit_reserved.is_some() {
                reserved
            } else {
                device
            });
        }
        if let Some(it) = &ran.took.growth {
            let at = it.at.as_ref().map_or_else(String::new, |it| format!(" at {it}"));
            let (per_step, one) = (it.per_step, it.counted.one());
            return Tried::Fails(format!("it leaves {per_step} more behind in each {one}{at}"));
        }
        match &ran.failure {
            Some(why) if ran.n_ooms == 0 => Tried::Fails(why.clone()),
            _ => Tried::TooMuch,
        }
    }
}

/// How much less memory a value has to get through with to have room, and what may be reserved then: what can be given
/// back depends on where the driver put each segment, and no phantom knows that of every process.
fn a_little_less(rules: &Rules, peak: Peaks) -> (Bytes, Bytes) {
    let limited = rules.limit_reserved.is_some();
    let others = if limited { Bytes::ZERO } else { peak.device.saturating_sub(peak.reserved) };
    let most = rules.most().saturating_sub(others);
    let less = allowance_for_addresses(most);
    (less, most.saturating_sub(less))
}

fn said(tried: &Tried, what: &str) -> String {
    match tried {
        Tried::Fits(Bytes(0)) => "fits".to_owned(),
        Tried::Fits(peak) => format!("fits, {peak} {what}"),
        Tried::TooMuch => "runs out of memory".to_owned(),
        Tried::Fails(why) => format!("does not run: {why}"),
    }
}
