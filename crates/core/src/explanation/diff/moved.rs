//! Where lines of one recording stand in another, when the code was edited or moved in between. A
//! recording has no source: what is known are the lines of each function that stood on some stack.

use std::collections::{BTreeMap, BTreeSet};

use crate::{recording::CodeLine, trace::Trace};

/// Sets of lines larger than this are compared as they are.
const MOST_LINES: usize = 400;

type Lines = BTreeSet<u32>;
/// By function.
type File = BTreeMap<String, Lines>;

/// Where lines of the first recording stand in the second; a line that is not here is where it was.
#[derive(Debug, Default)]
pub(super) struct Moved {
    files: BTreeMap<String, String>,
    /// By file and function of the first.
    lines: BTreeMap<(String, String), BTreeMap<u32, u32>>,
}

impl Moved {
    pub(super) fn between(before: &Trace, after: &Trace) -> Moved {
        Moved::of(&files(before), &files(after))
    }

    fn of(before: &BTreeMap<String, File>, after: &BTreeMap<String, File>) -> Moved {
        let mut res = Moved { files: pair_files(before, after), lines: BTreeMap::new() };
        for (name, file) in before {
            let now = after.get(res.files.get(name).unwrap_or(name));
            let Some(now) = now else { continue };
            for (function, lines) in file {
                let Some(to) = now.get(function).filter(|it| *it != lines) else { continue };
                // A later function that stands where it stood: nothing was inserted before it.
                let is_fixed = file.iter().any(|(other, at)| {
                    other != function && lines.last() < at.first() && now.get(other) == Some(at)
                });
                if !is_fixed && lines.len() <= MOST_LINES && to.len() <= MOST_LINES {
                    let pairs = pair_lines(lines, to);
                    res.lines.insert((name.clone(), function.clone()), pairs);
                }
            }
        }
        res
    }

    /// Where `line` stands in the second recording, when that is elsewhere.
    pub(super) fn now(&self, line: &CodeLine) -> Option<CodeLine> {
        let file = self.files.get(&line.file);
        let at = self.lines.get(&(line.file.clone(), line.function.clone()));
        let at = at.and_then(|it| it.get(&line.line)).filter(|it| **it != line.line);
        if file.is_none() && at.is_none() {
            return None;
        }
        Some(CodeLine {
            file: file.unwrap_or(&line.file).clone(),
            line: at.copied().unwrap_or(line.line),
            ..line.clone()
        })
    }
}

fn files(trace: &Trace) -> BTreeMap<String, File> {
    let mut res: BTreeMap<String, File> = BTreeMap::new();
    for frame in trace.stacks.all_frames().filter(|it| it.line != 0) {
        let functions = res.entry(trace.text(frame.file).to_owned()).or_default();
        functions.entry(trace.text(frame.function).to_owned()).or_default().insert(frame.line);
    }
    res
}

/// Files of another path but the same name, by how much of the end of their paths is the same.
fn pair_files(
    before: &BTreeMap<String, File>,
    after: &BTreeMap<String, File>,
) -> BTreeMap<String, String> {
    let parts =
        |it: &str| -> Vec<String> { it.rsplit(['/', '\\']).map(ToOwned::to_owned).collect() };
    let left: Vec<&String> = after.keys().filter(|it| !before.contains_key(*it)).collect();
    let mut by_name: BTreeMap<String, Vec<&String>> = BTreeMap::new();
    for it in left {
        by_name.entry(parts(it)[0].clone()).or_default().push(it);
    }
    let mut found: Vec<(usize, &String, &String)> = Vec::new();
    for name in before.keys().filter(|it| !after.contains_key(*it)) {
        let own = parts(name);
        for other in by_name.get(&own[0]).into_iter().flatten() {
            let theirs = parts(other);
            let same = own.iter().zip(&theirs).take_while(|(a, b)| a == b).count();
            found.push((same, name, other));
        }
    }
    found.sort_by_key(|(same, name, other)| (std::cmp::Reverse(*same), *name, *other));
    let mut res: BTreeMap<String, String> = BTreeMap::new();
    let mut taken = BTreeSet::new();
    for (_, name, other) in found {
        if !res.contains_key(name) && taken.insert(other) {
            res.insert(name.clone(), other.clone());
        }
    }
    res
}

/// Where each of `from` stands in `to`: all moved by the same distance, if that explains more of them than
/// no move does; and one that is left alone is the one that is left alone there.
fn pair_lines(from: &Lines, to: &Lines) -> BTreeMap<u32, u32> {
    let moved = |by: i64| {
        from.iter().filter_map(move |position| {
            let now = u32::try_from(i64::from(*position) + by).ok()?;
            to.contains(&now).then_some((*position, now))
        })
    };
    let distances: BTreeSet<i64> =
        from.iter().flat_map(|a| to.iter().map(move |b| i64::from(*b) - i64::from(*a))).collect();
    let best = distances.into_iter().max_by_key(|it| (moved(*it).count(), -it.abs(), *it));
    let mut res: BTreeMap<u32, u32> = moved(best.unwrap_or(0)).collect();
    let taken: BTreeSet<u32> = res.values().copied().collect();
    let left: Vec<u32> = from.iter().filter(|it| !res.contains_key(it)).copied().collect();
    let free: Vec<u32> = to.iter().filter(|it| !taken.contains(it)).copied().collect();
    if let ([one], [other]) = (&left[..], &free[..]) {
        res.insert(*one, *other);
    }
    res
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(functions: &[(&str, &[u32])]) -> File {
        functions
            .iter()
            .map(|(name, lines)| ((*name).to_owned(), lines.iter().copied().collect()))
            .collect()
    }

    fn now(before: File, after: File, function: &str, line: u32) -> (String, u32) {
        let before = BTreeMap::from([("/a/train.py".to_owned(), before)]);
        let after = BTreeMap::from([("/b/train.py".to_owned(), after)]);
        let line = CodeLine {
            file: "/a/train.py".to_owned(),
            line,
            function: function.to_owned(),
            text: String::new(),
        };
        let now = Moved::of(&before, &after).now(&line).unwrap();
        (now.file, now.line)
    }

    #[test]
    fn an_inserted_line_moves_what_comes_after_it() {
        let before = file(&[("f", &[3, 4]), ("main", &[10, 11, 13]), ("<module>", &[20])]);
        let after = file(&[("f", &[3, 4]), ("main", &[11, 12, 14]), ("<module>", &[21])]);
        for (line, expected) in [(10, 11), (11, 12), (13, 14)] {
            assert_eq!(now(before.clone(), after.clone(), "main", line).1, expected);
        }
        assert_eq!(now(before.clone(), after.clone(), "f", 3), ("/b/train.py".to_owned(), 3));
        assert_eq!(now(before, after, "<module>", 20).1, 21);
    }

    #[test]
    fn another_branch_of_the_same_code_did_not_move() {
        let before = file(&[("main", &[10, 11]), ("<module>", &[20])]);
        let after = file(&[("main", &[10, 15]), ("<module>", &[20])]);
        assert_eq!(now(before.clone(), after.clone(), "main", 11).1, 11);
        assert_eq!(now(before, after, "main", 10).1, 10);
    }

    #[test]
    fn a_line_in_the_middle_of_a_function_moves_the_rest() {
        let before = file(&[("main", &[10, 11, 12])]);
        let after = file(&[("main", &[10, 11, 14])]);
        assert_eq!(now(before.clone(), after.clone(), "main", 12).1, 14);
        assert_eq!(now(before, after, "main", 11).1, 11);
    }
}
