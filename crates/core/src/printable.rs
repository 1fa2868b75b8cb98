//! Text that somebody else wrote, as it may be shown: what a terminal, a reader of logs or an eye would take for something else is written
//! out, as Rust writes it (`\x1b`, `\n`, `\u{202e}`). What can be read stays, in whatever script it is written.

use std::{borrow::Cow, fmt::Write as _, str};

/// `text` as it may stand in a sentence: on one line, and with nothing that is not seen.
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, |it| !is_printable(it))
}

/// `text` without what ends a line or commands a terminal. No name needs those; marks that join or order letters, which some do, stay
/// until the name is shown.
pub fn one_line(text: &str) -> Cow<'_, str> {
    escaped(text, is_command)
}

/// Whether a reader sees `it`, or a blank in its place. A line end is none.
pub fn is_printable(it: char) -> bool {
    if it.is_ascii() {
        return !it.is_ascii_control();
    }
    // An accent that is written behind its letter is printable where there is a letter.
    let mut pair = [b'a'; 5];
    let len = 1 + it.encode_utf8(&mut pair[1..]).len();
    let pair = str::from_utf8(&pair[..len]).unwrap_or_default();
    let is_blank = it.is_whitespace() && !is_command(it);
    is_blank || pair.escape_debug().eq(pair.chars())
}

/// Writes `it` as an escape.
pub fn escape(it: char, to: &mut String) {
    // A text is written to without errors.
    let _ = match it {
        '\n' => to.write_str("\\n"),
        '\r' => to.write_str("\\r"),
        '\t' => to.write_str("\\t"),
        it if it.is_ascii() => write!(to, "\\x{:02x}", u32::from(it)),
        it => write!(to, "\\u{{{:x}}}", u32::from(it)),
    };
}

/// Controls, and what Unicode has for the ends of lines and paragraphs.
fn is_command(it: char) -> bool {
    it.is_control() || matches!(it, '\u{2028}' | '\u{2029}')
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    // Nearly all names are of this kind.
    if text.bytes().all(|it| matches!(it, b' '..=b'~')) || !text.chars().any(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut res = String::with_capacity(text.len() + 8);
    for it in text.chars() {
        if is_escaped(it) { escape(it, &mut res) } else { res.push(it) }
    }
    Cow::Owned(res)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_commands_is_written_out_and_what_can_be_read_stays() {
        for readable in
            ["", "train.py", "C:\\it's \"x\"", "训练 é e\u{301} 🎉 ❤\u{fe0f} größe\u{a0}\u{3000}"]
        {
            assert!(matches!(printable(readable), Cow::Borrowed(_)), "{readable}");
        }
        assert_eq!(printable("a\x1b[2J\n\r\t\0\x7f"), r"a\x1b[2J\n\r\t\x00\x7f");
        assert_eq!(
            printable("\u{9b}\u{202e}\u{2028}\u{200b}\u{feff}\u{e0041}"),
            r"\u{9b}\u{202e}\u{2028}\u{200b}\u{feff}\u{e0041}"
        );
        assert_eq!(printable(&printable("\u{2066}\n")), printable("\u{2066}\n"));
        // Persian has words with a mark that nobody sees.
        assert_eq!(one_line("می\u{200c}خواهم\n\u{85}"), "می\u{200c}خواهم\\n\\u{85}");
    }
}
