//! A prediction of several runs: the first one says what a script takes, others complete that. Which runs are wanted, and what
//! comes of all of them, is decided here; whoever makes the runs only makes them.

use std::{cmp::Reverse, collections::VecDeque};

use crate::{
    cards::Card,
    codes::{NoteCode, RemarkCode},
    prediction::{
        BetweenEnds, CardFit, Carries, Doubt, Host, LITTLE, Note, OomPlace, OtherEnd, Outcome,
        Peaks, Predicted, Prediction, Rank, RanksSeen, Writes, other_end::is_of_masks,
        smallest::Search,
    },
    recording::Reached,
    units::Bytes,
};

/// So many steps show what a run takes, as far as it is the same in each.
const FEWEST: u32 = 2;
/// Two runs that differ by less than the hundredth part take the same.
const ALIKE: u64 = 100;
/// Less of the host's memory is nobody's trouble.
const MUCH_OF_HOST: Bytes = Bytes::gib(8);
/// Half of what a container has of `/dev/shm`, unless it is told otherwise.
const MUCH_SHARED: Bytes = Bytes::mib(32);

/// What was observed of the first run, and of how it came about, beside its recordings.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Somebody pressed Ctrl-C, and gets what is known.
    pub interrupted: bool,
    /// What in the recordings could not be read, a sentence each.
    pub unread: Vec<String>,
    /// What it wrote, and what became of it.
    pub writes: Option<Writes>,
    /// What it took of the host's memory,
    pub host: Option<Host>,
    /// and what the host has.
    pub host_total: Option<Bytes>,
    /// It is a second run, of a script that failed where masks found nothing; half of each mask was true.
    pub half_of_masks: bool,
    /// Why this card was imitated, where nobody named one.
    pub chosen: Option<String>,
    /// Why it failed, as far as more is known of the process than a recording says.
    pub failure: Option<String>,
    /// What the phantom chose one end of.
    pub ends: Vec<OtherEnd>,
    /// Nobody named a card and this machine has none: the answer is which cards it fits.
    pub any_card: bool,
    /// Nobody asks how much more it needs than the card has.
    pub verdict_is_enough: bool,
    /// No run is made on another card than the first one's.
    pub on_one_card: bool,
    /// The cards that it is to be run on.
    pub cards: Vec<&'static Card>,
    /// The job that it was one rank of, if others are to be looked at.
    pub job: Option<Job>,
    /// The rank that somebody named, and of how many, if only that one is to run.
    pub alone: Option<(u32, u32)>,
}

/// A job of several ranks, of which one ran and the others were imagined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// How many ranks it has.
    pub world: u32,
    /// This machine can run all of them at once.
    pub together: bool,
    /// The first rank of each stage of a pipeline, where this machine can run these at once; else nothing.
    pub stages: Vec<u32>,
    /// The ranks to hold against the first one, one after the other: the last, and those that the script treats unlike others.
    pub others: VecDeque<u32>,
}

impl Job {
    /// The last rank of each stage, as meshes number them; nothing where a stage has one rank.
    fn last_of_stages(&self) -> Vec<u32> {
        let last = self.stages.iter().max().copied().unwrap_or(0);
        let further = self.world.saturating_sub(1).saturating_sub(last);
        let of_each = self.stages.iter().map(|it| it + further);
        if further == 0 { Vec::new() } else { of_each.collect() }
    }
}

