//! What the names of a function hold while it is read: its own, and behind them those of the functions around it. What one way through
//! the text changes can be taken back, so that the other ways begin where it began: only what changed is ever copied.

use std::{collections::BTreeMap, rc::Rc};

use crate::reading::value::Value;

/// By name.
pub(crate) type Held = BTreeMap<String, Value>;

/// What the names hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    own: Held,
    /// Of the functions around, the innermost first.
    around: Vec<Rc<Held>>,
    /// For each way that is being gone: what the names held that it changed, none of those that it made.
    ways: Vec<BTreeMap<String, Option<Value>>>,
}

impl Names {
    pub(crate) fn within(around: Vec<Rc<Held>>) -> Names {
        Names { around, ..Names::default() }
    }

    /// How many places there are to look into.
    pub(crate) fn depth(&self) -> usize {
        1 + self.around.len()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.own.get(name).or_else(|| self.around.iter().find_map(|it| it.get(name)))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub(crate) fn set(&mut self, name: &str, value: Value) {
        let before = self.own.insert(name.to_owned(), value);
        if let Some(way) = self.ways.last_mut()
            && !way.contains_key(name)
        {
            way.insert(name.to_owned(), before);
        }
    }

    /// A way begins.
    pub(crate) fn begin(&mut self) {
        self.ways.push(BTreeMap::new());
    }

    /// It ends, and all is as it was: what it changed is the answer.
    pub(crate) fn take_back(&mut self) -> Held {
        let mut res = Held::new();
        for (name, before) in self.ways.pop().unwrap_or_default() {
            let after = match before {
                Some(before) => self.own.insert(name.clone(), before),
                None => self.own.remove(&name),
            };
            res.extend(after.map(|it| (name, it)));
        }
        res
    }

    /// The function's own names.
    pub(crate) fn end(self) -> Held {
        self.own
    }
}

/// What names hold after one of several ways was gone, taken in one after the other.
#[derive(Debug, Default)]
pub(crate) struct Joined {
    n_ways: usize,
    /// What each name holds that a way changed, and how many ways that takes in.
    changed: BTreeMap<String, (Value, usize)>,
}

impl Joined {
    /// One more way: what it `changed`. Beside it the names are as they were before all of them.
    pub(crate) fn take(&mut self, changed: Held, names: &Names) {
        for (name, value) in changed {
            let known = match self.changed.remove(&name) {
                Some((known, n)) if n == self.n_ways => Some(known),
                Some((known, _)) => Some(either(known, names.get(&name))),
                None if self.n_ways == 0 => None,
                None => names.get(&name).cloned(),
            };
            let value = match known {
                Some(known) => known.or(&value),
                None => value,
            };
            self.changed.insert(name, (value, self.n_ways + 1));
        }
        self.n_ways += 1;
    }

    /// Goes on where the ways meet; `or_none`: none of them may have been gone.
    pub(crate) fn end(self, or_none: bool, names: &mut Names) {
        for (name, (value, n)) in self.changed {
            let before = names.get(&name);
            let value = if n == self.n_ways { value } else { either(value, before) };
            let value = match before.filter(|_| or_none) {
                Some(before) => before.clone().or(&value),
                None => value,
            };
            names.set(&name, value);
        }
    }
}

fn either(one: Value, other: Option<&Value>) -> Value {
    match other {
        Some(other) => one.or(other),
        None => one,
    }
}
