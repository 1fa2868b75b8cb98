//! Numbers in rows: elements that lie evenly are read, computed and written many at a time, so that what they are and what is
//! done to them is asked once for a row, and not for each. A mask for attention has millions.

use crate::numbers::arithmetic::{Action, apply};
use crate::types::halves::{to_brain, to_half};
use crate::types::{ScalarType, as_f32};

/// Numbers of a row at most.
pub(crate) const LENGTH: usize = 256;

/// Reads numbers of this type, the first at `at`, each `stride` bytes behind the one before. `None` if they are not all there.
pub(crate) fn read(
    kind: ScalarType,
    span: &[u8],
    at: u64,
    stride: u64,
    out: &mut [i64],
) -> Option<()> {
    let (at, stride) = (usize::try_from(at).ok()?, usize::try_from(stride).ok()?);
    let end = stride.checked_mul(out.len().checked_sub(1)?)?.checked_add(at)?;
    let span = span.get(at..end.checked_add(kind.width())?)?;
    match kind {
        ScalarType::Byte => each::<1>(span, stride, out, |it| ScalarType::Byte.read(&it)),
        ScalarType::Char => each::<1>(span, stride, out, |it| ScalarType::Char.read(&it)),
        ScalarType::Bool => each::<1>(span, stride, out, |it| ScalarType::Bool.read(&it)),
        ScalarType::Short => each::<2>(span, stride, out, |it| ScalarType::Short.read(&it)),
        ScalarType::Half => each::<2>(span, stride, out, |it| ScalarType::Half.read(&it)),
        ScalarType::Brain => each::<2>(span, stride, out, |it| ScalarType::Brain.read(&it)),
        ScalarType::Int => each::<4>(span, stride, out, |it| ScalarType::Int.read(&it)),
        ScalarType::Float => each::<4>(span, stride, out, |it| ScalarType::Float.read(&it)),
        ScalarType::Long => each::<8>(span, stride, out, |it| ScalarType::Long.read(&it)),
        ScalarType::Double => each::<8>(span, stride, out, |it| ScalarType::Double.read(&it)),
    }
    Some(())
}

fn each<const WIDTH: usize>(
    span: &[u8],
    stride: usize,
    out: &mut [i64],
    number: impl Fn([u8; WIDTH]) -> i64,
) {
    if stride == WIDTH {
        let (elements, _) = span.as_chunks::<WIDTH>();
        out.iter_mut().zip(elements).for_each(|(out, &it)| *out = number(it));
        return;
    }
    if stride == 0 {
        out.fill(span.first_chunk().map_or(0, |it| number(*it)));
        return;
    }
    for (i, out) in out.iter_mut().enumerate() {
        if let Some(it) = span.get(i * stride..).and_then(|it| it.first_chunk()) {
            *out = number(*it);
        }
    }
}

/// Numbers of one type as those of another.
pub(crate) fn cast(from: ScalarType, to: ScalarType, row: &mut [i64]) {
    if from != to {
        row.iter_mut().for_each(|it| *it = to.fitted(from.into(to, *it)));
    }
}

/// What comes of two rows, in the first one's place.
pub(crate) fn combine(
    action: Action,
    kind: ScalarType,
    choice: i64,
    row: &mut [i64],
    other: &[i64],
) -> Option<()> {
    let both = row.iter_mut().zip(other);
    // Told at each of these places, an action is no question in the loop.
    match action {
        Action::And => every(both, |a, b| apply(Action::And, kind, choice, a, b)),
        Action::Or => every(both, |a, b| apply(Action::Or, kind, choice, a, b)),
        Action::Equal => every(both, |a, b| apply(Action::Equal, kind, choice, a, b)),
        Action::Order => every(both, |a, b| apply(Action::Order, kind, choice, a, b)),
        Action::Add => every(both, |a, b| apply(Action::Add, kind, choice, a, b)),
        Action::Multiply => every(both, |a, b| apply(Action::Multiply, kind, choice, a, b)),
        Action::Largest => every(both, |a, b| apply(Action::Largest, kind, choice, a, b)),
        Action::Smallest => every(both, |a, b| apply(Action::Smallest, kind, choice, a, b)),
        Action::Copy | Action::Fill => every(both, |a, b| apply(Action::Copy, kind, choice, a, b)),
        _ => every(both, |a, b| apply(action, kind, choice, a, b)),
    }
}