/// A run that would complete the answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wanted {
    /// On the same card, at the other end of this.
    OtherEnd(OtherEnd),
    /// On the same card with memory that does not end, because it ran out where there was as much as it asked for: what it asks for after that is replayed.
    WithoutEnd,
    /// On a card that is larger than the one that was not enough: it says something of all those between.
    Larger(&'static Card),
    /// On a card that is smaller than what PyTorch reserved on the largest one, and larger than what was allocated.
    Smaller(&'static Card),
    /// On a card that somebody named.
    Named(&'static Card),
    /// As another rank of the job.
    Rank(u32),
    /// As the first rank and this one, a process each: alone this one failed, perhaps for what the first one sends.
    Beside(u32),
    /// As one rank of each stage of the job's pipeline, a process each.
    Stages,
    /// As the first and the last rank of each stage: where they are alike, the first stand for all.
    EndsOfStages,
    /// As all ranks of the job, a process each.
    AllRanks,
}

/// A run was interrupted without which the answer is not safe.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "interrupted during the confirmation run on a phantom {on}; the first run needs {needs}, which is not a safe bound"
)]
pub struct Interrupted {
    needs: Bytes,
    on: String,
}

/// What the runs of a script come to, one after the other.
#[derive(Clone, Debug)]
pub struct Inquiry {
    /// By the runs so far.
    so_far: Predicted,
    ends: VecDeque<OtherEnd>,
    /// Nobody named a card; a larger one may say more.
    may_learn: bool,
    /// Whether what ran out is to be run without an end of memory.
    may_fit: bool,
    /// Likewise; which smaller cards it fits is to be found. None until the other ends are known.
    any_card: bool,
    smaller: Option<Search>,
    named: VecDeque<&'static Card>,
    /// Whose other ranks are to be looked at,
    job: Option<Job>,
    /// and all of them, because two differ,
    all_ranks: bool,
    /// or these, which others were seen to be like,
    stand_for_all: Vec<u32>,
    /// or this one beside the first.
    beside: Option<u32>,
    /// Those that need what the first one needs.
    alike: Vec<u32>,
    /// Which of the named cards carry the script; none if it was not run on them.
    on_named: Option<Vec<CardFit>>,
    chosen: Option<String>,
    failure: Option<String>,
}

impl Inquiry {
    /// After the first run, by which `first` was predicted.
    pub fn new(first: Prediction, observed: Observed) -> Inquiry {
        let Observed { unread, writes, host, host_total, half_of_masks, .. } = observed;
        let (verdict_is_enough, on_one_card) = (observed.verdict_is_enough, observed.on_one_card);
        let Observed { interrupted, chosen, failure, ends, any_card, cards, job, alone, .. } =
            observed;
        let mut so_far = first.into_parts();
        so_far.notes.extend(unread.into_iter().map(Note::Unread));
        so_far.notes.extend(writes.iter().flat_map(about_writes));
        so_far.notes.extend(host.iter().flat_map(|it| about_host(*it, host_total)));
        so_far.notes.extend(half_of_masks.then_some(Note::HalfOfMasks));
        so_far.notes.extend(alone.map(|(rank, world)| Note::RankAlone { rank, world }));
        (so_far.writes, so_far.host) = (writes, host);
        so_far.doubt_cards();
        let may_learn = cards.is_empty() && !interrupted && !verdict_is_enough;
        let may_fit = !interrupted && !on_one_card;
        let any_card = any_card && may_learn;
        let (ends, named) =
            if interrupted { Default::default() } else { (ends.into(), cards.into()) };
        let on_named = None;
        let smaller = None;
        let job = job.filter(|it| !interrupted && 1 < it.world);
        let (all_ranks, stand_for_all, beside, alike) = Default::default();
        Inquiry {
            so_far,
            ends,
            may_learn,
            may_fit,
            any_card,
            smaller,
            named,
            job,
            all_ranks,
            stand_for_all,
            beside,
            alike,
            on_named,
            chosen,
            failure,
        }
    }

