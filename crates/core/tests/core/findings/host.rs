//! What the process has of the host's memory, in steps and in the end.

use plimsoll_core::{
    codes::RemarkCode,
    explanation::Explanation,
    findings::Weight,
    recording::{CodeLine, HostNote, Mark, MarkKind, Notes, Place, ReadNote, Remark},
    units::Bytes,
};

use super::program::{MIB, Program};

/// Steps that leave nothing on the device, and so many MiB of RAM.
fn trained(own: &[u64], host: Option<HostNote>, keeps_on_device: bool) -> Explanation {
    let mut program = Program::default();
    for _ in own {
        let output = program.step(keeps_on_device, !keeps_on_device);
        if !keeps_on_device {
            program.free(output);
        }
    }
    program.explain_noted(Notes { host, ..of_levels(own) })
}

/// Steps that end with so many MiB of RAM; a line moves 64 MiB to the host in each.
fn of_levels(own: &[u64]) -> Notes {
    let mut notes = Notes::default();
    for (n, level) in (0_u32..).zip(own) {
        notes.marks.push(Mark {
            kind: MarkKind::StepEnd,
            step: n + 1,
            place: Place::default(),
            reserved: vec![],
            allocated: vec![],
            seconds: 0.0,
            with_gradients: false,
            host: Some(Bytes::mib(*level)),
            workers: None,
        });
    }
    let at = CodeLine { file: "/home/u/train.py".to_owned(), line: 14, ..CodeLine::default() };
    notes.reads =
        vec![ReadNote { at, count: 8, bytes: Bytes(8 * 64 * MIB), sizes: 0, becomes_size: false }];
    notes
}

fn titles(it: &Explanation) -> Vec<(&'static str, Option<u32>, &str)> {
    let of_host = it.findings.iter().filter(|it| it.is_of_host());
    of_host
        .map(|it| (it.code.word(), it.at.as_ref().map(|it| it.line), it.title.as_str()))
        .collect()
}

#[test]
fn a_list_on_the_cpu() {
    let total = Some(Bytes::gib(2));
    let report = trained(
        &[300, 400, 464, 528, 592, 656, 720, 784],
        Some(HostNote { total, ..HostNote::default() }),
        false,
    );
    assert_eq!(
        titles(&report),
        [(
            "host/grows",
            Some(14),
            "the process's own host memory (RAM) grows by 64.0 MiB a step, from 400.0 MiB after step 2 to 784.0 MiB after step 8"
        )]
    );
    let finding = report.findings.iter().find(|it| it.is_of_host()).unwrap();
    assert!(finding.evidence[1].contains("2.00 GiB of this machine"), "{:?}", finding.evidence);
    assert!(finding.evidence[1].contains("after 19 more steps"), "{:?}", finding.evidence);
    assert_eq!(report.root_cause().unwrap().code.word(), "host/grows");
}

/// What a script moves to the host on purpose leads only where the host is full soon.
#[test]
fn a_host_with_much_more_room_does_not_lead() {
    let total = Some(Bytes::gib(256));
    let levels = [300, 400, 464, 528, 592, 656, 720, 784];
    let report = trained(&levels, Some(HostNote { total, ..HostNote::default() }), false);
    assert_eq!(titles(&report)[0].0, "host/grows");
    assert!(report.root_cause().is_none_or(|it| it.code.word() != "host/grows"));
}

/// A program that only calls a model is there for the results that it collects.
#[test]
fn results_that_a_program_without_training_collects_are_no_problem_until_the_host_is_full() {
    let of = |total: Bytes| {
        let mut program = Program::default();
        let output = program.step(false, false);
        program.free(output);
        let code = RemarkCode::StepsByForward;
        let mut notes = of_levels(&[300, 400, 464, 528, 592, 656, 720, 784]);
        notes.host = Some(HostNote { total: Some(total), ..HostNote::default() });
        notes.remarks.push(Remark { code, text: String::new() });
        titles(&program.explain_noted(notes)).iter().map(|it| it.0).collect::<Vec<_>>()
    };
    assert_eq!(of(Bytes::gib(256)), [] as [&str; 0]);
    assert_eq!(of(Bytes::gib(2)), ["host/grows"]);
}

#[test]
fn what_leaks_on_the_device_is_told_before_the_host() {
    let report = trained(&[300, 1400, 2400, 3400, 4400, 5400, 6400, 7400], None, true);
    assert_eq!(titles(&report)[0].0, "host/grows");
    assert!(report.root_cause().unwrap().code.word().starts_with("leak/"));
}

#[test]
fn numbers_that_are_kept_are_no_trouble() {
    assert_eq!(titles(&trained(&[300, 400, 400, 400, 401, 401, 401, 402], None, false)), []);
    assert_eq!(titles(&trained(&[], Some(HostNote::default()), false)), []);
}

#[test]
fn a_host_that_is_short() {
    let note = |peak, swapped| HostNote {
        peak: Some(Bytes::mib(peak)),
        swapped: Some(Bytes::mib(swapped)),
        pinned: Some(Bytes::gib(3)),
        total: Some(Bytes::gib(16)),
        shm: None,
    };
    let of = |note| trained(&[300; 5], Some(note), false);
    let codes = |it: &Explanation| titles(it).iter().map(|it| it.0).collect::<Vec<_>>();
    assert_eq!(codes(&of(note(4_000, 0))), [] as [&str; 0]);
    assert_eq!(codes(&of(note(4_000, 20))), [] as [&str; 0], "what nobody looks at");
    let swaps = of(note(13_000, 2048));
    assert_eq!(
        titles(&swaps),
        [(
            "host/swaps",
            None,
            "the process is partly in the swap file, and each access waits for the disk: 2.00 GiB of its host memory (RAM) at the end"
        )]
    );
    let full = of(note(15_000, 0));
    assert_eq!(
        titles(&full),
        [(
            "host/nearly-full",
            None,
            "the host's memory (RAM) is nearly full: the process used up to 14.65 GiB of the 16.00 GiB of the machine or its container"
        )]
    );
    let finding = full.findings.iter().find(|it| it.is_of_host()).unwrap();
    assert_eq!(finding.evidence, ["3.00 GiB of that are pinned and cannot be swapped out"]);
    assert_eq!(finding.weight, Weight::Problem);
}
