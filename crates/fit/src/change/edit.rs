//! Edits of a source file, by positions in it as it was.

use plimsoll_core::recording::{Site, Span};

/// One edit of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edit {
    pub(crate) file: String,
    how: How,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum How {
    /// This text instead of what is there; an empty span is a place to insert at.
    Instead(Span, String),
    /// These lines before this line, indented as it is.
    Before(u32, String),
    /// These lines after `last`, indented as `first` is.
    After { first: u32, last: u32, text: String },
    /// The lines from first to last one level deeper, under this line.
    Under { first: u32, last: u32, head: String },
}

impl Edit {
    pub(crate) fn instead(file: &str, span: Span, text: &str) -> Edit {
        Edit { file: file.to_owned(), how: How::Instead(span, text.to_owned()) }
    }

    pub(crate) fn insert(file: &str, at: (u32, u32), text: &str) -> Edit {
        Edit::instead(file, Span { first: at, end: at }, text)
    }

    pub(crate) fn before(site: &Site, text: &str) -> Edit {
        let how = How::Before(site.statement.first.0, text.to_owned());
        Edit { file: site.file.clone(), how }
    }

    pub(crate) fn after(site: &Site, text: &str) -> Edit {
        let (first, last) = (site.statement.first.0, site.statement.end.0);
        Edit { file: site.file.clone(), how: How::After { first, last, text: text.to_owned() } }
    }

    pub(crate) fn before_line(file: &str, line: u32, text: &str) -> Edit {
        Edit { file: file.to_owned(), how: How::Before(line, text.to_owned()) }
    }

    pub(crate) fn after_line(file: &str, line: u32, text: &str) -> Edit {
        let how = How::After { first: line, last: line, text: text.to_owned() };
        Edit { file: file.to_owned(), how }
    }

    pub(crate) fn under(file: &str, (first, last): (u32, u32), head: &str) -> Edit {
        Edit { file: file.to_owned(), how: How::Under { first, last, head: head.to_owned() } }
    }
}

/// A line on its way.
#[derive(Clone, Debug, Default)]
struct Line {
    before: Vec<String>,
    /// None once it became a part of the line above.
    text: Option<String>,
    after: Vec<String>,
    deeper: usize,
    indent: String,
}

/// The text with these edits; none where one is in another's way or outside of the text.
pub(crate) fn apply(text: &str, edits: &[&Edit]) -> Option<String> {
    let end =
        if text.lines().next().is_some_and(|_| text.contains("\r\n")) { "\r\n" } else { "\n" };
    let mut lines: Vec<Line> = text
        .lines()
        .map(|line| Line {
            text: Some(line.to_owned()),
            indent: line.chars().take_while(|it| it.is_whitespace()).collect(),
            ..Line::default()
        })
        .collect();
    let mut instead: Vec<(Span, &str)> = edits
        .iter()
        .filter_map(|edit| match &edit.how {
            How::Instead(span, text) => Some((*span, text.as_str())),
            _ => None,
        })
        .collect();
    // From the end, so that positions before stay true; of two insertions at one place the first comes first.
    instead.reverse();
    instead.sort_by_key(|(span, _)| std::cmp::Reverse((span.first, span.end)));
    for pair in instead.windows(2) {
        if pair[0].0.first < pair[1].0.end {
            return None;
        }
    }
    for (span, text) in instead {
        replace(&mut lines, span, text)?;
    }
    for it in edits {
        match &it.how {
            How::Instead(..) => (),
            How::Before(line, text) => {
                let line = lines.get_mut(index(*line)?)?;
                let new = indented(text, &line.indent);
                line.before.extend(new);
            }
            How::After { first, last, text } => {
                let indent = lines.get(index(*first)?)?.indent.clone();
                lines.get_mut(index(*last)?)?.after.extend(indented(text, &indent));
            }
            How::Under { first, last, head } => {
                let (first, last) = (index(*first)?, index(*last)?);
                let line = lines.get_mut(first)?;
                let unit = unit(&line.indent).repeat(line.deeper);
                line.before.push(format!("{}{unit}{head}", line.indent));
                for it in lines.get_mut(first..=last)? {
                    it.deeper += 1;
                }
            }
        }
    }
    let mut res = String::with_capacity(text.len() * 2);
    let mut push = |part: &str| {
        res.push_str(part);
        res.push_str(end);
    };
    for it in &lines {
        it.before.iter().for_each(|it| push(it));
        if let Some(text) = &it.text {
            if text.trim().is_empty() {
                push(text);
            } else {
                push(&format!("{}{text}", unit(&it.indent).repeat(it.deeper)));
            }
        }
        it.after.iter().for_each(|line| {
            push(&format!(
                "{}{line}",
                unit(&it.indent).repeat(if line.is_empty() { 0 } else { it.deeper })
            ));
        });
    }
    if !text.ends_with('\n') && res.ends_with(end) {
        res.truncate(res.len() - end.len());
    }
    Some(res)
}