    /// The run that is wanted next: at other ends as long as the script fits, then on other cards.
    pub fn wanted(&mut self) -> Option<Wanted> {
        let it = &self.so_far;
        // A stage alone does not get the shapes that the one before it sends, and the first one's other ends say nothing of theirs.
        if it.outcome == Outcome::Fits
            && let Some(job) = self.job.as_ref().filter(|it| !it.stages.is_empty())
        {
            return Some(match job.together {
                false => Wanted::Stages,
                true if job.last_of_stages().is_empty() || self.all_ranks => Wanted::AllRanks,
                true => Wanted::EndsOfStages,
            });
        }
        if it.outcome == Outcome::Fits
            && let Some(end) = self.ends.pop_front()
        {
            return Some(Wanted::OtherEnd(end));
        }
        // Where work is done late, other holes are left, and what just ran out may fit.
        if it.ran_out_by_little()
            && let Some(at) = self.ends.iter().position(|it| *it == OtherEnd::Late)
        {
            return self.ends.remove(at).map(Wanted::OtherEnd);
        }
        if it.doubt == Some(Doubt::RunsOutEarly) {
            return None;
        }
        if it.holes_decided() && std::mem::take(&mut self.may_fit) {
            return Some(Wanted::WithoutEnd);
        }
        if it.outcome == Outcome::Fits && self.all_ranks {
            return Some(Wanted::AllRanks);
        }
        if it.outcome == Outcome::Fits
            && let Some(rank) = self.beside
        {
            return Some(Wanted::Beside(rank));
        }
        if it.outcome == Outcome::Fits
            && let Some(rank) = self.job.as_ref().and_then(|it| it.others.front())
        {
            return Some(Wanted::Rank(*rank));
        }
        if std::mem::take(&mut self.may_learn) && it.outcome == Outcome::OutOfMemory {
            let unknown = it.cards.iter().filter(|it| it.carries == Carries::Unknown);
            return unknown.map(|it| it.card).max_by_key(|it| it.total).map(Wanted::Larger);
        }
        if it.outcome == Outcome::ScriptFailed {
            return None;
        }
        if self.any_card
            && let Some(card) = self.smaller.get_or_insert_with(|| Search::after(it)).next()
        {
            return Some(Wanted::Smaller(card));
        }
        while let Some(card) = self.named.pop_front() {
            let fits = self.on_named.get_or_insert_default();
            if card.id != it.card.id {
                return Some(Wanted::Named(card));
            }
            fits.push(it.on_its_card(card));
        }
        None
    }

    /// What came of the run that was wanted; nothing if it was interrupted. Returns whether the answer shows that run from now on.
    pub fn came(&mut self, of: Wanted, there: Option<&Prediction>) -> Result<bool, Interrupted> {
        let is_answered = self.so_far.outcome == Outcome::OutOfMemory;
        match (of, there) {
            (Wanted::OtherEnd(end), Some(there)) => return Ok(self.so_far.cover(end, there)),
            (Wanted::Larger(card), Some(there)) => self.so_far.learn_of_larger(card, there),
            (Wanted::Smaller(card), Some(there)) => {
                let search = self.smaller.get_or_insert_default();
                self.so_far.learn_of_smaller(card, there, search);
            }
            (Wanted::Rank(rank), Some(there)) if there.outcome == Outcome::ScriptFailed => {
                self.beside = Some(rank);
            }
            (Wanted::Rank(rank) | Wanted::Beside(rank), there) => {
                self.beside = None;
                if there.is_some_and(|it| self.so_far.is_alike(it)) {
                    self.alike.push(rank);
                    self.job.as_mut().map(|it| it.others.pop_front());
                    return Ok(false);
                }
                let job = self.job.take();
                if there.is_some() && job.is_some_and(|it| it.together) {
                    self.all_ranks = true;
                } else {
                    let first = self.so_far.ranks.first().and_then(|it| it.rank).unwrap_or(0);
                    let alike = std::mem::take(&mut self.alike);
                    let seen =
                        RanksSeen::Each([first].into_iter().chain(alike).chain([rank]).collect());
                    return Ok(self.so_far.cover_ranks(seen, there.map(|it| &**it)));
                }
            }
            (Wanted::AllRanks, there) => {
                (self.all_ranks, self.job) = (false, None);
                return Ok(self.so_far.cover_ranks(RanksSeen::All, there.map(|it| &**it)));
            }
            (Wanted::EndsOfStages, there) => return Ok(self.saw_ends_of_stages(there)),
            (Wanted::Stages, there) => {
                let seen =
                    RanksSeen::Stages(self.job.take().map(|it| it.stages).unwrap_or_default());
                return Ok(self.so_far.cover_ranks(seen, there.map(|it| &**it)));
            }
            (Wanted::WithoutEnd, _) => {}
            // What is known holds without it.
            (Wanted::Smaller(_), None) => self.smaller.get_or_insert_default().end(),
            (Wanted::Named(card), Some(there)) => {
                self.on_named.get_or_insert_default().push(there.on_its_card(card));
            }
            (Wanted::OtherEnd(_), None) => return Err(self.interrupted(&self.so_far.card)),
            // That it does not fit is known already.
            (Wanted::Named(card) | Wanted::Larger(card), None) if is_answered => {
                self.so_far.notes.push(Note::NothingOfLarger { card: card.name.clone() });
                self.named.clear();
            }
            (Wanted::Named(card) | Wanted::Larger(card), None) => {
                return Err(self.interrupted(card));
            }
        }
        Ok(false)
    }