fn every<'a>(
    mut both: impl Iterator<Item = (&'a mut i64, &'a i64)>,
    of: impl Fn(i64, i64) -> Option<i64>,
) -> Option<()> {
    both.try_for_each(|(a, b)| {
        *a = of(*a, *b)?;
        Some(())
    })
}

/// Writes numbers of this type behind what is there.
pub(crate) fn write(kind: ScalarType, row: &[i64], out: &mut Vec<u8>) {
    match kind {
        ScalarType::Float => put::<4>(row, out, |it| as_f32(it).to_le_bytes()),
        ScalarType::Bool => put::<1>(row, out, |it| [u8::from(it != 0)]),
        ScalarType::Byte | ScalarType::Char => put::<1>(row, out, first),
        ScalarType::Short => put::<2>(row, out, first),
        ScalarType::Half => put::<2>(row, out, |it| to_half(as_f32(it)).to_le_bytes()),
        ScalarType::Brain => put::<2>(row, out, |it| to_brain(as_f32(it)).to_le_bytes()),
        ScalarType::Int => put::<4>(row, out, first),
        ScalarType::Long | ScalarType::Double => put::<8>(row, out, i64::to_le_bytes),
    }
}

/// The lowest bytes of a number.
fn first<const WIDTH: usize>(it: i64) -> [u8; WIDTH] {
    it.to_le_bytes().first_chunk().copied().unwrap_or([0; WIDTH])
}

fn put<const WIDTH: usize>(row: &[i64], out: &mut Vec<u8>, bytes: impl Fn(i64) -> [u8; WIDTH]) {
    let at = out.len();
    out.resize(at + row.len() * WIDTH, 0);
    let (places, _) = out[at..].as_chunks_mut::<WIDTH>();
    places.iter_mut().zip(row).for_each(|(place, &it)| *place = bytes(it));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_read_and_written_as_each_of_its_numbers_is() {
        let kinds = [
            (ScalarType::Byte, 200),
            (ScalarType::Char, -3),
            (ScalarType::Bool, 1),
            (ScalarType::Short, -300),
            (ScalarType::Int, -70_000),
            (ScalarType::Long, i64::MIN),
            (ScalarType::Float, ScalarType::Float.of_f64(0.1)),
            (ScalarType::Double, ScalarType::Double.of_f64(-0.1)),
            (ScalarType::Half, ScalarType::Half.of_f64(0.1)),
            (ScalarType::Brain, ScalarType::Brain.of_f64(-0.1)),
        ];
        for (kind, number) in kinds {
            let (mut bytes, mut alone) = (Vec::new(), Vec::new());
            write(kind, &[number, 0, number], &mut bytes);
            [number, 0, number].iter().for_each(|&it| kind.write(it, &mut alone));
            assert_eq!(bytes, alone, "{kind:?}");
            let width = u64::try_from(kind.width()).unwrap();
            let mut row = [7; 3];
            assert_eq!(read(kind, &bytes, 0, width, &mut row), Some(()));
            assert_eq!(row, [number, 0, number], "{kind:?}");
            assert_eq!(read(kind, &bytes, 0, 2 * width, &mut row[..2]), Some(()));
            assert_eq!(row, [number, number, number], "every other one");
            assert_eq!(read(kind, &bytes, width, 0, &mut row), Some(()));
            assert_eq!(row, [0; 3], "the same one");
            assert_eq!(read(kind, &bytes, 2 * width, width, &mut row), None, "they end before");
        }
    }
}
