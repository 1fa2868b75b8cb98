//! Floats of 16 bits: IEEE's, and the upper half of a float of 32 bits. A model in half precision has its masks in it.

/// How the exponent of a float is more than that of a half.
const BIAS: u32 = 112 << 23;

/// The number that these bits are.
pub(crate) fn from_half(bits: u16) -> f64 {
    let size = bits & 0x7fff;
    let value = match size {
        // All of the smallest have one step.
        0..0x0400 => f32::from(size) * (1.0 / 16_777_216.0),
        0x0400..0x7c00 => f32::from_bits((u32::from(size) << 13) + BIAS),
        0x7c00 => f32::INFINITY,
        _ => f32::NAN,
    };
    f64::from(if bits == size { value } else { -value })
}

/// The nearest half, of two the even one.
#[expect(clippy::cast_possible_truncation, reason = "the upper half, and what is left of 16 bits")]
pub(crate) fn to_half(value: f32) -> u16 {
    /// From here on it is infinite: 65,520.
    const MOST: u32 = 0x477f_f000;
    let size = value.abs().to_bits();
    let bits = match size {
        // With a half before it, the steps of a float are those of the smallest.
        0..0x3880_0000 => (value.abs() + 0.5).to_bits() - 0.5_f32.to_bits(),
        0x3880_0000..MOST => (size - BIAS + 0xfff + (size >> 13 & 1)) >> 13,
        MOST..=0x7f80_0000 => 0x7c00,
        _ => 0x7e00,
    };
    bits as u16 | (value.to_bits() >> 16) as u16 & 0x8000
}

/// Likewise, of the other.
pub(crate) fn to_brain(value: f32) -> u16 {
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