    /// What replays say of what lies between what was run first and `end`, after the run there.
    pub fn took_between(&mut self, end: OtherEnd, took: &BetweenEnds) {
        self.so_far.cover_between(end, took);
    }

    /// Why what ran out may fit, by replays of what it asks for.
    pub fn may_fit(&mut self, doubt: Option<Doubt>) {
        let Some(doubt) = doubt else { return };
        self.so_far.doubt = Some(doubt);
        let here = self.so_far.card.id.clone();
        let is_here = |it: &&mut CardFit| it.card.id == here;
        self.so_far.cards.iter_mut().filter(is_here).for_each(|it| it.carries = Carries::Unknown);
    }

    /// The ranks that ran together, and that the answer shows, leave these ends open: what the first rank alone needs at its late end
    /// says nothing of the others.
    pub fn left_open(&mut self, ends: &[OtherEnd]) {
        self.ends.retain(|it| *it != OtherEnd::Late);
        if ends.contains(&OtherEnd::Late) {
            let is_late = |it: &Note| matches!(it, Note::OtherEnd { end: OtherEnd::Late, .. });
            self.so_far.early = None;
            self.so_far.runs_out_at.take_if(|it| *it == OtherEnd::Late);
            self.so_far.others.retain(|it| it.0 != OtherEnd::Late);
            self.so_far.doubt.take_if(|it| *it != Doubt::Addresses);
            self.so_far.notes.retain(|it| !is_late(it));
            self.ends.push_back(OtherEnd::Late);
        }
    }

    /// What came of the first and the last rank of each stage. If they differ, all ranks are to run, unless these were all.
    fn saw_ends_of_stages(&mut self, there: Option<&Prediction>) -> bool {
        let Some(job) = self.job.take() else { return false };
        let last = job.last_of_stages();
        let of = |it: &Predicted, rank: u32| {
            let found = it.ranks.iter().find(|it| it.rank == Some(rank));
            found.map(|it| (it.peak.allocated, it.peak.reserved))
        };
        let is_alike = |it: &Predicted| {
            let mut pairs = job.stages.iter().zip(&last);
            it.outcome == Outcome::Fits
                && pairs.all(|(a, b)| of(it, *a).is_some() && of(it, *a) == of(it, *b))
        };
        match there.map(|it| &**it) {
            Some(it) if is_alike(it) => {
                let mut it = it.clone();
                it.ranks.retain(|it| it.rank.is_some_and(|rank| job.stages.contains(&rank)));
                self.stand_for_all.clone_from(&job.stages);
                let seen = RanksSeen::EndsOfStages { first: job.stages, last };
                self.so_far.cover_ranks(seen, Some(&it))
            }
            // That it does not fit is known.
            Some(it) if matches!(it.outcome, Outcome::OutOfMemory | Outcome::Grows) => {
                self.so_far.cover_ranks(RanksSeen::Stages(job.stages), Some(it))
            }
            it if is_all(&job) => self.so_far.cover_ranks(RanksSeen::All, it),
            _ => {
                (self.job, self.all_ranks) = (Some(job), true);
                false
            }
        }
    }

