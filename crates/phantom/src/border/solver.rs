//! cuSOLVER: decompositions do nothing, and the real library names their work areas. A handle is
//! zeros but for the member that says it is in use, which is all that a question about a size reads:
//! of 20,672 sizes that an H200 gave, 19,785 come out equal. The others are `eig`, which is below,
//! and complex numbers in double precision, which are off by some kilobytes.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use crate::border::installed;
use crate::border::runtime::answer;
use crate::machine;
use crate::machine::report;
use crate::machine::resident::Resident;

/// Where a handle says that it is in use, in 32-bit words: in cuSOLVER 12, which comes with CUDA 13, and in
/// cuSOLVER 11. Found by setting each word of a handle of zeros until sizes are answered.
const IN_USE: usize = 0x40 / 4;
const IN_USE_OF_11: usize = 0x90 / 4;
/// `CUSOLVER_STATUS_ALLOC_FAILED`
const ALLOC_FAILED: i32 = 2;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusolverDnCreate(out: *mut *const c_void) -> i32 {
    static HANDLE: OnceLock<Box<[u32]>> = OnceLock::new();
    let handle = HANDLE.get_or_init(|| {
        let mut handle = vec![0; 1 << 14].into_boxed_slice();
        handle[if installed::cuda() < 13_000 { IN_USE_OF_11 } else { IN_USE }] = 1;
        handle
    });
    if let Some(mut machine) = machine::lock()
        && machine.current().reside(Resident::solver).is_err()
    {
        return ALLOC_FAILED;
    }
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(out, handle.as_ptr().cast()) }
}

/// Cholesky decompositions succeed, and say so: `MultivariateNormal` asks it of each covariance.
fn succeeded(info: u64, count: u64) -> i32 {
    const MOST: u64 = 1 << 16;
    if let Some(mut machine) = machine::lock()
        && let Some((device, ..)) = machine.device_of(info)
        && let Ok(size) = usize::try_from(4 * count.min(MOST))
    {
        machine.devices[device].contents.write_computed(info, &vec![0; size]);
    }
    0
}

/// Functions of so many arguments, the last of which is where one decomposition says how it went.
macro_rules! decompositions {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(
            _handle: u64, _part: c_int, _n: c_int, _a: u64, _leading: c_int, _area: u64, _size: c_int, info: u64,
        ) -> i32 {
            succeeded(info, 1)
        }
    )*};
}
decompositions! { cusolverDnSpotrf cusolverDnDpotrf cusolverDnCpotrf cusolverDnZpotrf }

/// And of many matrices.
macro_rules! batched {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(
            _handle: u64, _part: c_int, _n: c_int, _a: u64, _leading: c_int, info: u64, count: c_int,
        ) -> i32 {
            succeeded(info, u64::try_from(count).unwrap_or(0))
        }
    )*};
}
batched! { cusolverDnSpotrfBatched cusolverDnDpotrfBatched cusolverDnCpotrfBatched cusolverDnZpotrfBatched }

#[unsafe(no_mangle)]
pub extern "C" fn cusolverDnXpotrf(
    _handle: u64,
    _parameters: u64,
    _part: c_int,
    _n: i64,
    _kind: c_int,
    _a: u64,
    _leading: i64,
    _compute: c_int,
    _area: u64,
    _size: usize,
    _host_area: u64,
    _host_size: usize,
    info: u64,
) -> i32 {
    succeeded(info, 1)
}

