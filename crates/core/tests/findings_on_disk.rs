//! scratch
#![expect(clippy::unwrap_used, reason = "scratch")]
use plimsoll_core::{explanation, recording::Recording, sources::snapshot};
#[test]
#[ignore]
fn dump() {
    for path in std::env::var("SNAPS").unwrap().split(' ') {
        let bytes = std::fs::read(path).unwrap();
        let (trace, _) = snapshot::read(&bytes).unwrap();
        let r = Recording { trace: Some(trace), ..Recording::default() };
        let t = std::time::Instant::now();
        let e = explanation::of_recording(path, &r, &[]);
        println!(
            "=== {} alloc {} res {} steps {} in {:?} {:?}",
            path.rsplit('/').next().unwrap(),
            e.peak_allocated.unwrap_or_default(),
            e.peak_reserved.unwrap_or_default(),
            e.steps,
            t.elapsed(),
            e.window
        );
        for f in &e.findings {
            if f.code == "peak/composition" && std::env::var("PEAK").is_err() {
                continue;
            }
            println!(
                "  {:?} {} {} | {} | at {:?} step {:?}",
                f.weight,
                f.code,
                f.bytes,
                f.title,
                f.at.as_ref().map(|it| format!(
                    "{}:{}",
                    it.file.rsplit('/').next().unwrap(),
                    it.line
                )),
                f.step
            );
            for it in &f.evidence {
                println!("        {it}");
            }
        }
        for o in &e.ooms {
            println!("  {:?} {:?}", o.step, o.phase);
            println!(
                "  OOM {:?} {:?} at {:?} {} | {:?}",
                o.cause,
                o.shape,
                o.at.as_ref().map(|it| it.line),
                o.why,
                o.enough
            );
        }
        for n in &e.notes {
            println!("  note {n}");
        }
    }
}
