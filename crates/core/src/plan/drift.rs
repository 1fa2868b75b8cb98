//! What a run took, beside what its plan was made for: how far they are apart, and why they may be.

use crate::{recording::FirstStep, units::Bytes};

/// A run that took other memory than its plan's run on the phantom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drift {
    /// What was predicted to be reserved.
    pub predicted: Bytes,
    /// What was reserved.
    pub reserved: Bytes,
    /// What is different about the run and explains it, each as half a sentence; empty when nothing is known to be.
    pub causes: Vec<String>,
}

/// Less than this share is no drift: which of several equal blocks is taken depends on addresses.
const SHARE: u64 = 2;
/// Nor is less than this, two of the allocator's smaller segments.
const LEAST: Bytes = Bytes::mib(40);

/// Compares the first step, or a whole run that began with it, with what was predicted.
pub fn drift(
    expected: &FirstStep,
    seen: &FirstStep,
    predicted: Bytes,
    reserved: Bytes,
) -> Option<Drift> {
    let off = Bytes(predicted.0.abs_diff(reserved.0));
    let is_off = predicted != Bytes::ZERO && predicted.0 / 100 * SHARE < off.0 && LEAST < off;
    is_off.then(|| Drift { predicted, reserved, causes: causes(expected, seen) })
}

fn causes(expected: &FirstStep, seen: &FirstStep) -> Vec<String> {
    let mut res = Vec::new();
    if !expected.inputs.is_empty() && !seen.inputs.is_empty() && expected.inputs != seen.inputs {
        let (before, now) = first_difference(&expected.inputs, &seen.inputs);
        res.push(format!("the batch differs ({now}; the plan was made with {before})"));
    }
    let pairs = [("PyTorch", &expected.torch, &seen.torch), ("card", &expected.gpu, &seen.gpu)];
    for (what, before, now) in pairs {
        if !before.is_empty() && !now.is_empty() && before != now {
            res.push(format!("the {what} differs ({now}; the plan was made with {before})"));
        }
    }
    if seen.retries != 0 {
        let free = seen
            .free
            .map_or_else(String::new, |it| format!("; {it} of it were free after the first step"));
        res.push(format!(
            "the device was full {} times, so the allocator gave its free memory back{free}: other processes may hold memory there",
            seen.retries
        ));
    }
    res
}

fn first_difference<'a>(before: &'a [String], now: &'a [String]) -> (&'a str, &'a str) {
    let n = before.iter().zip(now).take_while(|(a, b)| a == b).count();
    let at = |it: &'a [String]| it.get(n).map_or("nothing", String::as_str);
    (at(before), at(now))
}

impl Drift {
    /// In one sentence that begins with `what` was compared.
    pub fn sentence(&self, what: &str) -> String {
        let Drift { predicted, reserved, causes } = self;
        let (off, more) = (Bytes(predicted.0.abs_diff(reserved.0)), predicted < reserved);
        let more = if more { "more" } else { "less" };
        let why = if causes.is_empty() {
            "PyTorch, card and first batch are the same, so the script, its data or its settings differ".to_owned()
        } else {
            causes.join("; ")
        };
        format!(
            "{what} reserved {reserved}, {off} {more} than the {predicted} of its plan; {why}. `plimsoll fit` makes a new plan"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(reserved: u64, input: &str) -> FirstStep {
        FirstStep {
            reserved: Bytes::mib(reserved),
            torch: "2.11.0+cu130".to_owned(),
            gpu: "NVIDIA H200".to_owned(),
            inputs: vec![input.to_owned()],
            ..FirstStep::default()
        }
    }

    fn between(expected: &FirstStep, seen: &FirstStep) -> Option<String> {
        let it = drift(expected, seen, expected.reserved, seen.reserved)?;
        Some(it.sentence("the first step"))
    }

    #[test]
    fn says_which_input_is_another() {
        let expected = step(4000, "input_ids 8x512 int64");
        assert_eq!(between(&expected, &step(4040, "input_ids 8x512 int64")), None);
        let said = between(&expected, &step(8000, "input_ids 16x512 int64")).unwrap();
        assert_eq!(
            said,
            "the first step reserved 7.81 GiB, 3.91 GiB more than the 3.91 GiB of its plan; the batch differs \
             (input_ids 16x512 int64; the plan was made with input_ids 8x512 int64). \
             `plimsoll fit` makes a new plan"
        );
    }

    #[test]
    fn blames_nobody_without_a_difference() {
        let said = between(&step(4000, "x 8 int64"), &step(3000, "x 8 int64")).unwrap();
        assert!(said.contains("1000.0 MiB less"), "{said}");
        assert!(said.contains("the same, so the script"), "{said}");
    }

    #[test]
    fn a_full_device_is_named() {
        let mut seen = step(3000, "x 8 int64");
        (seen.retries, seen.free) = (2, Some(Bytes::mib(1)));
        let said = between(&step(4000, "x 8 int64"), &seen).unwrap();
        assert!(said.contains("full 2 times"), "{said}");
    }
}
