//! The traceback before a message: the innermost line of the user's own code, and what it was doing.

use crate::{
    failures::Failure,
    recording::{self, CodeLine, Phase},
    sources::oom_text::lines::Line,
};

/// Lines that are looked at before a message.
const LOOK_BACK: usize = 400;

/// Fills in what the lines before `at` say.
pub(super) fn attach(failure: &mut Failure, lines: &[Line<'_>], at: usize) {
    let first = at.saturating_sub(LOOK_BACK);
    let before = &lines[first..at];
    let begin = before.iter().rposition(|it| it.text.contains("Traceback (most recent call last)"));
    let begin = begin.map_or(0, |it| it + 1);
    let mut phase = None;
    let mut frames = 0;
    // A program prints other things between two failures; a traceback reaches its message.
    let body = &before[begin..];
    let last_frame = body.iter().rposition(|it| frame(&it.text).is_some());
    let reaches = last_frame.is_some_and(|it| body.len() - it <= 24);
    if reaches {
        for (n, line) in body.iter().enumerate() {
            let Some(mut code) = frame(&line.text) else { continue };
            frames += 1;
            code.text = code_under(&body[n..]);
            phase = phase_of(&code).or(phase);
            if recording::is_users_code(&code.file.replace('\\', "/"), code.line) {
                failure.user_frame = Some(code.clone());
            }
            failure.innermost = Some(code);
        }
    }
    failure.phase = phase.filter(|_| 0 < frames);
    failure.progress = before.iter().rev().take(120).find_map(|it| progress(&it.text));
}

/// The last progress that is told before line `number` of the log.
pub(super) fn progress_before(lines: &[Line<'_>], number: usize) -> Option<String> {
    let end = lines.partition_point(|it| it.number < number);
    lines[..end].iter().rev().take(120).find_map(|it| progress(&it.text))
}

/// `File "train.py", line 12, in main`, and as notebooks have it `Cell In[3], line 5` and
/// `File /lib/x.py:12, in f(a)`, and as rich draws it `│ /home/u/train.py:88 in main   │`. Log collectors put
/// something before.
fn frame(line: &str) -> Option<CodeLine> {
    let number = |it: &str| -> Option<(u32, usize)> {
        let digits: String = it.chars().take_while(char::is_ascii_digit).collect();
        Some((digits.parse().ok()?, digits.len()))
    };
    if let Some((file, rest)) = line.split_once("File \"").and_then(|(_, it)| it.split_once('"')) {
        let rest = rest.trim_start_matches(',').trim_start().strip_prefix("line ")?;
        let (line, len) = number(rest)?;
        let function = rest[len..].trim_start_matches(',').trim_start();
        let function = function.strip_prefix("in ").unwrap_or_default();
        let function = function.trim().trim_end_matches(['\\', '"', '}']).to_owned();
        return Some(CodeLine { file: file.to_owned(), line, function, text: String::new() });
    }
    if let Some((cell, rest)) = line.strip_prefix("Cell In[").and_then(|it| it.split_once(']')) {
        let (line, _) = number(rest.strip_prefix(", line ")?)?;
        let file = format!("Cell In[{cell}]");
        return Some(CodeLine { file, line, function: String::new(), text: String::new() });
    }
    if let Some(drawn) = line.trim_start().strip_prefix(['│', '|']) {
        let (place, function) =
            drawn.trim_end_matches(['│', '|', ' ']).trim().split_once(" in ")?;
        let (file, line) = place.rsplit_once(':')?;
        let (line, len) = number(line)?;
        let is_frame = len == place.len() - file.len() - 1 && !file.contains(' ');
        let function = function.to_owned();
        return is_frame.then(|| CodeLine {
            file: file.to_owned(),
            line,
            function,
            text: String::new(),
        });
    }
    let (place, rest) = line.strip_prefix("File ")?.split_once(", in ")?;
    let (file, line) = place.rsplit_once(':')?;
    let function = rest.split('(').next().unwrap_or_default().to_owned();
    Some(CodeLine { file: file.to_owned(), line: number(line)?.0, function, text: String::new() })
}

/// The line of code under the frame that `lines` begin with: the next one without what a log has put
/// before both, or the one that a notebook's arrow points at.
fn code_under(lines: &[Line<'_>]) -> String {
    let arrow = |it: &str| {
        let drawn = it.split_once("❱ ").and_then(|(_, it)| it.split_once('│'));
        let pointed = it.trim_start().strip_prefix('-').and_then(|it| it.split_once("> "));
        drawn
            .map(|(_, it)| it.trim_end_matches(['│', ' ']).to_owned())
            .or_else(|| pointed.map(|(_, it)| it.to_owned()))
    };
    let own = lines.iter().skip(1).take(12).take_while(|it| frame(&it.text).is_none());
    if let Some(code) = own.clone().find_map(|it| arrow(&it.text)) {
        return code.trim_start_matches(|it: char| it.is_ascii_digit()).trim().to_owned();
    }
    let (Some(frame), Some(code)) = (lines.first(), own.clone().next()) else {
        return String::new();
    };
    let before = frame.text.find("File \"").unwrap_or(0);
    let is_prefixed = !frame.text[..before].trim().is_empty();
    let code = if is_prefixed { code.text.get(before..).unwrap_or(&code.text) } else { &code.text };
    code.trim().chars().take(200).collect()
}

fn phase_of(code: &CodeLine) -> Option<Phase> {
    let file = code.file.replace('\\', "/");
    if file.contains("/torch/autograd/") {
        Some(Phase::Backward)
    } else if file.contains("/torch/optim/") {
        Some(if code.function == "zero_grad" { Phase::ZeroGrad } else { Phase::Optimizer })
    } else if file.ends_with("/torch/nn/modules/module.py") && code.function.contains("call_impl") {
        Some(Phase::Forward)
    } else {
        None
    }
}

/// `450/1000`, as progress bars and loggers write it.
fn progress(line: &str) -> Option<String> {
    let lower = line.to_ascii_lowercase();
    let is_bar = lower.contains("it/s") || lower.contains("s/it") || lower.contains('%');
    let named = ["epoch", "step", "iter"].iter().find_map(|it| lower.find(it));
    if let Some(at) = named {
        let words: String = lower[at..].chars().take(24).collect();
        let digits = words.chars().skip_while(|it| !it.is_ascii_digit());
        let value: String = digits.take_while(|it| it.is_ascii_digit() || *it == '/').collect();
        let word: String = words.chars().take_while(char::is_ascii_alphabetic).collect();
        if !value.is_empty() && word.len() + 8 > words.find(&value).unwrap_or(0) {
            return Some(format!("{word} {value}"));
        }
    }
    if !is_bar {
        return None;
    }
    lower.split([' ', '|', '[']).find_map(|word| {
        let (done, all) = word.split_once('/')?;
        let is_number = |it: &str| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit());
        (is_number(done) && is_number(all)).then(|| word.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_of_bars_and_loggers() {
        for (line, expected) in [
            (" 45%|####5     | 450/1000 [01:02<01:20,  6.9it/s]", Some("450/1000")),
            ("INFO epoch 3: loss 0.4", Some("epoch 3")),
            ("Step: 120/500 lr 1e-4", Some("step 120/500")),
            ("100% of people", None),
            ("the last stepping stone", None),
        ] {
            assert_eq!(progress(line).as_deref(), expected, "{line}");
        }
    }
}
