//! What goes into the pickle machine and comes out: values, who makes objects of them, and what stops it.

use crate::{
    sources::pickle::Damage,
    trace::{Interner, TextId},
};

/// An opcode that would run code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::sources) struct Refused {
    pub(in crate::sources) opcode: &'static str,
    pub(in crate::sources) import: Option<String>,
}

/// What stops the machine before STOP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::sources) enum Stop {
    Damage(Damage),
    Refused(Refused),
}

/// Something on the machine's stack.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::sources) enum Value {
    None,
    Bool(bool),
    /// Python's integers, cut to their low 64 bits: addresses from 2^63 on come as nine bytes from
    /// Python and as negative numbers from C++, and are the same here.
    Int(i64),
    Float(f64),
    Text(TextId),
    /// Something that the builder made.
    Object(u32),
}

/// Who turns dicts, lists and tuples into something. Handles are the builder's own.
pub(in crate::sources) trait Builder {
    fn text(&mut self, text: &str) -> TextId;
    fn texts(&self) -> &Interner;
    fn dict(&mut self) -> u32;
    fn list(&mut self) -> u32;
    fn tuple(&mut self, items: &[Value]) -> u32;
    /// Keys and values in turn; `all` when the writer gives all items of a dict at once.
    fn set(&mut self, dict: u32, items: &[Value], all: bool) -> Result<(), Damage>;
    fn append(&mut self, list: u32, items: &[Value]);
}