    /// The first and the last rank of each stage; nothing where all of the job's ranks are among them.
    pub fn ends_of_stages(&self) -> Vec<u32> {
        let Some(job) = self.job.as_ref().filter(|it| !is_all(it)) else { return Vec::new() };
        let mut res: Vec<u32> = job.stages.iter().copied().chain(job.last_of_stages()).collect();
        res.sort_unstable();
        res
    }

    /// The ranks that stand for all of the job from now on, if that was seen.
    pub fn stand_for_all(&self) -> &[u32] {
        &self.stand_for_all
    }

    /// Whether the answer shows a run whose work is done late.
    pub fn shows_late(&self) -> bool {
        self.so_far.early.is_some()
    }

    fn interrupted(&self, card: &Card) -> Interrupted {
        Interrupted { needs: self.so_far.peak.device, on: card.name.clone() }
    }

    /// What all runs come to, which together reached these.
    pub fn prediction(self, reached: Option<Reached>) -> Prediction {
        let Inquiry { so_far: mut res, alike, on_named, chosen, failure, .. } = self;
        let differ = |it: &Note| matches!(it, Note::RanksDiffer { .. });
        if !alike.is_empty() && !res.notes.iter().any(differ) {
            res.notes.push(Note::RanksAlike(alike));
        }
        if let Some(mut cards) = on_named {
            cards.sort_by_key(|it| (it.card.total, &it.card.id));
            res.cards = cards;
            res.doubt_cards();
            res.notes.retain(|it| !matches!(it, Note::AskedSize { .. }));
            res.notes.push(Note::RanOnEachCard);
        }
        res.notes.extend(reached.iter().filter_map(Reached::sentence).map(Note::Reached));
        res.reached = reached;
        res.notes.extend(chosen.map(Note::CardChosen));
        if let Some(why) = failure {
            res.fail(why);
        }
        Prediction::of(res)
    }
}

/// Whether each rank of the job is the first or the last of its stage.
fn is_all(job: &Job) -> bool {
    usize::try_from(job.world).is_ok_and(|it| it == 2 * job.stages.len())
}

impl Predicted {
    /// Makes it one of a run that failed: its first note says why, in these words.
    fn fail(&mut self, why: String) {
        let mut text = why;
        if self.peak.allocated != Bytes::ZERO {
            text += &format!("; until then it used {} of the GPU", self.peak.device);
        }
        let is_known = self.outcome == Outcome::ScriptFailed;
        match self.notes.first_mut().filter(|_| is_known) {
            Some(first) => {
                let code = first.kind().unwrap_or(NoteCode::ScriptFailed);
                *first = Note::Failed { code, text };
            }
            None => self.notes.insert(0, Note::Failed { code: NoteCode::ScriptFailed, text }),
        }
        self.outcome = Outcome::ScriptFailed;
    }

    /// Takes in what the same script did on the largest of the cards of which this run says nothing.
    fn learn_of_larger(&mut self, card: &'static Card, largest: &Predicted) {
        if largest.outcome == Outcome::Fits {
            self.larger = Some((card, Peaks { device: largest.needs(), ..largest.peak }));
        }
        let unknown = self.cards.iter_mut().filter(|it| it.carries == Carries::Unknown);
        for it in unknown {
            let there = largest.cards.iter().find(|other| other.card.id == it.card.id);
            if let Some(there) = there.filter(|_| largest.outcome != Outcome::ScriptFailed) {
                *it = *there;
            }
        }
    }

