//! What nobody writes takes bounded memory and time, is read or is left out with a sentence, and never ends who reads it.

mod sources;

use std::{num::NonZero, thread};

use plimsoll_lint::{Selection, lint, lint_notebook};
use sources::{Source, Then, sources};

/// These use up all operations that reading a source may need, which takes half a minute each without optimization.
const LONG: [&str; 2] = ["loops-in-a-function", "loops-in-loops"];

/// Every third of them, which are of all kinds; the others take long without optimization, too.
#[test]
fn each_is_read_or_left_out() {
    check(|at, name| at % 3 == 0 && !LONG.contains(&name));
}

#[test]
#[ignore = "takes long without optimization: `make soak`"]
fn the_others_and_the_longest_too() {
    check(|at, name| at % 3 != 0 || LONG.contains(&name));
}

fn check(is_asked: impl Fn(usize, &str) -> bool) {
    let sources = sources();
    assert!(90 < sources.len());
    let sources: Vec<Source> = sources
        .into_iter()
        .enumerate()
        .filter(|(at, it)| is_asked(*at, it.0))
        .map(|it| it.1)
        .collect();
    assert!(30 <= sources.len());
    // Some take seconds without optimization.
    let n_threads = thread::available_parallelism().map_or(1, NonZero::get);
    let wrong: Vec<String> = thread::scope(|scope| {
        let started: Vec<_> = (0..n_threads)
            .map(|first| {
                let mine = sources.iter().skip(first).step_by(n_threads);
                scope.spawn(move || mine.filter_map(wrong).collect::<Vec<_>>())
            })
            .collect();
        let panicked = |_| vec!["a reader panicked".to_owned()];
        started.into_iter().flat_map(|it| it.join().unwrap_or_else(panicked)).collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What is wrong with the answer to a source.
fn wrong((name, text, then): &Source) -> Option<String> {
    let all = Selection { select: vec!["ALL".to_owned()], ignore: Vec::new() };
    let read = if name.ends_with(".ipynb") { lint_notebook } else { lint };
    let found = read(text, &all).map(|_| ()).map_err(|error| error.to_string());
    let is_right = match (&found, then) {
        (Ok(()), Then::Read) => true,
        (Err(why), Then::LeftOut(expected)) => why.contains(expected) && why.len() < 300,
        _ => false,
    };
    (!is_right).then(|| format!("{name}: {found:?}, expected {then:?}"))
}

/// What is long is told in short.
#[test]
fn a_mistake_in_a_long_line_is_told_in_a_short_one() {
    let long = "x; ".repeat(50_000);
    let text = format!("import torch\n{long}m.load_state_dict(torch.load('a').cuda())\n");
    let found = lint(&text, &Selection::default()).unwrap();
    assert_eq!((found.len(), found[0].start.line), (1, 2));
    assert_eq!(found[0].start.column, long.len() + "m.load_state_dict(".len() + 1);
    assert!(found[0].line.len() <= 1000 && found[0].message.len() < 300);
}
