//! Which further runs an answer asks for, and what comes of them.

use plimsoll_core::{
    cards,
    prediction::{Carries, Inquiry, Job, Observed, OtherEnd, Outcome, Prediction, Wanted},
    recording::{Begin, PhantomReport, Reached, Transport},
    units::Bytes,
};

use super::{RUNS_OUT, convolution, predicted, recorder::recording};

#[test]
fn only_answers_that_could_be_others_ask_for_another_run() {
    let mut it = recording("alloc weights 20MiB\nstep");
    assert_eq!(OtherEnd::of(std::slice::from_ref(&it)), [], "a recording of a real device");
    it.phantom = Some(PhantomReport::default());
    assert_eq!(OtherEnd::of(std::slice::from_ref(&it)), []);
    it.phantom = Some(PhantomReport { hurried: 1, ..PhantomReport::default() });
    assert_eq!(OtherEnd::of(std::slice::from_ref(&it)), [OtherEnd::Late]);
    it.phantom = Some(PhantomReport {
        hurried: 1,
        overflows_asked: 2,
        trials: 3,
        ..PhantomReport::default()
    });
    assert_eq!(OtherEnd::of(&[it]), [OtherEnd::Late, OtherEnd::Overflow, OtherEnd::Workspaces]);
}

/// The run of these ranks together, which need so many MiB each.
fn ranks_that_need(sizes: &[(u32, u32)]) -> Prediction {
    let of_rank = |&(rank, mib): &(u32, u32)| {
        let mut it = recording(&format!("alloc weights {mib}MiB\nstep\nstep"));
        let begin = it.notes.begin.take().unwrap_or_default();
        it.notes.begin = Some(Begin { rank: Some(rank), world_size: Some(8), ..begin });
        it.pid = rank;
        it
    };
    predicted(&sizes.iter().map(of_rank).collect::<Vec<_>>(), 0)
}

#[test]
fn one_rank_of_each_stage_stands_for_the_others_if_the_last_of_each_needs_the_same() {
    let first = ranks_that_need(&[(0, 20)]);
    let begun = || {
        let job = Job { world: 8, together: true, stages: vec![0, 4], others: [7].into() };
        let mut it =
            Inquiry::new(first.clone(), Observed { job: Some(job), ..Observed::default() });
        assert_eq!(it.wanted(), Some(Wanted::EndsOfStages));
        assert_eq!(it.ends_of_stages(), [0, 3, 4, 7]);
        it
    };
    let mut alike = begun();
    let there = ranks_that_need(&[(0, 20), (3, 20), (4, 60), (7, 60)]);
    assert_eq!(alike.came(Wanted::EndsOfStages, Some(&there)), Ok(true));
    assert_eq!(alike.stand_for_all(), [0, 4]);
    assert_eq!(alike.wanted(), None);
    let prediction = alike.prediction(None);
    assert_eq!(prediction.ranks.iter().map(|it| it.rank).collect::<Vec<_>>(), [Some(4), Some(0)]);
    let note = prediction.notes.last().unwrap().to_string();
    assert!(note.ends_with("ranks 0, 4 ran, the first of each stage, and ranks 3, 7, the last, which need the same; those between are assumed to need it, too"), "{note}");

    let mut differ = begun();
    let there = ranks_that_need(&[(0, 20), (3, 30), (4, 60), (7, 60)]);
    assert_eq!(differ.came(Wanted::EndsOfStages, Some(&there)), Ok(false));
    assert_eq!(differ.wanted(), Some(Wanted::AllRanks));
    assert_eq!(differ.came(Wanted::AllRanks, Some(&there)), Ok(true));
    assert_eq!(differ.stand_for_all(), [0; 0]);
    assert_eq!(differ.wanted(), None);
}