    /// Whether this card carries the script, by a run on it.
    fn on_its_card(&self, card: &'static Card) -> CardFit {
        let carries = match self.outcome {
            Outcome::Fits if self.is_in_doubt() => Carries::Unknown,
            Outcome::Fits if card.total < self.with_allowance => Carries::Tight,
            Outcome::Fits => Carries::Yes,
            Outcome::Grows => Carries::Grows,
            Outcome::OutOfMemory => Carries::No,
            Outcome::ScriptFailed => Carries::Unknown,
        };
        let runs_out_at = self.growth.as_ref().filter(|_| carries == Carries::Grows);
        CardFit { card, carries, runs_out_at: runs_out_at.map(|it| it.runs_out_at) }
    }

    /// Takes in what the same script did at the other end: whatever took more decides. A run that did not get as far
    /// says nothing about it. Returns whether the other run is shown from now on.
    fn cover(&mut self, end: OtherEnd, other: &Predicted) -> bool {
        if self.outcome == Outcome::OutOfMemory {
            return other.outcome == Outcome::Fits && self.fits_late(other);
        }
        match other.outcome {
            Outcome::ScriptFailed => {
                self.notes.push(Note::OtherEndUnseen { end });
                return false;
            }
            Outcome::OutOfMemory | Outcome::Grows if end.may_come_in_one_job() => {
                self.runs_out_at = Some(end);
                self.doubt_cards();
                return false;
            }
            Outcome::OutOfMemory | Outcome::Grows => {
                self.outcome = other.outcome;
                self.oom.clone_from(&other.oom);
                self.growth.clone_from(&other.growth);
            }
            Outcome::Fits if other.seen.steps < self.seen.steps.min(FEWEST) => {
                self.notes.push(Note::OtherEndUnseen { end });
                return false;
            }
            Outcome::Fits => {}
        }
        self.others.push((end, other.peak));
        self.doubt = self.doubt.or(other.doubt);
        self.with_allowance = self.with_allowance.max(other.with_allowance);
        let (this, there) = (self.peak.device, other.peak.device);
        if end == OtherEnd::Found && this.0.abs_diff(there.0) <= this.0 / ALIKE {
            // Whatever masks select, it takes the same.
            let is_only_masks = |it: &Note| matches!(it, Note::SizesUnknown { lines, finders } if lines.is_empty() && finders.iter().all(|it| is_of_masks(it)));
            self.notes.retain(|it| !is_only_masks(it));
        }
        if this != there {
            self.notes.push(Note::OtherEnd { end, this, other: there, between: None });
        }
        let is_shown =
            end == OtherEnd::Late && self.outcome == Outcome::Fits && self.needs() < other.needs();
        let before = std::mem::take(&mut self.ranks);
        if is_shown {
            self.show_late(other);
        } else {
            self.ranks.clone_from(&before);
        }
        if end == OtherEnd::Late {
            self.take_larger_ranks(before.iter().chain(&other.ranks));
            self.tell_ranks_again();
        }
        self.doubt_cards();
        is_shown
    }

    /// Whether it ran out with less in use than there was, or little more.
    fn ran_out_by_little(&self) -> bool {
        self.ran_out_with(|there_was| there_was + Bytes(there_was.0 / LITTLE))
    }

    /// Whether it ran out though there was as much as it asked for, in pieces.
    fn holes_decided(&self) -> bool {
        self.ran_out_with(|there_was| there_was)
    }

    fn ran_out_with(&self, most: impl Fn(Bytes) -> Bytes) -> bool {
        let is_it = |it: &OomPlace| {
            let free = it.free.map_or(it.requested, |free| free.min(it.requested));
            it.allocated + it.requested <= most(it.reserved + free)
        };
        self.outcome == Outcome::OutOfMemory && self.oom.as_ref().is_some_and(is_it)
    }

    /// The run with work done late fits, and the one before it, with work done at once, ran out. Real ranks take either end.
    fn fits_late(&mut self, late: &Predicted) -> bool {
        let exit = (late.exception.clone(), late.exit, late.seconds);
        self.show(late);
        (self.exception, self.exit, self.seconds) = exit;
        self.others.push((OtherEnd::Late, late.peak));
        (self.runs_out_at, self.doubt) = (Some(OtherEnd::Late), Some(Doubt::RunsOutEarly));
        self.doubt_cards();
        true
    }

