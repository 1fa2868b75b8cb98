//! What is predicted from runs that people can read (`recorder`).

mod kept;
mod recorder;
mod runs;

use std::fmt::Write;

use expect_test::{Expect, expect};
use plimsoll_core::{
    cards, explanation,
    prediction::{
        BetweenEnds, CardFit, Carries, Category, Host, Inquiry, Observed, Origin, OtherEnd,
        Outcome, PhasePeak, Prediction, RunFacts, RunPhase, ScriptExit, Verdict, Wanted,
        between_ends, predict,
    },
    recording::{
        CodeLine, CutLoop, DeviceStats, EndReason, Holder, Keeper, Keepers, LoopLines, LoopStage,
        MarkKind, PhantomDevice, PhantomReport, Phase, Recording, Unlimited, WaitsIn,
    },
    units::Bytes,
    views::{
        schedulers::{self, Machine, Scheduler},
        text::{self, Extent, Styles},
        wire,
    },
};

use self::recorder::recording;

const RUNS_OUT: &str = "alloc weights 20MiB\noom 200GiB";

fn check(program: &str, expect: Expect) {
    let prediction = predicted(&[recording(program)], 0);
    expect.assert_eq(&told(&prediction));
}

fn predicted(recordings: &[Recording], code: i32) -> Prediction {
    predicted_with(recordings, code, None)
}

fn predicted_with(recordings: &[Recording], code: i32, max: Option<Bytes>) -> Prediction {
    let card = cards::find("h200").unwrap();
    let exit = ScriptExit::Code(code);
    let facts = RunFacts { exit, seconds: 1.0, max, waited_in_vain: false };
    let prediction = predict(recordings, card, facts);
    let sum: Bytes = prediction.categories.iter().map(|it| it.bytes).sum();
    assert_eq!(sum, prediction.shown, "every byte is in exactly one category");
    what_is_called_safe_is_safe(&prediction);
    prediction
}

/// Of every prediction here: only what fits has a safe size, more than the card has is called tight, and a scheduler is asked
/// for no more.
fn what_is_called_safe_is_safe(it: &Prediction) {
    let json: serde_json::Value = serde_json::from_str(&wire::prediction(it.into())).unwrap();
    assert_eq!(json["safe_bytes"].as_u64(), it.safe().map(|it| it.0));
    assert_eq!(it.safe().is_some(), it.verdict() == Verdict::Fits);
    let fits = it.verdict() == Verdict::Fits;
    assert!(!fits || it.needs() <= it.card.usable() + it.card.lent, "{} fits", it.needs());
    let fits_card = it.safe().is_some_and(|safe| safe <= it.card.total);
    for scheduler in [Scheduler::Slurm, Scheduler::Kubernetes, Scheduler::Skypilot, Scheduler::Ray]
    {
        assert_eq!(schedulers::request(scheduler, it, ONE).is_some(), fits_card);
    }
    for extent in [Extent::Short, Extent::Full] {
        let report = text::prediction(it.into(), extent, Styles::default(), 80).to_string();
        let is_called_tight = report.contains("TIGHT");
        assert_eq!(is_called_tight, it.safe().is_some() && !fits_card, "{report}");
        assert!(report.lines().count() <= 22 || extent == Extent::Full, "one screen:\n{report}");
    }
}

#[test]
fn what_only_just_fits_is_called_tight() {
    let card = cards::find("h200").unwrap();
    let program = "alloc weights 20GiB\nstep\nstep";
    let on = |card: &cards::Card| {
        let exit = ScriptExit::Code(0);
        let facts = RunFacts { exit, seconds: 1.0, max: None, waited_in_vain: false };
        predict(&[recording(program)], card, facts)
    };
    let needs = on(card).needs();
    let of = |more: Bytes| on(&card.clone().with_total(needs + card.kept + more));
    let (tight, fits) = (of(Bytes::mib(1)), of(Bytes::gib(2)));
    what_is_called_safe_is_safe(&tight);
    what_is_called_safe_is_safe(&fits);
    assert!(tight.card.total < tight.safe().unwrap() && fits.safe().unwrap() < fits.card.total);
}

fn told(prediction: &Prediction) -> String {
    let mut res = String::new();
    let moment = prediction.shown_moment.unwrap();
    writeln!(res, "{:?}: step {}, {:?}", prediction.outcome, moment.step, moment.phase).unwrap();
    for it in &prediction.categories {
        if it.blocks != 0 {
            writeln!(res, "{:?} {}", it.category, it.bytes).unwrap();
        }
    }
    for it in &prediction.top_lines {
        let at = match &it.at {
            Origin::Line(line) => line.to_string(),
            Origin::BackwardOf(line) => format!("backward of {line}"),
            other => format!("{other:?}"),
        };
        writeln!(res, "  {at}: {}", it.bytes).unwrap();
    }
    for it in &prediction.top_modules {
        writeln!(res, "  {} x{}: {}", it.path, it.modules, it.bytes).unwrap();
    }
    res
}

/// A batch in two parts, whose first one goes back inside of the call of the model.
#[test]
fn a_backward_pass_inside_of_a_forward_pass_needs_activations() {
    let program = "
alloc weight 10MiB at train.py:3
begin forward
name weight parameter h.0.fc.weight
alloc hidden 200MiB at train.py:11 in h.0.fc
alloc tmp 6MiB at train.py:11 in h.0.fc
free tmp
alloc one 512B at train.py:11 backward
alloc dweight 10MiB autograd
alloc dhidden 20MiB autograd            # the peak
free dhidden
free one
free hidden
alloc hidden 100MiB at train.py:11 in h.0.fc
end forward
begin backward
alloc seed 512B at train.py:13 backward
free hidden
end backward
begin optimizer
end optimizer
free dweight
step
";
    let found = predicted(&[recording(program)], 0);
    let of =
        |category| found.categories.iter().find(|it| it.category == category).map(|it| it.bytes);
    assert_eq!(of(Category::Activations), Some(Bytes::mib(200)), "{:?}", found.categories);
    assert_eq!(of(Category::Gradients), Some(Bytes::mib(10)), "{:?}", found.categories);
}

