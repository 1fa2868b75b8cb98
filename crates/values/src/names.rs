//! Mangled names of kernels, and what stands in them.

use crate::types::ScalarType;

/// Where `part` begins in a name.
pub(crate) fn position(name: &[u8], part: &[u8]) -> Option<usize> {
    name.windows(part.len()).position(|it| it == part)
}

/// Whether it is there.
pub(crate) fn has(name: &[u8], part: &[u8]) -> bool {
    position(name, part).is_some()
}

/// The type whose letter follows `part`: a template's first argument, where it is one of whole numbers.
pub(crate) fn letter_after(name: &[u8], part: &[u8]) -> Option<ScalarType> {
    let at = position(name, part)? + part.len();
    ScalarType::of_letter(*name.get(at)?)
}

/// Likewise, of whole numbers or floats.
pub(crate) fn number_after(name: &[u8], part: &[u8]) -> Option<ScalarType> {
    let letter = *name.get(position(name, part)? + part.len())?;
    ScalarType::of_letter(letter).or_else(|| ScalarType::of_float(letter))
}

/// Likewise, of halves, too.
pub(crate) fn element_after(name: &[u8], part: &[u8]) -> Option<ScalarType> {
    Some(ScalarType::of_name(name.get(position(name, part)? + part.len()..)?)?.0)
}
