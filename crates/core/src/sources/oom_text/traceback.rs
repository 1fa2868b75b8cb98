//! The traceback before a message: the innermost line of the user's own code, and what it was doing.

use crate::{
    failures::{Failure, OfCheckpoint},
    recording::{self, CodeLine, Phase},
    sources::lines::Line,
};

/// Lines that are looked at before a message.
const LOOK_BACK: usize = 400;
/// Lines that may be between a traceback's last frame and its message.
const REACH: usize = 24;

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
    let last_frame = (0..body.len()).rfind(|n| frame(&body[*n..]).is_some());
    let reaches = last_frame.is_some_and(|it| body.len() - it <= REACH);
    if 0 < begin && (reaches || body.len() <= REACH) {
        failure.began = before[begin - 1].number;
    }
    if reaches {
        let mut n = 0;
        while n < body.len() {
            let Some(Frame { mut code, lines: taken }) = frame(&body[n..]) else {
                n += 1;
                continue;
            };
            frames += 1;
            code.text = code_under(&body[n..], taken);
            phase = phase_of(&code).or(phase);
            failure.checkpoint = of_checkpoint(&code).or(failure.checkpoint);
            if recording::is_users_code(&code.file.replace('\\', "/"), code.line) {
                failure.user_frame = Some(code.clone());
            }
            failure.innermost = Some(code);
            n += taken;
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

/// A frame, and how many lines tell where it is.
struct Frame {
    code: CodeLine,
    lines: usize,
}

/// The frame that `lines` begin with.
fn frame(lines: &[Line<'_>]) -> Option<Frame> {
    let line: &str = &lines.first()?.text;
    let told = |(file, line, function): (&str, u32, &str), lines| {
        let (file, function) = (file.to_owned(), function.to_owned());
        Some(Frame { code: CodeLine { file, line, function, text: String::new() }, lines })
    };
    if let Some(it) = pythons(line).or_else(|| notebooks(line)) {
        return told(it, 1);
    }
    if let Some((file, function)) = ipythons(line) {
        return told((file, pointed(lines)?, function), 1);
    }
    let content = drawn(line)?;
    if let Some(it) = richs(content) {
        return told(it, 1);
    }
    // A place that is longer than its box goes on in the next line.
    let next = drawn(&lines.get(1)?.text).filter(|it| !it.is_empty() && !it.contains('│'))?;
    let is_path =
        content.contains(['/', '\\']) && !content.contains('│') && !content.contains(" in ");
    let joined = [format!("{content}{next}"), format!("{content} {next}")];
    joined.iter().filter(|_| is_path).find_map(|it| richs(it)).and_then(|it| told(it, 2))
}

/// Digits at the beginning of `text` as a number, and what follows them.
fn number(text: &str) -> Option<(u32, &str)> {
    let len = text.len() - text.trim_start_matches(|it: char| it.is_ascii_digit()).len();
    Some((text[..len].parse().ok()?, &text[len..]))
}

/// `File "train.py", line 12, in main`. Log collectors put something before, and JSON something behind.
fn pythons(line: &str) -> Option<(&str, u32, &str)> {
    let (file, rest) = line.split_once("File \"")?.1.split_once('"')?;
    let (line, rest) = number(rest.trim_start_matches(',').trim_start().strip_prefix("line ")?)?;
    let function = rest.trim_start_matches(',').trim_start();
    let function = function.strip_prefix("in ").unwrap_or_default();
    Some((file, line, function.trim().trim_end_matches(['\\', '"', '}'])))
}

/// `Cell In[3], line 5`, `Cell In[3], line 5, in f(a)`, and `File /lib/x.py:12, in f(a)`.
fn notebooks(line: &str) -> Option<(&str, u32, &str)> {
    if line.starts_with("Cell In[") {
        let (cell, rest) = line.split_once(", line ")?;
        return Some((cell, number(rest)?.0, ""));
    }
    let (place, rest) = line.strip_prefix("File ")?.split_once(", in ")?;
    let (file, line) = place.rsplit_once(':')?;
    Some((file, number(line)?.0, rest.split('(').next().unwrap_or_default()))
}

/// `<ipython-input-3-1a2b> in f(x)`, `Input In [3], in <cell line: 1>()` and `~/net.py in f(x)`, of older
/// notebooks: the line's number stands at the arrow below.
fn ipythons(line: &str) -> Option<(&str, &str)> {
    let (file, function) = if line.starts_with("Input In [") {
        line.split_once(", in ")?
    } else {
        line.split_once(" in ")?
    };
    let is_input = file.starts_with("Input In [") || file.starts_with("<ipython-input-");
    let is_file = file.ends_with(".py")
        && (file.starts_with(['/', '~', '.'])
            || file.get(1..).is_some_and(|it| it.starts_with(":\\")));
    (is_input || is_file).then(|| (file, function.split('(').next().unwrap_or_default()))
}

/// The number at the arrow under an older notebook's frame: `---> 30     out = net(x)`.
fn pointed(lines: &[Line<'_>]) -> Option<u32> {
    let own = lines.iter().skip(1).take(12).take_while(|it| ipythons(&it.text).is_none());
    let mut arrows = own.filter_map(|it| it.text.trim_start().strip_prefix('-'));
    number(arrows.next()?.trim_start_matches('-').strip_prefix("> ")?).map(|it| it.0)
}

/// What rich has drawn a box around, `│ /home/u/train.py:88 in main   │`.
fn drawn(line: &str) -> Option<&str> {
    let inside = line.trim_start().strip_prefix(['│', '|'])?;
    Some(inside.trim_end_matches(['│', '|', ' ']).trim())
}

/// `/home/u/train.py:88 in main`
fn richs(content: &str) -> Option<(&str, u32, &str)> {
    let (place, function) = content.split_once(" in ")?;
    let (file, line) = place.rsplit_once(':')?;
    let (line, rest) = number(line)?;
    (rest.is_empty() && !file.contains(' ')).then_some((file, line, function))
}

/// The line of code under the frame that the first `taken` of `lines` tell of: the next one without what a log has put
/// before both, or the one that a notebook's arrow points at.
fn code_under(lines: &[Line<'_>], taken: usize) -> String {
    let arrow = |line: &str| {
        let drawn = line.split_once("❱ ").and_then(|(_, it)| it.split_once('│'));
        let pointed = line.trim_start().strip_prefix('-').and_then(|it| it.split_once("> "));
        drawn
            .map(|(_, it)| it.trim_end_matches(['│', ' ']).to_owned())
            .or_else(|| pointed.map(|(_, it)| it.to_owned()))
    };
    let most = lines.len().min(taken + 12);
    let until = (taken..most).find(|n| frame(&lines[*n..]).is_some()).unwrap_or(most);
    let own = lines[..until].iter().skip(taken);
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

fn of_checkpoint(code: &CodeLine) -> Option<OfCheckpoint> {
    let file = code.file.replace('\\', "/");
    if file.ends_with("torch/serialization.py") {
        Some(OfCheckpoint::Load)
    } else if file.ends_with("torch/distributed/fsdp/_state_dict_utils.py")
        || file.ends_with("torch/distributed/checkpoint/state_dict.py")
    {
        Some(OfCheckpoint::Gather)
    } else {
        None
    }
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
    // Slurm's number of a job is none.
    let named = named.filter(|it| !lower[*it..].starts_with("stepid"));
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
            ("srun: Terminating StepId=7741203.0", None),
        ] {
            assert_eq!(progress(line).as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn a_notebooks_file_may_begin_with_any_letter() {
        assert_eq!(ipythons(r"C:\u\net.py in f(x)"), Some((r"C:\u\net.py", "f")));
        assert_eq!(ipythons("│net.py in f(x)"), None);
        assert_eq!(ipythons(".py in f(x)"), Some((".py", "f")));
    }
}