#[test]
fn a_rank_that_the_script_names_is_held_against_the_first_one_after_the_last() {
    let begun = |together| {
        let job = Job { world: 8, together, stages: vec![], others: [7, 1].into() };
        let job = Some(job);
        let mut it =
            Inquiry::new(ranks_that_need(&[(0, 20)]), Observed { job, ..Observed::default() });
        assert_eq!(it.wanted(), Some(Wanted::Rank(7)));
        assert_eq!(it.came(Wanted::Rank(7), Some(&ranks_that_need(&[(7, 20)]))), Ok(false));
        assert_eq!(it.wanted(), Some(Wanted::Rank(1)));
        it
    };
    let last_note = |it: Inquiry| it.prediction(None).notes.last().unwrap().to_string();

    let mut alike = begun(true);
    assert_eq!(alike.came(Wanted::Rank(1), Some(&ranks_that_need(&[(1, 20)]))), Ok(false));
    assert_eq!(alike.wanted(), None);
    assert_eq!(last_note(alike), "ranks 7, 1 were run as well, and need the same");

    let larger = ranks_that_need(&[(1, 60)]);
    let mut on_one_machine = begun(true);
    assert_eq!(on_one_machine.came(Wanted::Rank(1), Some(&larger)), Ok(false));
    assert_eq!(on_one_machine.wanted(), Some(Wanted::AllRanks));

    let mut on_several = begun(false);
    assert_eq!(on_several.came(Wanted::Rank(1), Some(&larger)), Ok(true));
    assert_eq!(on_several.wanted(), None);
    let note = last_note(on_several);
    assert!(
        note.contains(
            "the largest is rank 1, as shown here; ranks 0, 7, 1 ran, another may need more"
        ),
        "{note}"
    );
}

#[test]
fn named_cards_are_run_on_but_the_one_that_was_and_an_interrupt_ends_that() {
    let cards = ["h200", "a100-80g", "l4"].map(|it| cards::find(it).unwrap());
    let first = predicted(&[recording("alloc weights 20MiB\nstep\nstep")], 0);
    let ran_out = predicted(&[recording(RUNS_OUT)], 1);
    let observed = || Observed { cards: cards.to_vec(), ..Observed::default() };
    let mut inquiry = Inquiry::new(first.clone(), observed());
    let mut ran_on = Vec::new();
    while let Some(wanted) = inquiry.wanted() {
        let Wanted::Named(card) = wanted else { panic!("{wanted:?}") };
        ran_on.push(&*card.id);
        inquiry.came(wanted, Some(if card.id == "l4" { &ran_out } else { &first })).unwrap();
    }
    let prediction = inquiry.prediction(None);
    let others: Vec<&str> =
        cards.iter().map(|it| &*it.id).filter(|it| *it != first.card.id).collect();
    assert_eq!(ran_on, others);
    assert_eq!(prediction.cards.len(), 3);
    let l4 = prediction.cards.iter().find(|it| it.card.id == "l4").unwrap();
    assert_eq!(l4.carries, Carries::No);
    assert_eq!(prediction.notes.last().unwrap().code(), "cards");

    let mut inquiry = Inquiry::new(first.clone(), observed());
    let wanted = inquiry.wanted().unwrap();
    let error = inquiry.came(wanted, None).unwrap_err().to_string();
    assert!(error.starts_with("interrupted during the confirmation run"), "{error}");
    let mut inquiry = Inquiry::new(ran_out, observed());
    let wanted = inquiry.wanted().unwrap();
    inquiry.came(wanted, None).unwrap();
    assert_eq!(inquiry.wanted(), None, "that it does not fit is known");
    let codes: Vec<String> =
        inquiry.prediction(None).notes.iter().map(|it| it.code().to_owned()).collect();
    assert!(codes.ends_with(&["interrupted".to_owned(), "cards".to_owned()]), "{codes:?}");
}

