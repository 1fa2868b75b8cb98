//! Pictures and sequences of known numbers, pooled, enlarged and rolled: which frames of a spectrogram a convolution still sees,
//! which places of a heat map are peaks, a mask of padding at the resolution of the features (`aten/src/ATen/native/cuda/
//! DilatedMaxPool2d.cu`, `AveragePool2d.cu`, `AdaptiveMaxPooling2d.cu`, `AdaptiveAveragePooling.cu`, `UpSampleNearest1d.cu`,
//! `UpSampleNearest2d.cu`, `TensorTransformations.cu`).

use crate::arguments::Arguments;
use crate::memory::Known;
use crate::memory::writes::Write;
use crate::names::{self, has};
use crate::numbers::arithmetic::{Action, apply};
use crate::types::{ScalarType, as_f64, element_after};

/// A kernel that makes a picture of another size, or moves one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// `max_pool_forward_nchw`, which counts elements in 32 or 64 bits.
    Largest { element: ScalarType },
    /// `avg_pool2d_out_cuda_frame`.
    Mean { element: ScalarType },
    /// `adaptivemaxpool` and `adaptive_average_pool`: windows that are as large as it takes.
    Adapts { element: ScalarType, mean: bool },
    /// `upsample_nearest1d_out_frame` and `upsample_nearest2d_out_frame`.
    Enlarges { element: ScalarType, flat: bool, exact: bool },
    /// `roll_cuda_kernel`.
    Rolls { element: ScalarType },
}

/// Elements that are looked at, at most: as often as windows overlap.
const MOST: usize = 1 << 22;

/// Windows along one dimension: where each begins and ends.
type Windows = Vec<(usize, usize)>;

impl Kernel {
    /// The one of this (mangled) name.
    pub(crate) fn of(name: &[u8]) -> Option<Kernel> {
        let element = |part: &[u8]| element_after(name, part);
        if let Some(element) = element(names::MAX_POOL) {
            return Some(Kernel::Largest { element });
        }
        if let Some(element) = element(names::AVG_POOL) {
            return Some(Kernel::Mean { element });
        }
        if let Some(element) = element(names::ADAPTIVE_MAX_POOL) {
            return Some(Kernel::Adapts { element, mean: false });
        }
        if let Some(element) = element(names::ADAPTIVE_AVERAGE_POOL) {
            return Some(Kernel::Adapts { element, mean: true });
        }
        if let Some(element) = element(names::ROLL) {
            return Some(Kernel::Rolls { element });
        }
        let exact = has(name, names::NEAREST_EXACT);
        [(names::UPSAMPLE_NEAREST_1D, true), (names::UPSAMPLE_NEAREST_2D, false)]
            .into_iter()
            .find_map(|(part, flat)| {
                Some(Kernel::Enlarges { element: element(part)?, flat, exact })
            })
    }

    /// What it writes. `blocks` is how many blocks it is launched with.
    pub(crate) fn writes(
        self,
        blocks: u32,
        arguments: Arguments<'_>,
        known: Known<'_>,
    ) -> Option<Vec<Write>> {
        match self {
            Kernel::Largest { element } => largest_pooled(element, arguments, known),
            Kernel::Mean { element } => mean_pooled(element, arguments, known),
            Kernel::Adapts { element, mean } => adapted(element, mean, blocks, arguments, known),
            Kernel::Enlarges { element, flat, exact } => {
                enlarged(element, flat, exact, arguments, known)
            }
            Kernel::Rolls { element } => rolled(element, arguments, known),
        }
    }
}

/// `max_pool_forward_nchw`: how many, from, channels, height, width, and of 32 bits those of the result, of the window, steps,
/// padding and dilation, each of height and width; to, and places.
fn largest_pooled(
    element: ScalarType,
    arguments: Arguments<'_>,
    known: Known<'_>,
) -> Option<Vec<Write>> {
    let count = |i: usize| arguments.count(i);
    let (from, to, places) =
        (arguments.address(1)?, arguments.address(15)?, arguments.address(16)?);
    let pooled = || {
        let (height, width, dense) = (count(3)?, count(4)?, count(13)? == 1 && count(14)? == 1);
        dense.then_some(())?;
        let (rows, columns) = (
            windows(count(5)?, count(7)?, count(9)?, count(11)?, height)?,
            windows(count(6)?, count(8)?, count(10)?, count(12)?, width)?,
        );
        let planes = count(0)? / (rows.len() * columns.len()).max(1);
        let bytes = read(from, planes, height, width, element, known)?;
        largest(&Planes { element, height, width, bytes }, planes, &rows, &columns)
    };
    Some(written(to, places, pooled()))
}

