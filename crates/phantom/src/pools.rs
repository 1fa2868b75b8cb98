//! Pictures and sequences of known numbers, pooled, enlarged and rolled: which frames of a spectrogram a convolution still sees,
//! which places of a heat map are peaks, a mask of padding at the resolution of the features (`aten/src/ATen/native/cuda/
//! DilatedMaxPool2d.cu`, `AveragePool2d.cu`, `AdaptiveMaxPooling2d.cu`, `AdaptiveAveragePooling.cu`, `UpSampleNearest1d.cu`,
//! `UpSampleNearest2d.cu`, `TensorTransformations.cu`).

use std::ffi::c_void;

use crate::arithmetic::{Action, apply};
use crate::effects::Effect;
use crate::integers::{Type, as_f64, element_after, has};

/// A kernel that makes a picture of another size, or moves one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// `max_pool_forward_nchw`, which counts elements in 32 or 64 bits.
    Largest { element: Type },
    /// `avg_pool2d_out_cuda_frame`.
    Mean { element: Type },
    /// `adaptivemaxpool` and `adaptive_average_pool`: windows that are as large as it takes.
    Adapts { element: Type, mean: bool },
    /// `upsample_nearest1d_out_frame` and `upsample_nearest2d_out_frame`.
    Enlarges { element: Type, flat: bool, exact: bool },
    /// `roll_cuda_kernel`.
    Rolls { element: Type },
}

/// Elements that are looked at, at most: as often as windows overlap.
const MOST: usize = 1 << 22;

/// Windows along one dimension: where each begins and ends.
type Windows = Vec<(usize, usize)>;

impl Kernel {
    /// The one of this (mangled) name.
    pub fn of(name: &[u8]) -> Option<Kernel> {
        let element = |part: &[u8]| element_after(name, part);
        if let Some(element) = element(b"21max_pool_forward_nchwI") {
            return Some(Kernel::Largest { element });
        }
        if let Some(element) = element(b"25avg_pool2d_out_cuda_frameI") {
            return Some(Kernel::Mean { element });
        }
        if let Some(element) = element(b"15adaptivemaxpoolI") {
            return Some(Kernel::Adapts { element, mean: false });
        }
        if let Some(element) = element(b"21adaptive_average_poolI") {
            return Some(Kernel::Adapts { element, mean: true });
        }
        if let Some(element) = element(b"16roll_cuda_kernelI") {
            return Some(Kernel::Rolls { element });
        }
        let exact = has(name, b"nearest_neighbor_exact_compute_source_index");
        [
            (b"28upsample_nearest1d_out_frameI".as_slice(), true),
            (b"28upsample_nearest2d_out_frameI", false),
        ]
        .into_iter()
        .find_map(|(part, flat)| Some(Kernel::Enlarges { element: element(part)?, flat, exact }))
    }