/// One level of indentation, in the style of a line.
fn unit(indent: &str) -> &'static str {
    if indent.starts_with('\t') { "\t" } else { "    " }
}

fn indented(text: &str, indent: &str) -> Vec<String> {
    let line = |it: &str| if it.is_empty() { String::new() } else { format!("{indent}{it}") };
    text.lines().map(line).collect()
}

fn index(line: u32) -> Option<usize> {
    usize::try_from(line).ok()?.checked_sub(1)
}

fn replace(lines: &mut [Line], span: Span, text: &str) -> Option<()> {
    let (first, last) = (index(span.first.0)?, index(span.end.0)?);
    let byte = |it: u32| usize::try_from(it).ok();
    let tail = lines.get(last)?.text.as_ref()?.get(byte(span.end.1)?..)?.to_owned();
    let head = lines.get(first)?.text.as_ref()?.get(..byte(span.first.1)?)?.to_owned();
    for it in lines.get_mut(first + 1..=last).unwrap_or_default() {
        it.text = None;
    }
    lines.get_mut(first)?.text = Some(format!("{head}{text}{tail}"));
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(first: (u32, u32), end: (u32, u32)) -> Span {
        Span { first, end }
    }

    #[test]
    fn positions_are_those_of_the_text_as_it_was() {
        let text = "a(\n  b,\n)\n\tc()\n";
        let edits = [
            Edit::insert("f", (2, 3), ", d=1"),
            Edit::under("f", (4, 4), "with x:"),
            Edit::instead("f", span((1, 0), (1, 1)), "long"),
            Edit::after_line("f", 4, "e()"),
        ];
        let all: Vec<&Edit> = edits.iter().collect();
        assert_eq!(
            apply(text, &all).unwrap(),
            "long(\n  b, d=1,\n)\n\twith x:\n\t\tc()\n\t\te()\n"
        );
    }

    #[test]
    fn several_lines_become_one() {
        let whole = Edit::instead("f", span((1, 4), (3, 1)), "y()");
        assert_eq!(apply("x = a(\n  b,\n)\nz", &[&whole]).unwrap(), "x = y()\nz");
        let inside = Edit::insert("f", (2, 3), ", d=1");
        assert_eq!(apply("x = a(\n  b,\n)\nz", &[&whole, &inside]), None);
    }

    #[test]
    fn what_is_not_there_is_no_place() {
        assert_eq!(apply("a\n", &[&Edit::insert("f", (7, 0), "x")]), None);
        assert_eq!(apply("ä\n", &[&Edit::insert("f", (1, 1), "x")]), None);
    }

    #[test]
    fn line_ends_stay_what_they_are() {
        let edit = Edit::after_line("f", 1, "b");
        assert_eq!(apply("a\r\nc", &[&edit]).unwrap(), "a\r\nb\r\nc");
    }
}
