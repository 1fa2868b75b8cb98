//! What is known of device memory.

pub(crate) mod budget;
pub(crate) mod contents;
pub(crate) mod lazy;
pub(crate) mod origin;
pub(crate) mod writes;

use self::contents::Contents;

/// The memory of all devices of a process.
pub trait Memory {
    /// What is known of the memory of the device that the calling thread uses.
    fn current(&mut self) -> &mut Contents;

    /// What is known of the memory of the device that `address` lies on.
    fn at(&mut self, address: u64) -> Option<&mut Contents>;
}

/// Memory that an address says nothing about: one device has all of it.
impl Memory for Contents {
    fn current(&mut self) -> &mut Contents {
        self
    }

    fn at(&mut self, _address: u64) -> Option<&mut Contents> {
        Some(self)
    }
}

/// Reads device memory: so many bytes from an address on in full, or nothing.
pub(crate) type Known<'a> = &'a dyn Fn(u64, usize) -> Option<Vec<u8>>;
/// Whether any of so many bytes from an address on is known.
pub(crate) type KnowsAny<'a> = &'a dyn Fn(u64, u64) -> bool;
