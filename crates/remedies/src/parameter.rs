//! What a plan can say of a remedy: its parameters, what kind of value each has and what is allowed.

/// One parameter, with the value that a plan gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parameter {
    /// In how many parts a batch goes through the model.
    Parts(u64),
    /// The blocks that it is about, by their number in the model.
    Blocks(Vec<u64>),
    /// In how many pieces the longest `Sequential` of a model without repeated blocks runs.
    Segments(u64),
    /// What each block keeps and computes is written down.
    Measure,
    /// In bytes: what is smaller is left alone.
    Smallest(u64),
    /// In bytes: weights that are updated together.
    Chunk(u64),
    /// How many devices.
    Gpus(u64),
    /// The first block on each device after the first one.
    First(Vec<u64>),
    /// At which point of the loop.
    After(Point),
    /// A value of `PYTORCH_CUDA_ALLOC_CONF`.
    Settings(String),
}

/// A point of a training loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// Training goes on after an evaluation.
    Evaluation,
    /// A forward pass has ended.
    Forward,
    /// A backward pass has ended.
    Backward,
    /// The optimizer has stepped.
    Step,
}

/// A parameter's value, as files have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Number(u64),
    /// Several.
    Numbers(Vec<u64>),
    /// A word, or a text.
    Text(String),
}

/// A parameter that a remedy can be given.
#[derive(Clone, Copy, Debug)]
pub struct Takes {
    /// Its name in a plan.
    pub name: &'static str,
    /// What is allowed.
    pub values: Values,
    /// The remedy does nothing without it.
    pub is_needed: bool,
    /// Only a search gives it; no file has it.
    pub is_of_search: bool,
}

/// Which values a parameter can have, and how one is made of each.
#[derive(Clone, Copy, Debug)]
pub enum Values {
    /// A number: the smallest and the largest that are allowed.
    Number(u64, u64, fn(u64) -> Parameter),
    /// A list of numbers: the smallest that is allowed in it.
    Numbers(u64, fn(Vec<u64>) -> Parameter),
    /// The word of a [`Point`].
    Point(fn(Point) -> Parameter),
    /// A text that is not empty.
    Text(fn(String) -> Parameter),
}

/// [`Parameter::Parts`].
pub const PARTS: Takes = takes("parts", from(1, Parameter::Parts));
/// [`Parameter::Blocks`].
pub const BLOCKS: Takes = takes("blocks", Values::Numbers(0, Parameter::Blocks));
/// [`Parameter::Segments`].
pub const SEGMENTS: Takes = takes("segments", from(1, Parameter::Segments));
/// [`Parameter::Measure`].
pub const MEASURE: Takes =
    Takes { is_of_search: true, ..takes("measure", Values::Number(1, 1, |_| Parameter::Measure)) };
/// [`Parameter::Smallest`].
pub const SMALLEST: Takes = takes("smallest", from(0, Parameter::Smallest));
/// [`Parameter::Chunk`].
pub const CHUNK: Takes = takes("chunk", from(1, Parameter::Chunk));
/// [`Parameter::Gpus`].
pub const GPUS: Takes = Takes {
    is_needed: true,
    ..takes("gpus", Values::Number(2, MOST_GPUS as u64, Parameter::Gpus))
};
/// [`Parameter::First`].
pub const FIRST: Takes = takes("first", Values::Numbers(1, Parameter::First));
/// [`Parameter::After`].
pub const AFTER: Takes = takes("after", Values::Point(Parameter::After));
/// [`Parameter::Settings`].
pub const SETTINGS: Takes =
    Takes { is_needed: true, ..takes("settings", Values::Text(Parameter::Settings)) };

/// More devices of one machine are a slip.
pub const MOST_GPUS: u32 = 1024;

const fn takes(name: &'static str, values: Values) -> Takes {
    Takes { name, values, is_needed: false, is_of_search: false }
}

const fn from(least: u64, make: fn(u64) -> Parameter) -> Values {
    Values::Number(least, u64::MAX, make)
}

impl Parameter {
    /// What is so of every parameter of this name.
    pub const fn takes(&self) -> &'static Takes {
        match self {
            Parameter::Parts(_) => &PARTS,
            Parameter::Blocks(_) => &BLOCKS,
            Parameter::Segments(_) => &SEGMENTS,
            Parameter::Measure => &MEASURE,
            Parameter::Smallest(_) => &SMALLEST,
            Parameter::Chunk(_) => &CHUNK,
            Parameter::Gpus(_) => &GPUS,
            Parameter::First(_) => &FIRST,
            Parameter::After(_) => &AFTER,
            Parameter::Settings(_) => &SETTINGS,
        }
    }

    /// Its value, as files have it.
    pub fn value(&self) -> Value {
        match self {
            Parameter::Measure => Value::Number(1),
            Parameter::Parts(n)
            | Parameter::Segments(n)
            | Parameter::Smallest(n)
            | Parameter::Chunk(n)
            | Parameter::Gpus(n) => Value::Number(*n),
            Parameter::Blocks(all) | Parameter::First(all) => Value::Numbers(all.clone()),
            Parameter::After(point) => Value::Text(point.word().to_owned()),
            Parameter::Settings(text) => Value::Text(text.clone()),
        }
    }
}

impl Point {
    /// All of them.
    pub const ALL: [Point; 4] = [Point::Evaluation, Point::Forward, Point::Backward, Point::Step];

    /// Its word in a plan.
    pub const fn word(self) -> &'static str {
        match self {
            Point::Evaluation => "evaluation",
            Point::Forward => "forward",
            Point::Backward => "backward",
            Point::Step => "step",
        }
    }
}

impl Takes {
    /// The parameter with this value; none if the value is not allowed.
    pub fn read(&self, value: Value) -> Option<Parameter> {
        match (self.values, value) {
            (Values::Number(least, most, make), Value::Number(n)) => {
                (least <= n && n <= most).then(|| make(n))
            }
            (Values::Numbers(least, make), Value::Numbers(all)) => {
                all.iter().all(|n| least <= *n).then(|| make(all))
            }
            (Values::Point(make), Value::Text(word)) => {
                Point::ALL.into_iter().find(|it| it.word() == word).map(make)
            }
            (Values::Text(make), Value::Text(text)) => (!text.is_empty()).then(|| make(text)),
            _ => None,
        }
    }
}

impl Values {
    /// What is allowed, in words.
    pub fn expected(self) -> String {
        match self {
            Values::Number(least, u64::MAX, _) => format!("a number, {least} or more"),
            Values::Number(least, most, _) if least == most => format!("the number {least}"),
            Values::Number(least, most, _) => format!("a number from {least} to {most}"),
            Values::Numbers(least, _) => format!("a list of numbers, each {least} or more"),
            Values::Point(_) => {
                format!("one of \"{}\"", Point::ALL.map(Point::word).join("\", \""))
            }
            Values::Text(_) => "a text".to_owned(),
        }
    }
}
