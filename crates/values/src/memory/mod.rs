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
/// Whether what is at an address is computed where somebody reads it.
pub(crate) type IsLazy<'a> = &'a dyn Fn(u64) -> bool;

/// Among more elements nobody looks for the few that are known.
pub(crate) const MOST_LOOKED_AT: usize = 1 << 22;

/// The elements that are known among `count` of `width` bytes from `at` on, with their places. Most are not: they are passed over
/// many at a time.
pub(crate) fn known_among(
    at: u64,
    (count, width): (usize, usize),
    known: Known<'_>,
    knows_any: KnowsAny<'_>,
) -> impl Iterator<Item = (usize, Vec<u8>)> {
    const IN_A_LOOK: usize = 1 << 10;
    let place = move |i: usize| at + u64::try_from(i * width).unwrap_or(0);
    let looks = (0..count).step_by(IN_A_LOOK).map(move |it| it..count.min(it + IN_A_LOOK));
    let some = looks.filter(move |it| knows_any(place(it.start), place(it.end) - place(it.start)));
    some.flat_map(move |look| -> Vec<(usize, Vec<u8>)> {
        // What was set was often set as a whole.
        match known(place(look.start), look.len() * width) {
            Some(all) => look.zip(all.chunks_exact(width).map(<[u8]>::to_vec)).collect(),
            None => look.filter_map(|i| Some((i, known(place(i), width)?))).collect(),
        }
    })
}
