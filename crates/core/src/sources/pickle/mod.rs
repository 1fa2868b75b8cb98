//! A pickle machine that only builds data: protocols 0 to 5, as Python's pickler and the C++ one of
//! torch write them. It knows opcodes, a stack and a memo; what dicts and lists mean is its
//! [`Builder`]'s to know.
//!
//! Nothing is imported or called: the opcodes that do so are refused by name. No length that a file
//! claims is believed: the file arrives in chunks, tables grow as opcodes arrive, and whatever the
//! file says, the machine keeps at most a few bytes for each byte read. There is no recursion.

mod damage;
mod input;
mod memo;
mod operands;
mod value;

pub use damage::Damage;
pub(super) use value::{Builder, Refused, Stop, Value};

use std::io::Read;

use crate::{
    sources::pickle::{
        input::Input,
        memo::Memo,
        operands::{low_64_bits, short_low_64_bits, unescape},
    },
    trace::TextId,
};

/// Nesting that no writer comes near: a snapshot nests six deep.
const MAX_MARKS: usize = 10_000;
/// Entries on the stack that even a very short pickle may have.
const MIN_STACK: usize = 1024;
/// How far ahead the name of an import is looked for.
const IMPORT: usize = 256;

impl From<Damage> for Stop {
    fn from(damage: Damage) -> Stop {
        Stop::Damage(damage)
    }
}

/// The machine. After [`Machine::run`] it shows where it stopped and what it had at hand.
pub(super) struct Machine<R, B> {
    input: Input<R>,
    /// The offset of the opcode at hand. When it stopped early: the one that it could not do.
    pub(super) at: u64,
    pub(super) builder: B,
    pub(super) stack: Vec<Value>,
    /// How high the stack was at each MARK.
    pub(super) marks: Vec<usize>,
    memo: Memo,
}

impl<R: Read, B: Builder> Machine<R, B> {
    pub(super) fn new(reader: R, builder: B) -> Machine<R, B> {
        Machine {
            input: Input::new(reader),
            at: 0,
            builder,
            stack: Vec::new(),
            marks: Vec::new(),
            memo: Memo::default(),
        }
    }

    /// How the pickle begins.
    pub(super) fn head(&self) -> &[u8] {
        self.input.head()
    }

    /// Reads up to STOP and returns what it left, or what stopped it.
    pub(super) fn run(&mut self) -> Result<Value, Stop> {
        loop {
            let pause = self.burst();
            if MIN_STACK + usize::try_from(self.input.offset() / 2).unwrap_or(usize::MAX)
                < self.stack.len()
            {
                return Err(Damage::TooMuch("objects at once").into());
            }
            match pause? {
                Pause::Needs(len) => self.input.fill_or_stop(len)?,
                Pause::Rarer(opcode) => self.rarer(opcode)?,
                Pause::End(value) => return Ok(value),
            }
        }
    }

