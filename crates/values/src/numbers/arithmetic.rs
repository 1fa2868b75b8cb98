//! What is done to numbers one by one, as the device does it.

use crate::types::{ScalarType, as_f64};

/// What is done to one element, or to all of them in a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    And,
    Or,
    Xor,
    Multiply,
    /// a + alpha * b
    Add,
    /// `EqOpType`: 0 is equal, 1 is not equal.
    Equal,
    /// `CompareKernels.cu`, `OpType`: at least, above, at most, below.
    Order,
    LogicalAnd,
    LogicalOr,
    Not,
    LogicalNot,
    Copy,
    Fill,
    Negate,
    Absolute,
    /// Towards minus infinity, as Python's `//`.
    DivideFloor,
    /// With the sign of the divisor, as Python's `%`.
    Remainder,
    Largest,
    Smallest,
    Divide,
    /// Towards zero.
    DivideTruncated,
    /// Between two numbers, above the first or below it, as `ClampLimits` says.
    Clamp,
    Floor,
    Ceiling,
    Truncate,
    Root,
    Reciprocal,
    Square,
    Cube,
    /// To the nearest, of two the even one.
    Round,
    Sign,
    LogicalXor,
    ShiftLeft,
    ShiftRight,
    /// With the sign of what is divided, as C's.
    RemainderTruncated,
    Function(Function),
}

/// Functions of one float.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    Exponential,
    ExponentialLessOne,
    Logarithm,
    LogarithmOfTwo,
    LogarithmOfTen,
    LogarithmOfOneMore,
    Sine,
    Cosine,
    HyperbolicTangent,
    Logistic,
    ReciprocalRoot,
}

impl Function {
    fn of(self, x: f64) -> f64 {
        match self {
            Function::Exponential => x.exp(),
            Function::ExponentialLessOne => x.exp_m1(),
            Function::Logarithm => x.ln(),
            Function::LogarithmOfTwo => x.log2(),
            Function::LogarithmOfTen => x.log10(),
            Function::LogarithmOfOneMore => x.ln_1p(),
            Function::Sine => x.sin(),
            Function::Cosine => x.cos(),
            Function::HyperbolicTangent => x.tanh(),
            Function::Logistic => 1.0 / (1.0 + (-x).exp()),
            Function::ReciprocalRoot => x.sqrt().recip(),
        }
    }
}

/// Whether the result is a truth value, whatever the operands are.
pub(crate) fn is_test(action: Action) -> bool {
    matches!(
        action,
        Action::Equal
            | Action::Order
            | Action::LogicalAnd
            | Action::LogicalOr
            | Action::LogicalXor
            | Action::LogicalNot
    )
}

/// A number between two, or above or below the first.
pub(crate) fn clamped(
    kind: ScalarType,
    number: i64,
    choice: i64,
    [first, second]: [i64; 2],
) -> i64 {
    let bounded = |action, a, b| apply(action, kind, 0, a, b).unwrap_or(a);
    match choice {
        0 => bounded(Action::Largest, number, first),
        1 => bounded(Action::Smallest, number, first),
        _ => bounded(Action::Smallest, bounded(Action::Largest, number, first), second),
    }
}

/// Whether one number can decide alone what comes of it and another.
pub(crate) fn decides(action: Action, kind: ScalarType) -> bool {
    use Action::{Add, And, Equal, LogicalAnd, LogicalOr, Multiply, Or, Order};
    if kind.is_whole() {
        matches!(action, And | LogicalAnd | LogicalOr | Multiply | Or)
    } else {
        matches!(action, Add | Equal | Order)
    }
}

/// Numbers beyond this are none that a network computes: a program writes minus a billion for what must never be chosen, and
/// begins with infinity where it looks for the least.
pub(crate) const BEYOND_ALL: f64 = 1e8;

