//! What PyTorch's element-wise kernels do, and with what: their mangled names have the functor in them.

use crate::names::{self, has, position};
use crate::numbers::arithmetic::{Action, Function};
use crate::numbers::formula::Form;
use crate::types::{ScalarType, element_after};

/// A copy into another type: from which, and into which.
pub(crate) fn conversion(name: &[u8]) -> Option<(ScalarType, ScalarType)> {
    let types =
        name.get(position(name, names::CONVERTING_COPY)? + names::CONVERTING_COPY.len()..)?;
    let (from, length) = ScalarType::of_name(types)?;
    Some((from, ScalarType::of_name(types.get(length..)?)?.0))
}

/// What a kernel of this (mangled) name does, where it has its scalar, and the type that it computes with.
pub(crate) fn meaning(name: &[u8]) -> Option<(Action, Form, ScalarType)> {
    if let Some(kind) = element_after(name, names::FILL) {
        return Some((Action::Fill, Form::Alone, kind));
    }
    if has(name, names::CONVERTING_COPY) {
        let (from, to) = conversion(name)?;
        // Halves are computed as floats.
        let kind = if to.working() == to { to } else { from };
        return Some((Action::Copy, Form::Unary, kind));
    }
    if let Some(kind) = element_after(name, names::ABS) {
        return Some((Action::Absolute, Form::Unary, kind));
    }
    if let Some(kind) = element_after(name, names::ADD_ON_OTHER) {
        return Some((Action::Add, Form::ScalarFirst, kind));
    }
    if let Some(kind) = element_after(name, names::ADD_ON_SELF) {
        return Some((Action::Add, Form::ScalarLast, kind));
    }
    if let Some(kind) = element_after(name, names::ADD) {
        return Some((Action::Add, Form::Tensors, kind));
    }
    if let Some(kind) = element_after(name, names::COMPARE) {
        return Some((Action::Order, Form::Tensors, kind));
    }
    if let Some(kind) = element_after(name, names::COMPARE_SCALAR) {
        return Some((Action::Order, Form::ScalarLast, kind));
    }
    if has(name, names::CLAMP_SCALAR) {
        return Some((Action::Clamp, Form::Unary, element_after(name, b"EUl")?));
    }
    if let Some(kind) = element_after(name, names::POW_TENSOR_SCALAR) {
        // The lambdas of this function are numbered: squares, cubes, and others.
        let of = |lambda: &[u8]| {
            b"fdlihsa".iter().any(|&it| has(name, &[b"EUl", [it].as_slice(), lambda].concat()))
        };
        let action = match (of(b"E_"), of(b"E0_")) {
            (true, _) => Action::Square,
            (_, true) => Action::Cube,
            _ => return None,
        };
        return Some((action, Form::Unary, kind));
    }
    for (part, action) in [
        (names::BITWISE_NOT, Action::Not),
        (names::FLOOR, Action::Floor),
        (names::CEIL, Action::Ceiling),
        (names::TRUNC, Action::Truncate),
        (names::SQRT, Action::Root),
        (names::RECIPROCAL, Action::Reciprocal),
        (names::LOGICAL_NOT, Action::LogicalNot),
        (names::DIRECT_COPY, Action::Copy),
        // To halves.
        (names::HALF_COPY, Action::Copy),
        (names::BRAIN_COPY, Action::Copy),
        (names::NEG, Action::Negate),
        (names::ROUND, Action::Round),
        (names::SIGN, Action::Sign),
        (names::EXP, Action::Function(Function::Exponential)),
        (names::EXPM1, Action::Function(Function::ExponentialLessOne)),
        (names::LOG, Action::Function(Function::Logarithm)),
        (names::LOG2, Action::Function(Function::LogarithmOfTwo)),
        (names::LOG10, Action::Function(Function::LogarithmOfTen)),
        (names::LOG1P, Action::Function(Function::LogarithmOfOneMore)),
        (names::SIN, Action::Function(Function::Sine)),
        (names::COS, Action::Function(Function::Cosine)),
        (names::TANH, Action::Function(Function::HyperbolicTangent)),
        (names::SIGMOID, Action::Function(Function::Logistic)),
        (names::RSQRT, Action::Function(Function::ReciprocalRoot)),
    ] {
        if has(name, part) {
            return Some((action, Form::Unary, element_after(name, b"EUl")?));
        }
    }
    if has(name, names::WHERE) {
        // Since torch 2.15 it moves so many bytes, whatever they are: whole numbers without a sign.
        let at = position(name, b"EUlb")? + b"EUlb".len();
        let kind = match name.get(at)? {
            b't' => ScalarType::Short,
            b'j' => ScalarType::Int,
            b'm' => ScalarType::Long,
            _ => element_after(name, b"EUlb")?,
        };
        return Some((Action::Copy, Form::Chosen, kind));
    }
    if has(name, names::MASKED_FILL) {
        let at = position(name, b"EUl")? + b"EUl".len();
        let (kind, length) = ScalarType::of_name(name.get(at..)?)?;
        // The mask's elements are truth values.
        return (name.get(at + length) == Some(&b'b')).then_some((
            Action::Copy,
            Form::Masked,
            kind,
        ));
    }
    let (form, operands) = [
        (Form::Tensors, names::BINARY_FUNCTOR),
        (Form::ScalarFirst, names::SCALAR_FIRST_FUNCTOR),
        (Form::ScalarLast, names::SCALAR_LAST_FUNCTOR),
    ]
    .into_iter()
    .find_map(|(form, part)| Some((form, position(name, part)? + part.len())))?;
    let (kind, length) = ScalarType::of_name(name.get(operands..)?)?;
    // Both operands are of one type in these.
    let (first, second) = (name.get(operands)?, name.get(operands + length)?);
    (second == first || length > 1 && *second == b'S').then_some(())?;
    let action = [
        (names::BITWISE_AND, Action::And),
        (names::BITWISE_OR, Action::Or),
        (names::BITWISE_XOR, Action::Xor),
        (names::MUL, Action::Multiply),
        (names::COMPARE_EQ, Action::Equal),
        (names::LOGICAL_AND, Action::LogicalAnd),
        (names::LOGICAL_OR, Action::LogicalOr),
        (names::MINIMUM, Action::Smallest),
        (names::MAXIMUM, Action::Largest),
        (names::DIV_FLOOR, Action::DivideFloor),
        (names::DIV_TRUNC, Action::DivideTruncated),
        (names::DIV, Action::Divide),
        (names::REMAINDER, Action::Remainder),
        (names::FMOD, Action::RemainderTruncated),
        (names::LOGICAL_XOR, Action::LogicalXor),
        (names::LSHIFT, Action::ShiftLeft),
        (names::RSHIFT, Action::ShiftRight),
    ]
    .into_iter()
    .find_map(|(part, action)| has(name, part).then_some(action))?;
    Some((action, form, kind))
}
