//! A pickle machine that only builds data: protocols 0 to 5, as Python's pickler and the C++ one of
//! torch write them. It knows opcodes, a stack and a memo; what dicts and lists mean is its
//! [`Builder`]'s to know.
//!
//! Nothing is imported or called: the opcodes that do so are refused by name. No length that a file
//! claims is believed: texts are slices of the file, tables grow as opcodes arrive, and whatever the
//! file says, the machine keeps at most a few bytes for each byte read. There is no recursion.

mod damage;
mod memo;
mod operands;

pub use damage::Damage;

use crate::{
    sources::pickle::{
        memo::Memo,
        operands::{low_64_bits, unescape},
    },
    trace::TextId,
};

/// Nesting that no writer comes near: a snapshot nests six deep.
const MAX_MARKS: usize = 10_000;
/// Entries on the stack that even a very short pickle may have.
const MIN_STACK: usize = 1024;

/// An opcode that would run code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) opcode: &'static str,
    pub(super) import: Option<String>,
}

/// What stops the machine before STOP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    Damage(Damage),
    Refused(Refused),
}

impl From<Damage> for Stop {
    fn from(damage: Damage) -> Stop {
        Stop::Damage(damage)
    }
}

/// Something on the machine's stack.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
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
pub(super) trait Builder {
    fn text(&mut self, text: &str) -> TextId;
    fn text_of(&self, id: TextId) -> &str;
    fn dict(&mut self) -> u32;
    fn list(&mut self) -> u32;
    fn tuple(&mut self, items: &[Value]) -> u32;
    /// Keys and values in turn; `all` when the writer gives all items of a dict at once.
    fn set(&mut self, dict: u32, items: &[Value], all: bool) -> Result<(), Damage>;
    fn append(&mut self, list: u32, items: &[Value]);
}

/// The machine. After [`Machine::run`] it shows where it stopped and what it had at hand.
pub(super) struct Machine<'a, B> {
    bytes: &'a [u8],
    /// How far it has read. When it stopped early: the opcode that it could not do.
    pub(super) at: usize,
    pub(super) builder: B,
    pub(super) stack: Vec<Value>,
    /// How high the stack was at each MARK.
    pub(super) marks: Vec<usize>,
    memo: Memo,
    max_stack: usize,
}

