//! What a search asks for, and what it is told of it.

use std::collections::BTreeMap;

use plimsoll_core::{
    codes::ProblemCode,
    plan::Plan,
    prediction::{
        CategoryShare, EvaluationPeak, LineShare, Note, OomPlace, OtherEnd, Outcome, Peaks,
        Predicted, Prediction, StepGrowth, StepPeaks, ToCome,
    },
    recording::{CodeLine, FirstStep, Reading, Split, Spread, Work},
    units::Bytes,
};

use crate::change::Places;

/// So many steps say whether all take the same.
const FEWEST_STEPS: usize = 4;

/// One run of the script on a phantom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// What stands in the place of the command whose largest value is wanted; none where that is not looked for.
    pub value: Option<u64>,
    /// With these remedies.
    pub plan: Plan,
    /// When it has shown enough.
    pub until: Until,
    /// On which card.
    pub on: On,
    /// It may find what runs before it compiled, though it is to be as a process of its own: what compiling takes was seen.
    pub may_find_compiled: bool,
    /// At the other end of what a phantom decides by itself.
    pub end: Option<OtherEnd>,
    /// With all that `predict` runs beside it: other ranks of the job, and the other end of a race, or of a router, with what lies between. It
    /// fits if `predict` says so.
    pub as_predicted: bool,
    /// The most that PyTorch's allocator may reserve.
    pub limit_reserved: Option<Bytes>,
    /// Who has allocated more than this can never fit: the run is ended there.
    pub give_up_above: Option<Bytes>,
    /// But not before so many steps are over: they show what it takes.
    pub give_up_after: u32,
    /// Of a batch in more parts few go through the model: each of the others takes the same again.
    pub few_parts: Option<FewParts>,
    /// The rank that runs, of a plan for several devices; none for the first.
    pub rank: Option<u32>,
    /// What is looked at beside memory.
    pub look: Option<Look>,
    /// What of every batch is made half.
    pub half: Option<Half>,
    /// Files of the script's that have another text in this run.
    pub files: Vec<Rewritten>,
    /// What is added to the command.
    pub words: Vec<String>,
}

/// How many parts of a batch go through the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FewParts {
    /// So many, of those that are alike,
    pub parts: u64,
    /// once so many batches went through it with all of theirs.
    pub after: u32,
}

/// Another text of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewritten {
    /// The file.
    pub file: String,
    /// How many bytes it has.
    pub size: usize,
    /// The byte at which the texts begin to differ.
    pub start: usize,
    /// What stands there up to where they are the same again,
    pub was: String,
    /// and what is to stand there.
    pub is: String,
}

/// What can be made half of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// How long its samples are.
    Length,
    /// How many there are.
    Samples,
    /// How high and how wide its images are.
    Size,
}

/// When a run has shown enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Memory is steady.
    Steady,
    /// The same, and a validation or what else comes later went by.
    Validation,
    /// The same, and nobody waited for whether memory rises some steps later.
    OneValidation,
    /// So many optimizer steps are over, and one validation went by, whether memory is steady or not.
    ValidationAfter(u32),
    /// So many optimizer steps are over.
    Steps(u32),
    /// The script ends.
    Exit,
}

/// Which card a run is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// The card with more memory than any card has: what a run takes is to be seen, not where it ends.
    Roomy,
    /// The card itself.
    Card,
    /// The card itself, and the run is a process of its own, as the real one will be.
    CardAlone,
}

/// What a run can be asked to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// The places in the script where a person would change something, and what remedies have nothing to do.
    Sites,
    /// The operations of a step. What the script compiles runs as it was written meanwhile.
    Work,
    /// Both.
    SitesAndWork,
}

/// The question which changes of the allocator alone would have let the last run through: its recording is replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replay {
    /// The most that may be reserved.
    pub limit: Bytes,
    /// All of the device's memory, if the process has it to itself.
    pub card: Option<Bytes>,
}