/// What comes of a number and one that nobody knows, if that does not matter: a text that has got as long as it may be
/// has ended, `done | (token == end)`, whatever the token is. The number stands first or not. Of floats only those decide that
/// are beyond all others: zero times what is no number is none.
pub(crate) fn decided(
    action: Action,
    kind: ScalarType,
    choice: i64,
    number: i64,
    is_first: bool,
) -> Option<i64> {
    if !decides(action, kind) {
        return None;
    }
    if !kind.is_whole() {
        let is_beyond = BEYOND_ALL <= as_f64(number).abs();
        let (a, b) = if is_first { (number, 0) } else { (0, number) };
        return is_beyond.then(|| apply(action, kind, choice, a, b)).flatten();
    }
    let decided = match action {
        Action::Or => number == if kind == ScalarType::Bool { 1 } else { -1 },
        Action::LogicalOr => return (number != 0).then_some(1),
        _ => number == 0,
    };
    decided.then_some(number)
}

/// One element of the result; nothing divides by zero.
pub(crate) fn apply(action: Action, kind: ScalarType, choice: i64, a: i64, b: i64) -> Option<i64> {
    let truth = i64::from;
    if !kind.is_whole() {
        return apply_to_floats(action, kind, choice, as_f64(a), as_f64(b));
    }
    Some(match action {
        Action::And => a & b,
        Action::Or => a | b,
        Action::Xor => a ^ b,
        Action::Multiply => a.wrapping_mul(b),
        Action::Add => a.wrapping_add(choice.wrapping_mul(b)),
        Action::Equal => truth((a == b) != (choice != 0)),
        Action::Order => truth(is_ordered(choice, a, b)),
        Action::LogicalAnd => truth(a != 0 && b != 0),
        Action::LogicalOr => truth(a != 0 || b != 0),
        Action::Not if kind == ScalarType::Bool => truth(a == 0),
        Action::Not => !a,
        Action::LogicalNot => truth(a == 0),
        Action::Copy | Action::Fill => a,
        Action::Negate => a.wrapping_neg(),
        Action::Absolute => a.wrapping_abs(),
        Action::DivideFloor => {
            let down = a.checked_rem(b)? != 0 && (a < 0) != (b < 0);
            a.checked_div(b)? - i64::from(down)
        }
        Action::Remainder => {
            let rest = a.checked_rem(b)?;
            if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }
        }
        Action::Largest => a.max(b),
        Action::Smallest => a.min(b),
        Action::DivideTruncated => a.checked_div(b)?,
        Action::Square => a.wrapping_mul(a),
        Action::Cube => a.wrapping_mul(a).wrapping_mul(a),
        Action::Floor | Action::Ceiling | Action::Truncate | Action::Round => a,
        Action::Sign => a.signum(),
        Action::LogicalXor => truth((a != 0) != (b != 0)),
        Action::ShiftLeft => a.checked_shl(u32::try_from(b).ok()?)?,
        Action::ShiftRight => a.checked_shr(u32::try_from(b).ok()?)?,
        Action::RemainderTruncated => a.checked_rem(b)?,
        Action::Divide
        | Action::Clamp
        | Action::Root
        | Action::Reciprocal
        | Action::Function(_) => return None,
    })
}

/// What a comparison finds: `OpType` of `aten/src/ATen/native/cuda/CompareKernels.cu`.
fn is_ordered<T: PartialOrd>(choice: i64, a: T, b: T) -> bool {
    match choice {
        0 => a >= b,
        1 => a > b,
        2 => a <= b,
        _ => a < b,
    }
}

