//! The largest value of a number in the command.

use expect_test::expect;
use plimsoll_core::{plan::Op, prediction::OtherEnd, recording::Work, units::Bytes};

use super::made::{Made, fails, out_of_memory, takes};
use crate::search::{FoundValue, Look, Noted, Ran, Run, Until};

/// 100 MiB for each value, 1,000 beside; half as much with autocast, a quarter in parts.
fn linear(run: &Run) -> u64 {
    let each = match () {
        () if run.has("autocast") => 50,
        () if run.has("micro-batches") => 25,
        () => 100,
    };
    1_000 + each * run.value.unwrap()
}

fn shown((mut picture, found_value): (String, FoundValue)) -> String {
    let FoundValue { found, above, out_of_order, multiples_of, with_less, if_found, .. } =
        &found_value;
    picture += &format!("found {found:?}, above {above:?}\n");
    if found_value.is_end {
        picture += "the end of the range\n";
    }
    if !out_of_order.is_empty() {
        picture += &format!("out of order: {out_of_order:?}\n");
    }
    if let Some(it) = multiples_of {
        picture += &format!("multiples of {it}\n");
    }
    if let Some(it) = if_found {
        picture += &format!("if masks find everything: {:?}\n", it.found);
    }
    if let Some(it) = with_less {
        picture += &format!("with {} less: {:?}\n", it.less, it.holds);
    }
    picture
}

