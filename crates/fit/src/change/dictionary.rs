//! A dictionary that is written down, as JSON has it or as Python has a literal: where its values stand, and where one more would.

use plimsoll_core::recording::Span;

use super::edit::Edit;

/// Whose words a value is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Json,
    Python,
}

impl Dialect {
    /// How it writes what is so.
    pub(crate) fn yes(self) -> &'static str {
        match self {
            Dialect::Json => "true",
            Dialect::Python => "True",
        }
    }
}

/// One that was read: positions are bytes of its text.
#[derive(Clone, Debug)]
pub(crate) struct Dictionary<'a> {
    text: &'a str,
    /// Behind its opening brace.
    begin: usize,
    entries: Vec<Entry<'a>>,
}

#[derive(Clone, Debug)]
struct Entry<'a> {
    key: &'a str,
    /// Where the key stands, with its quotes.
    at: usize,
    value: (usize, usize),
    /// The value, if it is a dictionary.
    inner: Option<Dictionary<'a>>,
}

/// What is read of a text, from here on.
struct Reader<'a> {
    text: &'a str,
    at: usize,
    dialect: Dialect,
}

impl<'a> Dictionary<'a> {
    /// The one that begins at this byte; none if it is not one, or has entries of another kind (`**more`, computed keys).
    pub(crate) fn read(text: &'a str, at: usize, dialect: Dialect) -> Option<Dictionary<'a>> {
        let mut reader = Reader { text, at, dialect };
        reader.skip();
        reader.dictionary(0)
    }

    /// The dictionary that is the value of this key.
    pub(crate) fn inner(&self, key: &str) -> Option<&Dictionary<'a>> {
        self.entry(key)?.inner.as_ref()
    }

    /// The line of a key's value, or of the last entry.
    pub(crate) fn line_of(&self, key: &str) -> u32 {
        let last = self.entries.last().map_or(self.begin, |it| it.at);
        place(self.text, self.entry(key).map_or(last, |it| it.at)).0
    }

    /// The edit of `file`, whose text this is, that gives a key this value, written as it is to stand there.
    pub(crate) fn set(&self, file: &str, key: &str, value: &str) -> Edit {
        if let Some(it) = self.entry(key) {
            let (first, end) = (place(self.text, it.value.0), place(self.text, it.value.1));
            return Edit::instead(file, Span { first, end }, value);
        }
        let entry = format!("\"{key}\": {value}");
        let Some(last) = self.entries.last() else {
            return Edit::insert(file, place(self.text, self.begin), &entry);
        };
        let line = self.text[..last.at].rsplit('\n').next().unwrap_or_default();
        let gap = if line.trim().is_empty() { format!("\n{line}") } else { " ".to_owned() };
        Edit::insert(file, place(self.text, last.value.1), &format!(",{gap}{entry}"))
    }

    fn entry(&self, key: &str) -> Option<&Entry<'a>> {
        self.entries.iter().find(|it| it.key == key)
    }
}

/// The line and the byte in it.
fn place(text: &str, at: usize) -> (u32, u32) {
    let before = &text[..at];
    let number = |it: usize| u32::try_from(it).unwrap_or(u32::MAX);
    let begin = before.rfind('\n').map_or(0, |it| it + 1);
    (number(before.matches('\n').count() + 1), number(at - begin))
}

