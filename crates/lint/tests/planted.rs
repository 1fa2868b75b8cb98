//! What `bench/programs/lint` plants is found, and nothing else is said: of each line, of each code.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::{collections::BTreeSet, fs, path::Path};

use plimsoll_lint::{RULES, Selection, lint};

const PLANTED: [&str; 15] = [
    "planted-1.txt",
    "planted-2.txt",
    "planted-3.txt",
    "planted-4.txt",
    "planted-5.txt",
    "planted-6.txt",
    "planted-7.txt",
    "planted-8.txt",
    "planted-9.txt",
    "planted-10.txt",
    "planted-11.txt",
    "planted-12.txt",
    "planted-13.txt",
    "planted-14.txt",
    "planted-15.txt",
];

/// Scripts one after the other, each under a line `#: name`.
fn cases(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split("#: ").skip(1).map(|it| it.split_once('\n').unwrap())
}

fn expected(text: &str) -> BTreeSet<(usize, String)> {
    let marks = (1..)
        .zip(text.lines())
        .filter_map(|(line, text)| Some((line, text.split_once("# <- ")?.1)));
    marks.flat_map(|(line, codes)| codes.split(' ').map(move |it| (line, it.to_owned()))).collect()
}

#[test]
fn planted_mistakes_are_found_and_clean_scripts_are_left_alone() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/programs/lint");
    let all = Selection { select: vec!["ALL".to_owned()], ignore: Vec::new() };
    let mut seen = BTreeSet::new();
    let mut n_scripts = 0;
    // Scripts with what was found and what was planted, where they differ.
    let mut wrong = Vec::new();
    for file in fs::read_dir(&folder).unwrap().map(|it| it.unwrap().path()) {
        if file.extension().is_none_or(|it| it != "txt") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        for (name, script) in cases(&text) {
            n_scripts += 1;
            let found: BTreeSet<(usize, String)> = lint(script, &all)
                .unwrap()
                .into_iter()
                .map(|it| (it.start.line, it.rule.code.to_owned()))
                .collect();
            if found != expected(script) {
                wrong.push(format!("{name}: found {found:?}, planted {:?}", expected(script)));
            }
            seen.extend(found.into_iter().map(|it| it.1));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(90 < n_scripts);
    // Each rule has a script that it is there for.
    let unseen: Vec<_> = RULES.iter().map(|it| it.code).filter(|it| !seen.contains(*it)).collect();
    assert!(unseen.is_empty(), "{unseen:?}");
}

/// What `lint --confirm` runs: the text without a mistake does not have it, and the one with marks has no others.
#[test]
fn what_is_mended_has_the_mistake_no_more_and_marks_change_nothing() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/programs/lint");
    let all = Selection { select: vec!["ALL".to_owned()], ignore: Vec::new() };
    let mut n_mended = 0;
    for file in PLANTED {
        let text = fs::read_to_string(folder.join(file)).unwrap();
        for (name, script) in cases(&text) {
            let found = lint(script, &all).unwrap();
            let marked = plimsoll_lint::probed(script, &found, |n| format!("print({n})"));
            let codes = |text: &str| -> Vec<&str> {
                lint(text, &all).unwrap().iter().map(|it| it.rule.code).collect()
            };
            assert_eq!(codes(&marked), codes(script), "{name}");
            for it in &found {
                let Some(mended) = it.mended(script) else { continue };
                n_mended += 1;
                let left = lint(&mended, &all)
                    .unwrap_or_else(|error| panic!("{name}: {error:?} in\n{mended}"));
                let same = |text: &[plimsoll_lint::Diagnosis]| {
                    text.iter().filter(|other| other.rule == it.rule).count()
                };
                // An expression that switches gradients off and on again is for running, not for reading.
                let is_switch = mended.contains("set_grad_enabled(False), ");
                assert!(
                    is_switch || same(&left) < same(&found),
                    "{name}: {} is still there in\n{mended}",
                    it.rule.code
                );
            }
        }
    }
    assert!(40 < n_mended, "{n_mended}");
}

/// The code that a message proposes is Python, and no method of a tensor is called on a list or a dictionary.
#[test]
fn what_is_proposed_is_code_that_runs() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/programs/lint");
    let all = Selection { select: vec!["ALL".to_owned()], ignore: Vec::new() };
    let scripts: Vec<String> = PLANTED
        .iter()
        .map(|file| fs::read_to_string(folder.join(file)).unwrap())
        .flat_map(|text| cases(&text).map(|it| it.1.to_owned()).collect::<Vec<_>>())
        .collect();
    let mut n_proposed = 0;
    for found in scripts.iter().flat_map(|it| lint(it, &all).unwrap()) {
        let pieces = found.message.split('`').skip(1).step_by(2);
        for piece in pieces.filter(|it| {
            it.ends_with("item()") || it.ends_with("cpu()") || it.ends_with("detach()")
        }) {
            let code = if piece.starts_with('.') { format!("x{piece}") } else { piece.to_owned() };
            assert!(lint(&format!("y = {code}\n"), &all).is_ok(), "{}: {piece}", found.message);
            assert!(
                !piece.contains("])") && !piece.contains("})") && !piece.contains("..."),
                "{piece}"
            );
            n_proposed += 1;
        }
    }
    assert!(30 < n_proposed, "{n_proposed}");
}

/// What costs more with every step stands before what costs once.
#[test]
fn what_costs_most_stands_first() {
    let script = "import torch\ntorch.cuda.empty_cache()\ndef train(model, opt, loader):\n    total = 0\n    for x, y in loader:\n        torch.cuda.empty_cache()\n        opt.zero_grad()\n        loss = torch.nn.functional.mse_loss(model(x), y)\n        loss.backward()\n        opt.step()\n        total += loss\n";
    let found = lint(script, &Selection::default()).unwrap();
    let codes: Vec<&str> = found.iter().map(|it| it.rule.code).collect();
    assert_eq!(codes, ["PLM101", "PLM501"]);
}
