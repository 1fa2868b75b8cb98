//! The types of elements, as kernels are told them by name or by number, and how numbers of each lie in memory. A number
//! is an `i64` everywhere in this crate: of a float, the bits of it as a double.

pub(crate) mod halves;

use crate::names::{self, position};

/// An element's type, as `c10::ScalarType` numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScalarType {
    Byte = 0,
    Char = 1,
    Short = 2,
    Int = 3,
    Long = 4,
    Half = 5,
    Float = 6,
    Double = 7,
    Bool = 11,
    Brain = 15,
}

impl ScalarType {
    /// The float that a mangled name means by this letter.
    pub(crate) fn of_float(letter: u8) -> Option<Self> {
        match letter {
            b'f' => Some(Self::Float),
            b'd' => Some(Self::Double),
            _ => None,
        }
    }

    pub(crate) fn is_whole(self) -> bool {
        !matches!(self, Self::Half | Self::Float | Self::Double | Self::Brain)
    }

    /// What is computed with, of halves.
    pub(crate) fn working(self) -> Self {
        if matches!(self, Self::Half | Self::Brain) { Self::Float } else { self }
    }

    /// The type that a mangled name means here, and how many letters say so. `c10` may have been named before.
    pub(crate) fn of_name(name: &[u8]) -> Option<(Self, usize)> {
        let of = |part: &[u8], kind| {
            let begin = name.get(..name.len().min(20))?;
            let at = position(begin, part)?;
            let is_name = matches!(&name[..at], b"N3c10") || name.starts_with(b"NS") && at < 7;
            is_name.then_some((kind, at + part.len()))
        };
        match *name.first()? {
            b'N' => of(names::HALF, Self::Half).or_else(|| of(names::BRAIN, Self::Brain)),
            letter => Some((Self::of_letter(letter).or_else(|| Self::of_float(letter))?, 1)),
        }
    }

    /// The whole type that a mangled name means by this letter.
    pub(crate) fn of_letter(letter: u8) -> Option<Self> {
        Some(match letter {
            b'h' => Self::Byte,
            b'a' => Self::Char,
            b's' => Self::Short,
            b'i' => Self::Int,
            b'l' => Self::Long,
            b'b' => Self::Bool,
            _ => return None,
        })
    }

    /// The type that `c10::ScalarType` gives this number.
    pub(crate) fn of_number(number: u8) -> Option<Self> {
        let of = |letter: u8| Self::of_letter(letter).or_else(|| Self::of_float(letter));
        let known = b"hasilbfd".iter().filter_map(|&it| of(it));
        known.chain([Self::Half, Self::Brain]).find(|&it| it as u8 == number)
    }

    pub(crate) fn width(self) -> usize {
        match self {
            Self::Byte | Self::Char | Self::Bool => 1,
            Self::Short | Self::Half | Self::Brain => 2,
            Self::Int | Self::Float => 4,
            Self::Long | Self::Double => 8,
        }
    }

    /// The number in the first bytes of `bytes`; of a float, the bits of it as a double.
    pub(crate) fn read(self, bytes: &[u8]) -> i64 {
        let mut wide = [0; 8];
        wide[..self.width()].copy_from_slice(&bytes[..self.width()]);
        let value = i64::from_le_bytes(wide);
        let spare = 64 - 8 * self.width();
        match self {
            Self::Byte => value,
            Self::Bool => i64::from(value != 0),
            Self::Float => {
                let [a, b, c, d, ..] = wide;
                f64::from(f32::from_le_bytes([a, b, c, d])).to_bits().cast_signed()
            }
            Self::Half => {
                halves::from_half(u16::from_le_bytes([wide[0], wide[1]])).to_bits().cast_signed()
            }
            Self::Brain => {
                f64::from(f32::from_le_bytes([0, 0, wide[0], wide[1]])).to_bits().cast_signed()
            }
            _ => value << spare >> spare,
        }
    }

