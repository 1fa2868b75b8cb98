//! Which blocks are checkpointed.

use expect_test::expect;
use plimsoll_core::{
    plan::Op,
    recording::{At, Reading, Work},
    units::Bytes,
};

use super::made::{Made, out_of_memory, takes};
use crate::search::{Noted, On, Ran, Run, Until};

const N: usize = 6;

/// The blocks that run again; none if the plan does not checkpoint.
fn again(run: &Run) -> Option<Vec<bool>> {
    let remedy = run.plan.remedies.iter().find(|it| it.id == "checkpoint")?;
    let is_chosen =
        |i: usize| remedy.blocks().is_none_or(|it| it.contains(&u64::try_from(i).unwrap()));
    Some((0..N).map(is_chosen).collect())
}

/// Six blocks on a base of 1,000 MiB keep 2,000 MiB each, or 100 if they run again, and rise by 200 more; what a run takes
/// more than its readings say is `more` MiB.
fn six(mib: u64, more: u64, are_told_apart: bool) -> Made {
    six_with(mib, move |_| more, are_told_apart)
}

/// The same, and it may take more in some runs.
fn six_with(mib: u64, more: impl Fn(&Run) -> u64 + 'static, are_told_apart: bool) -> Made {
    let made = Made::new(mib, move |run| {
        let all = again(run).unwrap_or(vec![false; N]);
        let readings = step(&all);
        let highest = readings.iter().map(|it| it.peak).max().unwrap();
        let is_plan = run.has("checkpoint");
        let is_measured = are_told_apart && run.is_measured();
        let noted = Noted {
            n_blocks: is_plan.then_some(6),
            readings: if is_measured { readings } else { Vec::new() },
            block_work: if is_measured { (0..N).map(work).collect() } else { Vec::new() },
            ..Noted::default()
        };
        Ran { noted, ..takes(highest.0 / (1 << 20) + more(run)) }
    });
    made.allow(&["checkpoint"])
}

fn step(again: &[bool]) -> Vec<Reading> {
    let mut res = Vec::new();
    let mut push = |at, current: u64, peak: u64| {
        res.push(Reading { at, current: Bytes::mib(current), peak: Bytes::mib(peak) });
    };
    let mut kept = vec![1_000];
    for (i, again) in again.iter().enumerate() {
        let now = kept[i];
        push(At::Enter(i), now, now);
        kept.push(now + if *again { 100 } else { 2_000 });
        push(At::Leave(i), kept[i + 1], now + 2_200);
    }
    let mut highest = kept[N] + 10;
    for i in (0..N).rev() {
        push(At::Back(i), kept[i + 1], highest);
        highest = kept[i] + 2_200;
    }
    push(At::End, 1_000, highest);
    res
}

/// Later blocks take longer.
fn work(block: usize) -> Vec<Work> {
    let count = f64::from(u32::try_from(block).unwrap() + 1);
    let (op, dtype) = (Op::Matmul, "float32".to_owned());
    vec![Work { op, dtype, count, flops: 1e12, bytes: 1e6 }]
}

