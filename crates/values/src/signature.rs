//! What a kernel takes: the parameters of the C++ function that its mangled name is of.

use cpp_demangle::Symbol;

/// One parameter of a kernel, as it is passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Parameter {
    /// An address, of memory on the device nearly always.
    Pointer,
    /// A whole number or a truth value of so many bytes.
    Whole { width: usize, signed: bool },
    /// A float of so many bytes.
    Float { width: usize },
    /// A structure by value, with its C++ name.
    Structure(Box<str>),
}

/// The parameters of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature(Vec<Parameter>);

impl Signature {
    /// That of the function of this mangled name; `None` if it has no parameters in it, as a C function's has not.
    pub(crate) fn of(name: &[u8]) -> Option<Signature> {
        let text = Symbol::new(name).ok()?.demangle().ok()?;
        let parameters = parameters(&text)?;
        Some(Signature(split(parameters).map(Parameter::of).collect()))
    }

    /// That of a kernel with one parameter, a structure of this name.
    pub(crate) fn of_one(structure: &str) -> Signature {
        Signature(vec![Parameter::Structure(structure.into())])
    }

    #[cfg(test)]
    pub(crate) fn made(parameters: Vec<Parameter>) -> Signature {
        Signature(parameters)
    }

    /// The parameter of this number.
    pub(crate) fn get(&self, i: usize) -> Option<&Parameter> {
        self.0.get(i)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl Parameter {
    fn of(text: &str) -> Parameter {
        let whole = |width, signed| Parameter::Whole { width, signed };
        // `aten/src/ATen/AccumulateType.h`: what a GPU adds up elements of this type as.
        let accumulated = text.strip_prefix("at::AccumulateType<");
        if let Some(element) = accumulated.and_then(|it| it.strip_suffix(", true>::type")) {
            return match Parameter::of(element) {
                Parameter::Whole { .. } => whole(8, true),
                it => it,
            };
        }
        match text {
            "bool" | "unsigned char" => whole(1, false),
            "char" | "signed char" => whole(1, true),
            "short" => whole(2, true),
            "unsigned short" => whole(2, false),
            "int" => whole(4, true),
            "unsigned int" => whole(4, false),
            "long" | "long long" => whole(8, true),
            "unsigned long" | "unsigned long long" => whole(8, false),
            "float" => Parameter::Float { width: 4 },
            "double" => Parameter::Float { width: 8 },
            _ if text.ends_with('*') => Parameter::Pointer,
            _ => Parameter::Structure(text.into()),
        }
    }
}

/// What stands between the last brackets of a demangled function.
fn parameters(text: &str) -> Option<&str> {
    let inner = text.strip_suffix(')')?;
    let mut depth = 1;
    for (i, c) in inner.char_indices().rev() {
        match c {
            ')' => depth += 1,
            '(' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(&inner[i + 1..]);
        }
    }
    None
}

/// The parts between commas that stand in no brackets.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    text.split(move |c| {
        match c {
            '(' | '<' | '{' | '[' => depth += 1,
            ')' | '>' | '}' | ']' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
    .map(str::trim)
    .filter(|it| !it.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A parameter, in as many letters as it takes.
    fn drawn(name: &str) -> String {
        let of = |it: &Parameter| match it {
            Parameter::Pointer => "*".to_owned(),
            Parameter::Whole { width, signed } => {
                format!("{}{}", if *signed { "i" } else { "u" }, 8 * width)
            }
            Parameter::Float { width } => format!("f{}", 8 * width),
            Parameter::Structure(name) => name.to_string(),
        };
        let Some(signature) = Signature::of(name.as_bytes()) else { return "none".to_owned() };
        signature.0.iter().map(of).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn parameters_are_read_from_the_mangled_name() {
        assert_eq!(drawn("_Z19compute_cuda_kernelIlEvPKT_PKlPS0_ll"), "* * * i64 i64");
        let fill = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_";
        assert_eq!(
            drawn(fill),
            "i32 at::native::FillFunctor<float> std::array<char*, (unsigned long)1>"
        );
        let foreach = "_ZN2at6native12_GLOBAL__N_125multi_tensor_apply_kernelINS1_18TensorListMetadataILi1EEENS1_21BinaryOpScalarFunctorIfLi1ELi1ELi0EEEJSt4plusIfEfEEEvT_T0_DpT1_";
        assert_eq!(
            drawn(foreach),
            "at::native::(anonymous namespace)::TensorListMetadata<1> \
             at::native::(anonymous namespace)::BinaryOpScalarFunctor<float, 1, 1, 0> std::plus<float> f32"
        );
        assert_eq!(
            drawn("_ZN2at6native28amp_update_scale_cuda_kernelEPfPiPKfddi"),
            "* * * f64 f64 i32"
        );
        assert_eq!(drawn("reduction_prod_kernel"), "none");
        assert_eq!(drawn("_ZN2at6native4nameE"), "none");
    }
}