/// `avg_pool2d_out_cuda_frame`: how many, from, channels, height, width, the result's height, and of 32 bits its width, the
/// window, steps and padding, each of height and width; to, a divisor, whether padding counts, and whether there is a divisor.
fn mean_pooled(
    element: ScalarType,
    arguments: Arguments<'_>,
    known: Known<'_>,
) -> Option<Vec<Write>> {
    let count = |i: usize| arguments.count(i);
    let (from, to) = (arguments.address(1)?, arguments.address(13)?);
    let (counts_padding, has_divisor) = (arguments.flag(15)?, arguments.flag(16)?);
    let pooled = || {
        let (height, width) = (count(3)?, count(4)?);
        let (tall, broad) =
            ((count(7)?, count(9)?, count(11)?), (count(8)?, count(10)?, count(12)?));
        let rows = windows(count(5)?, tall.0, tall.1, tall.2, height)?;
        let columns = windows(count(6)?, broad.0, broad.1, broad.2, width)?;
        let planes = count(0)? / (rows.len() * columns.len()).max(1);
        let bytes = read(from, planes, height, width, element, known)?;
        let source = Planes { element, height, width, bytes };
        // What of a window is picture or padding.
        let padded = |i: usize, (window, step, pad): (usize, usize, usize), length: usize| {
            window.min((length + 2 * pad).saturating_sub(i * step))
        };
        let divisor = |i: usize, j: usize| match (has_divisor, counts_padding) {
            (true, _) => count(14),
            (_, true) => Some(padded(i, tall, height) * padded(j, broad, width)),
            _ => None,
        };
        Some((mean(&source, planes, &rows, &columns, divisor)?, Vec::new()))
    };
    Some(written(to, 0, pooled()))
}

/// `adaptivemaxpool` and `adaptive_average_pool`: from, to, places unless it is the mean, and of 32 bits the sizes of both,
/// then strides. A block for each plane.
fn adapted(
    element: ScalarType,
    is_mean: bool,
    blocks: u32,
    arguments: Arguments<'_>,
    known: Known<'_>,
) -> Option<Vec<Write>> {
    let count = |i: usize| arguments.count(i);
    let (from, to) = (arguments.address(0)?, arguments.address(1)?);
    let (places, next) = if is_mean { (0, 2) } else { (arguments.address(2)?, 3) };
    let pooled = || {
        let [height, width, tall, broad] =
            [count(next)?, count(next + 1)?, count(next + 2)?, count(next + 3)?];
        let dense = [height * width, width, 1];
        ([count(next + 4)?, count(next + 5)?, count(next + 6)?] == dense).then_some(())?;
        let (rows, columns) = (shares(tall, height), shares(broad, width));
        let planes = usize::try_from(blocks).ok()?;
        let bytes = read(from, planes, height, width, element, known)?;
        let source = Planes { element, height, width, bytes };
        if is_mean {
            return Some((mean(&source, planes, &rows, &columns, |_, _| None)?, Vec::new()));
        }
        largest(&source, planes, &rows, &columns)
    };
    Some(written(to, places, pooled()))
}

/// `upsample_nearest1d_out_frame`: from, batches, channels, length, that of the result, to, scale; and
/// `upsample_nearest2d_out_frame`: from, to, planes, height, width, those of the result, and two scales.
fn enlarged(
    element: ScalarType,
    flat: bool,
    exact: bool,
    arguments: Arguments<'_>,
    known: Known<'_>,
) -> Option<Vec<Write>> {
    let count = |i: usize| arguments.count(i);
    let (from, to) = (arguments.address(0)?, arguments.address(if flat { 5 } else { 1 })?);
    let enlarged = || {
        let (planes, from_sizes, to_sizes, scales) = if flat {
            let planes = count(1)?.checked_mul(count(2)?)?;
            (planes, [1, count(3)?], [1, count(4)?], [1.0, arguments.float(6)?])
        } else {
            let scales = [arguments.float(7)?, arguments.float(8)?];
            (count(2)?, [count(3)?, count(4)?], [count(5)?, count(6)?], scales)
        };
        let place = |i: usize| nearest(to_sizes[i], from_sizes[i], scales[i], exact);
        let (rows, columns) = (place(0)?, place(1)?);
        (planes.checked_mul(rows.len())?.checked_mul(columns.len())? <= MOST).then_some(())?;
        let [height, width] = from_sizes;
        let bytes = read(from, planes, height, width, element, known)?;
        let mut out = Vec::new();
        for plane in 0..planes {
            for row in &rows {
                for column in &columns {
                    let at = ((plane * height + row) * width + column) * element.width();
                    out.extend_from_slice(bytes.get(at..at + element.width())?);
                }
            }
        }
        Some((out, Vec::new()))
    };
    Some(written(to, 0, enlarged()))
}

