//! What a compiled kernel needs of its multiprocessor, read from the machine code that the program
//! loads. Triton and Inductor ask the driver for it, and try more variants of a kernel that takes many
//! registers (`torch/_inductor/runtime/triton_heuristics.py`), each with memory of its own.
//!
//! The code is an ELF file: each kernel has a section `.text.NAME`, whose `sh_info` is the number of
//! its symbol, and `.nv.info` has attributes by symbol.

/// `EIATTR_FRAME_SIZE`: bytes of local memory of a thread.
const FRAME_SIZE: u8 = 0x11;
/// `EIATTR_MIN_STACK_SIZE`: the same, with the functions that it calls.
const MIN_STACK_SIZE: u8 = 0x12;
/// `EIATTR_REGCOUNT`: registers of a thread.
const REGISTERS: u8 = 0x2f;
/// `EIATTR_PARAM_CBANK`: where the parameters lie, and how many bytes they are.
const PARAMETERS: u8 = 0x0a;
/// `EIFMT_SVAL`: the attribute has a value of its own length.
const SIZED: u8 = 4;

/// One kernel of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Its (mangled) name.
    pub name: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of local memory of a thread: what did not fit into registers, mostly.
    pub local: u32,
    /// Likewise, with the functions that it calls.
    pub stack: u32,
    /// Bytes of its parameters.
    pub parameters: u32,
}

/// Where an ELF image ends that begins with these 64 bytes: its section headers come last.
pub fn length(header: &[u8]) -> Option<usize> {
    let is_elf = header.starts_with(b"\x7fELF\x02\x01");
    let sections = usize::try_from(u64_at(header, 0x28)?).ok()?;
    let (size, count) = (u16_at(header, 0x3a)?, u16_at(header, 0x3c)?);
    is_elf.then(|| sections.checked_add(usize::from(size) * usize::from(count)))?
}

struct Section<'a> {
    name: &'a [u8],
    bytes: &'a [u8],
    info: u32,
}

/// The kernels of an ELF `image`; none, if it does not look like one.
pub fn kernels(image: &[u8]) -> Vec<Kernel> {
    let sections = sections(image).unwrap_or_default();
    let common = sections
        .iter()
        .find(|it| it.name == b".nv.info")
        .map(|it| attributes(it.bytes))
        .unwrap_or_default();
    let of = |symbol: u32, kind: u8| {
        common.iter().find(|it| (it.0, it.1) == (kind, symbol)).map(|it| it.2)
    };
    sections
        .iter()
        .filter_map(|section| {
            let name = String::from_utf8_lossy(section.name.strip_prefix(b".text.")?).into_owned();
            let symbol = section.info & 0x00ff_ffff;
            let registers = of(symbol, REGISTERS)?;
            // What only one kernel has is in a section of its own; the upper half is the size.
            let own = [b".nv.info.", name.as_bytes()].concat();
            let own = sections.iter().find(|it| it.name == own).map(|it| attributes(it.bytes));
            let parameters =
                own.iter().flatten().find(|it| it.0 == PARAMETERS).map_or(0, |it| it.2 >> 16);
            let local = of(symbol, FRAME_SIZE).unwrap_or(0);
            let stack = of(symbol, MIN_STACK_SIZE).unwrap_or(0).max(local);
            Some(Kernel { name, registers, local, stack, parameters })
        })
        .collect()
}

fn sections(image: &[u8]) -> Option<Vec<Section<'_>>> {
    let length = length(image)?;
    let first = usize::try_from(u64_at(image, 0x28)?).ok()?;
    let size = usize::from(u16_at(image, 0x3a)?);
    let names = usize::from(u16_at(image, 0x3e)?);
    let headers: Vec<&[u8]> =
        image.get(first..length)?.chunks_exact(size.max(1)).filter(|it| 64 <= it.len()).collect();
    let content = |header: &[u8]| {
        let at = usize::try_from(u64_at(header, 0x18)?).ok()?;
        let length = usize::try_from(u64_at(header, 0x20)?).ok()?;
        image.get(at..at.checked_add(length)?)
    };
    let names = content(headers.get(names)?)?;
    let read = |header: &&[u8]| {
        let name = names.get(usize::try_from(u32_at(header, 0)?).ok()?..)?;
        let name = name.split(|&byte| byte == 0).next()?;
        // A section without bytes in the file (`.nv.shared`) has an empty content.
        Some(Section { name, bytes: content(header).unwrap_or(&[]), info: u32_at(header, 0x2c)? })
    };
    Some(headers.iter().filter_map(read).collect())
}

/// Attributes that are (symbol, number): kind, symbol, number.
fn attributes(mut bytes: &[u8]) -> Vec<(u8, u32, u32)> {
    let mut found = Vec::new();
    while let [format, kind, low, high, rest @ ..] = bytes {
        let size =
            if *format == SIZED { usize::from(u16::from_le_bytes([*low, *high])) } else { 0 };
        if let (8, Some(symbol), Some(number)) = (size, u32_at(rest, 0), u32_at(rest, 4)) {
            found.push((*kind, symbol, number));
        }
        bytes = rest.get(size..).unwrap_or(&[]);
    }
    found
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An image of one kernel `k` with 40 registers and 16 bytes of local memory, 48 with what it calls.
    fn image() -> Vec<u8> {
        let names = b"\0.names\0.nv.info\0.text.k\0.nv.info.k\0";
        let mut info = Vec::new();
        info.extend([3, 0x1b, 1, 0]); // An attribute without a value of its own.
        for (kind, number) in [(REGISTERS, 40_u32), (FRAME_SIZE, 16), (MIN_STACK_SIZE, 48)] {
            info.extend([SIZED, kind, 8, 0, 7, 0, 0, 0]);
            info.extend(number.to_le_bytes());
        }
        let mut image = vec![0; 64];
        image[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let at = image.len();
        image.extend(names);
        let info_at = image.len();
        image.extend(&info);
        let own_at = image.len();
        let own = [SIZED, PARAMETERS, 8, 0, 2, 0, 0, 0, 0x10, 2, 0x20, 1];
        image.extend(own);
        let headers = image.len();
        for (name, at, length, symbol) in [
            (1_u32, at, names.len(), 0_u32),
            (8, info_at, info.len(), 0),
            (17, headers, 0, 7),
            (25, own_at, own.len(), 0),
        ] {
            let mut header = [0; 64];
            header[..4].copy_from_slice(&name.to_le_bytes());
            header[0x18..0x20].copy_from_slice(&(at as u64).to_le_bytes());
            header[0x20..0x28].copy_from_slice(&(length as u64).to_le_bytes());
            header[0x2c..0x30].copy_from_slice(&symbol.to_le_bytes());
            image.extend(header);
        }
        image[0x28..0x30].copy_from_slice(&(headers as u64).to_le_bytes());
        image[0x3a..0x40].copy_from_slice(&[64, 0, 4, 0, 0, 0]);
        image
    }

    #[test]
    fn registers_and_local_memory_are_read_from_the_code() {
        let image = image();
        assert_eq!(length(&image[..64]), Some(image.len()));
        let k =
            Kernel { name: "k".to_owned(), registers: 40, local: 16, stack: 48, parameters: 288 };
        assert_eq!(kernels(&image), [k]);
    }

    #[test]
    fn anything_else_has_no_kernels() {
        let image = image();
        for cut in 0..image.len() {
            assert_eq!(kernels(&image[..cut]), []);
        }
        assert_eq!(kernels(b"// PTX"), []);
    }
}
