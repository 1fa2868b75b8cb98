//! Words of a command in one line, as a shell reads them.

use std::{
    ffi::{OsStr, OsString},
    fmt::Write as _,
};

use plimsoll_core::printable::is_printable;

/// `words` in one line for a shell.
pub(crate) fn shown(words: &[OsString]) -> String {
    words.iter().map(|it| quoted(it)).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &OsStr) -> String {
    let text = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.into_owned()
    } else if !text.chars().all(is_printable) {
        spelled(&text)
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// As Bash and others read a word with what nobody sees: `$'a\nb'`.
fn spelled(text: &str) -> String {
    let mut res = "$'".to_owned();
    for it in text.chars() {
        // A text is written to without errors.
        let _ = match it {
            '\\' | '\'' => write!(res, "\\{it}"),
            it if is_printable(it) => write!(res, "{it}"),
            it if it.is_ascii() => write!(res, "\\x{:02x}", u32::from(it)),
            it => write!(res, "\\U{:08x}", u32::from(it)),
        };
    }
    res + "'"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_sees_is_spelled() {
        let words = ["a\nb'\\\x1b[31m", "\u{202e}é"].map(OsString::from);
        let shown = shown(&words);
        assert_eq!(shown, r"$'a\x0ab\'\\\x1b[31m' $'\U0000202eé'");
        let bash = format!("printf '%s|' {shown}");
        let told = std::process::Command::new("bash")
            .args(["-c", &bash])
            .env("LC_ALL", "C.UTF-8")
            .output();
        assert_eq!(String::from_utf8_lossy(&told.unwrap().stdout), "a\nb'\\\x1b[31m|\u{202e}é|");
    }

    #[test]
    fn what_a_shell_would_take_apart_is_quoted() {
        let words = ["python", "t.py", "--name=a b", "it's", ""].map(OsString::from);
        assert_eq!(shown(&words), r"python t.py '--name=a b' 'it'\''s' ''");
    }
}