/// Steps on the machine's own device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measure {
    /// With these remedies.
    pub plan: Plan,
    /// So many steps.
    pub steps: u32,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Ran {
    /// The memory that it took.
    pub took: Took,
    /// Whether it got through.
    pub outcome: Outcome,
    /// Why it gave no answer, in one sentence.
    pub failure: Option<String>,
    /// The remedies that refused the program, by id.
    pub refused: Vec<String>,
    /// Out-of-memory errors, those that the script caught included.
    pub n_ooms: usize,
    /// Somebody asked us to stop.
    pub interrupted: bool,
    /// It was ended because it took more than can ever fit: what it took is less than it would have taken.
    pub was_cut: bool,
    /// How often the allocator was full, gave its free memory back and went on.
    pub n_retries: u64,
    /// What the phantom decided by itself and the user did not say.
    pub ends: Vec<OtherEnd>,
    /// It is one rank of a job, or one end of a race or of a router: `predict` runs more than that.
    pub is_part: bool,
    /// An evaluation went by.
    pub evaluates: bool,
    /// What the script raised after its training steps, in a sentence: it may have missed the rest of an epoch that was ended early.
    pub failed_later: Option<String>,
    /// What the agent noted of the plan and of what was looked at.
    pub noted: Noted,
    /// How long it took, in seconds.
    pub seconds: f64,
}

/// How the script fails after its first steps, with a plan as without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Where and after how many steps, in one sentence.
    pub why: String,
    /// It may have missed the rest of an epoch that was ended early.
    pub was_hurried: bool,
}

/// The memory that a run took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Took {
    /// The most.
    pub peak: Peaks,
    /// What a device must have, with the allowance for what a phantom cannot know.
    pub safe: Bytes,
    /// Optimizer steps that were seen.
    pub steps_seen: u32,
    /// Of each step.
    pub steps: Vec<StepPeaks>,
    /// A data loader began another epoch in these steps: the last batch of one may be a smaller one, for no other reason.
    pub began_again: bool,
    /// Of the first one, and what it depends on.
    pub first_step: Option<FirstStep>,
    /// How it grows with the steps, if it does.
    pub growth: Option<StepGrowth>,
    /// What it held at its peak, by what that is for, largest first.
    pub held: Vec<CategoryShare>,
    /// The lines that held most of it then, largest first.
    pub lines: Vec<LineShare>,
    /// Where memory ran out, if it did.
    pub oom: Option<OomPlace>,
    /// What its largest evaluation took.
    pub evaluation: Option<EvaluationPeak>,
    /// What the script comes to, and this run did not.
    pub to_come: Option<ToCome>,
    /// Ranks that may differ, or the other end of a race, did not run to an answer: which, in a sentence.
    pub unseen: Option<String>,
    /// It depends on numbers that nobody computed: which, in a sentence.
    pub depends: Option<String>,
    /// What an edit of the script by hand would give back, most first.
    pub by_hand: Vec<ByHand>,
}

/// Something wasteful that no remedy removes, and an edit of the script does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByHand {
    /// Which kind of problem it is.
    pub code: ProblemCode,
    /// What was found, in a sentence.
    pub what: String,
    /// What it takes at the peak; or when memory ran out, where only that was seen.
    pub bytes: Bytes,
    /// That was seen where memory ran out.
    pub ran_out: bool,
    /// The line.
    pub at: Option<CodeLine>,
    /// What to change.
    pub change: String,
}

/// A script that grows, under the limit that was asked for.
#[derive(Clone, Debug)]
pub struct Grows {
    /// How.
    pub growth: StepGrowth,
    /// The step in which it runs out of what there is.
    pub runs_out_at: u64,
}

/// An evaluation that does not fit by itself, whatever training takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TooLarge {
    /// What it allocates itself, and where.
    pub evaluation: EvaluationPeak,
    /// With these remedies, which are all that may reach it and make it smaller.
    pub with: Plan,
    /// What a device must have for that alone, with what the process has beside and the allowance.
    pub needs: Bytes,
}