#[test]
fn one_training_step() {
    check(
        "
alloc weight 10MiB at train.py:3
alloc mask 1MiB at train.py:3
alloc batch 4MiB at train.py:10
begin forward
name weight parameter h.0.fc.weight
name mask buffer h.0.mask
alloc hidden 20MiB at train.py:11 in h.0.fc
alloc scratch 2MiB at train.py:11 in h.0.fc conv
free scratch
alloc tmp 6MiB at train.py:11 in h.0.fc
free tmp
end forward
alloc loss 512B at train.py:12          # between forward and backward
begin backward
alloc one 512B at train.py:13 backward
alloc dhidden 20MiB autograd            # the peak
alloc dweight 10MiB autograd
free dhidden
free hidden
end backward
begin optimizer
alloc m 10MiB at train.py:14
alloc t 10MiB at train.py:14
free t
end optimizer
name dweight gradient h.0.fc.weight
name m state h.0.fc.weight.exp_avg
step
free one
",
        expect![[r#"
            Fits: step 1, Some(Backward)
            Activations 20.0 MiB
            Temporaries 20.0 MiB
            Gradients 10.0 MiB
            Parameters 10.0 MiB
            Inputs 4.0 MiB
            Buffers 1.0 MiB
              backward of train.py:13: 30.0 MiB
              train.py:11: 20.0 MiB
              train.py:3: 11.0 MiB
              train.py:10: 4.0 MiB
              train.py:12: 512 B
              train.py:13: 512 B
              h.*.fc x1: 40.0 MiB
              h.* x1: 1.0 MiB
        "#]],
    );
}

/// Autograd's threads call the backward pass of a function that is written in Python: a library's, ours, the user's own.
#[test]
fn what_a_function_in_python_asks_for_belongs_to_the_call_of_backward() {
    check(
        "
alloc weight 10MiB at train.py:3
begin forward
name weight parameter h.0.weight
alloc hidden 20MiB at train.py:11 in h.0
end forward
begin backward
alloc one 512B at train.py:13 backward
alloc a 20MiB calls /venv/lib/python3.12/site-packages/flash_attn/interface.py:99
alloc b 30MiB calls /cache/ab12/agent/plimsoll_agent/remedies/chunked_loss.py:182
alloc c 40MiB calls functions.py:7
alloc dweight 10MiB autograd
end backward
step
",
        expect![[r#"
            Fits: step 1, Some(Backward)
            Gradients 100.0 MiB
            Activations 20.0 MiB
            Parameters 10.0 MiB
              backward of train.py:13: 60.0 MiB
              functions.py:7: 40.0 MiB
              train.py:11: 20.0 MiB
              train.py:3: 10.0 MiB
              train.py:13: 512 B
              h.* x1: 30.0 MiB
        "#]],
    );
}

/// Names come only after steps, and a gradient of the first step may be gone by then.
#[test]
fn what_has_no_name_is_known_by_its_life() {
    check(
        "
alloc weight 8MiB
begin forward
alloc saved 30MiB in h.0
alloc gone 1MiB in h.0
free gone
end forward
begin backward
alloc dweight 8MiB autograd
alloc flow 3MiB autograd                # the peak
free saved
free flow
end backward
begin zero_grad
free dweight                            # before anybody could name it
end zero_grad
begin optimizer
end optimizer
step
name weight parameter h.0.weight
",
        expect![[r#"
            Fits: step 1, Some(Backward)
            Activations 30.0 MiB
            Parameters 8.0 MiB
            Gradients 8.0 MiB
            Temporaries 3.0 MiB
              train.py:1: 38.0 MiB
              Backward: 11.0 MiB
              h.* x1: 38.0 MiB
        "#]],
    );
}

#[test]
fn workspaces_stay_and_scratch_comes_and_goes() {
    check(
        "
alloc weight 8MiB
begin forward
name weight parameter conv.weight
alloc cublas 32MiB in fc
alloc cublaslt 1MiB in fc
alloc out 16MiB in conv conv
alloc scratch 100MiB in conv conv       # the peak
free scratch
end forward
begin backward
alloc dweight 8MiB autograd
free out
end backward
begin optimizer
end optimizer
step
begin forward
end forward
begin backward
alloc added 8MiB autograd               # added to the gradient that exists: no scratch
free added
end backward
begin optimizer
end optimizer
step
begin forward
end forward
begin optimizer
end optimizer
step
",
        expect![[r#"
            Fits: step 1, Some(Forward)
            Workspaces 133.0 MiB
            Activations 16.0 MiB
            Parameters 8.0 MiB
              train.py:1: 157.0 MiB
              conv x1: 124.0 MiB
              fc x1: 33.0 MiB
        "#]],
    );
}

/// A step of a convolution that keeps `out`, with something of `size` beside it for a moment.
fn convolution(out: &str, name: &str, size: &str) -> String {
    format!(
        "
alloc weight 8MiB
begin forward
name weight parameter conv.weight
alloc out {out} in conv conv
alloc {name} {size} in conv conv
free {name}
end forward
begin backward
end backward
begin optimizer
end optimizer
step
"
    )
}

/// `cudnn.benchmark` takes a work area as large as the card allows, and a smaller one where that fails.
#[test]
fn a_card_that_has_no_room_for_scratch_alone_is_tight() {
    let with = |name: &str, size: &str| {
        let program = convolution("16MiB", name, size);
        let prediction = predicted(&[recording(&program)], 0);
        let carries = |id: &str| {
            let mut cards = prediction.cards.iter();
            cards.find(|it| it.card.id == id).map(|it| it.carries).unwrap()
        };
        [carries("rtx4060-8g"), carries("a100-40g"), carries("b200")]
    };
    assert_eq!(with("scratch", "60GiB"), [Carries::Tight, Carries::Tight, Carries::Yes]);
    assert_eq!(with("scratch", "1GiB"), [Carries::Yes; 3]);
}

/// The list of cards and the safe size are one answer: a card with less than the safe size is not said to fit.
#[test]
fn a_card_with_less_than_the_safe_size_is_tight() {
    let with = |weights: Bytes| {
        let program = format!("alloc weights {}MiB\nstep\nstep", weights.0 >> 20);
        predicted(&[recording(&program)], 0)
    };
    let beside = with(Bytes::gib(1)).needs() - Bytes::gib(1);
    let total = with(Bytes::gib(1)).card.total;
    let almost_all = with(total - beside - Bytes::mib(40));
    let there = almost_all.cards.iter().find(|it| it.card.id == almost_all.card.id).unwrap();
    assert_eq!(there.carries, Carries::Tight);
    assert!(almost_all.needs() <= total && total < almost_all.safe().unwrap());
    let less = with(total - beside - Bytes::gib(2));
    let there = less.cards.iter().find(|it| it.card.id == less.card.id).unwrap();
    assert_eq!(there.carries, Carries::Yes);
    assert!(less.safe().unwrap() <= total);
}

#[test]
fn a_card_that_has_no_room_for_what_is_kept_is_too_small() {
    let program = convolution("60GiB", "scratch", "100MiB");
    let prediction = predicted(&[recording(&program)], 0);
    let too_small = prediction.cards.iter().filter(|it| it.carries == Carries::No);
    assert!(too_small.map(|it| it.card.id.as_str()).any(|it| it == "a100-40g"));
    assert!(prediction.cards.iter().all(|it| it.carries != Carries::Tight));
}

/// `losses.append(loss)`: what is kept over whole steps is no activation.
#[test]
fn kept_results_are_the_scripts() {
    check(
        "
alloc weight 8MiB
begin forward
name weight parameter weight
alloc kept1 5MiB
end forward
begin backward
end backward
step
begin forward
alloc kept2 5MiB
end forward
begin backward
end backward
step
begin forward
alloc kept3 5MiB                         # the last step's may still be freed
alloc act 7MiB                           # the peak
end forward
begin backward
free act
end backward
step
",
        expect![[r#"
            Fits: step 3, Some(Forward)
            Activations 12.0 MiB
            Retained 10.0 MiB
            Parameters 8.0 MiB
              train.py:1: 30.0 MiB
        "#]],
    );
}

#[test]
fn micro_batches_evaluation_and_recomputation() {
    check(
        "
alloc weight 8MiB
alloc batch1 4MiB
begin forward
name weight parameter weight
alloc a1 3MiB
end forward
begin backward
alloc dweight 8MiB autograd
free a1
end backward
free batch1
alloc batch2 4MiB                        # loaded between backward and the next forward
alloc logged 1MiB
free logged
begin forward
alloc a2 3MiB
end forward
begin backward
alloc again 6MiB recompute in blocks.0   # checkpointing keeps it for the gradients of its block
alloc short 2MiB recompute in blocks.0
free short
alloc flow 1MiB autograd                 # the peak
free again
free flow
free a2
end backward
begin optimizer
end optimizer
step
begin evaluation
alloc e 5MiB
free e
end evaluation
",
        expect![[r#"
            Fits: step 1, Some(Backward)
            Activations 9.0 MiB
            Parameters 8.0 MiB
            Gradients 8.0 MiB
            Inputs 4.0 MiB
            Temporaries 2.0 MiB
              train.py:1: 15.0 MiB
              checkpoint.py:7: 8.0 MiB
              Backward: 8.0 MiB
              blocks.* x1: 8.0 MiB
        "#]],
    );
}

#[test]
fn running_out_in_the_first_forward_pass() {
    let program = "
alloc weight 8MiB
begin forward
name weight parameter weight
alloc a 30MiB
alloc tmp 2MiB
free tmp
alloc b 40MiB
oom 90MiB
free b                                   # the exception unwinds
free a
";
    let prediction = predicted(&[recording(program)], 1);
    let oom = prediction.oom.clone().unwrap();
    assert_eq!((oom.step, oom.phase), (1, Some(Phase::Forward)));
    assert_eq!((oom.allocated, oom.requested), (Bytes::mib(78), Bytes::mib(90)));
    assert_eq!(oom.at.unwrap().to_string(), "train.py:9");
    expect![[r#"
        OutOfMemory: step 1, Some(Forward)
        Activations 70.0 MiB
        Parameters 8.0 MiB
          train.py:1: 78.0 MiB
    "#]]
    .assert_eq(&told(&prediction));
}

#[test]
fn a_caught_error_is_a_note_and_not_the_end() {
    let program = "
alloc weight 12MiB
begin forward
oom 900GiB caught
end forward
begin forward
alloc a 14MiB
end forward
begin backward
free a
end backward
begin optimizer
end optimizer
step
";
    let prediction = predicted(&[recording(program)], 0);
    assert_eq!(prediction.oom, None);
    let notes: Vec<String> = prediction.notes.iter().map(ToString::to_string).collect();
    assert_eq!(
        notes,
        [
            "not seen: later steps; --until-exit runs the script to its end",
            "only 1 training step was seen: later steps often need more (optimizer state)",
            "the script caught an out-of-memory error and went on (first at train.py:9)",
        ]
    );
}

#[test]
fn an_evaluation_that_was_not_reached_leaves_no_safe_size() {
    let mut it = recording("alloc weight 12MiB\nbegin optimizer\nend optimizer\nstep\nstep\n");
    let end = it.notes.end.get_or_insert_default();
    end.why = EndReason::Steady;
    end.awaited = Some(CodeLine {
        file: "/w/train.py".into(),
        line: 70,
        text: "if step % every == 0:".into(),
        ..CodeLine::default()
    });
    let prediction = predicted(&[it], 0);
    assert_eq!((prediction.outcome, prediction.verdict()), (Outcome::Fits, Verdict::FitsSoFar));
    assert_eq!(
        (prediction.safe(), prediction.seen.missing()),
        (None, Some("the script's evaluation"))
    );
}

/// `set_per_process_memory_fraction(0.25)` leaves PyTorch a quarter of each card.
#[test]
fn a_script_that_limits_itself_has_a_share_of_each_card() {
    let fits = |limit: Option<Bytes>| {
        let mut it = recording("alloc weight 2GiB\nstep\nstep\n");
        it.notes.stats = vec![DeviceStats { limit, ..DeviceStats::default() }];
        let prediction = predicted(&[it], 0);
        let carries = |id| prediction.cards.iter().find(|it| it.card.id == id).unwrap().carries;
        ["gtx1660", "rtx3090"].map(carries)
    };
    let total = cards::find("h200").unwrap().total;
    assert_eq!(fits(None), [Carries::Yes, Carries::Yes]);
    assert_eq!(fits(Some(Bytes(total.0 / 4))), [Carries::No, Carries::Yes]);
}

/// Steps of another size may come: `for size in (64, 128, 256):` around the steps.
#[test]
fn turns_of_a_loop_that_were_not_reached_leave_no_safe_size() {
    let predict = |why: EndReason| {
        let mut it = recording("alloc weight 12MiB\nbegin optimizer\nend optimizer\nstep\nstep\n");
        let end = it.notes.end.get_or_insert_default();
        end.why = why;
        let line = CodeLine { file: "/w/train.py".into(), line: 9, ..CodeLine::default() };
        let stage = LoopStage {
            line,
            name: "size".into(),
            turn: 1,
            turns: Some(3),
            from: None,
            adds_up: None,
        };
        end.stage = Some(stage);
        predicted(&[it], 0)
    };
    let cut = predict(EndReason::Steady);
    assert_eq!((cut.verdict(), cut.safe()), (Verdict::FitsSoFar, None));
    assert_eq!(predict(EndReason::Exit).verdict(), Verdict::Fits, "the script came to its end");
}

/// An evaluation stores the graph of each batch until it is over, and was ended after 20 of 40: what the rest needs was not seen.
#[test]
fn a_loop_that_was_ended_while_memory_rose_leaves_no_safe_size() {
    let predict = |of: Option<u64>, rise: Bytes| {
        let mut it = recording("alloc weight 900MiB\nbegin optimizer\nend optimizer\nstep\nstep\n");
        let end = it.notes.end.get_or_insert_default();
        end.why = EndReason::Exit;
        let line = CodeLine { file: "/w/train.py".into(), line: 24, ..CodeLine::default() };
        end.cut_loop = Some(CutLoop { line, taken: 20, of, rise, lives: Bytes::mib(800) });
        predicted(&[it], 0)
    };
    let half = predict(Some(40), Bytes::mib(30));
    assert_eq!((half.verdict(), half.safe()), (Verdict::FitsSoFar, None));
    let text = text::prediction((&half).into(), Extent::Short, Styles::default(), 400).to_string();
    assert!(text.contains("ended the loop at train.py:24 after 20 of 40 batches, and memory rose by 30.0 MiB with each: the rest may need 600.0 MiB more"), "{text}");
    assert_eq!(predict(None, Bytes::mib(30)).verdict(), Verdict::FitsSoFar, "a stream");
    let losses = predict(Some(40), Bytes(512));
    assert_eq!(losses.verdict(), Verdict::Fits, "the rest stays below the peak");
}

/// How far a thread gets before the training takes what it made depends on the machine, also where all of it was seen.
#[test]
fn what_a_thread_fills_without_a_limit_leaves_no_safe_size() {
    let predict = |entries: u64, each: Bytes| {
        let mut it = recording("alloc weight 12MiB\nbegin optimizer\nend optimizer\nstep\nstep\n");
        it.notes.end.get_or_insert_default().why = EndReason::Exit;
        let held = Unlimited { waits_in: WaitsIn::Queue, entries, each };
        let line = CodeLine { file: "/w/train.py".into(), line: 14, ..CodeLine::default() };
        let keeper = Keeper {
            name: "ready[...]".into(),
            at: Some(line),
            unlimited: Some(held),
            ..Keeper::default()
        };
        it.notes.keepers = vec![Keepers { entries: vec![keeper], ..Keepers::default() }];
        predicted(&[it], 0)
    };
    let said = |entries: u64| {
        let found = predict(entries, Bytes::mib(75));
        assert_eq!((found.verdict(), found.safe()), (Verdict::FitsSoFar, None));
        text::to_come(&found.to_come().unwrap())
    };
    assert!(said(0).contains("empty at last; an entry takes 75.0 MiB"), "{}", said(0));
    let said = said(30);
    assert!(said.contains("nothing limits `ready` (train.py:14)"), "{said}");
    assert!(said.contains("30 × 75.0 MiB") && said.contains("`maxsize=2`"), "{said}");
    assert_eq!(predict(30, Bytes(512)).verdict(), Verdict::Fits, "losses for a log");
}

#[test]
fn the_process_that_takes_most_speaks_for_all() {
    let small = recording("alloc a 8MiB\n");
    let mut large = recording("alloc a 90MiB\n");
    large.pid = 8;
    let prediction = predicted(&[small, large], 0);
    assert_eq!(prediction.peak.allocated, Bytes::mib(90));
    assert_eq!(prediction.ranks.iter().map(|it| it.pid).collect::<Vec<_>>(), [8, 7]);
    assert!(prediction.notes.iter().any(|it| it.code() == "several-processes"));
}

#[test]
fn processes_that_share_a_device_need_room_together() {
    let with = |pid, program, together, beside: &[(u32, u64)]| {
        let mut it = recording(program);
        it.pid = pid;
        let holder = |&(pid, mib)| Holder { pid, bytes: Bytes::mib(mib) };
        let ran_out_beside = beside.iter().map(holder).collect();
        let together = Bytes::mib(together);
        let device = PhantomDevice { together, ran_out_beside, ..PhantomDevice::default() };
        it.phantom = Some(PhantomReport { devices: vec![device], ..PhantomReport::default() });
        it
    };
    let fits = "alloc a 90MiB\nstep\nstep";
    let alone = predicted(&[with(7, fits, 0, &[])], 0);
    let both = predicted(&[with(7, fits, 0, &[]), with(8, "alloc a 8MiB", 3000, &[])], 0);
    assert_eq!(both.peak, alone.peak, "what is shown is one of them");
    assert_eq!(both.with_allowance - alone.with_allowance, Bytes::mib(3000) - alone.peak.device);
    assert_eq!((alone.needs(), both.needs()), (alone.peak.device, Bytes::mib(3000)));
    let note = both.notes.iter().find(|it| it.code() == "together").unwrap();
    expect!["several processes share the GPU and hold 2.93 GiB together, CUDA contexts included; the safe size and the list of cards cover all of them"].assert_eq(&note.to_string());

    let full = with(8, "alloc a 8MiB\noom 200GiB", 3000, &[(7, 1000), (9, 2000)]);
    let full = predicted(&[full], 1);
    expect!["when memory ran out, other processes held 2.93 GiB of the card's 139.80 GiB: process 9 1.95 GiB, process 7 1000.0 MiB"].assert_eq(&full.notes[0].to_string());
}

#[test]
fn devices_of_the_users_machine_are_remarked() {
    let note = |variable: &str, seen| {
        let mut it = recording("alloc a 90MiB\nstep");
        it.phantom = Some(PhantomReport {
            devices: vec![PhantomDevice::default(); seen],
            visible_devices: Some(variable.to_owned()),
            ..PhantomReport::default()
        });
        let notes = predicted(&[it], 0).into_parts().notes;
        notes.iter().find(|it| it.code() == "visible-devices").unwrap().to_string()
    };
    assert_eq!(note("3", 1), "CUDA_VISIBLE_DEVICES is \"3\": the phantom stands for that GPU");
    assert_eq!(note("2,3", 2), "CUDA_VISIBLE_DEVICES is \"2,3\": phantoms stand for these GPUs");
    let fewer = "CUDA_VISIBLE_DEVICES is \"0,1,2,3\": the script saw 1 of these 4 GPUs; --gpus 4 shows it all of them";
    assert_eq!(note("0,1,2,3", 1), fewer);
}

#[test]
fn nothing_recorded_says_what_to_look_for() {
    let prediction = predicted(&[], 0);
    assert_eq!(prediction.notes[0].code(), "nothing-recorded");
    let failed = predicted(&[Recording::default()], 3);
    assert_eq!(
        failed.notes[0].to_string(),
        "the script exited with code 3 before it had run far enough for an answer"
    );
}

/// The prediction of `first`, completed by runs at other ends.
fn covered(first: &Prediction, others: &[(OtherEnd, &Prediction)]) -> Prediction {
    let ends = others.iter().map(|it| it.0).collect();
    let mut inquiry = Inquiry::new(first.clone(), Observed { ends, ..Observed::default() });
    for (end, other) in others {
        assert_eq!(inquiry.wanted(), Some(Wanted::OtherEnd(*end)));
        inquiry.came(Wanted::OtherEnd(*end), Some(other)).unwrap();
    }
    inquiry.prediction(None)
}

/// A race on a real device: buckets that a thread lets go of before the next step, or in it.
#[test]
fn whatever_order_takes_more_decides_the_safe_number() {
    let soon = "alloc weights 20MiB\nalloc first 40MiB\nstep\nfree first\nalloc second 40MiB\nstep";
    let late = "alloc weights 20MiB\nalloc first 40MiB\nstep\nalloc second 40MiB\nfree first\nstep";
    let first = predicted(&[recording(soon)], 0);
    let late = predicted(&[recording(late)], 0);
    let prediction = covered(&first, &[(OtherEnd::Late, &late)]);
    assert_eq!(
        (prediction.peak, prediction.early),
        (late.peak, Some(first.peak)),
        "what is shown is one run"
    );
    assert_eq!((&prediction.steps, &prediction.categories), (&late.steps, &late.categories));
    assert_eq!(prediction.with_allowance, late.with_allowance);
    assert!(first.with_allowance < prediction.with_allowance);
    let note = prediction.notes.last().unwrap();
    assert_eq!(note.code(), "order");
    expect!["memory depends on when PyTorch's threads and the GPU finish their work, which differs between the ranks of a job: 820.0 MiB if early, 860.0 MiB if late, as shown here; the safe size, if there is one, covers both"].assert_eq(&note.to_string());

    let safe = prediction.with_allowance;
    let prediction = covered(&prediction, &[(OtherEnd::Late, &first)]);
    assert_eq!(
        (prediction.with_allowance, prediction.notes.last().unwrap().code()),
        (safe, "order")
    );
}

/// A mask that nobody computed: as shown it finds nothing.
#[test]
fn what_masks_may_find_is_part_of_the_answer_and_refutes_nothing() {
    let nothing = "alloc weights 20MiB\nstep\nstep";
    let everything = "alloc weights 20MiB\nalloc found 9000MiB\nstep\nstep";
    let first = predicted(&[recording(nothing)], 0);
    let carried = |it: &Prediction| {
        let carries = |it: &&CardFit| it.carries == Carries::Yes;
        it.cards.iter().filter(carries).map(|it| it.card.total).min().unwrap_or_default()
    };
    let before = carried(&first);
    let found = predicted(&[recording(everything)], 0);
    let prediction = covered(&first, &[(OtherEnd::Found, &found)]);
    assert_eq!(prediction.verdict(), Verdict::Fits);
    assert!(prediction.needs() + Bytes::mib(9000) <= prediction.at_other_values().unwrap().1);
    assert!(
        before < prediction.at_other_values().unwrap().1
            && prediction.at_other_values().unwrap().1 <= carried(&prediction)
    );
    assert_eq!(prediction.notes.last().unwrap().code(), "everything-found");
    let limited = predicted_with(&[recording(nothing)], 0, Some(Bytes::gib(1)));
    assert_eq!(covered(&limited, &[(OtherEnd::Found, &found)]).verdict(), Verdict::Depends);

    let ran_out = predicted(&[recording(RUNS_OUT)], 1);
    let prediction = covered(&first, &[(OtherEnd::Found, &ran_out)]);
    assert_eq!((prediction.outcome, prediction.verdict()), (Outcome::Fits, Verdict::Depends));
    assert_eq!((prediction.safe(), carried(&prediction)), (None, Bytes::ZERO));
}

/// Between two ends lie other holes: what fits because PyTorch gave its cache back is in doubt if a replay fails with a twentieth less. Where both
/// ends ask for the same (experts of one GPU, whose router changes no size), nothing lies between.
#[test]
fn what_fits_only_because_the_cache_was_given_back_is_in_doubt_next_to_the_edge() {
    let soon = "alloc weights 20MiB\nalloc first 40MiB\nstep\nfree first\nalloc second 40MiB\nstep";
    let late = "alloc weights 20MiB\nalloc first 40MiB\nstep\nalloc second 40MiB\nfree first\nstep";
    let between = |second: &str, limit: u64, retries: u64| {
        let of = |text: &str| {
            let mut recording = recording(text);
            let limit = Some(Bytes::mib(limit));
            recording.notes.stats = vec![DeviceStats { retries, limit, ..DeviceStats::default() }];
            [recording]
        };
        let all = between_ends(&of(soon), &of(second), cards::find("h200").unwrap());
        BetweenEnds::of_all(&all).map(|it| (it.runs_out, it.tight))
    };
    assert_eq!(between(late, 104, 2), Some((false, true)));
    assert_eq!(between(late, 104, 0), Some((false, false)));
    assert_eq!(between(late, 106, 2), Some((false, false)));
    assert_eq!(between(late, 98, 2), Some((true, true)));
    assert_eq!(between(soon, 104, 2), None);
    let other = "alloc weights 20MiB\nstep\nstep";
    assert_eq!(between(other, 1000, 2), Some((false, true)), "nothing can be replayed");
}

/// A race whose early end leaves holes in which a large block finds no place, and whose late end leaves others: real ranks take either.
#[test]
fn what_runs_out_early_by_little_is_run_late_too() {
    let observed = || Observed { ends: vec![OtherEnd::Late], ..Observed::default() };
    let out = |asked: &str| {
        let text =
            format!("alloc weights 20MiB\nalloc cached 200MiB\nfree cached\nstep\noom {asked}");
        predicted(&[recording(&text)], 1)
    };
    let mut inquiry = Inquiry::new(out("200GiB"), observed());
    assert!(
        !matches!(inquiry.wanted(), Some(Wanted::OtherEnd(_))),
        "it needs far more than there is"
    );
    let late = predicted(&[recording("alloc weights 20MiB\nstep\nalloc large 190MiB\nstep")], 0);
    let answer = |late: &Prediction| {
        let mut inquiry = Inquiry::new(out("190MiB"), observed());
        assert_eq!(inquiry.wanted(), Some(Wanted::OtherEnd(OtherEnd::Late)));
        let is_shown = inquiry.came(Wanted::OtherEnd(OtherEnd::Late), Some(late)).unwrap();
        (is_shown, inquiry.prediction(None))
    };
    let (is_shown, prediction) = answer(&late);
    assert_eq!((is_shown, prediction.verdict(), prediction.safe()), (true, Verdict::Depends, None));
    assert_eq!((prediction.peak, prediction.oom.as_ref()), (late.peak, None));
    let said = text::prediction((&prediction).into(), Extent::Short, Styles::default(), 1000);
    let said = said.to_string();
    expect!["IT DEPENDS h200 (139.80 GiB) for the 2 training steps seen: needs more than there is if PyTorch's threads and the GPU finish their work early, 970.0 MiB if they finish it late"].assert_eq(said.lines().next().unwrap_or_default());
    let (is_shown, prediction) = answer(&out("190MiB"));
    assert_eq!((is_shown, prediction.verdict()), (false, Verdict::DoesNotFit));
}

/// Work that is done early and late: a rank that changes between the two takes more, or is left with other holes.
#[test]
fn what_lies_between_both_ends_is_covered_or_in_doubt() {
    let run = predicted(&[recording("alloc weights 20MiB\nstep\nstep")], 0);
    let answer = |took: BetweenEnds| {
        let ends = vec![OtherEnd::Late];
        let mut inquiry = Inquiry::new(run.clone(), Observed { ends, ..Observed::default() });
        inquiry.came(Wanted::OtherEnd(OtherEnd::Late), Some(&run)).unwrap();
        inquiry.took_between(OtherEnd::Late, &took);
        inquiry.prediction(None)
    };
    let more = BetweenEnds {
        most: run.peak.device + Bytes::mib(100),
        with_allowance: run.with_allowance + Bytes::mib(110),
        ..BetweenEnds::default()
    };
    let covered = answer(more);
    assert_eq!(covered.safe(), Some(more.with_allowance));
    let note = covered.notes.last().unwrap().to_string();
    expect!["memory depends on when PyTorch's threads and the GPU finish their work, which differs between the ranks of a job: 780.0 MiB if early, as shown here, 780.0 MiB if late, up to 880.0 MiB if a rank changes between the two; the safe size, if there is one, covers all of them"].assert_eq(&note);

    let first_line = |it: &Prediction| {
        assert_eq!((it.verdict(), it.safe()), (Verdict::Depends, None));
        let said = text::prediction(it.into(), Extent::Short, Styles::default(), 1000).to_string();
        said.lines().next().unwrap_or_default().to_owned()
    };
    let said = first_line(&answer(BetweenEnds { tight: true, ..more }));
    expect!["IT DEPENDS h200 (139.80 GiB) for the 2 training steps seen: fits if PyTorch's threads and the GPU finish their work early, and if they finish it late, because PyTorch gave its cache back when memory was full; if a rank changes between the two, PyTorch may find other holes, for which that is not enough"].assert_eq(&said);
    let said = first_line(&answer(BetweenEnds { runs_out: true, ..more }));
    expect!["IT DEPENDS h200 (139.80 GiB) for the 2 training steps seen: needs 780.0 MiB if PyTorch's threads and the GPU finish their work early, 780.0 MiB if they finish it late, and more than there is if a rank changes between the two"].assert_eq(&said);
}

/// NCCL makes a communicator at the first message, and finds the card full: the script gets an error of PyTorch's, whatever it makes of that.
#[test]
fn a_library_without_memory_for_itself_does_not_fit() {
    let of = |lacked: u64, lacked_steps: Option<u64>| {
        let device =
            PhantomDevice { lacked: Bytes::mib(lacked), lacked_steps, ..PhantomDevice::default() };
        let phantom = PhantomReport { devices: vec![device], ..PhantomReport::default() };
        let mut recorded = recording("alloc weights 20MiB\nstep\nalloc sent 40MiB");
        recorded.notes.end.as_mut().unwrap().why = EndReason::Exception;
        predicted(&[Recording { phantom: Some(phantom), ..recorded }], 1)
    };
    assert_eq!(of(0, None).verdict(), Verdict::CouldNotTell);
    assert_eq!(of(64, None).verdict(), Verdict::DoesNotFit);
    assert_eq!(of(64, Some(1)).verdict(), Verdict::DoesNotFit);
    assert_eq!(of(64, Some(0)).verdict(), Verdict::CouldNotTell, "it trained on after that");
}

/// A library finds the card full of PyTorch's cache, the script catches that and frees memory, and the library takes its part then.
#[test]
fn what_was_there_at_different_times_is_not_added_up_beyond_what_the_card_has() {
    let card = cards::find("h200").unwrap();
    let (most, gib) = (card.usable(), |it: u64| Bytes::gib(it));
    for (context, other, cache) in
        [(1, 0, 139), (2, 0, 139), (1, 3, 130), (1, 100, 100), (3, 2, 20)]
    {
        let device = PhantomDevice {
            context: gib(context),
            other_peak: gib(other),
            lacked: Bytes::mib(8),
            lacked_steps: Some(0),
            ..PhantomDevice::default()
        };
        let phantom = PhantomReport { devices: vec![device], ..PhantomReport::default() };
        let program =
            format!("alloc cache {cache}GiB\nfree cache\nstep\nalloc cache {cache}GiB\nstep");
        let found = predicted(&[Recording { phantom: Some(phantom), ..recording(&program) }], 0);
        let sum = gib(context + other + cache);
        assert_eq!((found.verdict(), found.needs()), (Verdict::Fits, sum.min(most)), "{sum}");
    }
}

/// Embeddings by `encoder` before the training; `calls` is the module that each step calls beside `net`.
fn trains_after_embeddings(calls: &str) -> Vec<(&'static str, Bytes)> {
    const PROGRAM: &str = "alloc encoder 2GiB at train.py:3\nname encoder parameter encoder.0.weight\nbegin evaluation\nalloc text 8MiB at train.py:4 in encoder.0\nend evaluation\n\
        alloc net 1GiB at train.py:6\nname net parameter net.0.weight\n";
    let step = format!(
        "begin forward\nalloc a 512MiB at train.py:9 in net.0\nalloc b 8MiB at train.py:9 in {calls}\nend forward\n\
        begin backward\nalloc seed 1GiB\nfree seed\nfree a\nfree b\nend backward\nstep\n"
    );
    let recorded = recording(&format!("{PROGRAM}{step}{step}"));
    let found = explanation::of_recording("a test", &recorded, &[]).findings;
    let found = found.into_iter().filter(|it| it.code.word() == "weights/idle");
    found.map(|it| (it.code.word(), it.bytes)).collect()
}

#[test]
fn weights_that_no_step_uses_are_found_once_a_step_was_seen() {
    assert_eq!(trains_after_embeddings("net.1"), [("weights/idle", Bytes::gib(2))]);
    assert_eq!(trains_after_embeddings("encoder.0"), []);
}

/// A reference is called in line 4 before each step's passes in line 9, and the first step's optimizer runs out; `lines` are those of the loop.
fn runs_out_after_a_reference(lines: std::ops::RangeInclusive<u32>) -> usize {
    let mut recorded = recording(
        "alloc reference 2GiB at train.py:2\nname reference parameter ref.0.weight\nalloc net 1GiB at train.py:3\nname net parameter net.0.weight\n\
        begin evaluation\nalloc text 8MiB at train.py:4 in ref.0\nend evaluation\nbegin forward\nalloc a 512MiB at train.py:9 in net.0\nend forward\n\
        begin backward\nalloc seed 1GiB\nfree seed\nfree a\nend backward\nbegin optimizer\noom 1GiB",
    );
    let (first, last) = (*lines.start(), *lines.end());
    let around = LoopLines { file: "train.py".to_owned(), first, last };
    recorded.notes.ooms[0].around = Some(around);
    let found = explanation::of_recording("a test", &recorded, &[]).findings;
    found.iter().filter(|it| it.code.word() == "weights/idle").count()
}

#[test]
fn what_the_loop_of_the_steps_calls_is_not_idle_in_its_first_turn() {
    assert_eq!(runs_out_after_a_reference(7..=12), 1);
    assert_eq!(runs_out_after_a_reference(4..=12), 0);
}

/// An evaluation stores the results of four batches with their graphs; `freed` says when they go.
fn evaluates_with_gradients(freed: [&str; 3]) -> Vec<Bytes> {
    let [in_the_backward_pass, between, later] = freed;
    let batches: String =
        (0..4).map(|it| format!("alloc out{it} 256MiB at train.py:20 in net.0\n")).collect();
    let step = |backward: &str| {
        format!(
            "begin forward\nalloc a 512MiB at train.py:9 in net.0\nend forward\nbegin backward\nalloc seed 1GiB\nfree seed\nfree a\n{backward}end backward\nstep\n"
        )
    };
    let program = format!(
        "{}{}begin evaluation\n{batches}end evaluation\n{}{between}{}{later}",
        step(""),
        step(""),
        step(in_the_backward_pass),
        step("")
    );
    let mut recorded = recording(&program);
    recorded
        .notes
        .marks
        .iter_mut()
        .for_each(|it| it.with_gradients = it.kind == MarkKind::Begin(Phase::Evaluation));
    let found = explanation::of_recording("a test", &recorded, &[]).findings;
    found
        .into_iter()
        .filter(|it| it.code.word() == "evaluation/unused-graph")
        .map(|it| it.bytes)
        .collect()
}

/// The peak is in the training step after it.
#[test]
fn a_graph_of_an_evaluation_that_outlives_a_backward_pass_has_no_use() {
    const ALL: &str = "free out0\nfree out1\nfree out2\nfree out3\n";
    assert_eq!(
        evaluates_with_gradients(["", "", ALL]),
        [Bytes::gib(1)],
        "until the next evaluation"
    );
    assert_eq!(evaluates_with_gradients([ALL, "", ""]), [], "a backward pass used them");
    assert_eq!(
        evaluates_with_gradients([
            "",
            "begin backward\nfree out0\nfree out1\nfree out2\nfree out3\nend backward\n",
            ""
        ]),
        [],
        "the second one"
    );
}

/// Parts of 2 GiB, one in each step, until this request is refused; a result of the second size was there before and is gone.
fn collects(parts: u32, refused: u32, before: u32) -> Outcome {
    let mut program = format!("alloc before {before}GiB\nfree before\n");
    for part in 0..parts {
        let pass =
            format!("begin forward\nalloc part{part} 2GiB at train.py:12\nend forward\nstep\n");
        program += &pass;
    }
    predicted(&[recording(&format!("{program}oom {refused}GiB"))], 1).outcome
}

/// What stays does not say when a larger card runs out, where all of it is complete and was to be joined.
#[test]
fn a_list_that_is_joined_at_last_does_not_grow() {
    assert_eq!(collects(40, 80, 1), Outcome::OutOfMemory);
    assert_eq!(collects(69, 2, 1), Outcome::Grows);
    assert_eq!(collects(69, 40, 1), Outcome::Grows, "not all of it");
    assert_eq!(collects(40, 80, 80), Outcome::Grows, "it was joined before");
}

/// A race: real ranks of one job take either end.
#[test]
fn what_fits_only_where_work_is_done_early_depends_on_that() {
    let soon = "alloc weights 20MiB\nstep\nstep";
    let late = "alloc weights 20MiB\nalloc sent 40MiB\nstep\nstep";
    let [first, at_the_end] = [soon, late].map(|it| predicted(&[recording(it)], 0));
    let max = |bytes| {
        let first = predicted_with(&[recording(soon)], 0, Some(bytes));
        covered(&first, &[(OtherEnd::Late, &at_the_end)])
    };
    let least = first.needs().saturating_sub(Bytes(1));
    let between = at_the_end.needs().saturating_sub(Bytes(1));
    let verdicts = [least, between, at_the_end.needs()].map(|it| max(it).verdict());
    assert_eq!(verdicts, [Verdict::OverMax, Verdict::Depends, Verdict::Fits]);

    let ran_out = predicted(&[recording(RUNS_OUT)], 1);
    let prediction = covered(&first, &[(OtherEnd::Late, &ran_out)]);
    assert_eq!((prediction.verdict(), prediction.safe()), (Verdict::Depends, None));
    let said = |it: &Prediction| {
        let text = text::prediction(it.into(), Extent::Short, Styles::default(), 80).to_string();
        text.lines().take(5).collect::<Vec<_>>().join("\n")
    };
    expect![[r#"
        IT DEPENDS h200 (139.80 GiB) for the 2 training steps seen: needs 780.0 MiB if
          PyTorch's threads and the GPU finish their work early, more than the card has
          if they finish it late
        that differs between the ranks of a job, and from run to run; a job runs out if
          one of its ranks does"#]]
    .assert_eq(&said(&prediction));
    expect![[r#"
        IT DEPENDS h200 (139.80 GiB) for the 2 training steps seen: needs 780.0 MiB if
          PyTorch's threads and the GPU finish their work early, 820.0 MiB, more than
          the 820.0 MiB that --max allows, if they finish it late
        that differs between the ranks of a job, and from run to run; a job runs out if
          one of its ranks does"#]]
    .assert_eq(&said(&max(between)));

    let failed = predicted(&[], 1);
    let prediction = covered(&first, &[(OtherEnd::Late, &failed)]);
    assert_eq!((prediction.verdict(), prediction.safe()), (Verdict::FitsSoFar, None));
}

const ONE: Machine = Machine { cards: 1, all_ranks: false };

/// Ranks of one machine take of its host what one of them was seen to take, each; and the job has more machines.
#[test]
fn a_request_is_for_all_ranks_of_a_machine() {
    let mut job = recording("alloc weights 20MiB\nstep\nstep");
    job.notes.begin.get_or_insert_default().world_size = Some(16);
    let run = predicted(&[job], 0);
    let host = Host { peak: Bytes::gib(3), shared: Bytes::ZERO };
    let observed = Observed { host: Some(host), ..Observed::default() };
    let prediction = Inquiry::new(run, observed).prediction(None);
    let lines = |all_ranks| {
        let machine = Machine { cards: 8, all_ranks };
        let lines = schedulers::request(Scheduler::Slurm, &prediction, machine).unwrap();
        lines.lines().skip(1).map(|it| format!("{it}\n")).collect::<String>()
    };
    expect![[r#"
        # Host memory: 3.00 GiB seen on the phantom, 0 B of it shared between processes, and 2.00 GiB for CUDA itself, for each of 8 ranks.
        # The name of a GPU is your cluster's own: `sinfo -o %G` lists them.
        #SBATCH --nodes=2
        #SBATCH --gres=gpu:h200:8
        #SBATCH --mem=40G
    "#]].assert_eq(&lines(false));
    expect![[r#"
        # Host memory: 3.00 GiB seen on the phantom, 0 B of it shared between processes, and 2.00 GiB for CUDA itself in each of 8 ranks.
        # The name of a GPU is your cluster's own: `sinfo -o %G` lists them.
        #SBATCH --nodes=2
        #SBATCH --gres=gpu:h200:8
        #SBATCH --mem=19G
    "#]].assert_eq(&lines(true));
}

#[test]
fn only_what_fits_has_a_safe_size_and_a_request() {
    let request = |it: &Prediction| schedulers::request(Scheduler::Slurm, it, ONE);
    let nothing = |it: &Prediction| (it.verdict(), it.safe(), request(it));
    let fits = predicted(&[recording("alloc weights 20MiB\nstep\nstep")], 0);
    assert!(fits.safe().is_some() && request(&fits).is_some());

    let ran_out = predicted(&[recording(RUNS_OUT)], 1);
    assert_eq!(nothing(&ran_out), (Verdict::DoesNotFit, None, None));
    let grows = predicted(&[recording(&leaving(|_| 4, 16))], 0);
    assert_eq!(nothing(&grows), (Verdict::Grows, None, None));
    let depends = covered(&fits, &[(OtherEnd::Found, &ran_out)]);
    assert_eq!(nothing(&depends), (Verdict::Depends, None, None));
    let steps = "alloc weights 20MiB\nstep\nstep";
    let over = predicted_with(&[recording(steps)], 0, Some(Bytes::mib(1)));
    assert_eq!(nothing(&over), (Verdict::OverMax, None, None));
    let failed = predicted(&[], 1);
    assert_eq!(nothing(&failed), (Verdict::CouldNotTell, None, None));
}

/// Loads with a copy beside, trains, evaluates, merges and saves.
const IN_PHASES: &str = "\
alloc copy 40MiB at train.py:3
alloc weights 20MiB at train.py:4
free copy
begin forward
alloc activations 10MiB at train.py:9
end forward
begin backward
alloc gradients 20MiB
free activations
end backward
begin optimizer
end optimizer
step
free gradients
begin evaluation
alloc logits 600MiB at train.py:12
free logits
end evaluation
begin forward
alloc activations2 10MiB at train.py:9
end forward
begin backward
free activations2
end backward
step
begin merging
alloc merged 1MiB at train.py:14
free merged
end merging
begin saving
alloc gathered 1MiB at train.py:15
free gathered
end saving";

fn in_phases(it: &Prediction) -> Vec<String> {
    let row = |it: &PhasePeak| {
        let at = it.at.as_ref().map_or_else(String::new, |at| format!(" at {}", at.line));
        format!("{}: {}{at}", it.phase.name(), it.peak.allocated)
    };
    it.phases.iter().map(row).collect()
}

#[test]
fn each_phase_has_its_peak_and_the_one_that_decides_is_named() {
    let whole = predicted(&[recording(IN_PHASES)], 0);
    assert_eq!(
        in_phases(&whole),
        [
            "loading: 60.0 MiB at 4",
            "first step: 50.0 MiB at 1",
            "later steps: 40.0 MiB",
            "first evaluation: 620.0 MiB at 12",
            "merging: 21.0 MiB at 14",
            "saving: 21.0 MiB at 15",
        ]
    );
    assert_eq!(whole.deciding_phase, Some(RunPhase::FirstEvaluation));
    let report = text::prediction((&whole).into(), Extent::Short, Styles::default(), 80);
    assert!(
        report
            .to_string()
            .contains("\nfirst evaluation needs the most: 620.0 MiB of tensors at train.py:12"),
        "{report}"
    );

    let without = IN_PHASES.replace("alloc logits 600MiB", "alloc logits 1MiB");
    let large = without.replace("alloc copy 40MiB", "alloc copy 4000MiB");
    let loading = predicted(&[recording(&large)], 0);
    assert_eq!(loading.deciding_phase, Some(RunPhase::Loading));
    let report = text::prediction((&loading).into(), Extent::Short, Styles::default(), 80);
    let report = report.to_string().replace("\n  ", " ");
    assert!(report.contains("straight onto the GPU"), "{report}");

    // A rollout before the first step is nothing that is loaded.
    let rollout =
        large.replace("alloc copy", "begin evaluation\nalloc out 1MiB\nend evaluation\nalloc copy");
    assert_eq!(predicted(&[recording(&rollout)], 0).deciding_phase, None);

    let steps = without.replace("alloc copy 40MiB", "alloc copy 4MiB");
    assert_eq!(predicted(&[recording(&steps)], 0).deciding_phase, None);

    let died = predicted(&[recording(RUNS_OUT)], 1);
    assert_eq!(died.deciding_phase, Some(RunPhase::Loading));
    let report = text::prediction((&died).into(), Extent::Short, Styles::default(), 80);
    let report = report.to_string().replace("\n  ", " ");
    assert!(report.contains("A smaller batch does not help"), "{report}");
}

#[test]
fn what_only_fits_with_memory_of_the_host_spills() {
    let exit = ScriptExit::Code(0);
    let facts = RunFacts { exit, seconds: 1.0, max: None, waited_in_vain: false };
    let on = |card: cards::Card| {
        predict(&[recording("alloc weights 8GiB at train.py:3\nstep\nstep")], &card, facts.clone())
    };
    let card = cards::find("rtx3060-12g").unwrap().clone();
    let (small, large) = (card.clone().with_total(Bytes::mib(8_700)), card);
    assert_eq!(on(large.clone().on_windows()).verdict(), Verdict::Fits);
    assert_eq!(on(small.clone()).verdict(), Verdict::Fits);
    let spills = on(small.on_windows());
    assert_eq!((spills.verdict(), spills.safe()), (Verdict::Spills, None));
    assert_eq!(spills.spilled(), spills.needs() - spills.card.usable());
    let report = text::prediction((&spills).into(), Extent::Short, Styles::default(), 80);
    assert!(report.to_string().starts_with("SPILLS rtx3060-12g"), "{report}");
    // The context of a phantom's run is the card's, and a desktop takes of the same.
    let beside = on(large.with_beside(Bytes::gib(3)).on_windows());
    assert_eq!(beside.verdict(), Verdict::Spills);
}

#[test]
fn another_end_that_did_not_get_as_far_is_no_alternative() {
    let first = predicted(&[recording("alloc weights 20MiB\nstep\nstep")], 0);
    for other in ["alloc weights 20MiB", "alloc weights 20MiB\nstep"] {
        let other = predicted(&[recording(other)], 0);
        let prediction = covered(&first, &[(OtherEnd::Overflow, &other)]);
        assert_eq!(prediction.others, []);
        assert_eq!(prediction.with_allowance, first.with_allowance);
        assert_eq!(prediction.notes.last().unwrap().code(), "other-end-unseen");
    }
}

/// Each step leaves so many MiB, made at line 12.
fn leaving(mib: impl Fn(u32) -> u32, steps: u32) -> String {
    let step = |n: u32| match mib(n) {
        0 => "alloc loss 1MiB\nfree loss\nstep\n".to_owned(),
        mib => format!("alloc kept{n} {mib}MiB at train.py:12\nalloc loss 1MiB\nfree loss\nstep\n"),
    };
    (0..steps).map(step).collect()
}

#[test]
fn memory_that_grows_with_the_steps_is_an_outcome_of_its_own() {
    let card = cards::find("h200").unwrap();
    for (program, per_step) in [
        (leaving(|_| 4, 16), Bytes::mib(4)),
        (leaving(|n| if n % 8 == 0 { 32 } else { 0 }, 400), Bytes::mib(4)),
    ] {
        let it = predicted(&[recording(&program)], 0);
        assert_eq!((it.outcome, it.safe(), it.headroom()), (Outcome::Grows, None, None));
        let growth = it.growth.as_ref().unwrap();
        let off = growth.per_step.0.abs_diff(per_step.0);
        assert!(off <= per_step.0 / 50, "{growth:?}");
        assert_eq!(growth.at.as_ref().unwrap().line, 12);
        let steps = (card.total - card.context).0 / per_step.0;
        assert!(growth.runs_out_at.abs_diff(steps) <= steps / 50, "{growth:?}, {steps}");
        assert!(it.cards.iter().any(|it| it.runs_out_at.is_some()));
    }
}

#[test]
fn larger_batches_are_no_growth_and_one_tensor_that_is_joined_is() {
    let step = |n: u32, batch: u32| {
        let free = if n == 0 { "" } else { "free joined\nfree x\n" };
        let n = n + 1;
        format!(
            "alloc act {}MiB at train.py:4\nfree act\n{free}alloc x {batch}MiB at train.py:5\n\
             alloc joined {}MiB at train.py:6\nstep\n",
            batch * 2,
            n * 8,
        )
    };
    let joined: String = (0..24).map(|n| step(n, 4)).collect();
    let sorted: String = (0..24).map(|n| step(n, n + 1)).collect();
    let it = predicted(&[recording(&joined)], 0);
    assert_eq!(it.outcome, Outcome::Grows);
    assert_eq!(predicted(&[recording(&sorted)], 0).outcome, Outcome::Fits);
}

#[test]
fn growth_that_ends_is_none() {
    let full = leaving(|n| if n < 20 { 4 } else { 0 }, 40);
    let sizes = leaving(|_| 0, 40);
    for program in [full, sizes, leaving(|_| 4, 5)] {
        assert_eq!(predicted(&[recording(&program)], 0).outcome, Outcome::Fits, "{program}");
    }
    // All of it was seen.
    let mut whole = recording(&leaving(|_| 4, 16));
    whole.notes.end.as_mut().unwrap().why = EndReason::Exit;
    assert_eq!(predicted(&[whole], 0).outcome, Outcome::Fits);
}

#[test]
fn what_ran_out_because_it_grew_grows() {
    let program = leaving(|_| 8192, 17) + "oom 8192MiB\n";
    let it = predicted(&[recording(&program)], 1);
    let growth = it.growth.as_ref().unwrap();
    assert_eq!(it.outcome, Outcome::Grows);
    assert_eq!((growth.runs_out_at, growth.has_run_out), (18, true));
    assert!(it.oom.is_some());
    let large = leaving(|_| 4, 16) + "oom 200GiB\n";
    assert_eq!(predicted(&[recording(&large)], 1).outcome, Outcome::OutOfMemory);
}

#[test]
fn a_script_that_was_to_train_and_did_not_is_no_answer() {
    let mut it = recording("alloc weights 20MiB\n");
    let end = it.notes.end.as_mut().unwrap();
    (end.why, end.has_optimizer) = (EndReason::Exit, true);
    let prediction = predicted(&[it.clone()], 0);
    assert_eq!(prediction.outcome, Outcome::ScriptFailed);
    assert_eq!(prediction.notes[0].code(), "never-trained");
    // It did train, and a gradient scaler left the optimizer's steps out.
    let mut skipped = it.clone();
    skipped.phantom =
        Some(PhantomReport { overflows_asked: 3, overflows_found: 3, ..PhantomReport::default() });
    let prediction = predicted(&[skipped], 0);
    assert_eq!(prediction.outcome, Outcome::Fits);
    assert!(prediction.notes.iter().any(|it| it.code() == "all-skipped"));
    it.notes.end.as_mut().unwrap().has_optimizer = false;
    assert_eq!(predicted(&[it], 0).outcome, Outcome::Fits);
}

#[test]
fn the_moment_it_died_in_is_broken_down() {
    let program = "alloc weights 20MiB\nalloc first 400MiB\nfree first\nstep\nalloc state 40MiB at train.py:12\noom 200GiB\n";
    let it = predicted(&[recording(program)], 1);
    assert_eq!(it.peak.allocated, Bytes::mib(420));
    let allocated: Bytes =
        it.categories.iter().filter(|it| it.blocks != 0).map(|it| it.bytes).sum();
    assert_eq!(allocated, Bytes::mib(60));
    assert!(it.top_lines.iter().any(|line| line.bytes == Bytes::mib(40)), "{:?}", it.top_lines);
}
