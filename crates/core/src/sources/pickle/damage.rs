//! What can be wrong with a pickle, short of wanting to run code.

use std::fmt;

/// Why a pickle could not be read to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// It ends before its STOP.
    CutOff,
    /// Whoever hands over the bytes cannot go on: the disk fails, what it unpacks is damaged.
    Unreadable(String),
    /// The snapshot is JSON, and not as JSON is written.
    Json(String),
    /// A byte that is no opcode.
    NoOpcode(u8),
    /// An opcode that no writer of snapshots uses.
    Unexpected(&'static str),
    /// An opcode that takes more from the stack than is on it, or something else than it needs.
    Stack(&'static str),
    /// An opcode whose operand makes no sense.
    Operand(&'static str),
    /// It recalls an object that it never stored.
    Memo(u64),
    /// It nests deeper, or holds more at once, than any writer does.
    TooMuch(&'static str),
    /// A protocol newer than we know.
    Protocol(u8),
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Damage::CutOff => f.write_str("the file is cut off here"),
            Damage::Unreadable(why) => write!(f, "the file cannot be read on from here: {why}"),
            Damage::Json(why) => write!(f, "damaged here: {why}"),
            Damage::NoOpcode(byte) => write!(f, "damaged here: 0x{byte:02x} is no pickle opcode"),
            Damage::Unexpected(opcode) => {
                write!(f, "damaged here: opcode {opcode} does not occur in snapshots")
            }
            Damage::Stack(opcode) => {
                write!(f, "damaged here: opcode {opcode} does not find what it needs")
            }
            Damage::Operand(opcode) => write!(f, "damaged here: operand of {opcode}"),
            Damage::Memo(index) => write!(f, "damaged here: object {index} was never stored"),
            Damage::TooMuch(what) => write!(f, "damaged here: too many {what}"),
            Damage::Protocol(found) => {
                write!(f, "pickle protocol {found} is newer than this program, which reads up to 5")
            }
        }
    }
}