/// `cusolverDnXgeev_bufferSize` of an H200 with vectors, in single precision: rows, bytes on the
/// device and on the host (`bench/instruments/library_facts.py`).
const GEEV: [(u64, u64, u64); 63] = [
    (1, 132_608, 512),
    (2, 132_608, 512),
    (3, 132_608, 512),
    (4, 132_608, 512),
    (5, 132_608, 512),
    (6, 132_608, 1024),
    (7, 132_608, 1024),
    (8, 132_608, 1024),
    (10, 133_120, 1536),
    (12, 133_120, 2048),
    (15, 133_632, 3072),
    (16, 133_632, 3584),
    (17, 133_632, 4096),
    (20, 134_144, 83_968),
    (24, 135_168, 87_552),
    (30, 136_192, 93_184),
    (31, 136_704, 94_208),
    (32, 136_704, 95_232),
    (33, 137_216, 96_256),
    (40, 139_264, 109_568),
    (48, 142_336, 119_808),
    (50, 142_848, 122_368),
    (63, 148_992, 146_432),
    (64, 149_504, 148_480),
    (65, 150_016, 150_016),
    (80, 158_720, 181_760),
    (96, 177_152, 219_648),
    (100, 186_368, 228_352),
    (127, 259_584, 306_176),
    (128, 262_656, 308_736),
    (129, 265_728, 311_808),
    (150, 297_984, 378_368),
    (192, 363_520, 534_528),
    (200, 375_808, 572_928),
    (255, 461_312, 835_072),
    (256, 462_848, 839_680),
    (257, 464_384, 844_800),
    (300, 530_944, 1_084_928),
    (384, 661_504, 1_657_856),
    (400, 686_080, 1_781_760),
    (500, 1_008_128, 2_642_944),
    (511, 1_053_184, 2_754_048),
    (512, 1_057_280, 2_763_264),
    (513, 1_061_376, 2_772_480),
    (600, 1_449_984, 3_926_528),
    (640, 1_649_152, 4_359_680),
    (700, 1_971_712, 5_058_048),
    (768, 2_372_096, 6_047_232),
    (800, 2_573_312, 6_563_328),
    (1000, 4_016_128, 10_251_776),
    (1023, 4_203_008, 10_721_280),
    (1024, 4_211_200, 10_748_928),
    (1025, 4_219_392, 10_766_848),
    (1280, 6_574_592, 16_781_824),
    (1500, 9_024_512, 23_034_368),
    (1536, 9_462_272, 24_152_576),
    (2000, 16_032_256, 38_257_664),
    (2048, 16_810_496, 39_911_936),
    (2500, 25_040_384, 57_297_408),
    (3000, 36_048_384, 80_337_920),
    (3072, 37_798_400, 83_984_896),
    (4000, 64_064_512, 138_417_664),
    (4096, 67_174_912, 144_835_072),
];

/// The work areas for `rows`, on a straight line between the measured ones.
fn geev(rows: u64) -> (u64, u64) {
    let above = GEEV.iter().position(|it| rows <= it.0).unwrap_or(GEEV.len() - 1).max(1);
    let (from, to) = (GEEV[above - 1], GEEV[above]);
    let line =
        |a: u64, b: u64| a + b.saturating_sub(a) * rows.saturating_sub(from.0) / (to.0 - from.0);
    (line(from.1, to.1), line(from.2, to.2))
}

/// The eigenvalues of a general matrix: the one question that the library asks its device about.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusolverDnXgeev_bufferSize(
    _handle: u64,
    _parameters: u64,
    _left: c_int,
    _right: c_int,
    n: i64,
    kind: c_int,
    _a: u64,
    _lda: i64,
    _kind_w: c_int,
    _w: u64,
    _kind_left: c_int,
    _vl: u64,
    _ldvl: i64,
    _kind_right: c_int,
    _vr: u64,
    _ldvr: i64,
    _compute: c_int,
    device: *mut usize,
    host: *mut usize,
) -> i32 {
    report::approximate("cuSOLVER's workspace of eig() is interpolated between measured sizes");
    let times = match kind {
        1 | 4 => 2, // CUDA_R_64F, CUDA_C_32F
        5 => 4,     // CUDA_C_64F
        _ => 1,
    };
    let (on_device, on_host) = geev(u64::try_from(n).unwrap_or(0));
    let bytes = |it: u64| usize::try_from(it.saturating_mul(times)).unwrap_or(usize::MAX);
    // SAFETY: the caller's pointers, checked for null.
    unsafe {
        answer(host, bytes(on_host));
        answer(device, bytes(on_device))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_measured_sizes_lies_a_straight_line() {
        assert_eq!(geev(100), (186_368, 228_352));
        assert_eq!(geev(1), (132_608, 512));
        let (device, _) = geev(140);
        assert!((265_728..375_808).contains(&device));
        assert!(geev(4096).0 < geev(5000).0);
    }
}