/// What the agent noted.
#[derive(Clone, Debug, Default)]
pub struct Noted {
    /// Remedies that have nothing to do, each with why where a person may wonder; none if that was not looked at.
    pub idle: Option<BTreeMap<String, Option<String>>>,
    /// It came to its end without a backward pass.
    pub trains_nothing: bool,
    /// It uses `torch.compile`. Work is counted of what it compiles as it was written: such a run takes other memory.
    pub compiles: bool,
    /// It compiled all that it uses of that: nothing was there from runs before.
    pub compiled_anew: bool,
    /// The program wraps its model for several devices.
    pub is_distributed: bool,
    /// Where a person would change something; none if that was not looked at.
    pub places: Option<Places>,
    /// Batches differ in size, and the worst ones came first.
    pub sizes_differ: bool,
    /// The script draws sizes by itself, and drew the largest first.
    pub sizes_are_drawn: bool,
    /// What was done to the batches, in sentences.
    pub batches: Vec<String>,
    /// How many blocks the model has.
    pub n_blocks: Option<u64>,
    /// How batches are split.
    pub split: Option<Split>,
    /// Nothing in the model draws random numbers or keeps statistics.
    pub exact: Option<bool>,
    /// The operations of a step.
    pub work: Vec<Work>,
    /// The memory at the borders of blocks.
    pub readings: Vec<Reading>,
    /// The operations of each block.
    pub block_work: Vec<Vec<Work>>,
}

/// What came of measuring.
#[derive(Clone, Debug, Default)]
pub struct Steps {
    /// The seconds of a step, of each device.
    pub each: Vec<Spread>,
    /// Why there are none, in one sentence.
    pub failure: Option<String>,
    /// Somebody asked us to stop.
    pub interrupted: bool,
}

impl Run {
    /// One that nothing is special about.
    pub(super) fn of(plan: &Plan, until: Until, on: On) -> Run {
        Run {
            value: None,
            plan: plan.clone(),
            until,
            on,
            may_find_compiled: false,
            end: None,
            as_predicted: false,
            limit_reserved: None,
            give_up_above: None,
            give_up_after: 0,
            few_parts: None,
            rank: None,
            look: None,
            half: None,
            files: Vec::new(),
            words: Vec::new(),
        }
    }
}

impl Run {
    /// The same on the card itself where it is a run of the script as it is, with room, and nothing else is to be seen in it.
    pub fn on_the_card(&self, limit_reserved: Option<Bytes>) -> Option<Run> {
        let plain = Run { look: self.look, ..Run::of(&Plan::default(), self.until, On::Roomy) };
        let is_it = *self == plain && !matches!(self.look, Some(Look::Work));
        is_it.then_some(Run { on: On::Card, look: None, limit_reserved, ..plain })
    }
}

impl Rewritten {
    /// What makes `after` of `before`.
    pub(super) fn between(file: &str, before: &str, after: &str) -> Rewritten {
        let same = |(a, b): &(char, char)| a == b;
        let length = |it: (char, char)| it.0.len_utf8();
        let start = before.chars().zip(after.chars()).take_while(same).map(length).sum();
        let (was, is) = (&before[start..], &after[start..]);
        let end: usize = was.chars().rev().zip(is.chars().rev()).take_while(same).map(length).sum();
        Rewritten {
            file: file.to_owned(),
            size: before.len(),
            start,
            was: was[..was.len() - end].to_owned(),
            is: is[..is.len() - end].to_owned(),
        }
    }
}

impl Ran {
    /// What comes of a run that is not made any more, since somebody asked us to stop.
    pub(super) fn not_made() -> Ran {
        Ran {
            took: Took::default(),
            outcome: Outcome::ScriptFailed,
            failure: Some("interrupted".to_owned()),
            refused: Vec::new(),
            n_ooms: 0,
            interrupted: true,
            was_cut: false,
            n_retries: 0,
            ends: Vec::new(),
            is_part: false,
            evaluates: false,
            failed_later: None,
            noted: Noted::default(),
            seconds: 0.0,
        }
    }

    /// Whether it ran at least one step, and never out of memory.
    pub fn fits(&self) -> bool {
        self.failure.is_none() && self.n_ooms == 0 && self.outcome == Outcome::Fits
    }

    /// Whether it failed for another reason than memory.
    pub(super) fn is_strange(&self) -> bool {
        self.failure.is_some() && self.n_ooms == 0
    }
}

impl Failed {
    /// What a run came to, if it failed for another reason than memory, and nobody stopped it.
    pub(super) fn of(ran: &Ran) -> Option<Failed> {
        let why = ran.failure.clone().filter(|_| ran.is_strange() && !ran.interrupted)?;
        Some(Failed { why, was_hurried: false })
    }
}