#[test]
fn smaller_cards_are_run_until_the_smallest_that_is_enough_is_known() {
    let first = predicted(&[recording(&convolution("30GiB", "scratch", "70GiB"))], 0);
    assert!(first.cards.iter().any(|it| it.carries == Carries::Tight && it.card.id == "a100-40g"));
    // It runs on cards that have so much, and on no others.
    let search = |enough: Bytes| {
        let observed = Observed { any_card: true, ..Observed::default() };
        let mut inquiry = Inquiry::new(first.clone(), observed);
        let mut ran_on = Vec::new();
        while let Some(wanted) = inquiry.wanted() {
            let Wanted::Smaller(card) = wanted else { panic!("{wanted:?}") };
            ran_on.push(card);
            let there = if enough <= card.total {
                predicted(&[recording("alloc weights 30GiB\nstep\nstep")], 0)
            } else {
                predicted(&[recording("alloc weights 30GiB\noom 20GiB")], 1)
            };
            inquiry.came(wanted, Some(&there)).unwrap();
        }
        (inquiry.prediction(None), ran_on)
    };
    for enough in [32, 40, 60, 79, 90].map(Bytes::gib) {
        let (prediction, ran_on) = search(enough);
        assert!((1..=3).contains(&ran_on.len()), "{ran_on:?}");
        let usual = || prediction.cards.iter().filter(|it| it.card.usual);
        for it in usual().filter(|it| it.carries == Carries::Yes) {
            assert!(enough <= it.card.total, "{} of {enough}", it.card.id);
        }
        for it in usual().filter(|it| it.carries == Carries::No) {
            assert!(it.card.total < enough, "{} of {enough}", it.card.id);
        }
        let fits = usual().find(|it| it.carries == Carries::Yes).unwrap().card;
        if let Some((card, peaks)) = prediction.smallest.as_ref().unwrap().fits {
            let is_of_its_size = card.total <= Bytes(fits.total.0 / 50 * 51);
            assert!(is_of_its_size, "{} was run, {} is the smallest", card.id, fits.id);
            assert!(peaks.device < first.peak.device);
        }
    }
    let (card, _) = search(Bytes::gib(79)).0.smallest.clone().unwrap().fits.unwrap();
    assert_eq!(card.total.0 >> 30, 79);
    // Somebody named a card, or nothing would change much.
    assert_eq!(Inquiry::new(first.clone(), Observed::default()).wanted(), None);
    let all = predicted(&[recording("alloc weights 20GiB\nstep\nstep")], 0);
    let observed = Observed { any_card: true, ..Observed::default() };
    assert_eq!(Inquiry::new(all, observed.clone()).wanted(), None);
    // Whoever interrupts the second run keeps what the first one showed.
    let mut inquiry = Inquiry::new(first.clone(), observed);
    let wanted = inquiry.wanted().unwrap();
    inquiry.came(wanted, None).unwrap();
    assert_eq!(inquiry.wanted(), None);
    assert_eq!(inquiry.prediction(None).cards, first.cards);
}

#[test]
fn who_knows_why_a_script_failed_says_so_first() {
    let failed = |code| {
        let first = predicted(&[recording("alloc weights 20MiB\nstep\nstep")], code);
        let failure = Some("it was ended".to_owned());
        Inquiry::new(first, Observed { failure, ..Observed::default() }).prediction(None)
    };
    let it = failed(0);
    assert_eq!(it.outcome, Outcome::ScriptFailed);
    let note = it.failure().unwrap();
    assert_eq!(note.code(), "script-failed");
    assert!(note.to_string().starts_with("it was ended; until then it used "), "{note}");
}

#[test]
fn whoever_ends_the_first_run_gets_what_it_showed_and_no_other_is_made() {
    let first = predicted(&[recording("alloc weights 20MiB\nstep\nstep")], 0);
    let ends = vec![OtherEnd::Late];
    let cards = vec![cards::find("l4").unwrap()];
    let observed = Observed { interrupted: true, ends, cards, ..Observed::default() };
    let mut inquiry = Inquiry::new(first.clone(), observed);
    assert_eq!(inquiry.wanted(), None);
    assert_eq!(inquiry.prediction(None).cards, first.cards);

    let ran_out = predicted(&[recording(RUNS_OUT)], 1);
    let observed = Observed { interrupted: true, ..Observed::default() };
    assert_eq!(Inquiry::new(ran_out, observed).wanted(), None);
}

#[test]
fn whom_all_runs_reached_is_said() {
    let first = predicted(&[recording("alloc weights 20MiB\nstep\nstep")], 0);
    let mut reached = Reached::default();
    reached.count("localhost:5432", Transport::Tcp, 1);
    let prediction = Inquiry::new(first, Observed::default()).prediction(Some(reached));
    assert_eq!(prediction.notes.last().unwrap().code(), "network");
    assert!(prediction.reached.is_some());
}
