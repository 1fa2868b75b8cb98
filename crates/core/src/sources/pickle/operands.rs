//! Operands that need more than a copy: long integers, and the escaped texts of protocol 0.

/// The low 64 bits of a little-endian two's complement number.
#[inline]
pub(super) fn low_64_bits(digits: &[u8]) -> i64 {
    match digits.first_chunk::<8>() {
        Some(low) => i64::from_le_bytes(*low),
        None => {
            let is_negative = digits.last().is_some_and(|it| 0x80 <= *it);
            let mut low = if is_negative { [0xff; 8] } else { [0; 8] };
            low[..digits.len()].copy_from_slice(digits);
            i64::from_le_bytes(low)
        }
    }
}

/// The same for the `len` digits that `bytes` begin with, where at least eight bytes are at hand: addresses and
/// times, of which every event has two, are shorter than that.
#[inline]
pub(super) fn short_low_64_bits(bytes: &[u8], len: usize) -> Option<i64> {
    let bytes = i64::from_le_bytes(*bytes.first_chunk()?);
    match len {
        0 => Some(0),
        1..=8 => {
            let beyond = 64 - 8 * len;
            Some(bytes << beyond >> beyond)
        }
        _ => None,
    }
}

/// Undoes the escapes that Python's `repr` and raw-unicode-escape use.
pub(super) fn unescape(text: &str) -> String {
    let mut res = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            res.push(c);
            continue;
        }
        let n_digits = match chars.next() {
            Some('x') => 2,
            Some('u') => 4,
            Some('U') => 8,
            Some('n') => {
                res.push('\n');
                continue;
            }
            Some('t') => {
                res.push('\t');
                continue;
            }
            other => {
                res.extend(other);
                continue;
            }
        };
        let digits: String = chars.by_ref().take(n_digits).collect();
        let code = u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32);
        res.push(code.unwrap_or(char::REPLACEMENT_CHARACTER));
    }
    res
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_cut_to_their_low_64_bits() {
        assert_eq!(low_64_bits(&[]), 0);
        assert_eq!(low_64_bits(&[0xff]), -1);
        assert_eq!(low_64_bits(&[0xff, 0x00]), 255);
        assert_eq!(low_64_bits(&[0, 0, 0, 0, 0, 0, 0, 0x80, 0]), i64::MIN);
        assert_eq!(low_64_bits(&[7; 200]), i64::from_le_bytes([7; 8]));
        // The short way is the same.
        for digits in [&[][..], &[0xff], &[0xff, 0x00], &[1, 2, 3, 4, 5, 6, 0x87], &[0x80; 8]] {
            let bytes = [digits, &[0xaa; 8]].concat();
            assert_eq!(short_low_64_bits(&bytes, digits.len()), Some(low_64_bits(digits)));
        }
        assert_eq!((short_low_64_bits(&[7; 7], 1), short_low_64_bits(&[7; 9], 9)), (None, None));
    }

    #[test]
    fn escapes_are_undone() {
        assert_eq!(unescape(r"a\x41\u00e4\U0001f600\\\n\'"), "aA\u{e4}\u{1f600}\\\n'");
        assert_eq!(unescape(r"\"), "");
        assert_eq!(unescape(r"\ud800"), "\u{fffd}");
    }
}