/// `roll_cuda_kernel`: from, to, how many, the dimension, where the first one comes from, its size, its stride, and all of it.
fn rolled(element: ScalarType, arguments: Arguments<'_>, known: Known<'_>) -> Option<Vec<Write>> {
    let number = |i: usize| arguments.count(i);
    let (from, to) = (arguments.address(0)?, arguments.address(1)?);
    let rolled = || {
        let (count, start, length, stride) = (number(2)?, number(4)?, number(5)?, number(6)?);
        (count <= MOST && start <= length).then_some(())?;
        let bytes = read(from, 1, 1, count, element, known)?;
        let mut out = Vec::with_capacity(bytes.len());
        for i in 0..count {
            let back = i.checked_rem(stride * length)? / stride >= length - start;
            let from = if back { i - (length - start) * stride } else { i + start * stride };
            let at = from * element.width();
            out.extend_from_slice(bytes.get(at..at + element.width())?);
        }
        Some((out, Vec::new()))
    };
    Some(written(to, 0, rolled()))
}

/// Pictures that lie one after the other.
struct Planes {
    element: ScalarType,
    height: usize,
    width: usize,
    bytes: Vec<u8>,
}

impl Planes {
    /// The places of a window in its plane, and the numbers there.
    fn window(
        &self,
        plane: usize,
        (top, bottom): (usize, usize),
        (left, right): (usize, usize),
    ) -> impl Iterator<Item = (usize, i64)> {
        let places = (top..bottom)
            .flat_map(move |row| (left..right).map(move |column| row * self.width + column));
        places.map(move |place| {
            let at = (plane * self.height * self.width + place) * self.element.width();
            (place, self.element.read(&self.bytes[at..]))
        })
    }
}

/// So many planes of known numbers.
fn read(
    at: u64,
    planes: usize,
    height: usize,
    width: usize,
    element: ScalarType,
    known: Known<'_>,
) -> Option<Vec<u8>> {
    let count = planes.checked_mul(height)?.checked_mul(width)?;
    (0 < count && count <= MOST).then(|| known(at, count * element.width())).flatten()
}

/// Effects of what was computed, and of places if there are any.
fn written(to: u64, places: u64, found: Option<(Vec<u8>, Vec<u8>)>) -> Vec<Write> {
    let Some((values, indices)) = found else {
        let both = [to, places].into_iter().filter(|&it| it != 0);
        return both.map(|it| Write::Unknown(it, u64::MAX)).collect();
    };
    let both = [(to, values), (places, indices)].into_iter().filter(|it| it.0 != 0);
    both.map(|(at, bytes)| Write::Known(at, bytes)).collect()
}

/// Windows of one size, each a step behind the one before, and cut off where the picture ends.
fn windows(count: usize, window: usize, step: usize, pad: usize, length: usize) -> Option<Windows> {
    let of = |i: usize| {
        let begin = i.checked_mul(step)?;
        Some((begin.saturating_sub(pad), (begin + window).checked_sub(pad)?.min(length)))
    };
    (count <= MOST).then(|| (0..count).map(of).collect())?
}

/// As many windows as there are results, which have all between them.
fn shares(count: usize, length: usize) -> Windows {
    (0..count).map(|i| (i * length / count, ((i + 1) * length).div_ceil(count))).collect()
}

/// The largest of each window, and its place: the first one of equals.
fn largest(
    source: &Planes,
    planes: usize,
    rows: &Windows,
    columns: &Windows,
) -> Option<(Vec<u8>, Vec<u8>)> {
    let (mut values, mut indices) = (Vec::new(), Vec::new());
    each(planes, rows, columns, |plane, (_, row), (_, column)| {
        let mut numbers = source.window(plane, row, column);
        let (mut place, mut most) = numbers.next()?;
        for (at, number) in numbers {
            let larger = apply(Action::Order, source.element, 1, number, most)? != 0;
            if larger || !source.element.is_whole() && as_f64(number).is_nan() {
                (place, most) = (at, number);
            }
        }
        source.element.write(most, &mut values);
        indices.extend(u64::try_from(place).ok()?.to_le_bytes());
        Some(())
    })?;
    Some((values, indices))
}