    /// Follows the opcodes that a snapshot consists of, as far as bytes are at hand; nearly all the
    /// time of reading a snapshot is spent here.
    fn burst(&mut self) -> Result<Pause, Stop> {
        let Machine { input, at: opcode_at, builder, stack, marks, memo } = self;
        let before = input.offset();
        let bytes = input.at_hand();
        let mut at = 0;
        // Where the opcode at hand begins.
        let mut from;
        /// The operand; if it is not all there, the opcode waits until it is.
        macro_rules! operand {
            ($n:expr) => {{
                let Some(found) = bytes.get(at..).and_then(|it| it.first_chunk::<{ $n }>()) else {
                    break Ok((from, Pause::Needs(1 + $n)));
                };
                at += $n;
                *found
            }};
        }
        macro_rules! recall {
            ($index:expr) => {{
                let index = $index;
                match memo.get(u64::from(index)) {
                    Some(value) => stack.push(value),
                    None => break Err(Damage::Memo(u64::from(index)).into()),
                }
            }};
        }
        let res: Result<(usize, Pause), Stop> = loop {
            from = at;
            let Some(opcode) = bytes.get(at) else { break Ok((from, Pause::Needs(1))) };
            at += 1;
            match opcode {
                b'h' => recall!(u8::from_le_bytes(operand!(1))),
                b'j' => recall!(u32::from_le_bytes(operand!(4))),
                // MEMOIZE stores at the number of entries, which counts up without holes.
                0x94 => {
                    let Some(top) = stack.last() else {
                        break Err(Damage::Stack("MEMOIZE").into());
                    };
                    if let Err(stop) = memo.push(*top) {
                        break Err(stop);
                    }
                }
                b'(' => {
                    if MAX_MARKS <= marks.len() {
                        break Err(Damage::TooMuch("levels").into());
                    }
                    marks.push(stack.len());
                }
                b'K' => stack.push(Value::Int(i64::from(u8::from_le_bytes(operand!(1))))),
                b'M' => stack.push(Value::Int(i64::from(u16::from_le_bytes(operand!(2))))),
                b'J' => stack.push(Value::Int(i64::from(i32::from_le_bytes(operand!(4))))),
                0x8a => {
                    let len = usize::from(u8::from_le_bytes(operand!(1)));
                    let Some(digits) = bytes.get(at..at + len) else {
                        break Ok((from, Pause::Needs(2 + len)));
                    };
                    let short = short_low_64_bits(&bytes[at..], len);
                    at += len;
                    stack.push(Value::Int(short.unwrap_or_else(|| low_64_bits(digits))));
                }
                0x8c => {
                    let [len] = operand!(1);
                    let Some(text) = bytes.get(at..at + usize::from(len)) else {
                        break Ok((from, Pause::Needs(2 + usize::from(len))));
                    };
                    at += text.len();
                    stack.push(Value::Text(intern(builder, text)));
                }
                b'}' => stack.push(Value::Object(builder.dict())),
                b']' => stack.push(Value::Object(builder.list())),
                b'u' | b'e' => {
                    let name = if *opcode == b'u' { "SETITEMS" } else { "APPENDS" };
                    let first = match since_mark(marks, stack, name) {
                        Ok(it) => it,
                        Err(stop) => break Err(stop),
                    };
                    let Some(&Value::Object(object)) = stack[..first].last() else {
                        break Err(Damage::Stack(name).into());
                    };
                    if *opcode == b'u' {
                        if let Err(damage) = builder.set(object, &stack[first..], true) {
                            break Err(damage.into());
                        }
                    } else {
                        builder.append(object, &stack[first..]);
                    }
                    stack.truncate(first);
                }
                b'.' => {
                    break match stack.pop() {
                        Some(value) => Ok((at, Pause::End(value))),
                        None => Err(Damage::Stack("STOP").into()),
                    };
                }
                _ => break Ok((at, Pause::Rarer(*opcode))),
            }
        };
        *opcode_at = before + from as u64;
        match res {
            Ok((taken, pause)) => {
                input.advance(taken);
                Ok(pause)
            }
            Err(stop) => Err(stop),
        }
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
            b'N' => self.push(Value::None),
            0x88 => self.push(Value::Bool(true)),
            0x89 => self.push(Value::Bool(false)),
            0x8b => {
                let len = u32::from_le_bytes(self.take()?);
                let len = usize::try_from(len).map_err(|_| Damage::Operand("LONG4"))?;
                let it = low_64_bits(self.input.take_slice(len)?);
                self.push(Value::Int(it));
            }
            b'G' => {
                let it = f64::from_be_bytes(self.take()?);
                self.push(Value::Float(it));
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
            b')' => self.tuple(self.stack.len()),
            0x85 => self.tuple(self.below_top(1, "TUPLE1")?),
            0x86 => self.tuple(self.below_top(2, "TUPLE2")?),
            0x87 => self.tuple(self.below_top(3, "TUPLE3")?),
            b't' => {
                let from = self.mark("TUPLE")?;
                self.tuple(from);
            }
            b'l' => {
                let from = self.mark("LIST")?;
                let list = self.builder.list();
                self.builder.append(list, &self.stack[from..]);
                self.stack.truncate(from);
                self.push(Value::Object(list));
            }
            b'd' => {
                let from = self.mark("DICT")?;
                let dict = self.builder.dict();
                let items = &self.stack[from..];
                if !items.is_empty() {
                    self.builder.set(dict, items, true)?;
                }
                self.stack.truncate(from);
                self.push(Value::Object(dict));
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
                self.push(top);
            }
            b'I' | b'L' | b'F' | b'V' | b'S' | b'p' | b'g' => self.as_text(opcode)?,
            _ => return Err(self.unusable(opcode)),
        }
        Ok(())
    }