    /// The number in `bytes`, such that a larger one has larger bits.
    pub(crate) fn ordered(self, bytes: &[u8]) -> u64 {
        let mut wide = [0; 8];
        wide[..self.width()].copy_from_slice(&bytes[..self.width()]);
        let bits = u64::from_le_bytes(wide);
        let sign = 1_u64 << (8 * self.width() - 1);
        match self {
            Self::Byte | Self::Bool => bits,
            _ if !self.is_whole() && bits & sign != 0 => !bits & (sign | (sign - 1)),
            _ => bits ^ sign,
        }
    }

    /// `value`, which is one of this type, as one of another.
    pub(crate) fn into(self, other: Self, value: i64) -> i64 {
        match (self.is_whole(), other.is_whole()) {
            (true, true) => value,
            (true, false) => other.of_f64(whole_as_f64(value)),
            (false, true) if other == Self::Bool => i64::from(as_f64(value) != 0.0),
            (false, true) => f64_as_whole(as_f64(value)),
            (false, false) => other.of_f64(as_f64(value)),
        }
    }

    /// `value` as this float has it.
    pub(crate) fn of_f64(self, value: f64) -> i64 {
        let value = match self {
            Self::Float => f64::from(rounded(value)),
            Self::Half => halves::from_half(halves::to_half(rounded(value))),
            Self::Brain => {
                f64::from(f32::from_bits(u32::from(halves::to_brain(rounded(value))) << 16))
            }
            _ => value,
        };
        value.to_bits().cast_signed()
    }

    /// `value` as this float has it.
    pub(crate) fn rounded(self, value: f64) -> f64 {
        as_f64(self.of_f64(value))
    }

    /// `value` as it is once it was stored as this type.
    pub(crate) fn fitted(self, value: i64) -> i64 {
        match self {
            Self::Bool => i64::from(value != 0),
            Self::Byte => value & 0xff,
            Self::Float | Self::Half | Self::Brain => self.of_f64(as_f64(value)),
            Self::Double | Self::Long => value,
            Self::Char | Self::Short | Self::Int => {
                let spare = 64 - 8 * self.width();
                value << spare >> spare
            }
        }
    }

    /// `value` as this type stores it.
    pub(crate) fn write(self, value: i64, out: &mut Vec<u8>) {
        match self {
            Self::Float => return out.extend_from_slice(&as_f32(value).to_le_bytes()),
            Self::Half => {
                return out.extend_from_slice(&halves::to_half(as_f32(value)).to_le_bytes());
            }
            Self::Brain => {
                return out.extend_from_slice(&halves::to_brain(as_f32(value)).to_le_bytes());
            }
            _ => {}
        }
        let value = if self == Self::Bool { i64::from(value != 0) } else { value };
        out.extend_from_slice(&value.to_le_bytes()[..self.width()]);
    }
}

/// The type whose letter follows `part` in a mangled name: a template's first argument, where it is one of whole numbers.
pub(crate) fn letter_after(name: &[u8], part: &[u8]) -> Option<ScalarType> {
    let at = position(name, part)? + part.len();
    ScalarType::of_letter(*name.get(at)?)
}

/// Likewise, of whole numbers or floats.
pub(crate) fn number_after(name: &[u8], part: &[u8]) -> Option<ScalarType> {
    let (it, _) = ScalarType::of_name(name.get(position(name, part)? + part.len()..)?)?;
    Some(it)
}

/// Likewise, of halves, too.
pub(crate) fn element_after(name: &[u8], part: &[u8]) -> Option<ScalarType> {
    Some(ScalarType::of_name(name.get(position(name, part)? + part.len()..)?)?.0)
}

/// The float that these bits are.
pub(crate) fn as_f64(bits: i64) -> f64 {
    f64::from_bits(bits.cast_unsigned())
}

/// Likewise, as a float of 32 bits.
pub(crate) fn as_f32(bits: i64) -> f32 {
    rounded(as_f64(bits))
}

#[expect(clippy::cast_possible_truncation, reason = "the device rounds in the same way")]
fn rounded(value: f64) -> f32 {
    value as f32
}

#[expect(clippy::cast_precision_loss, reason = "the device rounds in the same way")]
fn whole_as_f64(value: i64) -> f64 {
    value as f64
}

#[expect(clippy::cast_possible_truncation, reason = "the device cuts off in the same way")]
fn f64_as_whole(value: f64) -> i64 {
    value as i64
}
