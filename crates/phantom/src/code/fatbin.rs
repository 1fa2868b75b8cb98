//! The code that a module of kernels carries: for which compute capabilities. A device runs machine
//! code of its own major version and at most its own minor one, so a card that a `PyTorch` has no
//! code for must fail as it really does. And that code itself, for what `cubin` reads of it.
//!
//! The container is the one that `nvcc` embeds (`fatbinary_section.h` gives the wrapper): a wrapper
//! with a magic number points to a header, behind which entries follow, each with its own header.

use std::collections::BTreeSet;
use std::io::Read;

const WRAPPER_MAGIC: u32 = 0x4662_43b1;
const HEADER_MAGIC: u32 = 0xba55_ed50;
const KIND_MACHINE_CODE: u16 = 2;
const ZSTANDARD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// What `__cudaRegisterFatBinary` is given.
#[repr(C)]
pub struct Wrapper {
    magic: u32,
    version: u32,
    data: *const u8,
    more: *const u8,
}

/// The container of the module at `wrapper`; empty for anything that does not look like one.
///
/// # Safety
///
/// `wrapper` must be null or what the compiler passes to `__cudaRegisterFatBinary`.
unsafe fn container(wrapper: *const Wrapper) -> &'static [u8] {
    if wrapper.is_null() {
        return &[];
    }
    // SAFETY: not null; the compiler passes a wrapper.
    let wrapper = unsafe { wrapper.read_unaligned() };
    if wrapper.magic != WRAPPER_MAGIC || wrapper.data.is_null() {
        return &[];
    }
    // SAFETY: the header's 16 bytes say how much follows, all of it embedded in the program.
    unsafe {
        let header = std::slice::from_raw_parts(wrapper.data, 16);
        let length = 16_u64.saturating_add(u64_at(header, 8).unwrap_or(0));
        std::slice::from_raw_parts(wrapper.data, usize::try_from(length).unwrap_or(16))
    }
}

/// The compute capabilities (90 for 9.0) that the module at `wrapper` has machine code for.
///
/// # Safety
///
/// As for [`container`].
pub unsafe fn architectures(wrapper: *const Wrapper) -> BTreeSet<i32> {
    // SAFETY: the caller's.
    of_container(unsafe { container(wrapper) }).into_iter().map(|it| it.0).collect()
}

/// The machine code for `capability` that the module at `wrapper` has, unpacked.
///
/// # Safety
///
/// As for [`container`].
pub unsafe fn machine_code(wrapper: *const Wrapper, capability: i32) -> Vec<Vec<u8>> {
    // SAFETY: the caller's.
    let found = of_container(unsafe { container(wrapper) });
    found.into_iter().filter(|it| it.0 == capability).filter_map(|it| unpacked(it.1)).collect()
}

/// An ELF image as it is, or as Zstandard packs it, which `nvcc` does since 12.8.
fn unpacked(code: &[u8]) -> Option<Vec<u8>> {
    if !code.starts_with(&ZSTANDARD) {
        return Some(code.to_vec());
    }
    let mut image = Vec::new();
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(code).ok()?;
    decoder.read_to_end(&mut image).ok()?;
    Some(image)
}

/// The machine code in a container, by compute capability.
fn of_container(bytes: &[u8]) -> Vec<(i32, &[u8])> {
    let mut found = Vec::new();
    if u32_at(bytes, 0) != Some(HEADER_MAGIC) {
        return found;
    }
    let mut at = u16_at(bytes, 6).map_or(0, usize::from);
    while let (Some(kind), Some(header), Some(size), Some(architecture)) = (
        u16_at(bytes, at),
        u32_at(bytes, at + 4).and_then(|it| usize::try_from(it).ok()),
        u64_at(bytes, at + 8).and_then(|it| usize::try_from(it).ok()),
        u32_at(bytes, at + 28).and_then(|it| i32::try_from(it).ok()),
    ) {
        let Some(next) = header.checked_add(size).and_then(|it| at.checked_add(it)) else { break };
        if kind == KIND_MACHINE_CODE {
            found.push((architecture, bytes.get(at + header..next).unwrap_or(&[])));
        }
        if next <= at {
            break;
        }
        at = next;
    }
    found
}

/// The one of `available` that a device of `capability` (89 for 8.9) would run.
pub fn best_for(capability: i32, available: &BTreeSet<i32>) -> Option<i32> {
    available.range(capability / 10 * 10..=capability).next_back().copied()
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array_at(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array_at(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array_at(bytes, at).map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(entries: &[(u16, u32, usize)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for &(kind, architecture, size) in entries {
            let mut header = vec![0; 64];
            header[0..2].copy_from_slice(&kind.to_le_bytes());
            header[4..8].copy_from_slice(&64_u32.to_le_bytes());
            header[8..16].copy_from_slice(&(size as u64).to_le_bytes());
            header[28..32].copy_from_slice(&architecture.to_le_bytes());
            bytes.extend(header);
            bytes.extend(vec![0; size]);
        }
        let mut all = HEADER_MAGIC.to_le_bytes().to_vec();
        all.extend([1, 0, 16, 0]);
        all.extend((bytes.len() as u64).to_le_bytes());
        all.extend(bytes);
        all
    }

    #[test]
    fn machine_code_is_found_and_ptx_is_not() {
        let bytes = container(&[(2, 75, 8), (2, 86, 0), (1, 120, 40), (2, 90, 3)]);
        let of = |bytes: &[u8]| -> Vec<(i32, usize)> {
            of_container(bytes).into_iter().map(|it| (it.0, it.1.len())).collect()
        };
        assert_eq!(of(&bytes), [(75, 8), (86, 0), (90, 3)]);
        for end in 0..bytes.len() {
            assert!(of(&bytes[..end]).iter().all(|it| [75, 86, 90].contains(&it.0)));
        }
    }

    #[test]
    fn packed_code_is_unpacked() {
        let packed = ruzstd::encoding::compress_to_vec(
            b"\x7fELF".as_slice(),
            ruzstd::encoding::CompressionLevel::Fastest,
        );
        assert_eq!(unpacked(&packed).as_deref(), Some(b"\x7fELF".as_slice()));
        assert_eq!(unpacked(b"\x7fELF").as_deref(), Some(b"\x7fELF".as_slice()));
        assert_eq!(unpacked(&packed[..5]), None);
    }

    #[test]
    fn an_entry_that_claims_no_end_does_not_loop() {
        let mut bytes = container(&[(2, 75, 8)]);
        bytes[20..24].copy_from_slice(&0_u32.to_le_bytes());
        bytes[24..32].copy_from_slice(&0_u64.to_le_bytes());
        assert_eq!(of_container(&bytes).len(), 1);
    }

    #[test]
    fn a_device_runs_code_of_its_major_version() {
        let wheel = BTreeSet::from([75, 80, 86, 90, 100, 120]);
        assert_eq!(best_for(89, &wheel), Some(86));
        assert_eq!(best_for(80, &wheel), Some(80));
        assert_eq!(best_for(103, &wheel), Some(100));
        assert_eq!(best_for(70, &wheel), None, "a V100 has no code in this wheel");
    }
}
