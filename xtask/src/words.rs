//! Holds what people read against the table of words in CONTRIBUTING.md: a word in its last column stands in no sentence of the program and in no document.

use std::{fmt::Write as _, fs};

use regex_lite::Regex;

use crate::sentences::{all, files, root};

/// What the program quotes of its documents is linked from here.
const DOCUMENTS: &str = "docs";
const SINGLE: [&str; 3] = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md"];

/// The words of the last column, as they stand there in backticks.
fn gone() -> Vec<String> {
    let page = fs::read_to_string(root().unwrap().join("CONTRIBUTING.md")).unwrap();
    let table = page.split_once("\n## Words\n").unwrap().1.split("\n## ").next().unwrap();
    let code = Regex::new("`([^`]+)`").unwrap();
    let last = |row: &str| row.trim_end_matches(['|', ' ']).rsplit('|').next().unwrap().to_owned();
    let rows = table.lines().filter(|line| line.starts_with('|')).skip(2).map(last);
    let words = rows.flat_map(|cell| {
        code.captures_iter(&cell).map(|found| found[1].to_owned()).collect::<Vec<_>>()
    });
    words.collect()
}

/// Text without what stands in backticks or in a link's address, which are names, in small letters.
fn prose(text: &str) -> String {
    let names = Regex::new(r"(?s)```.*?```|`[^`]*`|\]\([^)]*\)").unwrap();
    names.replace_all(text, " ").to_lowercase()
}

/// Whether the word or words stand in the text by themselves; a part of a hyphenated word or of a path is none.
fn has(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || "-_/.".contains(c);
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let mut after = text[at + word.len()..].chars();
        let (next, then) = (after.next(), after.next());
        let ends = match next {
            // The end of a sentence.
            Some('.') => !then.is_some_and(char::is_alphanumeric),
            Some(c) => !is_part(c),
            None => true,
        };
        ends && !before.is_some_and(is_part)
    })
}

#[test]
fn words_that_are_gone_stay_away() {
    let root = root().unwrap();
    let gone = gone();
    assert!(10 < gone.len(), "{gone:?}");
    let mut wrong = String::new();
    let mut look = |place: &str, text: &str| {
        let prose = prose(text);
        for word in gone.iter().filter(|word| has(&prose, word)) {
            writeln!(wrong, "{place}: {word}: {text}").unwrap();
        }
    };
    for (file, sentences) in all().unwrap() {
        sentences.iter().for_each(|sentence| look(&file, sentence));
    }
    let documents = files(&root.join(DOCUMENTS), "md").unwrap();
    for path in documents.into_iter().chain(SINGLE.iter().map(|name| root.join(name))) {
        let text = fs::read_to_string(&path).unwrap();
        let name = path.strip_prefix(&root).unwrap().display().to_string();
        let mut in_code = false;
        for (index, line) in text.lines().enumerate() {
            in_code ^= line.starts_with("```");
            if !in_code {
                look(&format!("{name}:{}", index + 1), line);
            }
        }
    }
    assert!(wrong.is_empty(), "say it with the words of CONTRIBUTING.md's table:\n{wrong}");
}

#[test]
fn a_word_is_found_by_itself_only() {
    assert!(has("no room.", "room") && has("room for it", "room"));
    assert!(!has("bedroom", "room") && !has("carried-state", "carried") && !has("room.rs", "room"));
    assert!(!has(&prose("the `room` of [it](room)"), "room"));
}
