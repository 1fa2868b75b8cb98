//! `--assume`: what the phantom answers when a program asks how many of values that nobody computed
//! are what it looks for, whether gradients that nobody computed overflowed, how many proposals of a
//! detector show an object, or which number a line reads.

use std::{fmt, str::FromStr};

/// Something assumed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Assumption {
    /// An operation and the share of its elements that it finds.
    Share { operation: &'static str, millionths: u32 },
    /// So many of the first steps of a gradient scaler find an overflow.
    Overflows(u32),
    /// So many proposals of a detector show each object.
    Objects(u32),
    /// A router sends this share of the tokens to its first expert, in millionths; none if it spreads them evenly.
    Experts(Option<u32>),
    /// What nobody computed and this line reads is this number, as the user wrote it.
    Read { file: String, line: u32, number: String },
    /// Nothing is known of what kernels compute. For the bench, which asks what that is worth; people are not told of it.
    NoValues,
}

/// What a share can be assumed of.
const OPERATIONS: [&str; 2] = ["nonzero", "unique"];
/// And what a number of steps.
const OVERFLOW: &str = "overflow";
/// Or of proposals.
const OBJECTS: &str = "objects";
/// Or of the experts of a router.
const EXPERTS: &str = "experts";
/// What switches off the imitation of results.
const NO_VALUES: &str = "values=off";

impl Assumption {
    /// As a line of `phantom.conf`.
    pub(crate) fn conf_line(&self) -> String {
        match self {
            Assumption::Share { operation, millionths } => {
                format!("assumed_{operation}_millionths = {millionths}\n")
            }
            Assumption::Overflows(steps) => format!("assumed_overflows = {steps}\n"),
            Assumption::Objects(proposals) => format!("assumed_objects = {proposals}\n"),
            Assumption::Experts(Some(millionths)) => {
                format!("assumed_experts_millionths = {millionths}\n")
            }
            Assumption::Experts(None) => String::new(),
            // The agent reads it, who knows of lines.
            Assumption::Read { .. } => format!("assumed_read = {self}\n"),
            Assumption::NoValues => "values = off\n".to_owned(),
        }
    }
}

impl fmt::Display for Assumption {
    /// As the user writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Assumption::Share { operation, millionths } => {
                let (whole, rest) = (millionths / 1_000_000, millionths % 1_000_000);
                write!(f, "{operation}={whole}.{rest:06}")
            }
            Assumption::Overflows(steps) => write!(f, "{OVERFLOW}={steps}"),
            Assumption::Objects(proposals) => write!(f, "{OBJECTS}={proposals}"),
            Assumption::Experts(None) => write!(f, "{EXPERTS}=even"),
            Assumption::Experts(Some(millionths)) => {
                let (whole, rest) = (millionths / 1_000_000, millionths % 1_000_000);
                write!(f, "{EXPERTS}={whole}.{rest:06}")
            }
            Assumption::Read { file, line, number } => write!(f, "{file}:{line}={number}"),
            Assumption::NoValues => f.write_str(NO_VALUES),
        }
    }
}

impl FromStr for Assumption {
    type Err = String;

    fn from_str(text: &str) -> Result<Assumption, String> {
        if text == NO_VALUES {
            return Ok(Assumption::NoValues);
        }
        let (operation, share) = text.split_once('=').unwrap_or((text, ""));
        if let Some((file, line)) = operation.rsplit_once(':') {
            return read(file, line, share);
        }
        if operation == OVERFLOW {
            let steps = share.parse().map_err(|_| {
                format!(
                    "`{share}` is not a number of skipped steps; expected a whole number, as in `{OVERFLOW}=1`"
                )
            })?;
            return Ok(Assumption::Overflows(steps));
        }
        if operation == OBJECTS {
            let proposals = share.parse().ok().filter(|&it| 0 < it).ok_or_else(|| {
                format!(
                    "`{share}` is not a number of proposals for each object; expected a whole number from 1 on, as in `{OBJECTS}=6`"
                )
            })?;
            return Ok(Assumption::Objects(proposals));
        }
        if operation == EXPERTS {
            let all = (share == "worst").then_some(1_000_000);
            return match all.or_else(|| millionths(share)) {
                Some(it) => Ok(Assumption::Experts(Some(it))),
                None if share == "even" => Ok(Assumption::Experts(None)),
                None => Err(format!(
                    "`{share}` is no way to spread tokens over experts; expected even, worst, or the share that one expert gets, as in `{EXPERTS}=0.5`"
                )),
            };
        }
        let operation = OPERATIONS.into_iter().find(|&it| it == operation).ok_or_else(|| {
            format!(
                "--assume does not know `{operation}`; expected `nonzero`, `unique`, `overflow`, `objects` or `experts`, as in `nonzero=0.1`, or a line, as in `train.py:14=280`"
            )
        })?;
        let millionths = millionths(share).ok_or_else(|| {
            format!(
                "`{share}` is not a share; expected a number from 0 to 1, as in `{operation}=0.1`"
            )
        })?;
        Ok(Assumption::Share { operation, millionths })
    }
}

