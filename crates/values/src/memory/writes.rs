//! What kernels write to device memory, as far as that is known.

use super::contents::Contents;
use super::lazy::{Element, Open};
use super::origin::Origin;

/// Elements of one write that are computed at most, where a family has no other number.
pub(crate) const MOST: usize = 1 << 20;

/// A write to device memory that a kernel makes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// These bytes are at this address now.
    Known(u64, Vec<u8>),
    /// This element is at this address now, and again and again up to so many bytes.
    Same { at: u64, element: Element, size: u64, is_pattern: bool },
    /// These bytes are at this address now, and they come of where elements stand, or of chance.
    Pattern(u64, Vec<u8>),
    /// The same, and they were chosen for the program, where it asks for the best of numbers that nobody knows.
    Chosen(u64, Vec<u8>),
    /// What is here now is computed when somebody reads it.
    Lazy { at: u64, open: Box<Open>, is_pattern: bool },
    /// Up to so many bytes from this address have a value that we do not know.
    Unknown(u64, u64),
    /// Nobody knows these bytes.
    Forgotten(u64, u64),
    /// What is at this address came into an order that we do not know: of what comes of chance, any is as good.
    Shuffled(u64),
    /// No computed value is sure any more.
    NothingComputed,
}

/// Writes what a kernel did, and what the numbers that it read come of.
pub(crate) fn take(contents: &mut Contents, writes: Vec<Write>, origin: Option<Origin>) {
    for effect in writes {
        match effect {
            Write::Known(at, bytes) => match origin {
                Some(origin) => contents.write_pattern(at, &bytes, origin),
                None => contents.write_computed(at, &bytes),
            },
            Write::Same { at, element, size, is_pattern } => {
                let pattern = is_pattern.then_some(Origin::Pattern);
                contents.write_same(at, element, size, origin.or(pattern));
            }
            Write::Pattern(at, bytes) => {
                contents.write_pattern(at, &bytes, origin.unwrap_or(Origin::Pattern));
            }
            Write::Chosen(at, bytes) => contents.write_chosen(at, &bytes),
            Write::Lazy { at, open, is_pattern } => {
                let pattern = is_pattern.then_some(Origin::Pattern);
                contents.write_lazy(at, *open, origin.or(pattern));
            }
            Write::Unknown(at, most) => contents.forget_span(at, most),
            Write::Forgotten(at, size) => contents.forget(at, size),
            Write::Shuffled(at) if contents.origin(at).is_some() => {}
            Write::Shuffled(at) => contents.forget_span(at, u64::MAX),
            Write::NothingComputed => contents.forget_computed(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_order_leaves_only_what_comes_of_chance() {
        let mut contents = Contents::default();
        let writes = vec![Write::Known(4096, vec![7; 8]), Write::Pattern(8192, vec![3; 8])];
        take(&mut contents, writes, None);
        take(&mut contents, vec![Write::Shuffled(4096), Write::Shuffled(8192)], None);
        assert_eq!(contents.known(4096, 8), None);
        assert_eq!(contents.known(8192, 8), Some(vec![3; 8]));
    }
}
