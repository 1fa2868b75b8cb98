//! What the small values of a collective become, when every other rank is taken to hold what this
//! one holds: counts of tokens, flags, sizes of pickled objects, shapes that are compared. Safe, and
//! without C.

use crate::memory::contents::Contents;

/// Values that programs steer by are short; longer buffers are gradients and weights.
const LONGEST: u64 = 1 << 16;

/// `ncclDataType_t`, as far as arithmetic is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Whole numbers of so many bytes, in two's complement.
    Integer(u8),
    /// `float`.
    Single,
    /// `double`.
    Double,
    /// Narrower floating-point numbers, of so many bytes: carried, not computed with.
    Narrow(u8),
}

impl Kind {
    /// `None` for a number that `nccl.h` 2.28 does not have.
    pub fn of(datatype: i32) -> Option<Kind> {
        Some(match datatype {
            0 | 1 => Kind::Integer(1),
            2 | 3 => Kind::Integer(4),
            4 | 5 => Kind::Integer(8),
            6 | 9 => Kind::Narrow(2),
            7 => Kind::Single,
            8 => Kind::Double,
            10 | 11 => Kind::Narrow(1),
            _ => return None,
        })
    }

    /// Bytes of one element.
    pub fn width(self) -> u64 {
        match self {
            Kind::Integer(width) | Kind::Narrow(width) => width.into(),
            Kind::Single => 4,
            Kind::Double => 8,
        }
    }
}

/// `ncclRedOp_t`, as far as equal ranks are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// The sum over so many ranks.
    Sum(u64),
    /// Maximum, minimum, average: of equal values, the value itself.
    Same,
    /// A product, or an operation of the program's own.
    Unknown,
}

impl Reduction {
    /// The operation `op` over `ranks` equal ranks; zero ranks if their number is not known.
    pub fn of(op: i32, ranks: u64) -> Reduction {
        match op {
            0 if ranks != 0 => Reduction::Sum(ranks),
            2..=4 => Reduction::Same,
            _ if ranks == 1 => Reduction::Same,
            _ => Reduction::Unknown,
        }
    }
}

/// The result at `to` of a reduction of `count` elements, this rank's part of which is at `from`.
pub fn reduce(contents: &mut Contents, to: u64, from: u64, count: u64, kind: Kind, how: Reduction) {
    let bytes = count.saturating_mul(kind.width());
    match how {
        Reduction::Same if to == from => {}
        Reduction::Same | Reduction::Sum(1) => contents.copy(to, from, bytes),
        Reduction::Sum(ranks) if bytes <= LONGEST => {
            let mut values = vec![0; usize::try_from(bytes).unwrap_or(0)];
            let unknown = contents.read(from, &mut values);
            contents.forget(to, bytes);
            if unknown == 0 && multiply(&mut values, kind, ranks) {
                contents.write(to, &values);
            }
        }
        Reduction::Sum(_) | Reduction::Unknown => contents.forget(to, bytes),
    }
}

/// Multiplies each element by `factor`; `false` if that is not possible for this kind.
fn multiply(values: &mut [u8], kind: Kind, factor: u64) -> bool {
    #[expect(clippy::cast_precision_loss, reason = "no cluster has 2^53 ranks")]
    let real = factor as f64;
    let width = usize::try_from(kind.width()).unwrap_or(1);
    for element in values.chunks_exact_mut(width) {
        match kind {
            Kind::Integer(_) => {
                let mut wide = [0; 8];
                wide[..width].copy_from_slice(element);
                let product = u64::from_le_bytes(wide).wrapping_mul(factor).to_le_bytes();
                element.copy_from_slice(&product[..width]);
            }
            Kind::Single => {
                let Ok(raw) = element.try_into() else { return false };
                #[expect(clippy::cast_possible_truncation, reason = "as the device rounds")]
                let product = (f64::from(f32::from_le_bytes(raw)) * real) as f32;
                element.copy_from_slice(&product.to_le_bytes());
            }
            Kind::Double => {
                let Ok(raw) = element.try_into() else { return false };
                element.copy_from_slice(&(f64::from_le_bytes(raw) * real).to_le_bytes());
            }
            Kind::Narrow(_) => return false,
        }
    }
    true
}

/// `to` holds `size` bytes of every one of `ranks` ranks, each the same as ours at `from`.
pub fn gather(contents: &mut Contents, to: u64, from: u64, size: u64, ranks: u64) {
    if LONGEST < size {
        contents.forget(to, size.saturating_mul(ranks.max(1)));
        return;
    }
    for rank in 0..ranks.max(1) {
        let slot = to.saturating_add(rank.saturating_mul(size));
        if slot != from {
            contents.copy(slot, from, size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(contents: &Contents, at: u64, size: usize) -> Option<Vec<u8>> {
        let mut out = vec![0; size];
        (contents.read(at, &mut out) == 0).then_some(out)
    }

    #[test]
    fn a_count_that_every_rank_has_is_summed_over_the_ranks() {
        let mut contents = Contents::default();
        contents.write(0, &1000_i64.to_le_bytes());
        reduce(&mut contents, 0, 0, 1, Kind::Integer(8), Reduction::of(0, 64));
        assert_eq!(known(&contents, 0, 8), Some(64_000_i64.to_le_bytes().to_vec()));

        contents.write(100, &(-1_i32).to_le_bytes());
        reduce(&mut contents, 200, 100, 1, Kind::Integer(4), Reduction::of(0, 3));
        assert_eq!(known(&contents, 200, 4), Some((-3_i32).to_le_bytes().to_vec()));

        contents.write(300, &0.5_f32.to_le_bytes());
        reduce(&mut contents, 300, 300, 1, Kind::Single, Reduction::of(0, 8));
        assert_eq!(known(&contents, 300, 4), Some(4.0_f32.to_le_bytes().to_vec()));
    }

    #[test]
    fn maximum_and_average_of_equal_values_are_the_value() {
        let mut contents = Contents::default();
        contents.write(0, &[7; 8]);
        for op in 2..=4 {
            reduce(&mut contents, 0, 0, 1, Kind::Double, Reduction::of(op, 5));
            assert_eq!(known(&contents, 0, 8), Some(vec![7; 8]));
        }
    }

    #[test]
    fn what_cannot_be_computed_is_not_known_afterwards() {
        let mut contents = Contents::default();
        for (kind, op, ranks) in [
            (Kind::Narrow(2), 0, 2),
            (Kind::Single, 1, 2),
            (Kind::Single, 9, 2),
            (Kind::Single, 0, 0),
        ] {
            contents.write(0, &[1; 8]);
            reduce(&mut contents, 0, 0, 8 / kind.width(), kind, Reduction::of(op, ranks));
            assert_eq!(known(&contents, 0, 8), None, "{kind:?} {op} {ranks}");
        }
        contents.write(0, &[1; 8]);
        reduce(&mut contents, 50, 0, 4, Kind::Narrow(2), Reduction::of(0, 1));
        assert_eq!(known(&contents, 50, 8), Some(vec![1; 8]), "a group of one");
    }

    #[test]
    fn every_rank_says_what_this_one_says() {
        let mut contents = Contents::default();
        contents.write(8, &[1, 2, 3, 4]);
        gather(&mut contents, 0, 8, 4, 4);
        assert_eq!(known(&contents, 0, 16), Some([1, 2, 3, 4].repeat(4)), "in place, as slot 2");
        contents.fill(5000, 1, 8);
        gather(&mut contents, 5000, 0, LONGEST + 1, 2);
        assert_eq!(known(&contents, 5000, 8), None, "too long to be steered by");
    }
}