/// What a line of a file reads.
fn read(file: &str, line: &str, number: &str) -> Result<Assumption, String> {
    let is_file = !file.is_empty() && !file.contains(['\n', '\r']);
    let line = line.parse().ok().filter(|&it| 0 < it && is_file).ok_or_else(|| {
        format!("`{file}:{line}` is not a line of a file; expected a line from the report, as in `train.py:14=280`")
    })?;
    let number = number.trim();
    let is_number = number.parse::<f64>().is_ok_and(f64::is_finite);
    if !is_number {
        return Err(format!(
            "`{number}` is not a number; expected the number that the line reads, as in `{file}:{line}=280`"
        ));
    }
    Ok(Assumption::Read { file: file.to_owned(), line, number: number.to_owned() })
}

/// A decimal number from 0 to 1, in millionths; further digits are cut off.
fn millionths(text: &str) -> Option<u32> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if text.is_empty() || !text.bytes().all(|it| it == b'.' || it.is_ascii_digit()) {
        return None;
    }
    let whole: u32 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let digits: String = fraction.chars().chain("000000".chars()).take(6).collect();
    let total = whole.checked_mul(1_000_000)?.checked_add(digits.parse().ok()?)?;
    (total <= 1_000_000).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_read_without_loss() {
        let read = |text: &str| match text.parse()? {
            Assumption::Share { millionths, .. } => Ok(millionths),
            it => Err(format!("{it:?}")),
        };
        assert_eq!(read("nonzero=0.1"), Ok(100_000));
        assert_eq!(read("nonzero=1"), Ok(1_000_000));
        assert_eq!(read("nonzero=.125"), Ok(125_000));
        assert_eq!(read("nonzero=0.00000049"), Ok(0));
        let unique: Assumption = "unique=0.25".parse().unwrap();
        assert_eq!(unique.conf_line(), "assumed_unique_millionths = 250000\n");
        let overflow: Assumption = "overflow=3".parse().unwrap();
        assert_eq!(overflow.conf_line(), "assumed_overflows = 3\n");
        let objects: Assumption = "objects=6".parse().unwrap();
        assert_eq!(objects.conf_line(), "assumed_objects = 6\n");
        let no_values: Assumption = "values=off".parse().unwrap();
        assert_eq!(no_values.conf_line(), "values = off\n");
        let experts: Assumption = "experts=worst".parse().unwrap();
        assert_eq!(experts.conf_line(), "assumed_experts_millionths = 1000000\n");
        assert_eq!("experts=even".parse::<Assumption>().unwrap().conf_line(), "");
        let line: Assumption = "tts/model.py:22=280".parse().unwrap();
        assert_eq!(line.conf_line(), "assumed_read = tts/model.py:22=280\n");
        for it in [unique, overflow, objects, experts, no_values, line] {
            assert_eq!(it.to_string().parse(), Ok(it));
        }
    }

    #[test]
    fn what_is_no_share_is_said() {
        for (text, part) in [
            ("nonzero=1.5", "`1.5` is not a share"),
            ("nonzero=10%", "`10%` is not a share"),
            ("nonzero=-1", "`-1` is not a share"),
            ("nonzero=1.", ""),
            ("nonzero", "`` is not a share"),
            ("topk=0.5", "expected `nonzero`, `unique`, `overflow`, `objects` or `experts`"),
            ("experts=some", "expected even, worst, or the share that one expert gets"),
            ("overflow=0.5", "`0.5` is not a number of skipped steps"),
            ("overflow", "`` is not a number of skipped steps"),
            ("objects=0", "`0` is not a number of proposals"),
            ("model.py:22", "`` is not a number"),
            (
                "model.py:22=many",
                "`many` is not a number; expected the number that the line reads, as in `model.py:22=280`",
            ),
            ("model.py:0=3", "`model.py:0` is not a line of a file"),
            (":4=3", "`:4` is not a line of a file"),
        ] {
            match text.parse::<Assumption>() {
                Ok(_) => assert!(part.is_empty(), "{text}"),
                Err(sentence) => assert!(sentence.contains(part), "{sentence}"),
            }
        }
    }
}
