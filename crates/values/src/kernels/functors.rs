//! What PyTorch's element-wise kernels do, and with what: their mangled names have the functor in them.

use crate::names::{element_after, has, position};
use crate::numbers::arithmetic::{Action, Function};
use crate::numbers::formula::Form;
use crate::types::ScalarType;

/// What a kernel of this (mangled) name does, where it has its scalar, and the type that it computes with.
pub(crate) fn meaning(name: &[u8]) -> Option<(Action, Form, ScalarType)> {
    if let Some(kind) = element_after(name, b"11FillFunctorI") {
        return Some((Action::Fill, Form::Alone, kind));
    }
    if let Some(kind) = element_after(name, b"10AbsFunctorI") {
        return Some((Action::Absolute, Form::Unary, kind));
    }
    if let Some(kind) = element_after(name, b"22CUDAFunctorOnOther_addI") {
        return Some((Action::Add, Form::ScalarFirst, kind));
    }
    if let Some(kind) = element_after(name, b"21CUDAFunctorOnSelf_addI") {
        return Some((Action::Add, Form::ScalarLast, kind));
    }
    if let Some(kind) = element_after(name, b"15CUDAFunctor_addI") {
        return Some((Action::Add, Form::Tensors, kind));
    }
    if let Some(kind) = element_after(name, b"14CompareFunctorI") {
        return Some((Action::Order, Form::Tensors, kind));
    }
    if let Some(kind) = element_after(name, b"21compare_scalar_kernelI") {
        return Some((Action::Order, Form::ScalarLast, kind));
    }
    if has(name, b"19launch_clamp_scalarE") {
        return Some((Action::Clamp, Form::Unary, element_after(name, b"EUl")?));
    }
    if let Some(kind) = element_after(name, b"29pow_tensor_scalar_kernel_implI") {
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
        (b"bitwise_not_kernel_cuda".as_slice(), Action::Not),
        (b"17floor_kernel_cuda", Action::Floor),
        (b"16ceil_kernel_cuda", Action::Ceiling),
        (b"17trunc_kernel_cuda", Action::Truncate),
        (b"16sqrt_kernel_cuda", Action::Root),
        (b"22reciprocal_kernel_cuda", Action::Reciprocal),
        (b"logical_not_kernel_cuda", Action::LogicalNot),
        (b"direct_copy_kernel_cuda", Action::Copy),
        // To halves.
        (b"24float16_copy_kernel_cuda", Action::Copy),
        (b"25bfloat16_copy_kernel_cuda", Action::Copy),
        (b"15neg_kernel_cuda", Action::Negate),
        (b"17round_kernel_cuda", Action::Round),
        (b"16sign_kernel_cuda", Action::Sign),
        (b"15exp_kernel_cuda", Action::Function(Function::Exponential)),
        (b"17expm1_kernel_cuda", Action::Function(Function::ExponentialLessOne)),
        (b"15log_kernel_cuda", Action::Function(Function::Logarithm)),
        (b"16log2_kernel_cuda", Action::Function(Function::LogarithmOfTwo)),
        (b"17log10_kernel_cuda", Action::Function(Function::LogarithmOfTen)),
        (b"17log1p_kernel_cuda", Action::Function(Function::LogarithmOfOneMore)),
        (b"15sin_kernel_cuda", Action::Function(Function::Sine)),
        (b"15cos_kernel_cuda", Action::Function(Function::Cosine)),
        (b"16tanh_kernel_cuda", Action::Function(Function::HyperbolicTangent)),
        (b"19sigmoid_kernel_cuda", Action::Function(Function::Logistic)),
        (b"17rsqrt_kernel_cuda", Action::Function(Function::ReciprocalRoot)),
    ] {
        if has(name, part) {
            return Some((action, Form::Unary, element_after(name, b"EUl")?));
        }
    }
    if has(name, b"17where_kernel_impl") {
        return Some((Action::Copy, Form::Chosen, element_after(name, b"EUlb")?));
    }
    if has(name, b"18masked_fill_kernel") {
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
        (Form::Tensors, b"13BinaryFunctorI".as_slice()),
        (Form::ScalarFirst, b"13AUnaryFunctorI"),
        (Form::ScalarLast, b"13BUnaryFunctorI"),
    ]
    .into_iter()
    .find_map(|(form, part)| Some((form, position(name, part)? + part.len())))?;
    let (kind, length) = ScalarType::of_name(name.get(operands..)?)?;
    // Both operands are of one type in these.
    let (first, second) = (name.get(operands)?, name.get(operands + length)?);
    (second == first || length > 1 && *second == b'S').then_some(())?;
    let action = [
        (b"17BitwiseAndFunctor".as_slice(), Action::And),
        (b"16BitwiseOrFunctor", Action::Or),
        (b"17BitwiseXorFunctor", Action::Xor),
        (b"10MulFunctor", Action::Multiply),
        (b"16CompareEqFunctor", Action::Equal),
        (b"23logical_and_kernel_cuda", Action::LogicalAnd),
        (b"22logical_or_kernel_cuda", Action::LogicalOr),
        (b"19minimum_kernel_cuda", Action::Smallest),
        (b"19maximum_kernel_cuda", Action::Largest),
        (b"21div_floor_kernel_cuda", Action::DivideFloor),
        (b"21div_trunc_kernel_cuda", Action::DivideTruncated),
        (b"10DivFunctor", Action::Divide),
        (b"21remainder_kernel_cuda", Action::Remainder),
        (b"16fmod_kernel_cuda", Action::RemainderTruncated),
        (b"23logical_xor_kernel_cuda", Action::LogicalXor),
        (b"18lshift_kernel_cuda", Action::ShiftLeft),
        (b"18rshift_kernel_cuda", Action::ShiftRight),
    ]
    .into_iter()
    .find_map(|(part, action)| has(name, part).then_some(action))?;
    Some((action, form, kind))
}