/// So many dictionaries in each other are read.
const DEEPEST: u32 = 32;

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn takes(&mut self, byte: u8) -> bool {
        let is_it = self.peek() == Some(byte);
        self.at += usize::from(is_it);
        is_it
    }

    /// Spaces, and comments where there may be some.
    fn skip(&mut self) {
        while let Some(it) = self.peek() {
            if it == b'#' && self.dialect == Dialect::Python {
                let rest = &self.text[self.at..];
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else if it.is_ascii_whitespace() {
                self.at += 1;
            } else {
                break;
            }
        }
    }

    fn dictionary(&mut self, depth: u32) -> Option<Dictionary<'a>> {
        if depth == DEEPEST || !self.takes(b'{') {
            return None;
        }
        let begin = self.at;
        let mut entries: Vec<Entry<'a>> = Vec::new();
        loop {
            self.skip();
            if self.takes(b'}') {
                return Some(Dictionary { text: self.text, begin, entries });
            }
            let at = self.at;
            let key = self.string()?;
            self.skip();
            if !self.takes(b':') || entries.iter().any(|it| it.key == key) {
                return None;
            }
            self.skip();
            let first = self.at;
            let inner = self.dictionary(depth + 1);
            let behind = self.at;
            let end = self.value(if inner.is_some() { behind } else { first })?;
            // What is more than the dictionary itself is something else.
            let inner = inner.filter(|_| end == behind);
            entries.push(Entry { key, at, value: (first, end), inner });
            self.skip();
            if !self.takes(b',') && self.peek() != Some(b'}') {
                return None;
            }
        }
    }

    /// A string in one kind of quotes, without what would have to be read in another way.
    fn string(&mut self) -> Option<&'a str> {
        let quote = self.peek().filter(|it| *it == b'"' || self.is_quote(*it))?;
        let begin = self.at + 1;
        let length = self.text[begin..].find(char::from(quote))?;
        let res = &self.text[begin..begin + length];
        self.at = begin + length + 1;
        (!res.is_empty() && !res.contains(['\\', '\n'])).then_some(res)
    }

    fn is_quote(&self, byte: u8) -> bool {
        byte == b'"' || byte == b'\'' && self.dialect == Dialect::Python
    }

    /// From this byte on, the end of what stands there up to the comma or brace behind it.
    fn value(&mut self, from: usize) -> Option<usize> {
        let mut open: Vec<u8> = Vec::new();
        self.at = from;
        let mut end = from;
        loop {
            self.skip();
            let byte = self.peek()?;
            match byte {
                b',' | b'}' if open.is_empty() => break,
                b'(' | b'[' | b'{' => open.push(byte),
                b')' | b']' | b'}' => {
                    let wanted = open.pop()?;
                    let is_pair =
                        matches!((wanted, byte), (b'(', b')') | (b'[', b']') | (b'{', b'}'));
                    is_pair.then_some(())?;
                }
                quote if self.is_quote(quote) => self.pass_string(quote)?,
                _ => (),
            }
            self.at += 1;
            end = self.at;
        }
        (from <= end && self.text.is_char_boundary(end)).then_some(end)
    }

    /// Up to the quote that ends a string. One over several lines, which has three, is not read.
    fn pass_string(&mut self, quote: u8) -> Option<()> {
        loop {
            self.at += 1;
            match self.peek()? {
                b'\\' => self.at += 1,
                b'\n' => return None,
                it if it == quote => return Some(()),
                _ => (),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::edit::apply;

    fn with(text: &str, dialect: Dialect, inner: &str, key: &str, value: &str) -> Option<String> {
        let all = Dictionary::read(text, text.find('{')?, dialect)?;
        let it = if inner.is_empty() { &all } else { all.inner(inner)? };
        apply(text, &[&it.set("f", key, value)])
    }

    const CONFIG: &str = "{\n  \"bf16\": {\"enabled\": true},\n  \"zero\": {\n    \"stage\": 2,\n    \"bucket\": 5e8\n  },\n  \"none\": {}\n}\n";

    #[test]
    fn a_value_is_changed_where_it_stands_and_a_new_one_stands_below_the_last() {
        let json = |inner, key, value| with(CONFIG, Dialect::Json, inner, key, value).unwrap();
        assert_eq!(json("zero", "stage", "3"), CONFIG.replace("\"stage\": 2", "\"stage\": 3"));
        assert_eq!(json("zero", "bucket", "7"), CONFIG.replace("5e8\n", "7\n"));
        let below = CONFIG.replace("5e8\n", "5e8,\n    \"more\": true\n");
        assert_eq!(json("zero", "more", "true"), below);
        let beside = CONFIG.replace("true}", "true, \"more\": 1}");
        assert_eq!(json("bf16", "more", "1"), beside);
        assert_eq!(json("none", "more", "1"), CONFIG.replace("{}", "{\"more\": 1}"));
        let whole = CONFIG.replace("{}\n", "{},\n  \"more\": {\"a\": 1}\n");
        assert_eq!(json("", "more", "{\"a\": 1}"), whole);
        let all = Dictionary::read(CONFIG, 0, Dialect::Json).unwrap();
        let zero = all.inner("zero").unwrap();
        assert_eq!((zero.line_of("stage"), zero.line_of("more")), (4, 5));
    }

    #[test]
    fn a_literal_of_python() {
        let text = "c = {'a': f(1, 'x}'),  # {\n     'zero': {'stage': args.stage, },\n}\n";
        let python = |inner, key, value| with(text, Dialect::Python, inner, key, value);
        assert_eq!(python("zero", "stage", "3").unwrap(), text.replace("args.stage", "3"));
        let more = text.replace("args.stage, }", "args.stage, \"more\": 1, }");
        assert_eq!(python("zero", "more", "1").unwrap(), more);
        assert_eq!(python("a", "more", "1"), None);
    }

    #[test]
    fn what_is_no_plain_dictionary_is_left_alone() {
        for it in [
            "{",
            "{1: 2}",
            "{\"a\": 1",
            "{\"a\": \"\"\"b\n\"\"\"}",
            "{**a}",
            "[]",
            "{\"a\": 1, \"a\": 2}",
            "{\"\u{e4}\\n\": 1}",
        ] {
            assert!(Dictionary::read(it, 0, Dialect::Python).is_none(), "{it}");
        }
        let merged = "{\"zero\": {\"a\": 1} | more}";
        let all = Dictionary::read(merged, 0, Dialect::Python).unwrap();
        assert!(all.inner("zero").is_none());
        assert!(
            Dictionary::read("{\"a\": 'b'}", 0, Dialect::Json).is_some(),
            "its value is not read"
        );
        let deep = "{\"a\": ".repeat(99) + "1" + &"}".repeat(99);
        assert!(Dictionary::read(&deep, 0, Dialect::Json).is_some());
    }
}