#[test]
fn the_cheapest_that_fit_by_two_measured_runs() {
    expect![[r#"
        the unchanged script, steady, sites -> 13.38 GiB
        " without changes: 13.38 GiB to be safe
        checkpoint, 2 steps -> 4.10 GiB
        checkpoint (1 measure, 0 blocks), 3 steps -> 13.38 GiB
        checkpoint (1 measure), 2 steps -> 4.10 GiB
        " 2 of 6 blocks, 14 % of the time that running all of them again takes
        checkpoint (2 blocks), 2 steps -> 9.67 GiB
        " 2 of 6 blocks, 14 % of the time that running all of them again takes
        checkpoint (2 blocks), steady, reserves up to 9.28 GiB -> 9.67 GiB
        checkpoint (2 blocks), steady, reserves up to 9.28 GiB, work -> 9.67 GiB
        the unchanged script, 2 steps, work -> 13.38 GiB
        checkpoint (2 blocks), a validation, alone on the card -> 9.67 GiB
        as it is: does not fit, needs 13.38 GiB
        plan: checkpoint (2 blocks), needs 9.67 GiB, same
        seen: 3 steps
    "#]]
    .assert_eq(&six(10_000, 0, true).plans());
}

#[test]
fn where_only_the_card_itself_takes_more_all_blocks_are_tried() {
    let more = |run: &Run| if run.on == On::CardAlone { 600 } else { 0 };
    let shown = six_with(10_000, more, true).plans();
    assert!(shown.contains("\nplan: checkpoint, needs 4.69 GiB"), "{shown}");
}

#[test]
fn where_a_validation_takes_more_a_few_blocks_more_are_enough() {
    let validation = |run: &Run| if run.until == Until::Validation { 600 } else { 0 };
    expect![[r#"
        the unchanged script, steady, sites -> 13.38 GiB
        " without changes: 13.38 GiB to be safe
        checkpoint, 2 steps -> 4.10 GiB
        checkpoint (1 measure, 0 blocks), 3 steps -> 13.38 GiB
        checkpoint (1 measure), 2 steps -> 4.10 GiB
        " 2 of 6 blocks, 14 % of the time that running all of them again takes
        checkpoint (2 blocks), 2 steps -> 9.67 GiB
        " 2 of 6 blocks, 14 % of the time that running all of them again takes
        checkpoint (2 blocks), steady, reserves up to 9.28 GiB -> 9.67 GiB
        checkpoint (2 blocks), steady, reserves up to 9.28 GiB, work -> 9.67 GiB
        the unchanged script, 2 steps, work -> 13.38 GiB
        checkpoint (2 blocks), a validation, alone on the card -> out of memory
        checkpoint, a validation -> 4.69 GiB
        " 2 of 6 blocks, 14 % of the time that running all of them again takes
        checkpoint (2 blocks), a validation -> 10.25 GiB
        " 3 of 6 blocks, 29 % of the time that running all of them again takes
        checkpoint (3 blocks), a validation -> 8.40 GiB
        " 3 of 6 blocks, 29 % of the time that running all of them again takes
        checkpoint (3 blocks), a validation, reserves up to 9.28 GiB -> 8.40 GiB
        checkpoint (3 blocks), a validation, reserves up to 9.28 GiB, work -> 8.40 GiB
        the unchanged script, 2 steps, work -> 13.38 GiB
        checkpoint (3 blocks), a validation, alone on the card -> 8.40 GiB
        as it is: does not fit, needs 13.38 GiB
        plan: checkpoint (3 blocks), needs 8.40 GiB, same
        seen: 3 steps
    "#]]
    .assert_eq(&six_with(10_000, validation, true).plans());
}

#[test]
fn what_a_run_takes_more_than_was_thought_comes_off_the_budget() {
    expect![[r#"
        the unchanged script, steady, sites -> 13.67 GiB
        " without changes: 13.67 GiB to be safe
        checkpoint, 2 steps -> 4.39 GiB
        checkpoint (1 measure, 0 blocks), 3 steps -> 13.67 GiB
        checkpoint (1 measure), 2 steps -> 4.39 GiB
        " 2 of 6 blocks, 14 % of the time that running all of them again takes
        checkpoint (2 blocks), 2 steps -> 9.96 GiB
        " 3 of 6 blocks, 29 % of the time that running all of them again takes
        checkpoint (3 blocks), 2 steps -> 8.11 GiB
        " 3 of 6 blocks, 29 % of the time that running all of them again takes
        checkpoint (3 blocks), steady, reserves up to 9.28 GiB -> 8.11 GiB
        checkpoint (3 blocks), steady, reserves up to 9.28 GiB, work -> 8.11 GiB
        the unchanged script, 2 steps, work -> 13.67 GiB
        checkpoint (3 blocks), a validation, alone on the card -> 8.11 GiB
        as it is: does not fit, needs 13.67 GiB
        plan: checkpoint (3 blocks), needs 8.11 GiB, same
        seen: 3 steps
    "#]]
    .assert_eq(&six(10_000, 300, true).plans());
}

#[test]
fn the_last_one_need_not_run_again_as_backward_is_in_it_first() {
    expect![[r#"
        the unchanged script, steady, sites -> 13.38 GiB
        " without changes: 13.38 GiB to be safe
        checkpoint, 2 steps -> 4.10 GiB
        checkpoint (1 measure, 0 blocks), 3 steps -> 13.38 GiB
        checkpoint (1 measure), 2 steps -> 4.10 GiB
        " 5 of 6 blocks, 71 % of the time that running all of them again takes
        checkpoint (5 blocks), 2 steps -> 4.10 GiB
        " 5 of 6 blocks, 71 % of the time that running all of them again takes
        checkpoint (5 blocks), steady, reserves up to 3.81 GiB -> 4.10 GiB
        checkpoint (5 blocks), steady, reserves up to 3.81 GiB, work -> 4.10 GiB
        the unchanged script, 2 steps, work -> 13.38 GiB
        checkpoint (5 blocks), a validation, alone on the card -> 4.10 GiB
        as it is: does not fit, needs 13.38 GiB
        plan: checkpoint (5 blocks), needs 4.10 GiB, same
        seen: 3 steps
    "#]]
    .assert_eq(&six(4_400, 0, true).plans());
}

#[test]
fn the_first_ones_where_blocks_cannot_be_told_apart() {
    expect![[r#"
        the unchanged script, steady, sites -> 13.38 GiB
        " without changes: 13.38 GiB to be safe
        checkpoint, 2 steps -> 4.10 GiB
        checkpoint (1 measure, 0 blocks), 3 steps -> 13.38 GiB
        checkpoint (1 measure), 2 steps -> 4.10 GiB
        checkpoint (3 blocks), 2 steps -> 7.81 GiB
        checkpoint (1 block), 2 steps -> cut
        checkpoint (2 blocks), 2 steps -> 9.67 GiB
        checkpoint (2 blocks), steady, reserves up to 9.28 GiB -> 9.67 GiB
        checkpoint (2 blocks), steady, reserves up to 9.28 GiB, work -> 9.67 GiB
        the unchanged script, 2 steps, work -> 13.38 GiB
        checkpoint (2 blocks), a validation, alone on the card -> 9.67 GiB
        as it is: does not fit, needs 13.38 GiB
        plan: checkpoint (2 blocks), needs 9.67 GiB, same
        seen: 3 steps
    "#]]
    .assert_eq(&six(10_000, 0, false).plans());
}

#[test]
fn a_model_of_one_block_has_no_choice() {
    let made = Made::new(8_000, |run| {
        let n_blocks = run.has("checkpoint").then_some(1);
        let mib = if n_blocks.is_some() { 5_000 } else { 12_000 };
        Ran { noted: Noted { n_blocks, ..Noted::default() }, ..takes(mib) }
    });
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        checkpoint, 2 steps -> 5.37 GiB
        checkpoint, steady, reserves up to 7.32 GiB -> 5.37 GiB
        checkpoint, steady, reserves up to 7.32 GiB, work -> 5.37 GiB
        the unchanged script, 2 steps, work -> 12.21 GiB
        checkpoint, a validation, alone on the card -> 5.37 GiB
        as it is: does not fit, needs 12.21 GiB
        plan: checkpoint, needs 5.37 GiB, same
        seen: 3 steps
    "#]]
    .assert_eq(&made.allow(&["checkpoint"]).plans());
}

#[test]
fn a_choice_that_runs_out_ends_the_choosing() {
    let made = Made::new(10_000, |run| {
        let chosen = again(run).unwrap_or(vec![false; N]);
        let is_measured = run.is_measured();
        let is_all = chosen.iter().all(|it| *it);
        let noted = Noted {
            n_blocks: run.has("checkpoint").then_some(6),
            readings: if is_measured { step(&chosen) } else { Vec::new() },
            block_work: if is_measured { (0..N).map(work).collect() } else { Vec::new() },
            ..Noted::default()
        };
        let ran = if is_all || is_measured || !run.has("checkpoint") {
            takes(if is_all { 4_000 } else { 13_000 })
        } else {
            out_of_memory()
        };
        Ran { noted, ..ran }
    });
    expect![[r#"
        the unchanged script, steady, sites -> 13.18 GiB
        " without changes: 13.18 GiB to be safe
        checkpoint, 2 steps -> 4.39 GiB
        checkpoint (1 measure, 0 blocks), 3 steps -> 13.18 GiB
        checkpoint (1 measure), 2 steps -> 4.39 GiB
        " 2 of 6 blocks, 14 % of the time that running all of them again takes
        checkpoint (2 blocks), 2 steps -> out of memory
        checkpoint (3 blocks), 2 steps -> out of memory
        checkpoint (4 blocks), 2 steps -> out of memory
        checkpoint (5 blocks), 2 steps -> out of memory
        checkpoint, steady, reserves up to 9.28 GiB -> 4.39 GiB
        checkpoint, steady, reserves up to 9.28 GiB, work -> 4.39 GiB
        the unchanged script, 2 steps, work -> 13.18 GiB
        checkpoint, a validation, alone on the card -> 4.39 GiB
        as it is: does not fit, needs 13.18 GiB
        plan: checkpoint, needs 4.39 GiB, same
        seen: 3 steps
    "#]]
    .assert_eq(&made.allow(&["checkpoint"]).plans());
}