    /// Takes in what the same ranks need between both ends.
    fn cover_between(&mut self, end: OtherEnd, took: &BetweenEnds) {
        let there = self.others.iter().find(|it| it.0 == end).map(|it| it.1.device);
        // Where that end ran out, nothing is known of what lies between.
        let Some(other) = there.filter(|_| self.runs_out_at != Some(end)) else { return };
        self.with_allowance = self.with_allowance.max(took.with_allowance);
        if let (Some(doubt), None) = (took.doubt(), self.runs_out_at) {
            (self.runs_out_at, self.doubt) = (Some(end), Some(doubt));
        }
        let early = self.early.filter(|_| end == OtherEnd::Late);
        let this = early.map_or(self.peak.device, |it| it.device);
        if this.max(other) < took.most {
            self.notes.retain(|it| !matches!(it, Note::OtherEnd { end: it, .. } if *it == end));
            self.notes.push(Note::OtherEnd { end, this, other, between: Some(took.most) });
        }
        self.doubt_cards();
    }

    /// Each rank needs what it needs at the end where it needs more.
    fn take_larger_ranks<'a>(&mut self, of_both: impl Iterator<Item = &'a Rank>) {
        for there in of_both {
            let is_it = |it: &&mut Rank| it.rank == there.rank && it.device == there.device;
            if let Some(it) = self.ranks.iter_mut().find(is_it)
                && it.rank.is_some()
                && it.peak.device < there.peak.device
            {
                it.peak = there.peak;
            }
        }
        self.ranks.sort_by_key(|it| Reverse(it.peak.device));
    }

    /// What the ranks that ran together need, after the end of a race where one needs more was seen.
    fn tell_ranks_again(&mut self) {
        let needs = |it: &Rank| it.peak.device;
        let (Some(first), Some(last)) = (self.ranks.first(), self.ranks.last()) else { return };
        for note in &mut self.notes {
            if let Note::RanksDiffer { largest, most, least, seen } = note
                && !matches!(seen, RanksSeen::Each(_))
            {
                (*largest, *most, *least) = (first.rank, needs(first), needs(last));
            }
        }
    }

    /// Shows the run whose work was done late. Real ranks of one job take either end, and the job needs what its worst rank
    /// does (`bench/results/layouts.md`).
    fn show_late(&mut self, late: &Predicted) {
        let early = self.peak;
        self.show(late);
        self.early = Some(early);
    }

    /// Shows the sizes of `run` instead of its own, and keeps what holds of all runs.
    fn show(&mut self, run: &Predicted) {
        let before = std::mem::replace(self, run.clone());
        self.max = before.max;
        (self.others, self.early) = (before.others, before.early);
        self.runs_out_at = before.runs_out_at;
        self.doubt = before.doubt.or(self.doubt);
        self.with_allowance = before.with_allowance.max(self.with_allowance);
        (self.smallest, self.larger) = (before.smallest, before.larger);
        (self.notes, self.serving) = (before.notes, before.serving);
        (self.writes, self.reached, self.host) = (before.writes, before.reached, before.host);
        (self.exception, self.exit, self.seconds) = (before.exception, before.exit, before.seconds);
    }

    /// Whether each rank of that run needs the same.
    fn is_alike(&self, there: &Predicted) -> bool {
        let is_same =
            |it: Peaks| (it.allocated, it.reserved) == (self.peak.allocated, self.peak.reserved);
        let all_of_it = || there.ranks.iter().all(|it| is_same(it.peak));
        there.outcome == Outcome::Fits && is_same(there.peak) && all_of_it()
    }

    /// Takes in what another rank needs, or what several do; nothing if they did not run. Returns whether that run is shown from now on.
    fn cover_ranks(&mut self, seen: RanksSeen, there: Option<&Predicted>) -> bool {
        let rank = if let RanksSeen::Each(ranks) = &seen { ranks.last().copied() } else { None };
        let Some(there) = there.filter(|it| it.outcome != Outcome::ScriptFailed) else {
            self.notes.push(Note::RanksUnseen { rank });
            return false;
        };
        if there.outcome != Outcome::Fits {
            self.outcome = there.outcome;
            self.oom.clone_from(&there.oom);
            self.growth.clone_from(&there.growth);
        }
        let number = |it: &Predicted| it.ranks.first().and_then(|it| it.rank);
        let is_shown = rank.is_none() || self.needs() < there.needs();
        let largest = if is_shown { number(there).or(rank) } else { number(self) };
        let all = there.ranks.iter().map(|it| it.peak.device).chain([there.peak.device]);
        let least = all.clone().min().unwrap_or_default().min(self.peak.device);
        let most = all.max().unwrap_or_default().max(self.peak.device);
        if rank.is_none() {
            let imagines =
                |it: &Note| matches!(it, Note::Remark(it) if it.code == RemarkCode::ImaginedRanks);
            self.notes.retain(|it| !imagines(it));
        }
        self.notes.push(Note::RanksDiffer { largest, most, least, seen });
        let outcome = self.outcome;
        if is_shown {
            self.show(there);
        } else {
            self.with_allowance = self.with_allowance.max(there.with_allowance);
            self.doubt = self.doubt.or(there.doubt);
        }
        self.outcome = outcome;
        is_shown
    }

    /// A card with less than is enough at every end may carry it, or not. Where one ran out, nobody knows how much is enough. Where segments at other
    /// addresses ran out, that is so of this card.
    fn doubt_cards(&mut self) {
        let enough = self.at_other_values().map(|it| it.1);
        let (beside, total) = (self.card.beside, self.card.total);
        let (is_anywhere, is_here) = (self.runs_out_at.is_some(), self.doubt.is_some());
        for it in &mut self.cards {
            let carries = matches!(it.carries, Carries::Yes | Carries::Tight);
            let is_less = |enough: Bytes| it.card.total.saturating_sub(beside) < enough;
            if carries && (enough.map_or(is_anywhere, is_less) || is_here && it.card.total <= total)
            {
                it.carries = Carries::Unknown;
            }
        }
    }
}

