//! What of a report is shown on a terminal that it does not fit: its answer, what to do, and how to see the rest. Reports begin with their
//! answer, and consist of parts with a blank line between.

/// Lines that a terminal has less: the one of the next prompt.
const PROMPT: usize = 1;
/// On a terminal with fewer lines nothing is folded.
const FEWEST: usize = 12;
/// Lines of a last part that stays.
const LAST: usize = 2;

/// `text` in at most `rows` lines, the prompt below it included. Parts go from the last on, those whose first line has one of the words in
/// `stays` after all others. The last part stays if it is one or two lines: it names other commands.
pub(crate) fn folded(text: &str, rows: usize, stays: &[&str]) -> String {
    // The blank line above a report may scroll away.
    let n = text.trim_matches('\n').lines().count();
    if rows < FEWEST || n + PROMPT <= rows {
        return text.to_owned();
    }
    let mut parts: Vec<Vec<&str>> =
        text.trim_matches('\n').split("\n\n").map(|part| part.lines().collect()).collect();
    let last = parts.pop_if(|part| part.len() <= LAST);
    // The line that says so, and the last part with the blank line above it.
    let most = rows - PROMPT - 1 - last.as_ref().map_or(0, |part| part.len() + 1);
    let lines =
        |parts: &[Vec<&str>]| parts.iter().map(|it| it.len() + 1).sum::<usize>().saturating_sub(1);
    let all = lines(&parts);
    let is_kept = |part: &[&str]| {
        part.first().is_some_and(|title| stays.iter().any(|word| title.contains(word)))
    };
    while most < lines(&parts) {
        let goes = (1..parts.len()).rev().find(|&it| !is_kept(&parts[it]));
        match goes {
            // What is about to go is shown as far as there is space for its title and two lines.
            Some(at) => {
                let over = lines(&parts) - most;
                let part = &mut parts[at];
                if over + 3 <= part.len() {
                    part.truncate(part.len() - over);
                } else {
                    parts.remove(at);
                }
            }
            None => {
                let over = lines(&parts) - most;
                let longest = (0..parts.len()).max_by_key(|&it| parts[it].len());
                let Some(part) = longest.map(|it| &mut parts[it]) else { break };
                part.truncate(part.len().saturating_sub(over).max(1));
                break;
            }
        }
    }
    let hidden = all - lines(&parts);
    let shown: Vec<String> = parts.iter().map(|it| it.join("\n")).collect();
    let mut res = shown.join("\n\n");
    let s = if hidden == 1 { "" } else { "s" };
    res += &format!("\n... {hidden} more line{s}: --full\n");
    if let Some(last) = last {
        res += &format!("\n{}\n", last.join("\n"));
    }
    res
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "OUT OF MEMORY: why\n  where\n\nThe numbers\n  a\n  b\n  c\n  d\n\nWhat to change\n  1. this\n  2. that\n\nNotes\n  x\n  y\n  z\n\nGlossary: plimsoll glossary slack\n";

    #[test]
    fn what_to_do_stays_longer_than_tables() {
        let of = |rows: usize| folded(REPORT, rows, &["What to change"]);
        assert_eq!(of(20), REPORT);
        assert_eq!(
            of(19),
            "OUT OF MEMORY: why\n  where\n\nThe numbers\n  a\n  b\n  c\n  d\n\nWhat to change\n  1. this\n  2. that\n... 5 more lines: --full\n\nGlossary: plimsoll glossary slack\n"
        );
        assert_eq!(
            of(13),
            "OUT OF MEMORY: why\n  where\n\nWhat to change\n  1. this\n  2. that\n... 11 more lines: --full\n\nGlossary: plimsoll glossary slack\n"
        );
        for rows in FEWEST..30 {
            assert!(of(rows).lines().count() < rows, "{rows}");
        }
        assert_eq!(of(11), REPORT, "too small to be read anyway");
    }

    #[test]
    fn one_long_part_is_cut() {
        let text: String = (0..90).map(|it| format!("{it}\n")).collect();
        let shown = folded(&text, 24, &[]);
        assert_eq!(shown.lines().count(), 23);
        assert!(shown.ends_with("21\n... 68 more lines: --full\n"), "{shown}");
    }
}
