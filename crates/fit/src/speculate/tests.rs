//! Searches of programs that are made up, with what is likely to be asked for next, and how long they take on two cores. One
//! run takes 1, a proof 3.

use std::fmt::Write as _;

use expect_test::expect;
use plimsoll_core::{
    plan::{Op, Remedy},
    recording::Work,
};

use super::{Speculation, cores::Cores};
use crate::search::{
    Look, Next, Noted, Ran, Run, plans,
    tests::made::{Made, asked, came_to, takes},
};

/// The picture, without what people are told.
fn picture(made: &Made) -> String {
    let rules = made.rules.clone();
    let begin = || plans(rules.clone());
    let mut ahead = Speculation::new(&begin, made.rules.clone());
    let (mut two, mut one) = (Cores::default(), Cores::default());
    let (mut res, mut search) = (String::new(), begin());
    loop {
        search = match search.next() {
            Next::Say(_, search) => search,
            Next::Run(run, waiting) => {
                let likely = ahead.likely(&run);
                let ran = made.on_a_card(&run);
                writeln!(res, "{} -> {}", asked(&run), came_to(&ran)).unwrap();
                likely.iter().for_each(|it| writeln!(res, "    {}", asked(it)).unwrap());
                two.make(&run, &likely);
                one.make(&run, &[]);
                ahead.ran(run, ran.clone());
                waiting.tell(ran)
            }
            Next::Replay(_, waiting) => {
                ahead.replayed(Vec::new());
                waiting.tell(Vec::new())
            }
            Next::Measure(..) => unreachable!("nobody measures here"),
            Next::Found(_) => break,
        };
    }
    writeln!(res, "one core: {}, {} runs", one.now, one.n_begun).unwrap();
    writeln!(res, "two cores: {}, {} runs", two.now, two.n_begun).unwrap();
    res
}

fn mib(takes_mib: impl Fn(&Run) -> u64 + 'static) -> Made {
    Made::new(8_000, move |run| {
        let noted = Noted { idle: Some([].into()), ..Noted::default() };
        Ran { noted, ..takes(takes_mib(run)) }
    })
}

/// Rungs that are not enough are followed by others; what fits is run again, counted and proven.
#[test]
fn what_is_asked_for_next_is_known_while_a_run_is_made() {
    let made = mib(|run| match () {
        () if run.has("checkpoint") => 5_000,
        () if run.has("autocast") => 9_000,
        () => 12_000,
    });
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        autocast, 2 steps -> cut
            checkpoint, 2 steps
            autocast + checkpoint, 2 steps
        checkpoint, 2 steps -> 5.37 GiB
            autocast + checkpoint, 2 steps
            autocast, 2 steps
        checkpoint, steady, reserves up to 7.32 GiB -> 5.37 GiB
            checkpoint, steady, reserves up to 7.32 GiB, work
            the unchanged script, 2 steps, work
            checkpoint, a validation, alone on the card
        checkpoint, steady, reserves up to 7.32 GiB, work -> 5.37 GiB
            the unchanged script, 2 steps, work
            checkpoint, a validation, alone on the card
        the unchanged script, 2 steps, work -> 12.21 GiB
            checkpoint, a validation, alone on the card
        checkpoint, a validation, alone on the card -> 5.37 GiB
        one core: 9, 7 runs
        two cores: 5, 7 runs
    "#]]
    .assert_eq(&picture(&made.allow(&["autocast", "checkpoint"])));
}

/// Two parts of a batch are guessed to take two thirds, more parts by what fewer took.
#[test]
fn as_many_parts_are_likely_as_will_be_enough() {
    let made = mib(|run| {
        1_000 + 32_000 / run.remedy("micro-batches").and_then(Remedy::parts).unwrap_or(1)
    });
    expect![[r#"
        the unchanged script, steady, sites -> 32.71 GiB
        micro-batches (2 parts), 2 steps -> 17.09 GiB
            micro-batches (8 parts), 2 steps
            micro-batches (8 parts), steady, reserves up to 7.32 GiB
        micro-batches (8 parts), 2 steps -> 5.37 GiB
            micro-batches (8 parts), steady, reserves up to 7.32 GiB
            micro-batches (8 parts), steady, reserves up to 7.32 GiB, work
        micro-batches (8 parts), steady, reserves up to 7.32 GiB -> 5.37 GiB
            micro-batches (8 parts), steady, reserves up to 7.32 GiB, work
            the unchanged script, 2 steps, work
            micro-batches (8 parts), a validation, alone on the card
        micro-batches (8 parts), steady, reserves up to 7.32 GiB, work -> 5.37 GiB
            the unchanged script, 2 steps, work
            micro-batches (8 parts), a validation, alone on the card
        the unchanged script, 2 steps, work -> 32.71 GiB
            micro-batches (8 parts), a validation, alone on the card
        micro-batches (8 parts), a validation, alone on the card -> 5.37 GiB
        one core: 9, 7 runs
        two cores: 5, 7 runs
    "#]]
    .assert_eq(&picture(&made.allow(&["micro-batches"])));
}

/// While the script compiles as it is written, what it takes compiled is asked for next.
#[test]
fn a_script_is_compiled_while_it_is_looked_at() {
    let made = Made::new(8_000, |run| {
        let counts = matches!(run.look, Some(Look::Work | Look::SitesAndWork));
        let parts = run.remedy("micro-batches").and_then(Remedy::parts).unwrap_or(1);
        let work = Work {
            op: Op::Matmul,
            dtype: "float32".to_owned(),
            count: 1.0,
            flops: 1e12,
            bytes: 1e6,
        };
        let noted = Noted {
            compiles: true,
            idle: Some([].into()),
            work: if counts { vec![work] } else { Vec::new() },
            ..Noted::default()
        };
        let took = 2_000 + 10_000 / parts;
        Ran { noted, ..takes(if counts { took / 10 * 14 } else { took }) }
    });
    let made = made.allow(&["micro-batches"]).rules(|it| it.speaks_of_compile = true);
    expect![[r#"
        the unchanged script, steady, sites, work -> 16.89 GiB
            the unchanged script, steady
        micro-batches (2 parts), 2 steps, work -> 10.06 GiB
            micro-batches (4 parts), 2 steps, work
            micro-batches (8 parts), 2 steps, work
        micro-batches (4 parts), 2 steps, work -> 6.64 GiB
            the unchanged script, steady
            micro-batches (4 parts), steady
        the unchanged script, steady -> 12.21 GiB
            micro-batches (4 parts), steady
            micro-batches (4 parts), steady, reserves up to 7.32 GiB
        micro-batches (2 parts), steady -> 7.32 GiB
            micro-batches (4 parts), steady
            micro-batches (4 parts), steady, reserves up to 7.32 GiB
        micro-batches (2 parts), steady, reserves up to 7.32 GiB -> 7.32 GiB
            micro-batches (2 parts), steady, reserves up to 7.32 GiB
            micro-batches (2 parts), a validation, alone on the card
        micro-batches (2 parts), steady, reserves up to 7.32 GiB -> 7.32 GiB
            micro-batches (2 parts), a validation, alone on the card
        micro-batches (2 parts), a validation, alone on the card -> 7.32 GiB
        one core: 10, 8 runs
        two cores: 6, 9 runs
    "#]]
    .assert_eq(&picture(&made));
}