/// Likewise, of floats; a factor is one, too.
#[expect(clippy::float_cmp, reason = "the device compares in the same way")]
fn apply_to_floats(action: Action, kind: ScalarType, choice: i64, a: f64, b: f64) -> Option<i64> {
    let truth = i64::from;
    let number = |it: f64| kind.of_f64(it);
    Some(match action {
        Action::Multiply => number(a * b),
        Action::Add => number(as_f64(choice).mul_add(b, a)),
        Action::Equal => truth((a == b) != (choice != 0)),
        Action::Order => truth(is_ordered(choice, a, b)),
        Action::LogicalAnd => truth(a != 0.0 && b != 0.0),
        Action::LogicalOr => truth(a != 0.0 || b != 0.0),
        Action::LogicalNot => truth(a == 0.0),
        Action::Copy | Action::Fill => number(a),
        Action::Negate => number(-a),
        Action::Absolute => number(a.abs()),
        Action::Largest => number(a.max(b)),
        Action::Smallest => number(a.min(b)),
        Action::Divide => number(a / b),
        Action::DivideTruncated => number(kind.rounded(a / b).trunc()),
        Action::Floor => number(a.floor()),
        Action::Ceiling => number(a.ceil()),
        Action::Truncate => number(a.trunc()),
        Action::Root => number(a.sqrt()),
        Action::Reciprocal => number(a.recip()),
        Action::Square => number(a * a),
        Action::Cube => number(kind.rounded(a * a) * a),
        Action::Round => number(a.round_ties_even()),
        Action::Sign => number(f64::from(i8::from(0.0 < a) - i8::from(a < 0.0))),
        Action::LogicalXor => truth((a != 0.0) != (b != 0.0)),
        Action::RemainderTruncated => number(a % b),
        Action::Remainder => {
            let rest = a % b;
            number(if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest })
        }
        Action::Function(function) => number(function.of(a)),
        Action::And
        | Action::Or
        | Action::Xor
        | Action::Not
        | Action::DivideFloor
        | Action::ShiftLeft
        | Action::ShiftRight
        | Action::Clamp => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_all_decides() {
        let of = |action, choice: i64, number: f64, is_first| {
            let number = ScalarType::Float.of_f64(number);
            decided(action, ScalarType::Float, choice, number, is_first)
        };
        let one = ScalarType::Float.of_f64(1.0);
        assert_eq!(of(Action::Order, 1, -1e9, false), Some(1), "x > -1e9");
        assert_eq!(of(Action::Order, 1, -1e9, true), Some(0), "-1e9 > x");
        assert_eq!(of(Action::Order, 3, f64::INFINITY, false), Some(1), "x < infinity");
        assert_eq!(of(Action::Order, 1, 100.0, false), None, "x > 100");
        assert_eq!(of(Action::Equal, 0, f64::NEG_INFINITY, false), Some(0));
        assert_eq!(of(Action::Add, one, -1e9, false), Some(ScalarType::Float.of_f64(-1e9)));
        assert_eq!(of(Action::Add, one, 0.0, false), None);
    }

    #[test]
    fn functions_are_rounded_as_their_floats_are() {
        let of = |action, kind: ScalarType, a: f64, b: f64| {
            apply(action, kind, 0, kind.of_f64(a), kind.of_f64(b)).map(as_f64)
        };
        let half = |function, a| of(Action::Function(function), ScalarType::Half, a, 0.0);
        assert_eq!(half(Function::LogarithmOfTwo, 8.0), Some(3.0));
        assert_eq!(half(Function::Exponential, 12.0), Some(f64::INFINITY));
        assert_eq!(of(Action::Remainder, ScalarType::Double, -0.25, 1.0), Some(0.75));
        assert_eq!(of(Action::RemainderTruncated, ScalarType::Double, -0.25, 1.0), Some(-0.25));
        assert_eq!(of(Action::Round, ScalarType::Float, 2.5, 0.0), Some(2.0));
        assert_eq!(of(Action::Sign, ScalarType::Float, -7.0, 0.0), Some(-1.0));
        assert_eq!(apply(Action::ShiftLeft, ScalarType::Long, 0, 3, 64), None);
    }

    #[test]
    fn division_rounds_as_in_python() {
        let of = |action, a, b| apply(action, ScalarType::Long, 1, a, b);
        assert_eq!(of(Action::DivideFloor, -7, 2), Some(-4));
        assert_eq!(of(Action::DivideFloor, 7, 2), Some(3));
        assert_eq!(of(Action::Remainder, -7, 2), Some(1));
        assert_eq!(of(Action::Remainder, 7, -2), Some(-1));
        assert_eq!(of(Action::DivideFloor, 7, 0), None);
    }
}
