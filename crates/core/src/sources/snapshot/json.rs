//! A snapshot that somebody wrote as JSON (`json.dump(torch.cuda.memory._snapshot(), file)`): the same
//! dicts and lists as in the pickle, given to the same decoder as they arrive.

use std::{
    cell::Cell,
    fmt,
    io::{BufReader, Read},
    rc::Rc,
};

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::sources::{
    pickle::{Builder, Damage, Value},
    snapshot::decoder::Decoder,
};

/// What a JSON text left, and what was open when it stopped; the same as a pickle machine's.
pub(super) struct Json<'k> {
    pub(super) builder: Decoder<'k>,
    pub(super) stack: Vec<Value>,
    /// How many bytes were read.
    pub(super) at: u64,
}

/// Reads the whole of `reader`; on damage, what came before it is in the result.
pub(super) fn read(reader: impl Read, builder: Decoder<'_>) -> (Json<'_>, Result<Value, Damage>) {
    let mut json = Json { builder, stack: Vec::new(), at: 0 };
    let taken = Rc::new(Cell::new(0));
    let counted = Counted { reader: BufReader::new(reader), taken: Rc::clone(&taken) };
    let mut deserializer = serde_json::Deserializer::from_reader(counted);
    let found = Item(&mut json).deserialize(&mut deserializer);
    json.at = taken.get();
    let res = match found {
        Ok(()) => json.stack.pop().ok_or(Damage::CutOff),
        Err(error) if error.is_eof() => Err(Damage::CutOff),
        Err(error) if error.is_io() => Err(Damage::Unreadable(error.to_string())),
        Err(error) => Err(Damage::Json(error.to_string())),
    };
    (json, res)
}

/// Counts what is taken; a parser asks for one byte at a time.
struct Counted<R> {
    reader: R,
    taken: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
        let n = self.reader.read(room)?;
        self.taken.set(self.taken.get() + n as u64);
        Ok(n)
    }
}

/// Leaves one value on the stack.
struct Item<'a, 'k>(&'a mut Json<'k>);

impl<'de> DeserializeSeed<'de> for Item<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Item<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a memory snapshot")
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        self.0.stack.push(Value::None);
        Ok(())
    }

    fn visit_bool<E: de::Error>(self, it: bool) -> Result<(), E> {
        self.0.stack.push(Value::Bool(it));
        Ok(())
    }

    fn visit_i64<E: de::Error>(self, it: i64) -> Result<(), E> {
        self.0.stack.push(Value::Int(it));
        Ok(())
    }

    fn visit_u64<E: de::Error>(self, it: u64) -> Result<(), E> {
        self.0.stack.push(Value::Int(it.cast_signed()));
        Ok(())
    }

    fn visit_f64<E: de::Error>(self, it: f64) -> Result<(), E> {
        self.0.stack.push(Value::Float(it));
        Ok(())
    }

    fn visit_str<E: de::Error>(self, it: &str) -> Result<(), E> {
        let id = self.0.builder.text(it);
        self.0.stack.push(Value::Text(id));
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Item(json) = self;
        let dict = json.builder.dict();
        json.stack.push(Value::Object(dict));
        let from = json.stack.len();
        while map.next_key_seed(Item(json))?.is_some() {
            map.next_value_seed(Item(json))?;
        }
        let items = &json.stack[from..];
        if !items.is_empty() {
            json.builder.set(dict, items, true).map_err(de::Error::custom)?;
        }
        json.stack.truncate(from);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let Item(json) = self;
        let list = json.builder.list();
        json.stack.push(Value::Object(list));
        let from = json.stack.len();
        while seq.next_element_seed(Item(json))?.is_some() {
            let items = &json.stack[from..];
            let may_be_pair =
                items.len() <= 2 && items.iter().all(|it| matches!(it, Value::Int(_)));
            if !may_be_pair {
                json.builder.append(list, items);
                json.stack.truncate(from);
            }
        }
        // JSON has no tuples; a pool's id is a list of two numbers there.
        if json.stack.len() == from + 2 {
            let pair = json.builder.tuple(&json.stack[from..]);
            json.stack[from - 1] = Value::Object(pair);
        }
        json.stack.truncate(from);
        Ok(())
    }
}
