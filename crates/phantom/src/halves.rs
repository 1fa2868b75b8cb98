//! Floats of 16 bits: IEEE's, and the upper half of a float of 32 bits. A model in half precision has its masks in it.

/// The number that these bits are.
pub fn from_half(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    let size = match exponent {
        0 => fraction * 2_f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (fraction / 1024.0 + 1.0) * 2_f64.powi(exponent - 15),
    };
    if bits & 0x8000 == 0 { size } else { -size }
}

/// The nearest half, of two the even one.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "at most 31 times 1024 and not negative"
)]
pub fn to_half(value: f32) -> u16 {
    /// From here on it is infinite.
    const MOST: f64 = 65520.0;
    let size = f64::from(value.abs());
    let bits = if size.is_nan() {
        0x7e00
    } else if MOST <= size {
        0x7c00
    } else {
        // Of the smallest ones all have one step.
        let exponent = (-14..16).rev().find(|&it| 2_f64.powi(it) <= size).unwrap_or(-14);
        let steps = (size / 2_f64.powi(exponent - 10)).round_ties_even() as u16;
        // A normal one has 1024 of them more than its fraction says, which are one exponent.
        steps + ((exponent + 14) as u16) * 1024
    };
    bits | if value.is_sign_negative() { 0x8000 } else { 0 }
}

/// Likewise, of the other.
#[expect(clippy::cast_possible_truncation, reason = "the upper half")]
pub fn to_brain(value: f32) -> u16 {
    if value.is_nan() {
        return 0x7fc0;
    }
    let bits = value.to_bits();
    (bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::cast_possible_truncation, reason = "a half is a float of 32 bits")]
    fn every_half_is_itself() {
        for bits in 0..=u16::MAX {
            let value = from_half(bits);
            if !value.is_nan() {
                assert_eq!(to_half(value as f32), bits, "{value}");
            }
        }
        assert_eq!([65519.0, 65520.0, 1e-8, 3e-8].map(to_half), [0x7bff, 0x7c00, 0, 1]);
        assert_eq!([2049.0, 2051.0].map(|it| from_half(to_half(it))), [2048.0, 2052.0], "to even");
        assert_eq!([1.0, -3.0, 257.0, f32::MIN].map(to_brain), [0x3f80, 0xc040, 0x4380, 0xff80]);
    }
}