/// One note about what was written, and one about each folder that could not be.
fn about_writes(writes: &Writes) -> Vec<Note> {
    let read_only = writes
        .read_only
        .iter()
        .map(|(path, why)| Note::ReadOnly { path: path.clone(), why: why.clone() });
    read_only.chain(writes.sentence().map(Note::Wrote)).collect()
}

/// What the host has to have, where that may be more than it has.
fn about_host(host: Host, total: Option<Bytes>) -> Vec<Note> {
    let is_half = total.is_some_and(|it| it.0 / 2 < host.peak.0);
    let much = (MUCH_OF_HOST <= host.peak || is_half)
        .then_some(Note::HostMemory { peak: host.peak, total });
    let shared = (MUCH_SHARED <= host.shared).then_some(Note::HostShared(host.shared));
    much.into_iter().chain(shared).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_told_of_where_it_may_be_short() {
        let codes = |peak, shared, total: Option<u64>| {
            let host = Host { peak: Bytes::mib(peak), shared: Bytes::mib(shared) };
            let told = about_host(host, total.map(Bytes::mib));
            told.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(codes(2_000, 0, Some(16_000)), [""; 0]);
        assert_eq!(codes(2_000, 8, None), [""; 0]);
        let half = codes(2_000, 0, Some(3_000));
        assert!(
            half[0].contains("took 1.95 GiB of the host's memory (RAM) at most of the 2.93 GiB"),
            "{half:?}"
        );
        assert_eq!(codes(9_000, 0, Some(64_000)).len(), 1);
        let shared = codes(2_000, 410, Some(16_000));
        assert!(shared[0].contains("shared up to 410.0 MiB through /dev/shm"), "{shared:?}");
    }
}
