//! What TensorFlow asks for: a shape and a type instead of a size.

use crate::units::Bytes;

/// `with shape[16,112,112,147] and type float`: its size; a float has four bytes, and so has what does
/// not say its type.
pub(super) fn size(lower: &str) -> Option<Bytes> {
    let at =
        lower.find("shape[").map(|it| it + 6).or_else(|| lower.find("shape [").map(|it| it + 7))?;
    let (inside, rest) = lower[at..].split_once(']')?;
    let mut elements: u64 = 1;
    for side in inside.split(',') {
        elements = elements.checked_mul(side.trim().parse().ok()?)?;
    }
    let kind = rest.split_once("type ").map_or("float", |(_, it)| it);
    let kind: String = kind.chars().take_while(char::is_ascii_alphanumeric).collect();
    let width = match kind.as_str() {
        "double" | "int64" | "complex64" | "uint64" => 8,
        "half" | "bfloat16" | "int16" | "uint16" => 2,
        "int8" | "uint8" | "bool" => 1,
        _ => 4,
    };
    elements.checked_mul(width).map(Bytes)
}
