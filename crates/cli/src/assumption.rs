//! `--assume`: what the phantom answers when a program asks how many of values that nobody computed
//! are what it looks for.

use std::str::FromStr;

/// An operation and the share of its elements that it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Assumption {
    operation: &'static str,
    millionths: u32,
}

/// What can be assumed of.
const OPERATIONS: [&str; 2] = ["nonzero", "unique"];

impl Assumption {
    /// As a line of `phantom.conf`.
    pub(crate) fn conf_line(self) -> String {
        format!("assumed_{}_millionths = {}\n", self.operation, self.millionths)
    }
}

impl FromStr for Assumption {
    type Err = String;

    fn from_str(text: &str) -> Result<Assumption, String> {
        let (operation, share) = text.split_once('=').unwrap_or((text, ""));
        let operation = OPERATIONS.into_iter().find(|&it| it == operation).ok_or_else(|| {
            format!(
                "`{operation}` is no operation that can be assumed; there are `nonzero` and `unique`, as in nonzero=0.1"
            )
        })?;
        let millionths = millionths(share).ok_or_else(|| {
            format!("`{share}` is no share; give a number from 0 to 1, as in {operation}=0.1")
        })?;
        Ok(Assumption { operation, millionths })
    }
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
        let read = |text: &str| text.parse::<Assumption>().map(|it| it.millionths);
        assert_eq!(read("nonzero=0.1"), Ok(100_000));
        assert_eq!(read("nonzero=1"), Ok(1_000_000));
        assert_eq!(read("nonzero=.125"), Ok(125_000));
        assert_eq!(read("nonzero=0.00000049"), Ok(0));
        let unique: Assumption = "unique=0.25".parse().unwrap();
        assert_eq!(unique.conf_line(), "assumed_unique_millionths = 250000\n");
    }

    #[test]
    fn what_is_no_share_is_said() {
        for (text, part) in [
            ("nonzero=1.5", "`1.5` is no share"),
            ("nonzero=10%", "`10%` is no share"),
            ("nonzero=-1", "`-1` is no share"),
            ("nonzero=1.", ""),
            ("nonzero", "`` is no share"),
            ("topk=0.5", "there are `nonzero` and `unique`"),
        ] {
            match text.parse::<Assumption>() {
                Ok(_) => assert!(part.is_empty(), "{text}"),
                Err(sentence) => assert!(sentence.contains(part), "{sentence}"),
            }
        }
    }
}
