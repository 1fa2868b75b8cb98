//! What goes where: into names, and into what outlives an iteration.

use ruff_python_ast::Expr;
use ruff_text_size::{Ranged, TextRange};

use crate::reading::{
    events::{Grad, How, Loop, What},
    file::{dotted, names_in, takes_no_graph},
    guess,
    value::{Kind, SENT, Value},
    walker::{Inside, Walker},
};

impl<'a> Walker<'_, 'a> {
    pub(crate) fn assign_to(&mut self, target: &'a Expr, value: Value) {
        match target {
            Expr::Tuple(it) => {
                for target in &it.elts {
                    let each = Value { tick: self.tick, ..value.clone() };
                    self.assign_to(target, each);
                }
            }
            Expr::List(it) => {
                for target in &it.elts {
                    self.assign_to(target, value.clone());
                }
            }
            Expr::Starred(it) => self.assign_to(&it.value, value),
            _ => {
                let Some(name) = dotted(target) else { return };
                let value = if takes_no_graph(&name) { value.without_graph() } else { value };
                if let Some(whole) = name.strip_suffix("[]") {
                    // One of many: the thing itself stays.
                    let mut held = self.look_up(whole);
                    if held.is(&Kind::Unknown) {
                        held.kind = Kind::Dict;
                    }
                    held.attached |= value.attached;
                    self.names.set(whole, held);
                    let is_slice = matches!(target, Expr::Subscript(it) if matches!(&*it.slice, Expr::Slice(_)));
                    if is_slice {
                        self.tell(self.statement, What::Clear { target: whole.to_owned() });
                    }
                    return;
                }
                let mut value = value;
                let key = (self.function, name.clone());
                let is_loss = self.file.losses.contains(&key) && value.is(&Kind::Unknown);
                if is_loss && self.grad != Grad::Off {
                    // Somebody makes a backward pass on it.
                    value = Value { attached: true, is_scalar: true, kind: Kind::Tensor, ..value };
                }
                // A backward pass begins at one number.
                value.is_scalar |= value.attached && self.file.is_used(&name, "backward");
                // What is assigned anew begins anew, unless it is another name for the same thing.
                if value.tick == 0 && !matches!(value.kind, Kind::List | Kind::Dict | Kind::Module)
                    || value.tick > self.tick
                {
                    value.tick = self.tick;
                }
                value.at = value.at.or(Some(self.statement));
                if matches!(value.kind, Kind::List | Kind::Dict | Kind::Number | Kind::Plain) {
                    self.tell(self.statement, What::Clear { target: name.clone() });
                }
                self.bind(&name, value);
            }
        }
    }

    /// `table[name] = x`, where each batch brings keys of its own.
    pub(crate) fn entered(&mut self, target: &'a Expr, expr: &Expr, value: &Value) {
        let Expr::Subscript(it) = target else { return };
        let Some(name) = dotted(&it.value) else { return };
        let held = self.look_up(&name);
        if matches!(held.kind, Kind::List | Kind::Dict) && self.is_new_key(&it.slice) {
            self.kept(&name, How::Append, &held, value, expr.range());
        }
    }

    /// Whether each batch, or each sample of one, brings a key of its own: the key is what a loop over batches gives. Windows,
    /// sizes and devices are few, and come again.
    fn is_new_key(&self, key: &Expr) -> bool {
        let names = names_of_key(key);
        let targets = |it: &Loop<'_>| -> Vec<String> {
            let all = it.target.map(names_in).unwrap_or_default();
            all.into_iter().filter(|it| !guess::comes_again(it)).collect()
        };
        let meets = |some: &[String], other: &[String]| some.iter().any(|it| other.contains(it));
        let mut of_batches: Vec<String> = Vec::new();
        for inside in &self.inside {
            let it = &self.loops[inside.index];
            let over_a_batch = it.iter.is_some_and(|it| meets(&names_in(it), &of_batches));
            if it.over_batches || over_a_batch {
                of_batches.extend(targets(it));
            }
        }
        meets(&names, &of_batches)
    }

    /// A value goes into something.
    pub(crate) fn kept(
        &mut self,
        target: &str,
        how: How,
        before: &Value,
        value: &Value,
        arg: TextRange,
    ) {
        if value.is(&Kind::Number) || value.is(&Kind::Plain) {
            return;
        }
        let function = &self.file.functions[self.function];
        if let (Some(class), true) = (function.class, target.starts_with("self."))
            && !before.bounded
            && function
                .parameters()
                .into_iter()
                .chain(function.variadic())
                .any(|it| it != "self" && value.graph.has(it) && !self.is_cut(function.at, it))
        {
            self.next.keepers.insert((class, function.name.to_owned()));
        }
        if value.from.has(SENT) {
            self.next.receivers.insert(self.function);
        }
        let what = What::Keep {
            target: target.to_owned(),
            how,
            value: value.clone(),
            bounded: before.bounded,
            arg,
        };
        // Only where it goes on being there when the next iteration begins.
        if !self.is_last_pass() {
            return;
        }
        let loops: Vec<Inside> = self.inside.clone();
        if loops.iter().any(|it| self.outlives(before.tick, *it)) {
            let within: Vec<Inside> =
                loops.iter().copied().filter(|it| self.outlives(before.tick, *it)).collect();
            let whole = std::mem::replace(&mut self.inside, within);
            self.tell(arg, what);
            self.inside = whole;
        } else if self.inside.is_empty() && before.tick < self.began {
            // What this call made it hands out, or lets go of.
            self.tell(arg, what);
        }
    }

    /// Whether a line gives a name a value without its graph: `if torch.is_tensor(value): value = value.item()`
    fn is_cut(&self, at: TextRange, name: &str) -> bool {
        let begin = format!("{name} =");
        self.file.text_at(at).lines().any(|line| {
            line.match_indices(&begin).any(|(it, _)| {
                let is_whole = !line[..it].ends_with(|it: char| it.is_alphanumeric() || it == '_');
                is_whole && CUTS.iter().any(|cut| line[it + begin.len()..].contains(cut))
            })
        })
    }

    /// `x.detach_()`: neither it nor what it is one of has a graph from here on.
    pub(crate) fn detached(&mut self, on: &Expr) {
        let Some(name) = dotted(on) else { return };
        let name = name.split("[]").next().unwrap_or_default().to_owned();
        let of = self.inside.iter().filter_map(|it| {
            let it = &self.loops[it.index];
            let is_one = it.target.is_some_and(|it| names_in(it).contains(&name));
            it.iter.and_then(dotted).filter(|_| is_one)
        });
        let all: Vec<String> = of.chain([name.clone()]).collect();
        for name in all {
            let held = self.look_up(&name);
            if held.attached {
                self.bind(&name, held.without_graph());
            }
        }
    }
}

/// What gives a value without its graph, as text.
const CUTS: [&str; 7] = [".item(", ".detach(", ".data", ".tolist(", ".numpy(", " float(", " int("];

/// The names that a key is made of, and none of those that it only measures: `len(x)`, `shape_of(x)`.
fn names_of_key(key: &Expr) -> Vec<String> {
    match key {
        Expr::Call(it) if dotted(&it.func).is_some_and(|it| guess::comes_again(&it)) => Vec::new(),
        Expr::Call(it) => it.arguments.args.iter().flat_map(names_of_key).collect(),
        Expr::Tuple(it) => it.elts.iter().flat_map(names_of_key).collect(),
        other => names_in(other),
    }
}