#[test]
fn it_is_run_and_so_is_the_next() {
    let made = Made::new(8_500, |run| takes(linear(run)));
    expect![[r#"
        batch=8, the unchanged script, a validation, on the card -> 2.25 GiB
        batch=16, the unchanged script, steady, on the card -> 3.03 GiB
        batch=70, the unchanged script, steady, on the card -> 8.30 GiB
        batch=71, the unchanged script, steady, on the card -> out of memory
        found Some(70), above Some((71, TooMuch))
    "#]]
    .assert_eq(&shown(made.largest((1, 500, 1), false)));
}

#[test]
fn the_last_value_that_was_asked_for_is_the_end_of_the_range() {
    let made = Made::new(8_500, |run| takes(linear(run)));
    expect![[r#"
        batch=5, the unchanged script, a validation, on the card -> 1.95 GiB
        batch=9, the unchanged script, steady, on the card -> 2.34 GiB
        found Some(9), above None
        the end of the range
    "#]]
    .assert_eq(&shown(made.largest((1, 11, 4), false)));
}

#[test]
fn a_limit_on_what_is_reserved() {
    let made = Made::new(40_000, |run| takes(linear(run)));
    let made = made.rules(|it| it.limit_reserved = Some(Bytes::mib(3_000)));
    expect![[r#"
        batch=8, the unchanged script, a validation, on the card, reserves up to 2.93 GiB -> 2.25 GiB
        batch=13, the unchanged script, steady, on the card, reserves up to 2.93 GiB -> 2.73 GiB
        batch=20, the unchanged script, steady, on the card, reserves up to 2.93 GiB -> 3.42 GiB
        batch=21, the unchanged script, steady, on the card, reserves up to 2.93 GiB -> out of memory
        found Some(20), above Some((21, TooMuch))
    "#]]
    .assert_eq(&shown(made.largest((1, 500, 1), false)));
}

/// The largest one that fits leaves less than a real run may need: the largest one that is safe is run, too.
#[test]
fn the_largest_safe_value_is_run_where_the_largest_is_not_safe() {
    let made = Made::new(8_500, |run| {
        let mut ran = takes(linear(run));
        ran.took.safe = ran.took.peak.device + Bytes::mib(900);
        ran
    });
    let (picture, found) = made.largest((1, 500, 1), false);
    let fits = found.runs.iter().filter(|it| it.value <= 70);
    let safe = fits.filter(|it| it.safe <= Bytes::mib(8_500)).map(|it| it.value).max();
    assert_eq!((found.found, safe), (Some(70), Some(61)));
    expect![[r#"
        batch=8, the unchanged script, a validation, on the card -> 3.12 GiB
        batch=16, the unchanged script, steady, on the card -> 3.91 GiB
        batch=70, the unchanged script, steady, on the card -> 9.18 GiB
        batch=71, the unchanged script, steady, on the card -> out of memory
        batch=61, the unchanged script, steady, on the card -> 8.30 GiB
        batch=62, the unchanged script, steady, on the card -> 8.40 GiB
        found Some(70), above Some((71, TooMuch))
    "#]]
    .assert_eq(&shown((picture, found)));
}

/// Values that are far apart: also the safe one is one of those that were asked for.
#[test]
fn the_safe_value_is_one_of_those_that_were_asked_for() {
    let made = Made::new(8_500, |run| {
        let mut ran = takes(linear(run));
        ran.took.safe = ran.took.peak.device + Bytes::mib(5_500);
        ran
    });
    let (_, found) = made.largest((1, 500, 16), false);
    let values: Vec<u64> = found.runs.iter().map(|it| it.value).collect();
    assert!(values.iter().all(|it| it % 16 == 1), "{values:?}");
    let fits = found.runs.iter().filter(|it| it.value <= found.found.unwrap());
    let safe = fits.filter(|it| it.safe <= Bytes::mib(8_500)).map(|it| it.value).max();
    assert_eq!((found.found, safe), (Some(65), Some(1)));
}

/// From 60 on it goes on only because memory is given back, and with less memory from 58 on not at all.
fn on_the_edge(holds_for_long: bool) -> Made {
    Made::new(8_500, move |run: &Run| {
        let value = run.value.unwrap();
        let is_long = matches!(run.until, Until::Steps(12));
        let is_tight = run.limit_reserved.is_some() && 58 < value;
        if 62 < value || is_tight || is_long && !holds_for_long && 60 <= value {
            return out_of_memory();
        }
        Ran { n_retries: u64::from(60 <= value) * 3, ..takes(1_000 + 100 * value.min(60)) }
    })
}

#[test]
fn one_that_gets_through_by_giving_memory_back_is_run_for_longer_and_with_less() {
    expect![[r#"
        batch=8, the unchanged script, a validation, on the card -> 2.25 GiB
        batch=16, the unchanged script, steady, on the card -> 3.03 GiB
        batch=70, the unchanged script, steady, on the card -> out of memory
        batch=66, the unchanged script, steady, on the card -> out of memory
        batch=58, the unchanged script, steady, on the card -> 7.13 GiB
        batch=62, the unchanged script, steady, on the card -> 7.32 GiB
        batch=64, the unchanged script, steady, on the card -> out of memory
        batch=63, the unchanged script, steady, on the card -> out of memory
        batch=62, the unchanged script, 12 steps, on the card -> 7.32 GiB
        batch=62, the unchanged script, 12 steps, on the card, reserves up to 7.71 GiB -> out of memory
        batch=61, the unchanged script, 12 steps, on the card, reserves up to 7.71 GiB -> out of memory
        batch=60, the unchanged script, 12 steps, on the card, reserves up to 7.71 GiB -> out of memory
        batch=59, the unchanged script, 12 steps, on the card, reserves up to 7.71 GiB -> out of memory
        batch=58, the unchanged script, 12 steps, on the card, reserves up to 7.71 GiB -> 7.13 GiB
        found Some(62), above Some((63, TooMuch))
        with 100.0 MiB less: Some(58)
    "#]].assert_eq(&shown(on_the_edge(true).largest((1, 500, 1), false)));
}

#[test]
fn one_that_does_not_hold_for_longer_is_no_answer() {
    expect![[r#"
        batch=8, the unchanged script, a validation, on the card -> 2.25 GiB
        batch=16, the unchanged script, steady, on the card -> 3.03 GiB
        batch=70, the unchanged script, steady, on the card -> out of memory
        batch=66, the unchanged script, steady, on the card -> out of memory
        batch=58, the unchanged script, steady, on the card -> 7.13 GiB
        batch=62, the unchanged script, steady, on the card -> 7.32 GiB
        batch=64, the unchanged script, steady, on the card -> out of memory
        batch=63, the unchanged script, steady, on the card -> out of memory
        batch=62, the unchanged script, 12 steps, on the card -> out of memory
        batch=60, the unchanged script, steady, on the card -> 7.32 GiB
        batch=61, the unchanged script, steady, on the card -> 7.32 GiB
        batch=61, the unchanged script, 12 steps, on the card -> out of memory
        batch=60, the unchanged script, 12 steps, on the card -> out of memory
        batch=59, the unchanged script, steady, on the card -> 7.23 GiB
        found Some(59), above Some((60, TooMuch))
    "#]]
    .assert_eq(&shown(on_the_edge(false).largest((1, 500, 1), false)));
}

#[test]
fn nothing_with_less_memory_holds() {
    let made = Made::new(8_500, |run: &Run| match run.limit_reserved {
        Some(_) => out_of_memory(),
        None => Ran { n_retries: 1, ..takes(linear(run)) },
    });
    expect![[r#"
        batch=8, the unchanged script, a validation, on the card -> 2.25 GiB
        batch=16, the unchanged script, steady, on the card -> 3.03 GiB
        batch=70, the unchanged script, steady, on the card -> 8.30 GiB
        batch=71, the unchanged script, steady, on the card -> out of memory
        batch=70, the unchanged script, 12 steps, on the card -> 8.30 GiB
        batch=70, the unchanged script, 12 steps, on the card, reserves up to 7.71 GiB -> out of memory
        batch=69, the unchanged script, 12 steps, on the card, reserves up to 7.71 GiB -> out of memory
        batch=68, the unchanged script, 12 steps, on the card, reserves up to 7.71 GiB -> out of memory
        batch=67, the unchanged script, 12 steps, on the card, reserves up to 7.71 GiB -> out of memory
        batch=66, the unchanged script, 12 steps, on the card, reserves up to 7.71 GiB -> out of memory
        batch=65, the unchanged script, 12 steps, on the card, reserves up to 7.71 GiB -> out of memory
        found Some(70), above Some((71, TooMuch))
        with 100.0 MiB less: None
    "#]].assert_eq(&shown(made.largest((1, 500, 1), false)));
}

#[test]
fn only_multiples_run() {
    let made = Made::new(8_500, |run| {
        if run.value.unwrap().is_multiple_of(4) { takes(linear(run)) } else { fails("odd") }
    });
    expect![[r#"
        batch=8, the unchanged script, a validation, on the card -> 2.25 GiB
        batch=16, the unchanged script, steady, on the card -> 3.03 GiB
        batch=70, the unchanged script, steady, on the card -> odd
        batch=64, the unchanged script, steady, on the card -> 7.71 GiB
        batch=67, the unchanged script, steady, on the card -> odd
        batch=72, the unchanged script, steady, on the card -> out of memory
        found Some(64), above Some((72, TooMuch))
        multiples of 8
    "#]]
    .assert_eq(&shown(made.largest((1, 500, 1), false)));
}

#[test]
fn nothing_fits_and_nothing_runs() {
    let made = Made::new(900, |run| takes(linear(run)));
    expect![[r#"
        batch=8, the unchanged script, a validation, on the card -> out of memory
        batch=4, the unchanged script, a validation, on the card -> out of memory
        batch=2, the unchanged script, a validation, on the card -> out of memory
        batch=1, the unchanged script, a validation, on the card -> out of memory
        batch=1, the unchanged script, 2 steps, on the card, sites -> out of memory
        batch=1, the unchanged script, 2 steps, on the card, work -> out of memory
        batch=1, fused + set-to-none + chunked-loss, a validation, on the card -> out of memory
        batch=1, autocast, a validation, on the card -> out of memory
        batch=1, micro-batches (4 parts), a validation, on the card -> out of memory
        batch=1, checkpoint, a validation, on the card -> out of memory
        batch=1, autocast + checkpoint, a validation, on the card -> out of memory
        found None, above None
    "#]]
    .assert_eq(&shown(made.largest((1, 20, 1), true)));
    let made = Made::new(8_500, |_| fails("no such file"));
    expect![[r#"
        batch=8, the unchanged script, a validation, on the card -> no such file
        batch=8, the unchanged script, steady, on the card -> no such file
        batch=16, the unchanged script, a validation, on the card -> no such file
        batch=16, the unchanged script, steady, on the card -> no such file
        batch=20, the unchanged script, a validation, on the card -> no such file
        batch=20, the unchanged script, steady, on the card -> no such file
        found None, above None
    "#]]
    .assert_eq(&shown(made.largest((1, 20, 1), true)));
}

#[test]
fn somebody_stops_it() {
    for (n, expected) in [
        (
            0,
            expect![[r#"
                batch=8, the unchanged script, a validation, on the card -> interrupted
                found None, above None
            "#]],
        ),
        (
            2,
            expect![[r#"
                batch=8, the unchanged script, a validation, on the card -> 2.25 GiB
                batch=16, the unchanged script, steady, on the card -> 3.03 GiB
                batch=70, the unchanged script, steady, on the card -> interrupted
                found Some(16), above None
            "#]],
        ),
    ] {
        let made = Made::new(8_500, |run| takes(linear(run))).stopped_at(n);
        let (picture, found) = made.largest((1, 500, 1), true);
        assert!(found.interrupted && !found.rest_interrupted && found.by_remedies.is_empty());
        expected.assert_eq(&shown((picture, found)));
    }
}

fn with_work(run: &Run) -> Ran {
    let times = if run.has("checkpoint") { 1.3 } else { 1.0 };
    let count = times * f64::from(u32::try_from(run.value.unwrap()).unwrap());
    let (op, dtype) = (Op::Matmul, "float32".to_owned());
    let work = Work { op, dtype, count, flops: 1e12, bytes: 1e6 };
    let work = if run.look == Some(Look::Work) { vec![work] } else { Vec::new() };
    Ran { noted: Noted { work, ..Noted::default() }, ..takes(linear(run)) }
}

fn rows(found: &FoundValue) -> String {
    let row = |it: &crate::search::WithRemedies| {
        let time = it.time.map_or_else(|| "-".to_owned(), |it| format!("{:.2}x", it.estimate));
        format!("{:?} {time} {} runs: {}\n", it.found, it.n_runs, it.plan.shown())
    };
    found.by_remedies.iter().map(row).collect()
}

#[test]
fn each_set_of_remedies_has_its_row() {
    let made = Made::new(8_500, with_work).allow(&[
        "fused",
        "autocast",
        "micro-batches",
        "checkpoint",
        "sgd",
    ]);
    let (picture, found) = made.largest((1, 500, 1), true);
    expect![[r#"
        batch=8, the unchanged script, a validation, on the card -> 2.25 GiB
        batch=16, the unchanged script, steady, on the card -> 3.03 GiB
        batch=70, the unchanged script, steady, on the card -> 8.30 GiB
        batch=71, the unchanged script, steady, on the card -> out of memory
        batch=70, the unchanged script, 2 steps, on the card, sites -> 8.30 GiB
        batch=70, the unchanged script, 2 steps, on the card, work -> 8.30 GiB
        batch=70, fused, steady, on the card -> 8.30 GiB
        batch=71, fused, steady, on the card -> out of memory
        batch=70, fused, 2 steps, on the card, work -> 8.30 GiB
        batch=70, autocast, steady, on the card -> 4.88 GiB
        batch=119, autocast, steady, on the card -> 7.28 GiB
        batch=140, autocast, steady, on the card -> 8.30 GiB
        batch=141, autocast, steady, on the card -> out of memory
        batch=140, autocast, 2 steps, on the card, work -> 8.30 GiB
        batch=70, micro-batches (4 parts), steady, on the card -> 3.17 GiB
        batch=183, micro-batches (4 parts), steady, on the card -> 5.93 GiB
        batch=280, micro-batches (4 parts), steady, on the card -> 8.30 GiB
        batch=281, micro-batches (4 parts), steady, on the card -> out of memory
        batch=280, micro-batches (4 parts), 2 steps, on the card, work -> 8.30 GiB
        batch=70, checkpoint, steady, on the card -> 8.30 GiB
        batch=71, checkpoint, steady, on the card -> out of memory
        batch=70, checkpoint, 2 steps, on the card, work -> 8.30 GiB
        batch=140, autocast + checkpoint, steady, on the card -> 8.30 GiB
        batch=141, autocast + checkpoint, steady, on the card -> out of memory
        batch=140, autocast + checkpoint, 2 steps, on the card, work -> 8.30 GiB
        batch=70, sgd, steady, on the card -> 8.30 GiB
        batch=71, sgd, steady, on the card -> out of memory
        batch=70, sgd, 2 steps, on the card, work -> 8.30 GiB
        Some(70) - 4 runs: the unchanged script
        Some(70) 1.00x 2 runs: fused
        Some(140) 2.00x 4 runs: autocast
        Some(280) 4.00x 4 runs: micro-batches (4 parts)
        Some(70) 1.30x 2 runs: checkpoint
        Some(140) 2.60x 2 runs: autocast + checkpoint
        Some(70) 1.00x 2 runs: sgd
    "#]]
    .assert_eq(&(picture + &rows(&found)));
}

#[test]
fn a_set_that_the_script_does_not_bear_has_none() {
    let made =
        Made::new(
            8_500,
            |run: &Run| {
                if run.has("checkpoint") { fails("in place") } else { with_work(run) }
            },
        );
    let (picture, found) = made.allow(&["autocast", "checkpoint"]).largest((1, 500, 1), true);
    expect![[r#"
        batch=8, the unchanged script, a validation, on the card -> 2.25 GiB
        batch=16, the unchanged script, steady, on the card -> 3.03 GiB
        batch=70, the unchanged script, steady, on the card -> 8.30 GiB
        batch=71, the unchanged script, steady, on the card -> out of memory
        batch=70, the unchanged script, 2 steps, on the card, sites -> 8.30 GiB
        batch=70, the unchanged script, 2 steps, on the card, work -> 8.30 GiB
        batch=70, autocast, steady, on the card -> 4.88 GiB
        batch=119, autocast, steady, on the card -> 7.28 GiB
        batch=140, autocast, steady, on the card -> 8.30 GiB
        batch=141, autocast, steady, on the card -> out of memory
        batch=140, autocast, 2 steps, on the card, work -> 8.30 GiB
        batch=70, checkpoint, steady, on the card -> in place
        batch=140, autocast + checkpoint, steady, on the card -> in place
        Some(70) - 4 runs: the unchanged script
        Some(140) 2.00x 4 runs: autocast
    "#]]
    .assert_eq(&(picture + &rows(&found)));
}

#[test]
fn somebody_stops_it_between_rows() {
    let made = Made::new(8_500, with_work).allow(&["autocast", "micro-batches"]).stopped_at(9);
    let (picture, found) = made.largest((1, 500, 1), true);
    assert!(!found.interrupted && found.rest_interrupted);
    expect![[r#"
        batch=8, the unchanged script, a validation, on the card -> 2.25 GiB
        batch=16, the unchanged script, steady, on the card -> 3.03 GiB
        batch=70, the unchanged script, steady, on the card -> 8.30 GiB
        batch=71, the unchanged script, steady, on the card -> out of memory
        batch=70, the unchanged script, 2 steps, on the card, sites -> 8.30 GiB
        batch=70, the unchanged script, 2 steps, on the card, work -> 8.30 GiB
        batch=70, autocast, steady, on the card -> 4.88 GiB
        batch=119, autocast, steady, on the card -> 7.28 GiB
        batch=140, autocast, steady, on the card -> 8.30 GiB
        batch=141, autocast, steady, on the card -> interrupted
        Some(70) - 4 runs: the unchanged script
    "#]]
    .assert_eq(&(picture + &rows(&found)));
}

/// 100 MiB for each value; with a mask that finds everything 300, or as many as `then` says.
fn with_masks(then: u64) -> Made {
    Made::new(8_500, move |run: &Run| {
        let each = if run.end == Some(OtherEnd::Found) { then } else { 100 };
        Ran { ends: vec![OtherEnd::Found], ..takes(1_000 + each * run.value.unwrap()) }
    })
}

#[test]
fn what_masks_may_find_gives_a_second_value() {
    expect![[r#"
        batch=8, the unchanged script, a validation, on the card -> 2.25 GiB
        batch=16, the unchanged script, steady, on the card -> 3.03 GiB
        batch=70, the unchanged script, steady, on the card -> 8.30 GiB
        batch=71, the unchanged script, steady, on the card -> out of memory
        batch=70, the unchanged script, steady, on the card, everything found -> out of memory
        batch=35, the unchanged script, steady, on the card, everything found -> out of memory
        batch=18, the unchanged script, steady, on the card, everything found -> 6.74 GiB
        batch=22, the unchanged script, steady, on the card, everything found -> 7.91 GiB
        batch=23, the unchanged script, steady, on the card, everything found -> 8.20 GiB
        batch=24, the unchanged script, steady, on the card, everything found -> out of memory
        found Some(70), above Some((71, TooMuch))
        if masks find everything: Some(23)
    "#]]
    .assert_eq(&shown(with_masks(300).largest((1, 500, 1), false)));
}

#[test]
fn a_value_that_fits_whatever_masks_find() {
    expect![[r#"
        batch=8, the unchanged script, a validation, on the card -> 2.25 GiB
        batch=16, the unchanged script, steady, on the card -> 3.03 GiB
        batch=70, the unchanged script, steady, on the card -> 8.30 GiB
        batch=71, the unchanged script, steady, on the card -> out of memory
        batch=70, the unchanged script, steady, on the card, everything found -> 8.30 GiB
        found Some(70), above Some((71, TooMuch))
        if masks find everything: Some(70)
    "#]]
    .assert_eq(&shown(with_masks(100).largest((1, 500, 1), false)));
}

#[test]
fn no_value_fits_if_masks_find_everything() {
    expect![[r#"
        batch=8, the unchanged script, a validation, on the card -> 2.25 GiB
        batch=16, the unchanged script, steady, on the card -> 3.03 GiB
        batch=70, the unchanged script, steady, on the card -> 8.30 GiB
        batch=71, the unchanged script, steady, on the card -> out of memory
        batch=70, the unchanged script, steady, on the card, everything found -> out of memory
        batch=35, the unchanged script, steady, on the card, everything found -> out of memory
        batch=18, the unchanged script, steady, on the card, everything found -> out of memory
        batch=9, the unchanged script, steady, on the card, everything found -> out of memory
        batch=5, the unchanged script, steady, on the card, everything found -> out of memory
        batch=3, the unchanged script, steady, on the card, everything found -> out of memory
        batch=2, the unchanged script, steady, on the card, everything found -> out of memory
        batch=1, the unchanged script, steady, on the card, everything found -> out of memory
        found Some(70), above Some((71, TooMuch))
        if masks find everything: None
    "#]]
    .assert_eq(&shown(with_masks(9_000).largest((1, 500, 1), false)));
}

#[test]
fn with_such_masks_it_fails_for_another_reason_and_nothing_follows() {
    let made = Made::new(8_500, |run: &Run| match run.end {
        Some(_) => fails("odd"),
        None => Ran { ends: vec![OtherEnd::Found], ..takes(linear(run)) },
    });
    expect![[r#"
        batch=8, the unchanged script, a validation, on the card -> 2.25 GiB
        batch=16, the unchanged script, steady, on the card -> 3.03 GiB
        batch=70, the unchanged script, steady, on the card -> 8.30 GiB
        batch=71, the unchanged script, steady, on the card -> out of memory
        batch=70, the unchanged script, steady, on the card, everything found -> odd
        found Some(70), above Some((71, TooMuch))
    "#]]
    .assert_eq(&shown(made.largest((1, 500, 1), false)));
}

#[test]
fn a_value_is_refuted_by_the_other_end_of_a_race() {
    let made = Made::new(8_500, |run: &Run| {
        let late = if run.end == Some(OtherEnd::Late) { 250 } else { 0 };
        Ran { ends: vec![OtherEnd::Late], ..takes(linear(run) + late) }
    });
    expect![[r#"
        batch=8, the unchanged script, a validation, on the card -> 2.25 GiB
        batch=16, the unchanged script, steady, on the card -> 3.03 GiB
        batch=70, the unchanged script, steady, on the card -> 8.30 GiB
        batch=71, the unchanged script, steady, on the card -> out of memory
        batch=70, the unchanged script, steady, on the card, late -> out of memory
        batch=62, the unchanged script, steady, on the card, late -> 7.76 GiB
        batch=67, the unchanged script, steady, on the card, late -> 8.25 GiB
        batch=68, the unchanged script, steady, on the card, late -> out of memory
        found Some(67), above Some((68, TooMuch))
    "#]]
    .assert_eq(&shown(made.largest((1, 500, 1), false)));
}

#[test]
fn a_value_of_a_job_fits_only_if_predict_says_so() {
    let made = Made::new(8_500, |run: &Run| {
        let late = if run.as_predicted { 250 } else { 0 };
        Ran { is_part: true, ..takes(linear(run) + late) }
    });
    expect![[r#"
        batch=8, the unchanged script, a validation, on the card -> 2.25 GiB
        batch=16, the unchanged script, steady, on the card -> 3.03 GiB
        batch=70, the unchanged script, steady, on the card -> 8.30 GiB
        batch=71, the unchanged script, steady, on the card -> out of memory
        batch=70, the unchanged script, steady, alone on the card, as predicted -> out of memory
        batch=62, the unchanged script, steady, on the card -> 7.52 GiB
        batch=66, the unchanged script, steady, on the card -> 7.91 GiB
        batch=68, the unchanged script, steady, on the card -> 8.11 GiB
        batch=69, the unchanged script, steady, on the card -> 8.20 GiB
        batch=69, the unchanged script, steady, alone on the card, as predicted -> out of memory
        batch=68, the unchanged script, steady, alone on the card, as predicted -> out of memory
        batch=67, the unchanged script, steady, on the card -> 8.01 GiB
        batch=67, the unchanged script, steady, alone on the card, as predicted -> 8.25 GiB
        found Some(67), above Some((68, TooMuch))
    "#]]
    .assert_eq(&shown(made.largest((1, 500, 1), false)));
}

#[test]
fn where_there_is_a_validation_each_run_goes_through_it() {
    let made = Made::new(8_500, |run: &Run| {
        let evaluates = run.until == Until::Validation;
        let more = if evaluates { 20 * run.value.unwrap() } else { 0 };
        Ran { evaluates, ..takes(linear(run) + more) }
    });
    expect![[r#"
        batch=8, the unchanged script, a validation, on the card -> 2.40 GiB
        batch=16, the unchanged script, a validation, on the card -> 3.34 GiB
        batch=58, the unchanged script, a validation, on the card -> 8.26 GiB
        batch=59, the unchanged script, a validation, on the card -> out of memory
        found Some(58), above Some((59, TooMuch))
    "#]]
    .assert_eq(&shown(made.largest((1, 500, 1), false)));
}

#[test]
fn a_loop_that_does_not_bear_an_epoch_that_ends_early() {
    let made = Made::new(8_500, |run: &Run| match run.until {
        Until::Validation => fails("an epoch without a batch"),
        _ => takes(linear(run)),
    });
    expect![[r#"
        batch=8, the unchanged script, a validation, on the card -> an epoch without a batch
        batch=8, the unchanged script, steady, on the card -> 2.25 GiB
        batch=16, the unchanged script, steady, on the card -> 3.03 GiB
        batch=70, the unchanged script, steady, on the card -> 8.30 GiB
        batch=71, the unchanged script, steady, on the card -> out of memory
        found Some(70), above Some((71, TooMuch))
    "#]]
    .assert_eq(&shown(made.largest((1, 500, 1), false)));
}
