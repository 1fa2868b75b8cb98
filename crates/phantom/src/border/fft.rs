//! cuFFT: plans are handles, transforms do nothing, and a plan's work area is what an H200 was seen to
//! give it (`facts/cufft.txt`). cuFFT chooses kernels that a plan needs a device for, so the library
//! itself cannot be asked. Lengths that were not measured get the work area of their like, and the
//! report says so.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::OnceLock;

use crate::border::runtime::answer;
use crate::machine::report;
use crate::machine::resident::Resident;

/// Work areas of one length: for 1, 7 and 64 transforms, in bytes.
type Measured = [u64; 3];
const BATCHES: [u64; 3] = [1, 7, 64];

/// Whether both sides of a transform are complex.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Complex,
    Real,
}

/// What was measured, by kind and length.
fn measured() -> &'static BTreeMap<(Kind, u64), Measured> {
    static TABLE: OnceLock<BTreeMap<(Kind, u64), Measured>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let lines = include_str!("../../facts/cufft.txt").lines();
        lines.filter(|it| !it.starts_with('#')).filter_map(parse).collect()
    })
}

fn parse(line: &str) -> Option<((Kind, u64), Measured)> {
    let mut words = line.split_whitespace();
    let kind = if words.next()? == "complex" { Kind::Complex } else { Kind::Real };
    let length = words.next()?.parse().ok()?;
    let bytes: Vec<u64> = words.map_while(|it| it.parse().ok()).collect();
    Some(((kind, length), Measured::try_from(bytes).unwrap_or([0; 3])))
}

/// The work area of `batch` transforms of `length` in single precision, and whether it was measured.
fn work_area(kind: Kind, length: u64, batch: u64) -> (u64, bool) {
    match measured().get(&(kind, length)) {
        Some(it) => (between(it, batch), true),
        None => (alike(kind, length).saturating_mul(batch), false),
    }
}

/// Between two measured numbers of transforms a straight line, above them as many times the last.
fn between(measured: &Measured, batch: u64) -> u64 {
    for i in 1..BATCHES.len() {
        if batch <= BATCHES[i] {
            let (from, to) = (BATCHES[i - 1], BATCHES[i]);
            let rise = measured[i].saturating_sub(measured[i - 1]);
            return measured[i - 1] + rise * batch.saturating_sub(from) / (to - from);
        }
    }
    let last = u128::from(measured[2]) * u128::from(batch) / u128::from(BATCHES[2]);
    u64::try_from(last).unwrap_or(u64::MAX)
}

/// Bytes for one transform of a length that was not measured, about what its like have: complex ones
/// a second copy above 24,576 points, real ones one of themselves, or two if they are odd, and
/// lengths with a prime factor above 127 the padded ones of Bluestein's algorithm.
fn alike(kind: Kind, length: u64) -> u64 {
    let padded = 127 < largest_prime_factor(length);
    match kind {
        Kind::Complex if padded => 33 * length,
        Kind::Complex if length <= 24_576 => 0,
        Kind::Complex => 8 * length,
        Kind::Real if length <= 512 && !padded => 0,
        Kind::Real if padded && 4096 < length => 41 * length,
        Kind::Real if length.is_multiple_of(2) => 4 * length,
        Kind::Real => 8 * length,
    }
}

fn largest_prime_factor(mut number: u64) -> u64 {
    let (mut largest, mut factor) = (1, 2);
    while factor * factor <= number {
        while number.is_multiple_of(factor) {
            number /= factor;
            largest = factor;
        }
        factor += 1;
    }
    largest.max(number)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cufftCreate(plan: *mut c_int) -> i32 {
    /// `CUFFT_ALLOC_FAILED`
    const ALLOC_FAILED: i32 = 2;
    let Some(mut machine) = crate::machine::lock() else { return ALLOC_FAILED };
    if machine.current().reside(Resident::transform).is_err() {
        return ALLOC_FAILED;
    }
    let handle = machine.handle() & 0x7fff_ffff;
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(plan, c_int::try_from(handle).unwrap_or(1)) }
}

/// Bytes of a real or complex number of this `cudaDataType`, against single precision, as a ratio;
/// and whether it is complex.
fn precision(kind: c_int) -> (u64, u64, bool) {
    match kind {
        0 => (1, 1, false), // CUDA_R_32F
        1 => (2, 1, false), // CUDA_R_64F
        2 => (1, 2, false), // CUDA_R_16F
        5 => (2, 1, true),  // CUDA_C_64F
        6 => (1, 2, true),  // CUDA_C_16F
        _ => (1, 1, true),  // CUDA_C_32F
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cufftXtMakePlanMany(
    _plan: c_int,
    rank: c_int,
    n: *const i64,
    _in_embed: *const i64,
    _in_stride: i64,
    _in_distance: i64,
    in_type: c_int,
    _out_embed: *const i64,
    _out_stride: i64,
    _out_distance: i64,
    out_type: c_int,
    batch: i64,
    work_bytes: *mut usize,
    _execution_type: c_int,
) -> i32 {
    let (times, per, complex_in) = precision(in_type);
    let kind = if complex_in && precision(out_type).2 { Kind::Complex } else { Kind::Real };
    let bytes = if rank == 1 && !n.is_null() {
        // SAFETY: not null, and as many as the rank.
        let length = u64::try_from(unsafe { n.read() }).unwrap_or(0);
        let (bytes, known) = work_area(kind, length, u64::try_from(batch).unwrap_or(0));
        if !known {
            report::approximate(
                "cuFFT's workspace for a length that was not measured is assumed to be that of a similar length",
            );
        }
        bytes.saturating_mul(times) / per
    } else {
        report::approximate(
            "cuFFT's workspaces in two and three dimensions are not counted; most plans have none",
        );
        0
    };
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(work_bytes, usize::try_from(bytes).unwrap_or(usize::MAX)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_lengths_have_their_measured_work_areas() {
        assert_eq!(work_area(Kind::Complex, 1024, 500), (0, true));
        assert_eq!(work_area(Kind::Complex, 32_768, 7), (1_835_008, true));
        assert_eq!(work_area(Kind::Real, 257, 64), (132_352, true));
        assert_eq!(work_area(Kind::Real, 2000, 640), (5_120_000, true));
    }

    #[test]
    fn other_lengths_are_told_apart() {
        assert_eq!(work_area(Kind::Complex, 720 * 7, 4), (0, false));
        assert_eq!(work_area(Kind::Real, 2002, 3), (24_024, false));
        assert_eq!(largest_prime_factor(4097), 241);
        assert_eq!(largest_prime_factor(1), 1);
    }
}