    /// The opcodes of protocol 0, whose operand is a line of text.
    fn as_text(&mut self, opcode: u8) -> Result<(), Stop> {
        let line = String::from_utf8_lossy(self.input.take_line()?).into_owned();
        let line = line.trim_end_matches('\r');
        let value = match opcode {
            b'I' if line == "01" => Value::Bool(true),
            b'I' if line == "00" => Value::Bool(false),
            b'I' | b'L' => {
                let digits = line.trim_end_matches('L');
                let it: i128 = digits.parse().map_err(|_| Damage::Operand("INT"))?;
                Value::Int(low_64_bits(&it.to_le_bytes()))
            }
            b'F' => Value::Float(line.parse().map_err(|_| Damage::Operand("FLOAT"))?),
            b'V' => Value::Text(self.builder.text(&unescape(line))),
            b'S' => {
                let inner = ['\'', '"'].iter().find_map(|quote| {
                    line.strip_prefix(*quote).and_then(|it| it.strip_suffix(*quote))
                });
                let inner = inner.ok_or(Damage::Operand("STRING"))?;
                Value::Text(self.builder.text(&unescape(inner)))
            }
            b'p' => {
                let index = line.parse().map_err(|_| Damage::Operand("PUT"))?;
                return self.memoize(index, "PUT");
            }
            _ => {
                let index = line.parse().map_err(|_| Damage::Operand("GET"))?;
                self.memo.get(index).ok_or(Damage::Memo(index))?
            }
        };
        self.push(value);
        Ok(())
    }

    /// Why `opcode` is not followed.
    fn unusable(&mut self, opcode: u8) -> Stop {
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
        let import = match opcode {
            b'c' | b'i' => {
                let mut lines = self.input.peek(IMPORT).split(|it| *it == b'\n');
                let mut line =
                    || lines.next().map(|it| String::from_utf8_lossy(&it[..it.len().min(80)]));
                line().zip(line()).map(|(module, name)| format!("{module}.{name}"))
            }
            0x93 => {
                let text = |value: Option<&Value>| match value {
                    Some(Value::Text(id)) => Some(self.builder.texts().get(*id).to_owned()),
                    _ => None,
                };
                let mut top = self.stack.iter().rev();
                let name = text(top.next());
                text(top.next()).zip(name).map(|(module, name)| format!("{module}.{name}"))
            }
            _ => None,
        };
        Stop::Refused(Refused { opcode: name, import })
    }

    fn push(&mut self, value: Value) {
        self.stack.push(value);
    }

    fn tuple(&mut self, from: usize) {
        let tuple = self.builder.tuple(&self.stack[from..]);
        self.stack.truncate(from);
        self.push(Value::Object(tuple));
    }

    fn memoize(&mut self, index: usize, opcode: &'static str) -> Result<(), Stop> {
        let top = *self.stack.last().ok_or(Damage::Stack(opcode))?;
        // A writer counts up, so an index beyond the bytes read is no writer's.
        if self.at < index as u64 {
            return Err(Damage::Operand(opcode).into());
        }
        self.memo.put(index, top)
    }

    fn mark(&mut self, opcode: &'static str) -> Result<usize, Stop> {
        since_mark(&mut self.marks, &self.stack, opcode)
    }

    fn below_top(&self, n: usize, opcode: &'static str) -> Result<usize, Stop> {
        self.stack.len().checked_sub(n).ok_or(Damage::Stack(opcode).into())
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Stop> {
        self.input.take()
    }

    fn text(&mut self, len: u64) -> Result<(), Stop> {
        let len = usize::try_from(len).map_err(|_| Damage::CutOff)?;
        let id = intern(&mut self.builder, self.input.take_slice(len)?);
        self.push(Value::Text(id));
        Ok(())
    }
}

/// Why the machine leaves what it does most.
enum Pause {
    /// The opcode at hand has so many bytes, and not all have arrived.
    Needs(usize),
    /// An opcode that a snapshot has few of, or none; it is taken.
    Rarer(u8),
    /// STOP, and what it left.
    End(Value),
}

/// Where the items since the last MARK begin.
#[inline]
fn since_mark(
    marks: &mut Vec<usize>,
    stack: &[Value],
    opcode: &'static str,
) -> Result<usize, Stop> {
    let from = marks.pop().ok_or(Damage::Stack(opcode))?;
    // POP can take the stack below its mark in a damaged file.
    if stack.len() < from { Err(Damage::Stack(opcode).into()) } else { Ok(from) }
}

#[inline]
fn intern(builder: &mut impl Builder, bytes: &[u8]) -> TextId {
    if let Some(id) = builder.texts().last_if(bytes) {
        return id;
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => builder.text(text),
        // Python writes lone surrogates as they are; a file name may have one.
        Err(_) => builder.text(&String::from_utf8_lossy(bytes)),
    }
}
