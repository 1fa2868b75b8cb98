//! Where calls that only look at files leave the process without a stop at the tracer. The filter, the tracer and the library
//! `looks`, which is loaded into traced processes, agree on this file.

/// The address of a page with one system call instruction; the kernel says a call comes from behind it. High, where nobody
/// asks for a place of their own; where it is taken, calls stop as they always did.
pub(crate) const GATE: u64 = 0x2F5E_ED00_0000;

/// The length of that instruction.
pub(crate) const AFTER: u64 = 2;

/// The variable that names a file whose first four bytes are 1 as long as nothing was written in the layer.
pub(crate) const UNTOUCHED: &str = "PLIMSOLL_UNTOUCHED";

/// The length of that file.
pub(crate) const PAGE: usize = 4096;