    /// What it writes. `blocks` is how many blocks it is launched with.
    ///
    /// # Safety
    ///
    /// `arguments` must be those of a kernel of this name.
    pub unsafe fn effects(
        self,
        blocks: u32,
        arguments: *const *const c_void,
        known: impl Fn(u64, usize) -> Option<Vec<u8>>,
    ) -> Vec<Effect> {
        // SAFETY: the caller's; each argument that is read is a pointer or a number of the kernel.
        let long = |i: usize| unsafe { arguments.add(i).read().cast::<u64>().read_unaligned() };
        // SAFETY: the same.
        let int = |i: usize| unsafe { arguments.add(i).read().cast::<u32>().read_unaligned() };
        let size = |i: usize| usize::try_from(long(i)).ok();
        let few = |i: usize| usize::try_from(int(i)).ok();
        match self {
            // How many, from, channels, height, width, and of 32 bits those of the result, of the window, steps, padding and
            // dilation, each of height and width; to, and places.
            Kernel::Largest { element } => {
                let pooled = || {
                    let (height, width, dense) =
                        (size(3)?, size(4)?, few(13)? == 1 && few(14)? == 1);
                    dense.then_some(())?;
                    let (rows, columns) = (
                        windows(few(5)?, few(7)?, few(9)?, few(11)?, height)?,
                        windows(few(6)?, few(8)?, few(10)?, few(12)?, width)?,
                    );
                    let planes = few(0)? / (rows.len() * columns.len()).max(1);
                    let source = Planes {
                        element,
                        height,
                        width,
                        bytes: read(long(1), planes, height, width, element, &known)?,
                    };
                    largest(&source, planes, &rows, &columns)
                };
                written(long(15), long(16), pooled())
            }
            // How many, from, channels, height, width, the result's height, and of 32 bits its width, the window, steps and
            // padding, each of height and width; to, a divisor, whether padding counts, and whether there is a divisor.
            Kernel::Mean { element } => {
                // SAFETY: truth values of the kernel.
                let flag = |i: usize| unsafe { arguments.add(i).read().cast::<u8>().read() } != 0;
                let pooled = || {
                    let (height, width) = (size(3)?, size(4)?);
                    let (tall, broad) =
                        ((few(7)?, few(9)?, few(11)?), (few(8)?, few(10)?, few(12)?));
                    let rows = windows(size(5)?, tall.0, tall.1, tall.2, height)?;
                    let columns = windows(few(6)?, broad.0, broad.1, broad.2, width)?;
                    let planes = few(0)? / (rows.len() * columns.len()).max(1);
                    let source = Planes {
                        element,
                        height,
                        width,
                        bytes: read(long(1), planes, height, width, element, &known)?,
                    };
                    // What of a window is picture or padding.
                    let padded =
                        |i: usize, (window, step, pad): (usize, usize, usize), length: usize| {
                            window.min((length + 2 * pad).saturating_sub(i * step))
                        };
                    let divisor = |i: usize, j: usize| match (flag(16), flag(15)) {
                        (true, _) => few(14),
                        (_, true) => Some(padded(i, tall, height) * padded(j, broad, width)),
                        _ => None,
                    };
                    Some((mean(&source, planes, &rows, &columns, divisor)?, Vec::new()))
                };
                written(long(13), 0, pooled())
            }
            // From, to, places unless it is the mean, and of 32 bits the sizes of both, then strides.
            Kernel::Adapts { element, mean: is_mean } => {
                let next = if is_mean { 2 } else { 3 };
                let pooled = || {
                    let [height, width, tall, broad] =
                        [few(next)?, few(next + 1)?, few(next + 2)?, few(next + 3)?];
                    let dense = [height * width, width, 1];
                    ([size(next + 4)?, size(next + 5)?, size(next + 6)?] == dense).then_some(())?;
                    let (rows, columns) = (shares(tall, height), shares(broad, width));
                    let planes = usize::try_from(blocks).ok()?;
                    let source = Planes {
                        element,
                        height,
                        width,
                        bytes: read(long(0), planes, height, width, element, &known)?,
                    };
                    if is_mean {
                        return Some((
                            mean(&source, planes, &rows, &columns, |_, _| None)?,
                            Vec::new(),
                        ));
                    }
                    largest(&source, planes, &rows, &columns)
                };
                written(long(1), if is_mean { 0 } else { long(2) }, pooled())
            }
            // From, batches, channels, length, that of the result, to, scale; or from, to, planes, height, width, those of the
            // result, and two scales.
            Kernel::Enlarges { element, flat, exact } => {
                // SAFETY: floats of the kernel.
                let scale =
                    |i: usize| unsafe { arguments.add(i).read().cast::<f32>().read_unaligned() };
                let to = if flat { long(5) } else { long(1) };
                let enlarged = || {
                    let (planes, from, result, scales) = if flat {
                        (
                            size(1)?.checked_mul(size(2)?)?,
                            [1, size(3)?],
                            [1, size(4)?],
                            [1.0, scale(6)],
                        )
                    } else {
                        (size(2)?, [size(3)?, size(4)?], [size(5)?, size(6)?], [scale(7), scale(8)])
                    };
                    let place = |i: usize| nearest(result[i], from[i], scales[i], exact);
                    let (rows, columns) = (place(0)?, place(1)?);
                    (planes.checked_mul(rows.len())?.checked_mul(columns.len())? <= MOST)
                        .then_some(())?;
                    let [height, width] = from;
                    let bytes = read(long(0), planes, height, width, element, &known)?;
                    let mut out = Vec::new();
                    for plane in 0..planes {
                        for row in &rows {
                            for column in &columns {
                                let at =
                                    ((plane * height + row) * width + column) * element.width();
                                out.extend_from_slice(bytes.get(at..at + element.width())?);
                            }
                        }
                    }
                    Some((out, Vec::new()))
                };
                written(to, 0, enlarged())
            }
            // From, to, how many, the dimension, where the first one comes from, its size, its stride, and all of it.
            Kernel::Rolls { element } => {
                let rolled = || {
                    let (count, start, length, stride) = (size(2)?, size(4)?, size(5)?, size(6)?);
                    (count <= MOST && start <= length).then_some(())?;
                    let bytes = read(long(0), 1, 1, count, element, &known)?;
                    let mut out = Vec::with_capacity(bytes.len());
                    for i in 0..count {
                        let back = i.checked_rem(stride * length)? / stride >= length - start;
                        let from =
                            if back { i - (length - start) * stride } else { i + start * stride };
                        let at = from * element.width();
                        out.extend_from_slice(bytes.get(at..at + element.width())?);
                    }
                    Some((out, Vec::new()))
                };
                written(long(1), 0, rolled())
            }
        }
    }
}

/// Pictures that lie one after the other.
struct Planes {
    element: Type,
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
        places.map(move |it| {
            let at = (plane * self.height * self.width + it) * self.element.width();
            (it, self.element.read(&self.bytes[at..]))
        })
    }
}

/// So many planes of known numbers.
fn read(
    at: u64,
    planes: usize,
    height: usize,
    width: usize,
    element: Type,
    known: impl Fn(u64, usize) -> Option<Vec<u8>>,
) -> Option<Vec<u8>> {
    let count = planes.checked_mul(height)?.checked_mul(width)?;
    (0 < count && count <= MOST).then(|| known(at, count * element.width())).flatten()
}

/// Effects of what was computed, and of places if there are any.
fn written(to: u64, places: u64, found: Option<(Vec<u8>, Vec<u8>)>) -> Vec<Effect> {
    let Some((values, indices)) = found else {
        let both = [to, places].into_iter().filter(|&it| it != 0);
        return both.map(|it| Effect::Unknown(it, u64::MAX)).collect();
    };
    let both = [(to, values), (places, indices)].into_iter().filter(|it| it.0 != 0);
    both.map(|(at, bytes)| Effect::Known(at, bytes)).collect()
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
fn nearest(count: usize, length: usize, scale: f32, exact: bool) -> Option<Vec<usize>> {
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
        let element = Type::Float;
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
        assert_eq!(Kernel::of(roll), Some(Kernel::Rolls { element: Type::Long }));
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
            element: Type::Byte,
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
