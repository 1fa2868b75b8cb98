//! What of a report is shown on a terminal that it does not fit: its answer, what to do, and how to see the rest. Reports begin with their
//! answer, and consist of parts with a blank line between.

/// Lines that a terminal has less: the one of the next prompt.
const PROMPT: usize = 1;
/// On a terminal with fewer lines nothing is folded.
const FEWEST: usize = 12;
/// Lines of a last part that stays.
const LAST: usize = 2;
/// What a command begins with that somebody copies: its line is not broken.
const COPIED: [&str; 3] = ["plimsoll ", "patch ", "%%"];

/// `text` with lines of at most `columns`, broken between words. What goes on is indented as the last column of a table, or by two more than
/// the line.
pub(crate) fn broken(text: &str, columns: usize) -> String {
    let mut res = String::with_capacity(text.len() + 64);
    for line in text.split_inclusive('\n') {
        let (content, end) = line.strip_suffix('\n').map_or((line, ""), |it| (it, "\n"));
        let inner = content.trim_start();
        if width(content) <= columns || COPIED.iter().any(|it| inner.starts_with(it)) {
            res += line;
            continue;
        }
        let indent = content.len() - inner.len();
        let last = inner.trim_end().rfind("  ").map(|at| width(&content[..indent + at + 2]));
        let hanging = last.filter(|at| 2 * at < columns).unwrap_or(indent + 2);
        let mut column = 0;
        // Spaces of a table stay; where a line ends they go.
        for part in content.split_inclusive(' ') {
            let word = part.trim_end_matches(' ');
            if hanging < column && columns < column + width(word) && !word.is_empty() {
                res.truncate(res.trim_end_matches(' ').len());
                res += &format!("\n{:hanging$}", "");
                column = hanging;
            }
            res += part;
            column += width(part);
        }
        res += end;
    }
    res
}

/// How many columns a text takes: the marks of a style take none.
fn width(text: &str) -> usize {
    let mut all = text.chars();
    let mut res = 0;
    while let Some(it) = all.next() {
        if it == '\x1b' {
            all.by_ref().find(|it| *it == 'm');
        } else {
            res += 1;
        }
    }
    res
}

/// `text` in at most `rows` lines of a terminal, the prompt below it included. Parts go from the last on, those whose first line has one of the
/// words in `stays` after all others. The last part stays if it is one or two lines: it names other commands.
pub(crate) fn folded(text: &str, (columns, rows): (usize, usize), stays: &[&str]) -> String {
    // A command that somebody copies may be longer than a line of the terminal.
    let height =
        |part: &[&str]| part.iter().map(|it| width(it).div_ceil(columns).max(1)).sum::<usize>();
    // The blank line above a report may scroll away.
    let n = height(&text.trim_matches('\n').lines().collect::<Vec<_>>());
    if rows < FEWEST || n + PROMPT <= rows {
        return text.to_owned();
    }
    let mut parts: Vec<Vec<&str>> =
        text.trim_matches('\n').split("\n\n").map(|part| part.lines().collect()).collect();
    let last = parts.pop_if(|part| height(part) <= LAST);
    // The line that says so, and the last part with the blank line above it.
    let most = rows - PROMPT - 1 - last.as_ref().map_or(0, |part| height(part) + 1);
    let lines = |parts: &[Vec<&str>]| {
        parts.iter().map(|it| height(it) + 1).sum::<usize>().saturating_sub(1)
    };
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
                if over + 3 <= height(part) {
                    cut(part, over, height);
                } else {
                    parts.remove(at);
                }
            }
            None => {
                let over = lines(&parts) - most;
                let longest = (0..parts.len()).max_by_key(|&it| height(&parts[it]));
                let Some(part) = longest.map(|it| &mut parts[it]) else { break };
                cut(part, over, height);
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

/// Takes so many lines of a terminal from the end of a part, but not its first line.
fn cut(part: &mut Vec<&str>, over: usize, height: impl Fn(&[&str]) -> usize) {
    let most = height(part).saturating_sub(over);
    while 1 < part.len() && most < height(part) {
        part.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "OUT OF MEMORY: why\n  where\n\nThe numbers\n  a\n  b\n  c\n  d\n\nWhat to change\n  1. this\n  2. that\n\nNotes\n  x\n  y\n  z\n\nGlossary: plimsoll glossary slack\n";

    #[test]
    fn what_to_do_stays_longer_than_tables() {
        let of = |rows: usize| folded(REPORT, (80, rows), &["What to change"]);
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
        let shown = folded(&text, (80, 24), &[]);
        assert_eq!(shown.lines().count(), 23);
        assert!(shown.ends_with("21\n... 68 more lines: --full\n"), "{shown}");
    }

    #[test]
    fn long_lines_end_between_words_and_commands_stay_whole() {
        let table = "  a  b   \x1b[1mlong\x1b[0m words of the last column\n";
        assert_eq!(
            broken(table, 24),
            "  a  b   \x1b[1mlong\x1b[0m words of\n         the last column\n"
        );
        assert_eq!(broken("one two three four\n", 10), "one two\n  three\n  four\n");
        assert_eq!(broken("aaaaaaaaaaaaaaaa b\n", 10), "aaaaaaaaaaaaaaaa\n  b\n");
        let command = "    plimsoll run --plan plan.toml -- python train.py\n";
        assert_eq!(broken(command, 20), command);
        // It takes three lines of the terminal.
        let text = command.repeat(8);
        assert_eq!(folded(&text, (20, 24), &[]).lines().count(), 8);
    }
}