impl Took {
    /// With what was found where the script ran out of memory: the cause of that first. What both found takes as much as at the peak.
    pub fn knows_why_it_ran_out(&mut self, found: &[ByHand]) {
        let mut at_peak = std::mem::take(&mut self.by_hand);
        for it in found {
            let same =
                at_peak.iter().position(|other| (other.code, &other.at) == (it.code, &it.at));
            self.by_hand.push(same.map_or_else(|| it.clone(), |at| at_peak.remove(at)));
        }
        self.by_hand.append(&mut at_peak);
    }

    /// Whether some of its steps took clearly less than most, after the first `n`. What takes more now and then is an evaluation.
    pub(super) fn varies_after(&self, n: usize) -> bool {
        let whole = self.steps.iter().skip(n).filter(|it| !it.unfinished);
        let mut peaks: Vec<u64> = whole.map(|it| it.allocated.0).collect();
        peaks.sort_unstable();
        let middle = peaks.get(peaks.len() / 2).copied().unwrap_or_default();
        let is_less = |it: &u64| *it < middle / 10 * 9;
        !self.began_again && FEWEST_STEPS <= peaks.len() && peaks.first().is_some_and(is_less)
    }

    /// What a search has to know of a prediction.
    pub fn of(it: Prediction) -> Took {
        let it = it.into_parts();
        let to_come = it.to_come();
        let unseen = it.not_run().map(Note::to_string);
        let Predicted { peak, with_allowance: safe, seen, steps, growth, .. } = it;
        let first_step = it.first_step_facts;
        let (held, lines) = (it.categories, it.top_lines);
        let (evaluation, oom) = (it.evaluation, it.oom);
        let depends = it.notes.iter().find(|it| matches!(it, Note::SizesUnknown { .. }));
        let depends = depends.map(Note::to_string);
        let steps_seen = seen.steps;
        let (batches, an_epoch) = (seen.ahead.batches, seen.ahead.batches_an_epoch);
        let began_again = batches.zip(an_epoch).is_some_and(|(n, of)| of <= n);
        Took {
            peak,
            safe,
            steps_seen,
            steps,
            began_again,
            first_step,
            growth,
            held,
            lines,
            oom,
            evaluation,
            to_come,
            unseen,
            depends,
            by_hand: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_explains_the_error_comes_first_and_takes_what_it_takes_at_the_peak() {
        let edit = |code, mib, ran_out| ByHand {
            code,
            what: String::new(),
            bytes: Bytes::mib(mib),
            ran_out,
            at: None,
            change: String::new(),
        };
        use ProblemCode::{DenseTable, LargeEvaluation, UnrolledLoop};
        let mut took = Took {
            by_hand: vec![edit(LargeEvaluation, 9, false), edit(DenseTable, 5, false)],
            ..Took::default()
        };
        took.knows_why_it_ran_out(&[edit(UnrolledLoop, 7, true), edit(DenseTable, 4, true)]);
        let shown: Vec<_> =
            took.by_hand.iter().map(|it| (it.code, it.bytes.0 >> 20, it.ran_out)).collect();
        let expected =
            [(UnrolledLoop, 7, true), (DenseTable, 5, false), (LargeEvaluation, 9, false)];
        assert_eq!(shown, expected);
    }

    #[test]
    fn only_a_run_of_the_script_as_it_is_is_made_on_the_card_for_that() {
        let plain = Run::of(&Plan::default(), Until::Steady, On::Roomy);
        let on_card = Run { look: Some(Look::Sites), ..plain.clone() }.on_the_card(None).unwrap();
        assert_eq!((on_card.on, on_card.look), (On::Card, None));
        let others = [
            Run { look: Some(Look::Work), ..plain.clone() },
            Run { half: Some(Half::Length), ..plain.clone() },
            Run { on: On::CardAlone, ..plain.clone() },
            Run { words: vec!["--small".to_owned()], ..plain },
        ];
        assert!(others.iter().all(|it| it.on_the_card(None).is_none()));
    }

    #[test]
    fn where_two_texts_differ() {
        let shown = |before: &str, after: &str| {
            let it = Rewritten::between("f", before, after);
            (it.start, it.was, it.is)
        };
        assert_eq!(shown("a = 16\nb", "a = 4\nb"), (4, "16".to_owned(), "4".to_owned()));
        assert_eq!(shown("f(aa)", "f(aaa)"), (4, String::new(), "a".to_owned()));
        assert_eq!(shown("\u{e4}x", "\u{e4}y"), (2, "x".to_owned(), "y".to_owned()));
    }
}
