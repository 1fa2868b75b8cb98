//! Two cores, and the runs of a search on them: one that is asked for begins at once, and beside it those that are likely to
//! be asked for. How long all of it takes shows what is gained by knowing these.

use std::mem;

use crate::search::{Look, On, Run};

/// A run that shows that a plan holds takes as long as so many of those that the search goes on with.
const PROOF: f64 = 3.0;

#[derive(Default)]
pub(super) struct Cores {
    /// What has gone by since the search began.
    pub(super) now: f64,
    pub(super) n_begun: usize,
    /// Each with how long it still takes.
    under_way: Vec<(Run, f64)>,
    over: Vec<Run>,
    likely: Vec<Run>,
}

impl Cores {
    /// Makes `run`, and beside it some of those that are `likely`.
    pub(super) fn make(&mut self, run: &Run, likely: &[Run]) {
        let known = self.over.iter().chain(self.under_way.iter().map(|it| &it.0)).chain([run]);
        let known: Vec<&Run> = known.collect();
        let rest = likely.iter().filter(|it| !known.contains(it)).cloned().collect();
        self.likely = rest;
        if let Some(at) = self.over.iter().position(|it| it == run) {
            self.over.remove(at);
            return;
        }
        if !self.under_way.iter().any(|it| it.0 == *run) {
            self.begin(run.clone());
        }
        while self.under_way.iter().any(|it| it.0 == *run) {
            self.go_on();
        }
        self.over.retain(|it| it != run);
    }

    fn begin(&mut self, run: Run) {
        self.n_begun += 1;
        let takes = if run.on == On::CardAlone { PROOF } else { 1.0 };
        self.under_way.push((run, takes));
    }

    /// Until the next one is over.
    fn go_on(&mut self) {
        while self.under_way.len() < 2
            && let Some(at) = (0..self.likely.len()).min_by_key(|it| purpose(&self.likely[*it]))
        {
            let run = self.likely.remove(at);
            self.begin(run);
        }
        let takes = self.under_way.iter().map(|it| it.1).fold(f64::INFINITY, f64::min);
        // What was begun in vain is in the way of what is asked for.
        self.now += if self.under_way.len() <= 2 { takes } else { takes * 1.5 };
        let (over, rest) = mem::take(&mut self.under_way).into_iter().partition(|it| it.1 <= takes);
        let over: Vec<(Run, f64)> = over;
        self.under_way = rest;
        self.under_way.iter_mut().for_each(|it| it.1 -= takes);
        self.over.extend(over.into_iter().map(|it| it.0));
    }
}

/// As in `trials`: of those that are likely the first of these begins first.
fn purpose(run: &Run) -> u8 {
    match run.on {
        On::CardAlone => 1,
        _ if matches!(run.look, Some(Look::Work | Look::SitesAndWork)) => 2,
        _ => 0,
    }
}