/// The mean of each window, by what `divisor` says or by how many there are.
fn mean(
    source: &Planes,
    planes: usize,
    rows: &Windows,
    columns: &Windows,
    divisor: impl Fn(usize, usize) -> Option<usize>,
) -> Option<Vec<u8>> {
    let kind = source.element;
    (!kind.is_whole()).then_some(())?;
    let mut values = Vec::new();
    each(planes, rows, columns, |plane, (i, row), (j, column)| {
        let add = |a, (_, b)| apply(Action::Add, kind, kind.of_f64(1.0), a, b);
        let total = source.window(plane, row, column).try_fold(kind.of_f64(0.0), add)?;
        let count = source.window(plane, row, column).count();
        let divisor = u32::try_from(divisor(i, j).unwrap_or(count).max(1)).ok()?;
        kind.write(kind.of_f64(as_f64(total) / f64::from(divisor)), &mut values);
        Some(())
    })?;
    Some(values)
}

/// Goes through all windows of all planes, if these are not too many numbers.
fn each(
    planes: usize,
    rows: &Windows,
    columns: &Windows,
    mut of: impl FnMut(usize, (usize, (usize, usize)), (usize, (usize, usize))) -> Option<()>,
) -> Option<()> {
    let along =
        |it: &Windows| it.iter().map(|(begin, end)| end.saturating_sub(*begin)).sum::<usize>();
    (planes.checked_mul(along(rows))?.checked_mul(along(columns))? <= MOST).then_some(())?;
    for plane in 0..planes {
        for (i, &row) in rows.iter().enumerate() {
            for (j, &column) in columns.iter().enumerate() {
                of(plane, (i, row), (j, column))?;
            }
        }
    }
    Some(())
}

/// Where each of so many comes from: the element before, or, exactly, the one in whose middle it is.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "the device computes it so"
)]
fn nearest(count: usize, length: usize, scale: f64, exact: bool) -> Option<Vec<usize>> {
    let scale = scale as f32;
    let from = |i: usize| {
        let i = i as f32 + if exact { 0.5 } else { 0.0 };
        ((i * scale).floor() as usize).min(length.saturating_sub(1))
    };
    (count <= MOST && 0 < length).then(|| (0..count).map(from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_told_by_their_mangled_names() {
        let of = |name: &str| {
            Kernel::of(format!("_ZN2at6native52_GLOBAL__N__e57809e0_19_{name}").as_bytes())
        };
        let element = ScalarType::Float;
        assert_eq!(
            of(
                "DilatedMaxPool2d_cu_6258b57421max_pool_forward_nchwIfiEEvT0_PKT_llliiiiiiiiiiPS4_Pl"
            ),
            Some(Kernel::Largest { element })
        );
        assert_eq!(
            of(
                "UpSampleNearest1d_cu_2345678928upsample_nearest1d_out_frameIfXadL_ZNS0_37nearest_neighbor_compute_source_indexEfiiEEEEvPKT_mmmmPS3_f"
            ),
            Some(Kernel::Enlarges { element, flat: true, exact: false })
        );
        let roll = b"_ZN2at6native16roll_cuda_kernelIlEEvPKT_PS2_llllll";
        assert_eq!(Kernel::of(roll), Some(Kernel::Rolls { element: ScalarType::Long }));
        assert_eq!(of("DilatedMaxPool2d_cu_6258b57422max_pool_backward_nchwIffEEvPKT_"), None);
    }

    #[test]
    fn windows_end_where_the_picture_does() {
        assert_eq!(windows(3, 3, 2, 1, 5), Some(vec![(0, 2), (1, 4), (3, 5)]));
        assert_eq!(windows(1, 1, 1, 2, 5), None, "more padding than window");
        assert_eq!(shares(3, 5), [(0, 2), (1, 4), (3, 5)]);
        assert_eq!(nearest(4, 2, 0.5, false), Some(vec![0, 0, 1, 1]));
        assert_eq!(nearest(2, 4, 2.0, true), Some(vec![1, 3]));
    }

    #[test]
    fn the_first_of_equals_is_the_largest_of_a_window() {
        let source = Planes {
            element: ScalarType::Byte,
            height: 2,
            width: 2,
            bytes: vec![1, 3, 3, 2, 9, 0, 0, 0],
        };
        let whole = vec![(0, 2)];
        let places = [1_u64, 0].iter().flat_map(|it| it.to_le_bytes()).collect();
        assert_eq!(largest(&source, 2, &whole, &whole), Some((vec![3, 9], places)));
        assert_eq!(mean(&source, 2, &whole, &whole, |_, _| None), None, "of whole numbers");
    }
}
