//! Sizes as the libraries write them, found by the words beside them.

use crate::units::Bytes;

/// A size at the beginning of `text`, and how long it is. All these libraries count in powers of 1024,
/// whatever they call it.
pub(super) fn size_at(text: &str) -> Option<(Bytes, usize)> {
    let bytes = text.as_bytes();
    let mut at = 0;
    let mut digits = String::new();
    while let Some(&c) = bytes.get(at) {
        let next_is_digit = bytes.get(at + 1).is_some_and(u8::is_ascii_digit);
        match c {
            b'0'..=b'9' => digits.push(char::from(c)),
            b'.' if next_is_digit => digits.push('.'),
            b',' if next_is_digit && !digits.is_empty() => {
                if is_decimal_comma(&bytes[at + 1..]) && !digits.contains('.') {
                    digits.push('.');
                }
            }
            _ => break,
        }
        at += 1;
    }
    if digits.is_empty() || 40 < digits.len() {
        return None;
    }
    // numpy writes a whole number with a point: `184. MiB`.
    let is_pointed = text[at..].strip_prefix(". ").is_some_and(|rest| {
        let unit: String = rest.chars().take_while(char::is_ascii_alphabetic).take(4).collect();
        ["kib", "mib", "gib", "tib"].contains(&unit.to_ascii_lowercase().as_str())
    });
    at += usize::from(is_pointed);
    let mut rest = &text[at..];
    let blanks = rest.len() - rest.trim_start_matches(' ').len();
    if 1 < blanks {
        rest = "";
    }
    let unit: String = rest.trim_start().chars().take_while(char::is_ascii_alphabetic).collect();
    let shift = match unit.to_ascii_lowercase().as_str() {
        "byte" | "bytes" | "b" => Some(0),
        "kib" | "kb" | "k" | "ki" => Some(10),
        "mib" | "mb" | "m" | "mi" | "megabytes" => Some(20),
        "gib" | "gb" | "g" | "gi" | "gigabytes" => Some(30),
        "tib" | "tb" | "t" => Some(40),
        _ => None,
    };
    let (shift, len) = match shift {
        Some(shift) => (shift, at + blanks + unit.len()),
        None => (0, at),
    };
    Some((scaled(&digits, shift)?, len))
}

/// Whether the comma before `rest` stands for a point, as some locales write it: `1900,00 MiB`. Between
/// thousands there are three digits.
fn is_decimal_comma(rest: &[u8]) -> bool {
    let digits = rest.iter().take_while(|it| it.is_ascii_digit()).count();
    digits != 3
}

/// `digits` times 2^`shift`, exact when it is whole.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "the text has two decimals; a value out of range is refused"
)]
fn scaled(digits: &str, shift: u32) -> Option<Bytes> {
    if let Ok(whole) = digits.parse::<u64>() {
        let scaled = u128::from(whole) << shift;
        return u64::try_from(scaled).ok().map(Bytes);
    }
    let value = digits.parse::<f64>().ok()? * (1_u64 << shift) as f64;
    (value < 9.0e18).then(|| Bytes(value.round() as u64))
}

/// The size that follows `word` in `text` (both lower case), after blanks and colons. Of a rounded size
/// and the exact one behind it, `378.60m (396990720 bytes)`, the exact one.
pub(super) fn after(text: &str, word: &str) -> Option<Bytes> {
    let at = text.find(word)? + word.len();
    let rest = text[at..].trim_start_matches([' ', ':', '=', '(', '`', '\'']);
    let (size, len) = size_at(rest)?;
    Some(exact(&rest[len..]).unwrap_or(size))
}

/// ` (396990720 bytes)` at the beginning of `text`.
fn exact(text: &str) -> Option<Bytes> {
    let (inside, _) = text.strip_prefix(" (")?.split_once(')')?;
    inside
        .trim_end_matches('s')
        .ends_with(" byte")
        .then(|| size_at(inside))
        .flatten()
        .map(|it| it.0)
}

/// The size that stands before `word` in `text`: `8.77 GiB already allocated`.
pub(super) fn before(text: &str, word: &str) -> Option<Bytes> {
    before_at(text, text.find(word)?)
}

/// The size that ends before position `at`.
pub(super) fn before_at(text: &str, at: usize) -> Option<Bytes> {
    let head = text[..at].trim_end();
    // A size is at most a number, a blank and a unit.
    let unit = head.len() - head.trim_end_matches(|it: char| it.is_ascii_alphabetic()).len();
    let number = head[..head.len() - unit].trim_end();
    let is_part = |it: char| it.is_ascii_digit() || it == '.' || it == ',';
    let start = number.trim_end_matches(is_part).len();
    let (size, len) = size_at(&head[start..])?;
    (start + len == head.len()).then_some(size)
}

/// Looks for a number that is not known yet.
pub(super) fn first_of<T>(known: &mut Option<T>, find: impl FnOnce() -> Option<T>) {
    if known.is_none() {
        *known = find();
    }
}

/// A whole number after `word`.
pub(super) fn int_after(text: &str, word: &str) -> Option<u64> {
    let at = text.find(word)? + word.len();
    let rest = text[at..].trim_start_matches([' ', ':', '=', '(', '#']);
    let digits: String = rest
        .chars()
        .take_while(|it| it.is_ascii_digit() || *it == ',')
        .filter(|it| *it != ',')
        .collect();
    digits.parse().ok()
}

/// A device index after `word`.
pub(super) fn device_after(text: &str, word: &str) -> Option<u32> {
    int_after(text, word).and_then(|it| u32::try_from(it).ok()).filter(|it| *it < 4_096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_every_writer() {
        for (text, expected) in [
            ("2.00 mib (gpu", Bytes::mib(2)),
            ("0 bytes free", Bytes::ZERO),
            ("4770354232 bytes.", Bytes(4_770_354_232)),
            ("25,600,000 bytes", Bytes(25_600_000)),
            ("21.95g of", Bytes(23_568_633_037)),
            ("1900,00 mib of", Bytes::mib(1900)),
            ("4,5 gib", Bytes::mib(4608)),
            ("1,024.5 kib", Bytes(1_049_088)),
            ("372.76mib\n", Bytes(390_867_190)),
            ("0b", Bytes::ZERO),
            ("184. mib for", Bytes::mib(184)),
            ("184. mibs", Bytes(184)),
            ("1024", Bytes(1024)),
        ] {
            let found = size_at(text).unwrap().0;
            let off = found.0.abs_diff(expected.0);
            assert!(off < 4096, "{text}: {found:#} is not {expected:#}");
        }
        assert_eq!(
            before("a (gpu 0; 14.75 gib total capacity", " total capacity"),
            Some(Bytes(15_837_691_904))
        );
        assert_eq!(size_at("99999999999999999999 gib"), None);
        assert_eq!(
            after("allocate 378.60m (396990720 bytes) from", "allocate"),
            Some(Bytes(396_990_720))
        );
    }
}
