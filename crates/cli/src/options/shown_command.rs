//! Commands as somebody would type them, to be copied from a report.

use std::{
    ffi::{OsStr, OsString},
    fmt::Write as _,
};

use plimsoll_core::{
    prediction::{Prediction, Verdict},
    printable::is_printable,
    units::Bytes,
};

use crate::options::{
    assumption::Assumption,
    cli::{FitArgs, PredictArgs},
};

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

/// What to run where it does not fit: the search for a plan, with what the user told `predict`.
pub(crate) fn next(args: &PredictArgs, prediction: &Prediction) -> Option<String> {
    let mut words: Vec<OsString> = ["plimsoll", "fit"].map(OsString::from).to_vec();
    let mut add = |name: &str, value: String| words.extend([name.into(), value.into()]);
    add("--gpu", args.gpu.clone().unwrap_or_else(|| prediction.card.id.clone()));
    match (prediction.verdict(), args.max, args.memory) {
        (Verdict::OverMax, Some(max), _) => add("--budget", max.to_string().replace(' ', "")),
        (Verdict::DoesNotFit | Verdict::Spills, _, memory) => {
            if let Some(memory) = memory {
                add("--memory", memory.to_string().replace(' ', ""));
            }
        }
        _ => return None,
    }
    let is_budget = prediction.verdict() == Verdict::OverMax;
    if let Some(it) = args.beside.filter(|_| !is_budget) {
        add("--beside", it.to_string());
    }
    if let Some(it) = args.worst_seq {
        add("--worst-seq", it.to_string());
    }
    if let Some(it) = args.worst_size {
        add("--worst-size", it.to_string());
    }
    for it in &args.assume {
        add("--assume", Assumption::to_string(it));
    }
    if args.windows && !is_budget {
        words.push("--windows".into());
    }
    words.push("--".into());
    words.extend(args.command.iter().cloned());
    Some(shown(&words))
}

/// The search for a plan for `command`, with what the user told the search for a value.
pub(crate) fn find_plan(args: &FitArgs, command: &[OsString]) -> String {
    let mut words: Vec<OsString> = ["plimsoll", "fit"].map(OsString::from).to_vec();
    let mut add = |name: &str, value: String| words.extend([name.into(), value.into()]);
    let size = |it: Bytes| it.to_string().replace(' ', "");
    let FitArgs {
        gpu, memory, beside, budget, limit_reserved, worst_seq, worst_size, assume, ..
    } = args;
    let said = [
        ("--gpu", gpu.clone()),
        ("--memory", memory.map(size)),
        ("--beside", beside.map(|it| it.to_string())),
        ("--budget", budget.map(size)),
        ("--limit-reserved", limit_reserved.map(size)),
        ("--worst-seq", worst_seq.map(|it| it.to_string())),
        ("--worst-size", worst_size.map(|it| it.to_string())),
    ];
    for (name, value) in said {
        if let Some(value) = value {
            add(name, value);
        }
    }
    for it in assume {
        add("--assume", Assumption::to_string(it));
    }
    if args.windows {
        words.push("--windows".into());
    }
    words.push("--".into());
    words.extend(command.iter().cloned());
    shown(&words)
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
