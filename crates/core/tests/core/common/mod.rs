//! A tiny pickle writer: just enough to write snapshots as Python (any protocol) and torch's C++
//! pickler do. Independent of the reader, so that neither can hide the other's mistakes.

use std::collections::BTreeMap;

/// A Python object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Py {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(String),
    Tuple(Vec<Py>),
    List(Vec<Py>),
    Dict(Vec<(&'static str, Py)>),
    /// The same object wherever the number is the same: written once, then recalled.
    Shared(u32, Box<Py>),
}

pub(crate) fn s(text: &str) -> Py {
    Py::Str(text.to_owned())
}

/// Whose habits to write in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// Python's pickler with this protocol: batches of 1000, everything memoised.
    Python(u8),
    /// torch's C++ pickler: protocol 2, no batches, only texts memoised.
    Cpp,
}

pub(crate) fn pickle(object: &Py, style: Style) -> Vec<u8> {
    let mut writer = Writer {
        out: Vec::new(),
        style,
        n_memo: 0,
        texts: BTreeMap::new(),
        shared: BTreeMap::new(),
    };
    match style {
        Style::Python(protocol) if 2 <= protocol => writer.out.extend([0x80, protocol]),
        Style::Cpp => writer.out.extend([0x80, 2]),
        Style::Python(_) => {}
    }
    if matches!(style, Style::Python(4 | 5)) {
        // A frame whose length is a lie: readers of whole files do not need it.
        writer.out.push(0x95);
        writer.out.extend(u64::MAX.to_le_bytes());
    }
    writer.write(object);
    writer.out.push(b'.');
    writer.out
}

struct Writer {
    out: Vec<u8>,
    style: Style,
    n_memo: u32,
    texts: BTreeMap<String, u32>,
    shared: BTreeMap<u32, u32>,
}

impl Writer {
    fn protocol(&self) -> u8 {
        match self.style {
            Style::Python(protocol) => protocol,
            Style::Cpp => 2,
        }
    }

    fn put(&mut self) -> u32 {
        let index = self.n_memo;
        self.n_memo += 1;
        match self.protocol() {
            0 => self.out.extend(format!("p{index}\n").bytes()),
            4.. => self.out.push(0x94),
            _ => match u8::try_from(index) {
                Ok(small) => self.out.extend([b'q', small]),
                Err(_) => {
                    self.out.push(b'r');
                    self.out.extend(index.to_le_bytes());
                }
            },
        }
        index
    }

    fn get(&mut self, index: u32) {
        match (self.protocol(), u8::try_from(index)) {
            (0, _) => self.out.extend(format!("g{index}\n").bytes()),
            (_, Ok(small)) => self.out.extend([b'h', small]),
            (_, Err(_)) => {
                self.out.push(b'j');
                self.out.extend(index.to_le_bytes());
            }
        }
    }

    fn write(&mut self, object: &Py) {
        let text_form = self.protocol() == 0;
        match object {
            Py::None => self.out.push(b'N'),
            Py::Bool(it) if self.protocol() < 2 => {
                self.out.extend(if *it { b"I01\n" } else { b"I00\n" });
            }
            Py::Bool(it) => self.out.push(if *it { 0x88 } else { 0x89 }),
            Py::Int(it) if text_form => self.out.extend(format!("L{it}L\n").bytes()),
            Py::Int(it) => self.int(*it),
            Py::Float(it) if text_form => self.out.extend(format!("F{it}\n").bytes()),
            Py::Float(it) => {
                self.out.push(b'G');
                self.out.extend(it.to_be_bytes());
            }
            Py::Str(it) => self.text(it),
            Py::Tuple(items) => {
                match (self.protocol(), items.len()) {
                    (2.., 0) => self.out.push(b')'),
                    (2.., n @ 1..=3) => {
                        items.iter().for_each(|it| self.write(it));
                        self.out.push(0x84 + u8::try_from(n).unwrap());
                    }
                    _ => {
                        self.out.push(b'(');
                        items.iter().for_each(|it| self.write(it));
                        self.out.push(b't');
                    }
                }
                if self.style != Style::Cpp && !items.is_empty() {
                    self.put();
                }
            }
            Py::List(items) => {
                self.out.extend(if text_form { &b"(l"[..] } else { b"]" });
                self.container();
                self.batches(items, b'a', b'e', |writer, it| writer.write(it));
            }
            Py::Dict(items) => {
                self.out.extend(if text_form { &b"(d"[..] } else { b"}" });
                self.container();
                self.batches(items, b's', b'u', |writer, (key, value)| {
                    writer.text(key);
                    writer.write(value);
                });
            }
            Py::Shared(id, object) => match self.shared.get(id) {
                Some(index) => self.get(*index),
                None => {
                    let index = self.n_memo;
                    self.write(object);
                    // Python has put it right after its opcode; C++ puts it after the contents.
                    let index = if self.style == Style::Cpp { self.put() } else { index };
                    self.shared.insert(*id, index);
                }
            },
        }
    }

    fn container(&mut self) {
        if self.style != Style::Cpp {
            self.put();
        }
    }

    fn batches<T>(&mut self, items: &[T], one: u8, many: u8, write: impl Fn(&mut Writer, &T)) {
        if self.protocol() == 0 {
            for it in items {
                write(self, it);
                self.out.push(one);
            }
            return;
        }
        if self.style == Style::Cpp {
            self.out.push(b'(');
            items.iter().for_each(|it| write(self, it));
            self.out.push(many);
            return;
        }
        for batch in items.chunks(1000) {
            if let [it] = batch {
                write(self, it);
                self.out.push(one);
            } else {
                self.out.push(b'(');
                batch.iter().for_each(|it| write(self, it));
                self.out.push(many);
            }
        }
    }

    fn int(&mut self, it: i128) {
        if let Ok(small) = u8::try_from(it) {
            self.out.extend([b'K', small]);
        } else if let Ok(small) = u16::try_from(it) {
            self.out.push(b'M');
            self.out.extend(small.to_le_bytes());
        } else if let Ok(small) = i32::try_from(it) {
            self.out.push(b'J');
            self.out.extend(small.to_le_bytes());
        } else if self.style == Style::Cpp {
            self.out.extend([0x8a, 8]);
            self.out.extend(&it.to_le_bytes()[..8]);
        } else if self.protocol() == 1 {
            self.out.extend(format!("L{it}L\n").bytes());
        } else {
            // The shortest two's complement, as Python writes it.
            let bytes = it.to_le_bytes();
            let fill = if it < 0 { 0xff } else { 0 };
            let mut len = 16;
            while 1 < len && bytes[len - 1] == fill && (bytes[len - 2] < 0x80) == (fill == 0) {
                len -= 1;
            }
            self.out.extend([0x8a, u8::try_from(len).unwrap()]);
            self.out.extend(&bytes[..len]);
        }
    }

    fn text(&mut self, text: &str) {
        if let Some(&index) = self.texts.get(text) {
            return self.get(index);
        }
        let len = u32::try_from(text.len()).unwrap();
        match self.protocol() {
            0 => {
                let escaped = text.replace('\\', "\\u005c").replace('\n', "\\u000a");
                self.out.extend(format!("V{escaped}\n").bytes());
            }
            4.. if len < 256 => {
                self.out.extend([0x8c, u8::try_from(len).unwrap()]);
                self.out.extend(text.bytes());
            }
            _ => {
                self.out.push(b'X');
                self.out.extend(len.to_le_bytes());
                self.out.extend(text.bytes());
            }
        }
        let index = self.put();
        self.texts.insert(text.to_owned(), index);
    }
}