impl<'a, B: Builder> Machine<'a, B> {
    pub(super) fn new(bytes: &'a [u8], builder: B) -> Machine<'a, B> {
        Machine {
            bytes,
            at: 0,
            builder,
            stack: Vec::new(),
            marks: Vec::new(),
            memo: Memo::default(),
            // Whatever is kept on the stack took an opcode and, but for None and the like, an
            // operand.
            max_stack: MIN_STACK + bytes.len() / 2,
        }
    }

    /// Reads up to STOP and returns what it left, or what stopped it.
    pub(super) fn run(&mut self) -> Result<Value, Stop> {
        loop {
            let at = self.at;
            match self.step() {
                Ok(None) => {}
                Ok(Some(value)) => return Ok(value),
                Err(stop) => {
                    self.at = at;
                    return Err(stop);
                }
            }
        }
    }

    #[inline]
    fn step(&mut self) -> Result<Option<Value>, Stop> {
        let [opcode] = self.take::<1>()?;
        match opcode {
            b'h' => {
                let [index] = self.take::<1>()?;
                self.recall(u64::from(index))?;
            }
            b'j' => {
                let index = u32::from_le_bytes(self.take()?);
                self.recall(u64::from(index))?;
            }
            0x94 => self.memoize(self.memo.len(), "MEMOIZE")?,
            b'(' => {
                if MAX_MARKS <= self.marks.len() {
                    return Err(Damage::TooMuch("levels").into());
                }
                self.marks.push(self.stack.len());
            }
            b'K' => {
                let [it] = self.take::<1>()?;
                self.push(Value::Int(i64::from(it)))?;
            }
            b'M' => {
                let it = u16::from_le_bytes(self.take()?);
                self.push(Value::Int(i64::from(it)))?;
            }
            b'J' => {
                let it = i32::from_le_bytes(self.take()?);
                self.push(Value::Int(i64::from(it)))?;
            }
            0x8a => {
                let [len] = self.take::<1>()?;
                self.long(usize::from(len))?;
            }
            0x8c => {
                let [len] = self.take::<1>()?;
                self.text(u64::from(len))?;
            }
            b'}' => {
                let dict = self.builder.dict();
                self.push(Value::Object(dict))?;
            }
            b']' => {
                let list = self.builder.list();
                self.push(Value::Object(list))?;
            }
            b'u' => self.add_items("SETITEMS", true)?,
            b'e' => self.add_items("APPENDS", false)?,
            b's' => {
                let from = self.below_top(2, "SETITEM")?;
                let Some(&Value::Object(dict)) = self.stack[..from].last() else {
                    return Err(Damage::Stack("SETITEM").into());
                };
                self.builder.set(dict, &self.stack[from..], false)?;
                self.stack.truncate(from);
            }
            b'a' => {
                let from = self.below_top(1, "APPEND")?;
                let Some(&Value::Object(list)) = self.stack[..from].last() else {
                    return Err(Damage::Stack("APPEND").into());
                };
                self.builder.append(list, &self.stack[from..]);
                self.stack.truncate(from);
            }
            b'.' => return self.stack.pop().ok_or(Damage::Stack("STOP").into()).map(Some),
            _ => self.rarer(opcode)?,
        }
        Ok(None)
    }

    /// The opcodes that a snapshot has few of, or none.
    fn rarer(&mut self, opcode: u8) -> Result<(), Stop> {
        match opcode {
            0x80 => {
                let [protocol] = self.take::<1>()?;
                if 5 < protocol {
                    return Err(Damage::Protocol(protocol).into());
                }
            }
            // A frame's length helps who reads from a socket.
            0x95 => {
                self.take::<8>()?;
            }
            b'N' => self.push(Value::None)?,
            0x88 => self.push(Value::Bool(true))?,
            0x89 => self.push(Value::Bool(false))?,
            0x8b => {
                let len = u32::from_le_bytes(self.take()?);
                self.long(usize::try_from(len).map_err(|_| Damage::Operand("LONG4"))?)?;
            }
            b'G' => {
                let it = f64::from_be_bytes(self.take()?);
                self.push(Value::Float(it))?;
            }
            // Texts, and the byte strings that Python 2 wrote for them.
            b'X' | b'T' | b'B' => {
                let len = u32::from_le_bytes(self.take()?);
                self.text(u64::from(len))?;
            }
            0x8d | 0x8e | 0x96 => {
                let len = u64::from_le_bytes(self.take()?);
                self.text(len)?;
            }
            b'U' | b'C' => {
                let [len] = self.take::<1>()?;
                self.text(u64::from(len))?;
            }
            b')' => self.tuple(self.stack.len())?,
            0x85 => self.tuple(self.below_top(1, "TUPLE1")?)?,
            0x86 => self.tuple(self.below_top(2, "TUPLE2")?)?,
            0x87 => self.tuple(self.below_top(3, "TUPLE3")?)?,
            b't' => {
                let from = self.mark("TUPLE")?;
                self.tuple(from)?;
            }
            b'l' => {
                let from = self.mark("LIST")?;
                let list = self.builder.list();
                self.builder.append(list, &self.stack[from..]);
                self.stack.truncate(from);
                self.push(Value::Object(list))?;
            }
            b'd' => {
                let from = self.mark("DICT")?;
                let dict = self.builder.dict();
                let items = &self.stack[from..];
                if !items.is_empty() {
                    self.builder.set(dict, items, true)?;
                }
                self.stack.truncate(from);
                self.push(Value::Object(dict))?;
            }
            b'q' => {
                let [index] = self.take::<1>()?;
                self.memoize(usize::from(index), "BINPUT")?;
            }
            b'r' => {
                let index = u32::from_le_bytes(self.take()?);
                let index = usize::try_from(index).map_err(|_| Damage::Operand("LONG_BINPUT"))?;
                self.memoize(index, "LONG_BINPUT")?;
            }
            b'0' => {
                // Python pops the mark when nothing lies above it.
                if self.marks.last() == Some(&self.stack.len()) {
                    self.marks.pop();
                } else {
                    self.stack.pop().ok_or(Damage::Stack("POP"))?;
                }
            }
            b'1' => {
                let from = self.mark("POP_MARK")?;
                self.stack.truncate(from);
            }
            b'2' => {
                let top = *self.stack.last().ok_or(Damage::Stack("DUP"))?;
                self.push(top)?;
            }
            b'I' | b'L' | b'F' | b'V' | b'S' | b'p' | b'g' => self.as_text(opcode)?,
            _ => return Err(self.unusable(opcode)),
        }
        Ok(())
    }

    /// The opcodes of protocol 0, whose operand is a line of text.
    fn as_text(&mut self, opcode: u8) -> Result<(), Stop> {
        let rest = &self.bytes[self.at..];
        let len = rest.iter().position(|it| *it == b'\n').ok_or(Damage::CutOff)?;
        self.at += len + 1;
        let line = String::from_utf8_lossy(&rest[..len]);
        let line = line.trim_end_matches('\r');
        match opcode {
            b'I' if line == "01" => self.push(Value::Bool(true)),
            b'I' if line == "00" => self.push(Value::Bool(false)),
            b'I' | b'L' => {
                let digits = line.trim_end_matches('L');
                let it: i128 = digits.parse().map_err(|_| Damage::Operand("INT"))?;
                self.push(Value::Int(low_64_bits(&it.to_le_bytes())))
            }
            b'F' => {
                let it = line.parse().map_err(|_| Damage::Operand("FLOAT"))?;
                self.push(Value::Float(it))
            }
            b'V' => {
                let id = self.builder.text(&unescape(line));
                self.push(Value::Text(id))
            }
            b'S' => {
                let inner = ['\'', '"'].iter().find_map(|quote| {
                    line.strip_prefix(*quote).and_then(|it| it.strip_suffix(*quote))
                });
                let id = self.builder.text(&unescape(inner.ok_or(Damage::Operand("STRING"))?));
                self.push(Value::Text(id))
            }
            b'p' => {
                let index = line.parse().map_err(|_| Damage::Operand("PUT"))?;
                self.memoize(index, "PUT")
            }
            _ => {
                let index = line.parse().map_err(|_| Damage::Operand("GET"))?;
                self.recall(index)
            }
        }
    }

    /// Why `opcode` is not followed.
    fn unusable(&self, opcode: u8) -> Stop {
        let name = match opcode {
            b'c' => "GLOBAL",
            0x93 => "STACK_GLOBAL",
            b'R' => "REDUCE",
            b'b' => "BUILD",
            0x81 => "NEWOBJ",
            0x92 => "NEWOBJ_EX",
            b'i' => "INST",
            b'o' => "OBJ",
            b'P' => "PERSID",
            b'Q' => "BINPERSID",
            0x82 => "EXT1",
            0x83 => "EXT2",
            0x84 => "EXT4",
            0x8f => return Damage::Unexpected("EMPTY_SET").into(),
            0x90 => return Damage::Unexpected("ADDITEMS").into(),
            0x91 => return Damage::Unexpected("FROZENSET").into(),
            0x97 => return Damage::Unexpected("NEXT_BUFFER").into(),
            0x98 => return Damage::Unexpected("READONLY_BUFFER").into(),
            _ => return Damage::NoOpcode(opcode).into(),
        };
        let text = |value: Option<&Value>| match value {
            Some(Value::Text(id)) => Some(self.builder.text_of(*id).to_owned()),
            _ => None,
        };
        let import = match opcode {
            b'c' | b'i' => {
                let mut lines = self.bytes[self.at..].split(|it| *it == b'\n');
                let mut line =
                    || lines.next().map(|it| String::from_utf8_lossy(&it[..it.len().min(80)]));
                line().zip(line()).map(|(module, name)| format!("{module}.{name}"))
            }
            0x93 => {
                let mut top = self.stack.iter().rev();
                let name = text(top.next());
                text(top.next()).zip(name).map(|(module, name)| format!("{module}.{name}"))
            }
            _ => None,
        };
        Stop::Refused(Refused { opcode: name, import })
    }

    fn add_items(&mut self, opcode: &'static str, to_dict: bool) -> Result<(), Stop> {
        let from = self.mark(opcode)?;
        let Some(&Value::Object(object)) = self.stack[..from].last() else {
            return Err(Damage::Stack(opcode).into());
        };
        let items = &self.stack[from..];
        if to_dict {
            self.builder.set(object, items, true)?;
        } else {
            self.builder.append(object, items);
        }
        self.stack.truncate(from);
        Ok(())
    }

    #[inline]
    fn push(&mut self, value: Value) -> Result<(), Stop> {
        if self.max_stack <= self.stack.len() {
            return Err(Damage::TooMuch("objects at once").into());
        }
        self.stack.push(value);
        Ok(())
    }

    fn tuple(&mut self, from: usize) -> Result<(), Stop> {
        let tuple = self.builder.tuple(&self.stack[from..]);
        self.stack.truncate(from);
        self.push(Value::Object(tuple))
    }

    #[inline]
    fn recall(&mut self, index: u64) -> Result<(), Stop> {
        let value = self.memo.get(index).ok_or(Damage::Memo(index))?;
        self.push(value)
    }

    #[inline]
    fn memoize(&mut self, index: usize, opcode: &'static str) -> Result<(), Stop> {
        let top = *self.stack.last().ok_or(Damage::Stack(opcode))?;
        // A writer counts up, so an index beyond the bytes read is no writer's.
        if self.at < index {
            return Err(Damage::Operand(opcode).into());
        }
        self.memo.put(index, top)
    }

    /// Where the items since the last MARK begin.
    #[inline]
    fn mark(&mut self, opcode: &'static str) -> Result<usize, Stop> {
        let from = self.marks.pop().ok_or(Damage::Stack(opcode))?;
        // POP can take the stack below its mark in a damaged file.
        if self.stack.len() < from { Err(Damage::Stack(opcode).into()) } else { Ok(from) }
    }

    #[inline]
    fn below_top(&self, n: usize, opcode: &'static str) -> Result<usize, Stop> {
        self.stack.len().checked_sub(n).ok_or(Damage::Stack(opcode).into())
    }

    #[inline]
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Stop> {
        let found = self.bytes[self.at..].first_chunk::<N>().ok_or(Damage::CutOff)?;
        self.at += N;
        Ok(*found)
    }

    #[inline]
    fn take_slice(&mut self, len: usize) -> Result<&'a [u8], Stop> {
        let found = self.bytes[self.at..].get(..len).ok_or(Damage::CutOff)?;
        self.at += len;
        Ok(found)
    }

    #[inline]
    fn long(&mut self, len: usize) -> Result<(), Stop> {
        let digits = self.take_slice(len)?;
        self.push(Value::Int(low_64_bits(digits)))
    }

    #[inline]
    fn text(&mut self, len: u64) -> Result<(), Stop> {
        let len = usize::try_from(len).map_err(|_| Damage::CutOff)?;
        let bytes = self.take_slice(len)?;
        // Python writes lone surrogates as they are; a file name may have one.
        let id = match std::str::from_utf8(bytes) {
            Ok(text) => self.builder.text(text),
            Err(_) => self.builder.text(&String::from_utf8_lossy(bytes)),
        };
        self.push(Value::Text(id))
    }
}
