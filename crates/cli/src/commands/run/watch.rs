//! What is said while the script runs: that its first step was not what the plan was made for, that memory ran out
//! and the script went on, and what was done again. Read from what the agent has written so far.

use std::collections::BTreeSet;

use plimsoll_core::{
    plan::{Drift, drift},
    recording::{FirstStep, Notes, OomNote, Redone, RedoneNote, RedoneWay},
};

use super::phase::in_phase;
use crate::{
    alarms::{News, Teller},
    cache::session::Session,
    engine::launch,
    output::say,
};

/// The most about each thing: a script that looks for its batch size runs out often.
const MOST_SAID: usize = 3;

/// Reads and says.
#[derive(Debug)]
pub(super) struct Watch {
    expected: Option<FirstStep>,
    /// What runs out is done again, and that is said instead of what was caught.
    survives: bool,
    news: News,
    /// Every sentence once: ranks are alike.
    said: BTreeSet<String>,
    n_caught: usize,
    n_redone: usize,
    /// Tells alarms, where some are asked for.
    pub(super) teller: Option<Teller>,
    /// What the first steps said, worth keeping for a report.
    pub(super) drifts: Vec<Drift>,
}

impl Watch {
    pub(super) fn new(expected: Option<FirstStep>, survives: bool) -> Watch {
        Watch {
            expected,
            survives,
            news: News::default(),
            said: BTreeSet::new(),
            n_caught: 0,
            n_redone: 0,
            teller: None,
            drifts: Vec::new(),
        }
    }

    fn look(&mut self, pid: u32, notes: &Notes) {
        if let Some(it) = &mut self.teller {
            it.tell(pid, notes);
        }
        for seen in &notes.first_steps {
            self.first_step(pid, seen);
        }
        let caught = notes.ooms.iter().filter(|it| it.caught == Some(true));
        for oom in caught.take(if self.survives { 0 } else { usize::MAX }) {
            self.caught(oom);
        }
        for it in &notes.redone {
            self.redone(it);
        }
    }

    fn first_step(&mut self, pid: u32, seen: &FirstStep) {
        let Some(expected) = &self.expected else { return };
        if let Some(it) = drift(expected, seen, expected.reserved, seen.reserved) {
            let sentence = it.sentence("the first step");
            if let Some(teller) = &mut self.teller {
                teller.first_step(pid, &it);
            }
            self.drifts.push(it);
            self.say(sentence);
        }
    }

    fn caught(&mut self, oom: &OomNote) {
        self.n_caught += 1;
        if self.n_caught <= MOST_SAID {
            let at = oom.user_frame.as_ref();
            let at = at.map_or_else(String::new, |it| format!(" at {}:{}", it.file, it.line));
            self.say(format!(
                "memory ran out in step {}{at}, asked for {}; the script went on",
                oom.step + 1,
                oom.requested
            ));
        }
    }

    fn redone(&mut self, note: &RedoneNote) {
        let is_refused = matches!(note.how, Redone::Refused(_));
        self.n_redone += 1;
        // One that ends the run is always worth a sentence.
        if self.n_redone <= MOST_SAID || is_refused {
            self.say(sentence(note));
        }
    }

    fn say(&mut self, sentence: String) {
        if self.said.len() < 4 * MOST_SAID && !self.said.contains(&sentence) {
            say(&sentence);
            self.said.insert(sentence);
        }
    }
}

/// What ran out, and what became of it.
fn sentence(note: &RedoneNote) -> String {
    let at = note.user_frame.as_ref();
    let at = at.map_or_else(String::new, |it| format!(" at {}:{}", it.file, it.line));
    let asked = match note.asked.as_str() {
        "" => String::new(),
        size => format!(" (asked for {size})"),
    };
    let where_ = format!("step {}{}{at}", note.step + 1, in_phase(note.phase));
    let (way, seconds) = match &note.how {
        Redone::Refused(why) => {
            return format!(
                "memory ran out in {where_}{asked}, and plimsoll did not repeat it: {why}"
            );
        }
        Redone::As(way, seconds) => (*way, *seconds),
    };
    let how = match way {
        RedoneWay::Again => "unchanged, after PyTorch had returned unused memory to the device".to_owned(),
        RedoneWay::OnHost => "with saved activations in host memory; the numbers are the same".to_owned(),
        RedoneWay::Parts(n) => {
            format!("in {n} parts of the batch; the numbers are the same up to rounding")
        }
        RedoneWay::InChunks => {
            "with the loss a few rows at a time and saved activations in host memory; the numbers are the same up to rounding".to_owned()
        }
        RedoneWay::WithRoom => {
            "with freed activations, which the backward pass computes again; the numbers are the same"
                .to_owned()
        }
    };
    format!("memory ran out in {where_}{asked}; repeated in {seconds:.1} s, {how}")
}

impl launch::Watch for Watch {
    fn tick(&mut self, session: &Session) {
        for (pid, notes) in self.news.of(session.path()) {
            self.look(pid, &notes);
        }
    }
}
