//! What a search for a plan found.

use plimsoll_core::{prediction::ToCome, recording::Averages};

use super::{
    advice::Advice,
    ask::{Grows, TooLarge},
    candidate::{Candidate, IfFound},
    proof::Seen,
    recipes::{NotTried, Tried},
    remaining::Remaining,
};
use crate::change::Places;

/// Why what fits may need more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhySoFar<'a> {
    /// The search was interrupted before it was run on the card itself.
    Unproven,
    /// The script comes to something that no run did.
    ToCome(&'a ToCome),
    /// Not all that may differ ran to an answer: what, in a sentence.
    Unseen(&'a str),
}

/// What came of a search for a plan.
#[derive(Clone, Debug)]
pub struct Found {
    /// The script as it is, and whether it fits.
    pub plain: Candidate,
    /// It gets through on the card as it is, and PyTorch gave back what it kept for later so many times; none if it does not, or that
    /// was not needed.
    pub retries: Option<u64>,
    /// What it needs is there, and it runs out on the card all the same: free memory is in pieces.
    pub in_pieces: bool,
    /// Plans that fit, the best first.
    pub plans: Vec<Candidate>,
    /// What came nearest, if nothing fits.
    pub closest: Option<Candidate>,
    /// What is left in that, and what was tried against it.
    pub left: Vec<Remaining>,
    /// What only a person can decide.
    pub advice: Vec<Advice>,
    /// The same in the switches of the script's own framework, as they ran.
    pub recipes: Vec<Tried>,
    /// Switches of it that could not be tried.
    pub not_tried: Vec<NotTried>,
    /// Where a person would change something.
    pub places: Places,
    /// What was done to the batches of all runs, in sentences.
    pub batches: Vec<String>,
    /// The script chooses sizes by itself, and runs came to some of them.
    pub has_unseen_sizes: bool,
    /// Its model returns its loss.
    pub has_loss: bool,
    /// What that averages over, as was found when a batch was split.
    pub averages: Option<Averages>,
    /// What the last run of what is proposed went through.
    pub seen: Seen,
    /// The script leaves more behind with each step: no plan mends that.
    pub grows: Option<Grows>,
    /// An evaluation of the script's does not fit by itself, and no remedy reaches it: no plan was looked for.
    pub too_large: Option<TooLarge>,
    /// Somebody stopped the search before its end.
    pub interrupted: bool,
}

impl Found {
    /// Nothing yet but the script as it is.
    pub(crate) fn as_it_is(plain: Candidate, seen: Seen, grows: Option<Grows>) -> Found {
        Found {
            plain,
            retries: None,
            in_pieces: false,
            plans: Vec::new(),
            closest: None,
            left: Vec::new(),
            advice: Vec::new(),
            recipes: Vec::new(),
            not_tried: Vec::new(),
            places: Places::default(),
            batches: Vec::new(),
            has_unseen_sizes: false,
            has_loss: false,
            averages: None,
            seen,
            grows,
            too_large: None,
            interrupted: false,
        }
    }

    /// Whether something makes it fit, or nothing is needed.
    pub fn fits(&self) -> bool {
        self.plain.fits
            || self.retries.is_some()
            || !self.plans.is_empty()
            || !self.recipes.is_empty()
    }

    /// The best plan; the script as it is, if that fits.
    pub fn best(&self) -> Option<&Candidate> {
        self.plans.first().or(Some(&self.plain).filter(|it| it.fits))
    }

    /// Why what fits may need more, if it was not run to its end: what was found fits so far.
    pub fn so_far(&self) -> Option<WhySoFar<'_>> {
        let unseen = || self.best()?.took.unseen.as_deref().map(WhySoFar::Unseen);
        self.best()?;
        match &self.seen.to_come {
            _ if self.interrupted && !self.seen.is_proof => Some(WhySoFar::Unproven),
            it => it.as_ref().map(WhySoFar::ToCome).or_else(unseen),
        }
    }

    /// Whether the script fits as it is by its first steps only, and somebody stopped the search then: that proves nothing.
    pub fn was_stopped_at_once(&self) -> bool {
        self.plain.fits && self.so_far() == Some(WhySoFar::Unproven)
    }

    /// What all of it depends on and nobody computed, in a sentence.
    pub fn depends(&self) -> Option<&str> {
        let all = self.plans.first().into_iter().chain([&self.plain]);
        all.filter_map(|it| it.took.depends.as_deref()).next()
    }

    /// What the best one needs where the masks of that find everything.
    pub fn if_found(&self) -> Option<IfFound> {
        self.best()?.if_found
    }

    /// Whether the script fails by itself after the steps that were seen, with a plan as without.
    pub fn fails_by_itself(&self) -> bool {
        self.seen.failed.as_ref().is_some_and(|it| !it.was_hurried)
    }

    /// Whether what was found fits only by how much masks find, and nobody computed that.
    pub fn runs_out_if_found(&self) -> bool {
        self.if_found() == Some(IfFound::RunsOut)
    }
}
