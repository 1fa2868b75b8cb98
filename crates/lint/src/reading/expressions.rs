//! Reads expressions: what each may be, as far as memory is concerned. Calls are where most of what matters happens.

use ruff_python_ast::{
    Comprehension, Expr, ExprCall,
    visitor::{self, Visitor},
};
use ruff_text_size::{Ranged, TextRange};

use crate::reading::{
    events::{Grad, How, What},
    file::{LONGEST_NAME, dotted, names_in},
    guess, library,
    value::{Kind, SENT, Sources, Value},
    walker::Walker,
};

/// What takes a value and keeps it.
const KEEPING: [&str; 10] = [
    "append",
    "extend",
    "insert",
    "appendleft",
    "push",
    "put",
    "store",
    "remember",
    "add_sample",
    "add_experience",
];
/// What gives a number of Python's.
const NUMBERS: [&str; 14] = [
    "item",
    "tolist",
    "size",
    "dim",
    "numel",
    "nelement",
    "stride",
    "element_size",
    "is_contiguous",
    "numpy",
    "format",
    "get_device",
    "data_ptr",
    "ndimension",
];
/// What has no gradient.
const UNATTACHED: [&str; 22] = [
    "detach",
    "detach_",
    "argmax",
    "argmin",
    "eq",
    "ne",
    "gt",
    "ge",
    "lt",
    "le",
    "long",
    "int",
    "bool",
    "nonzero",
    "argsort",
    "isnan",
    "isinf",
    "any",
    "all",
    "byte",
    "multinomial",
    "new_zeros",
];

impl<'a> Walker<'_, 'a> {
    pub(crate) fn eval(&mut self, expr: &'a Expr) -> Value {
        if !self.file.steps.take(self.names.depth()) {
            return Value::default();
        }
        match expr {
            Expr::Name(it) if LONGEST_NAME < it.id.len() => Value::default(),
            Expr::Name(it) => {
                let value = self.name(it.id.as_str(), expr);
                value.named(it.id.as_str())
            }
            Expr::Attribute(it) => {
                if let Some(name) = dotted(expr) {
                    if let Some(value) = self.names.get(&name).filter(|it| !it.is(&Kind::Unknown)) {
                        return value.clone().named(&name);
                    }
                    if let Some(path) = self.import(expr) {
                        return self.import_value(path);
                    }
                    if name.starts_with("self.") {
                        return self.look_up(&name).named(&name);
                    }
                }
                let value = self.eval(&it.value);
                match it.attr.as_str() {
                    "data" | "grad" => Value { attached: false, kind: Kind::Tensor, ..value },
                    "shape" | "dtype" | "device" | "ndim" | "requires_grad" | "config"
                    | "is_cuda" => Value::number(),
                    "loss" if value.is_output || value.attached => {
                        Value { is_scalar: true, kind: Kind::Tensor, ..value }
                    }
                    attr if value.is_module() => {
                        // A part of a model, or a number of it.
                        let kind = match guess::is_model(attr) || attr == "module" {
                            true => Kind::Module,
                            false => Kind::Unknown,
                        };
                        Value { of: value.of, ..Value::of(kind) }
                    }
                    _ if value.attached || value.is_output => Value { kind: Kind::Tensor, ..value },
                    _ => {
                        let mut res = dotted(expr).map(|it| self.look_up(&it)).unwrap_or_default();
                        res.from.extend(&value.from);
                        res
                    }
                }
            }
            Expr::Subscript(it) => {
                let value = self.eval(&it.value);
                self.eval(&it.slice);
                match value.kind {
                    Kind::Number | Kind::Plain => Value::default(),
                    Kind::List | Kind::Dict => {
                        if value.attached || value.is_output {
                            return Value { kind: Kind::Tensor, ..value };
                        }
                        // One of several optimizers, or a loss: as it is used.
                        match dotted(expr) {
                            Some(name) => {
                                let Value { kind, attached, is_scalar, .. } = self.look_up(&name);
                                Value { kind, attached, is_scalar, ..value }
                            }
                            None => Value { kind: Kind::Unknown, ..value },
                        }
                    }
                    Kind::Loaded => value,
                    Kind::Import(_) => Value::default(),
                    _ => value,
                }
            }
            Expr::Call(it) => self.call(it),
            Expr::BinOp(it) => {
                let (left, right) = (self.eval(&it.left), self.eval(&it.right));
                if left.is(&Kind::Number) && right.is(&Kind::Number) {
                    return Value::number();
                }
                let is_div = matches!(it.op, ruff_python_ast::Operator::Div);
                // `loss * (1 / n)` and `loss * scale` divide, too.
                let by = dotted(&it.right).unwrap_or_default().to_ascii_lowercase();
                let is_scaled = matches!(it.op, ruff_python_ast::Operator::Mult)
                    && (matches!(&*it.right, Expr::BinOp(_) | Expr::NumberLiteral(_))
                        || by.contains("scale")
                        || by.contains("weight"));
                let kinds = [&left.kind, &right.kind];
                let kind = if left.attached || right.attached || kinds.contains(&&Kind::Tensor) {
                    Kind::Tensor
                } else if kinds.contains(&&Kind::List) {
                    Kind::List
                } else {
                    Kind::Unknown
                };
                let is_scalar =
                    (left.is_scalar || !left.attached) && (right.is_scalar || !right.attached);
                let on_host = left.on_host && (right.on_host || right.is(&Kind::Number))
                    || right.on_host && left.is(&Kind::Number);
                let divided = is_div || is_scaled;
                let value = left.with(&right);
                Value {
                    kind,
                    is_scalar,
                    on_host,
                    divided: value.divided || divided,
                    tick: self.tick,
                    at: None,
                    ..value
                }
            }
            Expr::UnaryOp(it) => self.eval(&it.operand),
            Expr::BoolOp(it) => {
                let mut res = Value::default();
                for it in &it.values {
                    let one = self.eval(it);
                    res = res.or(&one);
                }
                res
            }
            Expr::If(it) => {
                self.eval(&it.test);
                let (one, other) = (self.eval(&it.body), self.eval(&it.orelse));
                if [&one, &other].iter().any(|it| matches!(it.kind, Kind::NoGrad(_))) {
                    return Value::of(Kind::NoGrad(false));
                }
                if [&one, &other].iter().any(|it| it.is(&Kind::Autocast)) {
                    return Value::of(Kind::Autocast);
                }
                match self.always(&it.test) {
                    Some(true) => one,
                    Some(false) => other,
                    None => one.or(&other),
                }
            }
            Expr::Compare(it) => {
                self.eval(&it.left);
                for it in &it.comparators {
                    self.eval(it);
                }
                // A mask, or a truth.
                Value { tick: self.tick, ..Value::default() }
            }
            Expr::List(it) => self.several(&it.elts, Kind::List),
            Expr::Tuple(it) => self.several(&it.elts, Kind::Unknown),
            Expr::Set(it) => self.several(&it.elts, Kind::List),
            Expr::Dict(it) => {
                let mut res = Value { tick: self.tick, ..Value::of(Kind::Dict) };
                for item in &it.items {
                    let one = self.eval(&item.value);
                    res = res.with(&one);
                }
                res
            }
            Expr::ListComp(it) => self.gathering(&it.generators, &it.elt, Kind::List),
            Expr::SetComp(it) => self.gathering(&it.generators, &it.elt, Kind::List),
            // It gathers nothing by itself.
            Expr::Generator(it) => self.comprehension(&it.generators, &it.elt, Kind::List).0,
            Expr::DictComp(it) => self.gathering(&it.generators, &it.value, Kind::Dict),
            Expr::Starred(it) => self.eval(&it.value),
            Expr::Await(it) => self.eval(&it.value),
            Expr::Named(it) => {
                let value = self.eval(&it.value);
                self.assign_to(&it.target, value.clone());
                value
            }
            Expr::NumberLiteral(_) => Value::number(),
            Expr::FString(_)
            | Expr::StringLiteral(_)
            | Expr::BooleanLiteral(_)
            | Expr::NoneLiteral(_) => Value { tick: self.tick, ..Value::of(Kind::Plain) },
            // What `send()` gives.
            Expr::Yield(it) => {
                if let Some(value) = &it.value {
                    // It goes to whoever asked for it.
                    let before = std::mem::replace(&mut self.is_yielded, true);
                    self.eval(value);
                    self.is_yielded = before;
                }
                Value { from: Sources::of(SENT), ..Value::default() }
            }
            // What a lambda does, it does later.
            _ => Value::default(),
        }
    }

    fn name(&mut self, name: &str, expr: &'a Expr) -> Value {
        if !self.names.has(name) {
            if let Some(path) = self.import(expr) {
                return self.import_value(path);
            }
            // Defined further down.
            if let Some(it) = self.file.function_named(name) {
                return Value::of(Kind::Function(it));
            }
            if let Some(it) = self.file.class_named(name) {
                return Value::of(Kind::Class(it));
            }
        }
        self.look_up(name)
    }

    /// The full name, unless something else has taken the name.
    pub(crate) fn import(&self, expr: &Expr) -> Option<String> {
        let name = dotted(expr)?;
        let first = name.split('.').next().unwrap_or_default();
        if self.names.has(first) {
            return None;
        }
        self.file.import(expr)
    }

    fn import_value(&self, path: String) -> Value {
        let last = path.rsplit('.').next().unwrap_or_default();
        if matches!(last, "criterion" | "model" | "optimizer") {
            return self.look_up(last);
        }
        Value::of(Kind::Import(path))
    }

    fn several(&mut self, elements: &'a [Expr], kind: Kind) -> Value {
        let mut res = Value { tick: self.tick, ..Value::of(kind) };
        let mut on_host = true;
        for it in elements {
            // `[*map(...)]`
            let unpacked = match it {
                Expr::Starred(it) => match &*it.value {
                    Expr::Call(call) if self.is_builtin(call, "map") => self.mapped(call, true),
                    _ => None,
                },
                _ => None,
            };
            let one = match unpacked {
                Some(one) => one,
                None => self.eval(it),
            };
            if one.is_module() && res.is(&Kind::Unknown) {
                res.kind = Kind::List;
            }
            on_host &= one.on_host;
            res = res.with(&one);
        }
        Value { on_host: on_host && !elements.is_empty(), ..res }
    }

    /// Whether a parameter that stands alone as a condition is true in all calls that this file has.
    fn always(&self, test: &Expr) -> Option<bool> {
        let name = dotted(test)?;
        let function = &self.file.functions[self.function];
        if !function.parameters().contains(&name.as_str()) {
            return None;
        }
        let given = |value: &str| self.file.text.contains(&format!("{name}={value}"));
        match (given("True"), given("False")) {
            (true, false) => Some(true),
            (false, true) => Some(false),
            // The default is one of both; what the calls say instead, counts.
            (true, true) => {
                let default = |value: &str| {
                    self.file.text_at(function.at).contains(&format!("{name}={value}"))
                };
                match (default("True"), default("False")) {
                    (true, false) => Some(false),
                    (false, true) => Some(true),
                    _ => None,
                }
            }
            (false, false) => None,
        }
    }

    /// A comprehension that keeps what it makes.
    fn gathering(
        &mut self,
        generators: &'a [Comprehension],
        element: &'a Expr,
        kind: Kind,
    ) -> Value {
        let (res, output) = self.comprehension(generators, element, kind);
        self.gathered(element.range(), output, None);
        res
    }

    fn gathered(&mut self, at: TextRange, output: Option<Value>, mapped: Option<TextRange>) {
        if let Some(value) = output.filter(|_| !self.is_yielded) {
            self.tell(at, What::Gather { value, mapped });
        }
    }

    /// `map(function, iterable)`, and whether what it makes is kept, as in `list(map(...))`.
    fn mapped(&mut self, call: &'a ExprCall, keeps: bool) -> Option<Value> {
        let [function, over] = &*call.arguments.args else { return None };
        let iter = self.eval(over);
        let over_batches =
            iter.is(&Kind::Loader) || guess::is_batches(self.file.text_at(over.range()));
        let one = self.one_of(&iter);
        self.names.begin();
        let (value, at, called) = match function {
            Expr::Lambda(it) => {
                let parameters = it.parameters.iter().flat_map(|it| it.iter_non_variadic_params());
                if let Some(first) = parameters.take(1).next() {
                    self.names.set(first.parameter.name.as_str(), one);
                }
                (self.eval(&it.body), it.body.range(), None)
            }
            function => {
                let value = self.eval(function);
                let name = dotted(function).unwrap_or_default();
                let made = self.call_value(value, &name, call, &[one]);
                (made, call.range(), Some(function.range()))
            }
        };
        self.names.take_back();
        let is_moved = matches!(function, Expr::Lambda(it) if moves_an_item(&it.body, &[]));
        if keeps && (over_batches || is_moved) && value.is_output && !value.on_host {
            self.gathered(at, Some(value.clone()), called);
        }
        let res = Value { tick: self.tick, ..Value::of(Kind::List) };
        Some(Value { on_host: value.on_host, is_scalar: false, ..res.with(&value) })
    }

    /// One element of what a comprehension, or `map`, goes over.
    fn one_of(&self, iter: &Value) -> Value {
        match iter.kind {
            Kind::Parameters => {
                Value { attached: true, of: iter.of.clone(), ..Value::of(Kind::Tensor) }
            }
            Kind::List | Kind::Dict if iter.attached || iter.is_output => {
                Value { kind: Kind::Tensor, ..iter.clone() }
            }
            _ => Value {
                of: iter.of.clone(),
                from: iter.from.clone(),
                attached: iter.attached,
                is_output: iter.is_output,
                on_host: iter.on_host,
                ..Value::default()
            },
        }
    }

    /// Its value; and the output of a model that its element is, if there is one for each batch and it stays on the device.
    fn comprehension(
        &mut self,
        generators: &'a [Comprehension],
        element: &'a Expr,
        kind: Kind,
    ) -> (Value, Option<Value>) {
        self.names.begin();
        let mut over_batches = false;
        for it in generators {
            let iter = self.eval(&it.iter);
            over_batches |=
                iter.is(&Kind::Loader) || guess::is_batches(self.file.text_at(it.iter.range()));
            let one = self.one_of(&iter);
            self.assign_to(&it.target, one);
            for test in &it.ifs {
                self.eval(test);
            }
        }
        let value = self.eval(element);
        self.names.take_back();
        let items: Vec<String> = generators.iter().flat_map(|it| names_in(&it.target)).collect();
        over_batches |= moves_an_item(element, &items);
        let res = Value { tick: self.tick, ..Value::of(kind) };
        let on_host = value.on_host;
        let res = Value { on_host, is_scalar: false, ..res.with(&value) };
        (res, Some(value).filter(|it| over_batches && it.is_output && !it.on_host))
    }
}

impl<'a> Walker<'_, 'a> {
    pub(crate) fn call(&mut self, call: &'a ExprCall) -> Value {
        // `map(...)`, `list(map(...))`, `list(... for ... in ...)`
        let gathers = self.is_builtin(call, "list") || self.is_builtin(call, "tuple");
        let mapped = match &*call.arguments.args {
            [Expr::Generator(it)] if gathers => {
                return self.gathering(&it.generators, &it.elt, Kind::List);
            }
            [Expr::Call(inner)] if gathers && self.is_builtin(inner, "map") => {
                self.mapped(inner, true)
            }
            _ if self.is_builtin(call, "map") => self.mapped(call, false),
            _ => None,
        };
        if let Some(value) = mapped {
            return value;
        }
        let values = self.arguments(call);
        match &*call.func {
            Expr::Attribute(func) => {
                if let Some(path) = self.import(&call.func) {
                    return self.library(path, call, &values);
                }
                // `self.model(x)`, where `self.model` is known.
                if let Some(name) = dotted(&call.func) {
                    let held = self.names.get(&name).cloned().or_else(|| self.attribute(&name));
                    let held = held.filter(|it| !it.is(&Kind::Unknown));
                    if let Some(held) = held {
                        return self.call_value(held, &name, call, &values);
                    }
                }
                // `self.net(x)`, of which only the name is known.
                if let Some(name) = dotted(&call.func).filter(|it| it.starts_with("self."))
                    && !self.class().is_some_and(|class_name| {
                        self.file.classes[class_name].methods.contains_key(func.attr.as_str())
                    })
                {
                    let kind = guess::kind(self.file, &name);
                    if matches!(kind, Kind::Module | Kind::Criterion) {
                        return self.call_value(Value::of(kind), &name, call, &values);
                    }
                }
                let receiver = self.eval(&func.value);
                if let Some(path) = receiver.path() {
                    let path = format!("{path}.{}", func.attr);
                    return self.library(path, call, &values);
                }
                self.method(&func.value, receiver, func.attr.as_str(), call, &values)
            }
            Expr::Name(func) => {
                let value = self.eval(&call.func);
                let name = func.id.as_str();
                if let Some(path) = value.path() {
                    let path = path.to_owned();
                    return self.library(path, call, &values);
                }
                if name == "self"
                    && self.class().is_some_and(|it| self.file.classes[it].is_module())
                {
                    return self.forward(name, call, &values);
                }
                if value.is(&Kind::Unknown) {
                    return self.builtin(name, call, &values);
                }
                self.call_value(value, name, call, &values)
            }
            func => {
                let value = self.eval(func);
                let text = || self.file.piece(func.range()).unwrap_or_default().to_owned();
                let name = dotted(func).unwrap_or_else(text);
                self.call_value(value, &name, call, &values)
            }
        }
    }

    /// Whether it calls a function of Python's by this name.
    fn is_builtin(&self, call: &ExprCall, name: &str) -> bool {
        matches!(&*call.func, Expr::Name(it) if it.id.as_str() == name) && !self.names.has(name)
    }

    /// Where the argument of this number stands, or the call.
    fn argument(&self, call: &ExprCall, n: usize) -> TextRange {
        let named = call.arguments.keywords.iter().map(|it| &it.value);
        call.arguments.args.iter().chain(named).nth(n).map_or(call.range(), Ranged::range)
    }

    fn arguments(&mut self, call: &'a ExprCall) -> Vec<Value> {
        let args = call.arguments.args.iter();
        let all = args.chain(call.arguments.keywords.iter().map(|it| &it.value));
        let all: Vec<&'a Expr> = all.collect();
        all.into_iter().map(|it| self.eval(it)).collect()
    }

    /// Something that may be called is.
    fn call_value(
        &mut self,
        value: Value,
        name: &str,
        call: &'a ExprCall,
        values: &[Value],
    ) -> Value {
        match value.kind {
            Kind::Module => {
                // `functools.partial(model, ...)` is called as the model.
                let name = value.partial_of.as_deref().unwrap_or(name);
                let res = self.forward(name, call, values);
                Value {
                    attached: res.attached
                        && (!value.frozen || values.iter().any(|it| it.attached)),
                    ..res
                }
            }
            Kind::Criterion => {
                let attached = self.grad != Grad::Off && values.iter().any(|it| it.attached);
                let mut res = Value { tick: self.tick, ..Value::of(Kind::Tensor) };
                for it in values {
                    res = res.with(it);
                }
                Value { attached, is_scalar: true, is_output: true, at: Some(call.range()), ..res }
            }
            Kind::Function(index) => self.call_function(index, call, values, 0),
            Kind::Class(index) => {
                let class = &self.file.classes[index];
                if let Some(init) = class.methods.get("__init__").copied() {
                    self.call_function(init, call, values, 1);
                }
                let class = &self.file.classes[index];
                let kind = if class.is_module() {
                    if class.name.contains("Loss") { Kind::Criterion } else { Kind::Module }
                } else if class.is_dataset() {
                    Kind::Plain
                } else {
                    Kind::Object(index)
                };
                Value { tick: self.tick, ..Value::of(kind) }
            }
            Kind::Object(index) => {
                match self.file.classes[index].methods.get("__call__").copied() {
                    Some(it) => self.call_function(it, call, values, 1),
                    None => Value::default(),
                }
            }
            Kind::Import(path) => self.library(path, call, values),
            // Called, a metric collects as by `update`.
            Kind::Metric => {
                let (receiver, name) = (name.to_owned(), "update".to_owned());
                self.tell(call.range(), What::Method { receiver, name, value, call });
                Value::default()
            }
            Kind::Unknown => self.builtin(name, call, values),
            _ => Value::default(),
        }
    }

    fn forward(&mut self, name: &str, call: &'a ExprCall, values: &[Value]) -> Value {
        let input_attached = values.iter().any(|it| it.attached);
        let mut carried = Vec::new();
        for arg in
            call.arguments.args.iter().chain(call.arguments.keywords.iter().map(|it| &it.value))
        {
            let names = names_in(arg);
            self.file.steps.take(names.len());
            for name in names {
                let value = self.names.get(&name);
                if value.is_some_and(|it| it.attached && self.is_carried(it.tick)) {
                    carried.push(name);
                }
            }
        }
        self.tell(
            call.range(),
            What::Forward { model: name.to_owned(), input_attached, carried, call },
        );
        Value {
            attached: self.grad != Grad::Off,
            graph: graphs(values),
            is_output: true,
            tick: self.tick,
            of: Some(name.to_owned()),
            at: Some(call.range()),
            ..Value::of(Kind::Tensor)
        }
    }

    /// A function of this file. `skip`: how many parameters are there already, as `self` is.
    fn call_function(
        &mut self,
        index: usize,
        call: &'a ExprCall,
        values: &[Value],
        skip: usize,
    ) -> Value {
        let function = &self.file.functions[index];
        let parameters = function.parameters();
        let n_decorators = function.def.map_or(0, |it| it.decorator_list.len());
        self.file.steps.take(parameters.len() + n_decorators);
        let is_static = function.def.is_some_and(|function| {
            function
                .decorator_list
                .iter()
                .any(|it| dotted(&it.expression).is_some_and(|it| it == "staticmethod"))
        });
        let skip = if is_static { 0 } else { skip };
        let n_args = call.arguments.args.len();
        for (n, value) in values.iter().enumerate() {
            let name = if n < n_args {
                parameters.get(n + skip).copied()
            } else {
                call.arguments.keywords[n - n_args].arg.as_ref().map(|it| it.as_str())
            };
            let Some(name) = name else { continue };
            let key = (index, name.to_owned());
            let value = Value {
                from: Sources::default(),
                graph: Sources::default(),
                at: None,
                ..value.clone()
            };
            let merged = match self.next.parameters.remove(&key) {
                Some(before) => before.or(&value),
                None => value,
            };
            self.next.parameters.insert(key, merged);
        }
        let off = self.grad == Grad::Off;
        self.next.calls.entry(index).or_default().insert((self.function, off));
        self.tell(call.range(), What::Call { function: index });
        let keeps = self.file.functions[index].class.is_some_and(|class| {
            self.known.keepers.contains(&(class, self.file.functions[index].name.to_owned()))
        });
        if keeps && let Some(n) = values.iter().position(|it| it.attached) {
            // `map(meter, losses)`: all of them.
            let mapped = call.arguments.args.first().filter(|_| self.is_builtin(call, "map"));
            let target = dotted(mapped.unwrap_or(&call.func)).unwrap_or_default();
            // An object that is called keeps it itself.
            let target = match target.rsplit_once('.') {
                Some((object, _)) if self.file.functions[index].name != "__call__" => object,
                _ => target.as_str(),
            };
            let target = target.to_owned();
            let before = self.look_up(&target);
            let mut value = values[n].clone();
            if mapped.is_some() {
                value.kind = Kind::List;
            }
            let arg = self.argument(call, n + usize::from(mapped.is_some()));
            self.kept(&target, How::Meter, &before, &value, arg);
        }
        if self.known.receivers.contains(&index) {
            return Value { tick: self.tick, ..Value::of(Kind::Receiver) };
        }
        let mut res = self.known.returns.get(&index).cloned().unwrap_or_default();
        res.attached &= !off;
        // What it returns was made of what it was given.
        for it in values {
            res.from.extend(&it.from);
        }
        res.graph.extend(&graphs(values));
        res.tick = self.tick;
        res.at = Some(call.range());
        res
    }

    fn library(&mut self, path: String, call: &'a ExprCall, values: &[Value]) -> Value {
        let mut res = library::result(&path, call, values, self.grad);
        if path == "functools.partial" {
            res = values.first().cloned().unwrap_or_default();
            if res.is(&Kind::Module) {
                res.partial_of = call.arguments.args.first().and_then(dotted);
            }
        }
        if res.is(&Kind::Optimizer) {
            let mut models: Vec<String> = values.iter().filter_map(|it| it.of.clone()).collect();
            models.extend(values.iter().flat_map(|it| it.from.iter().map(str::to_owned)));
            self.tell(call.range(), What::NewOptimizer { models });
        }
        if path.ends_with("autograd.grad") || path.ends_with("autograd.backward") {
            self.tell(call.range(), What::Walks);
        }
        if path.ends_with("autograd.backward")
            && let Some(loss) = values.first()
        {
            self.backward(loss.clone(), false, call);
        }
        let name = path.rsplit('.').next().unwrap_or_default();
        if res.attached && guess::computes_loss(name) {
            res.is_scalar = true;
        }
        res.tick = self.tick;
        if res.at.is_none() {
            res.at = Some(call.range());
        }
        self.tell(call.range(), What::Library { path, call });
        res
    }

    fn builtin(&mut self, name: &str, call: &'a ExprCall, values: &[Value]) -> Value {
        let first = values.first().cloned().unwrap_or_default();
        match name {
            "float" | "int" | "len" | "str" | "bool" | "round" | "print" | "repr"
            | "isinstance" | "hasattr" | "format" => Value::number(),
            "range" => Value::of(Kind::Plain),
            "list" | "tuple" | "sorted" | "reversed" | "set" => {
                let kind = if first.is(&Kind::Parameters) { Kind::Parameters } else { Kind::List };
                Value { tick: self.tick, kind, ..first }
            }
            "dict" => Value { tick: self.tick, ..Value::of(Kind::Dict) },
            "enumerate" | "zip" | "iter" | "next" | "tqdm" | "filter" => {
                let mut res = first;
                for it in values {
                    res = res.with(it);
                }
                res
            }
            "map" => values.get(1).cloned().unwrap_or_default(),
            "sum" | "max" | "min" => Value { kind: Kind::Tensor, is_scalar: true, ..first },
            "setattr" | "getattr" => Value::default(),
            _ => {
                let mut res = Value { tick: self.tick, at: Some(call.range()), ..Value::default() };
                for it in values {
                    res.from.extend(&it.from);
                }
                res.graph = graphs(values);
                if guess::computes_loss(name)
                    && self.grad != Grad::Off
                    && values.iter().any(|it| it.attached)
                {
                    for it in values {
                        res = res.with(it);
                    }
                    res = Value { kind: Kind::Tensor, attached: true, is_scalar: true, ..res };
                }
                res
            }
        }
    }

    fn backward(&mut self, loss: Value, by_engine: bool, call: &'a ExprCall) {
        let literal = |name: &str| {
            call.arguments
                .find_keyword(name)
                .is_some_and(|it| matches!(&it.value, Expr::BooleanLiteral(it) if it.value))
        };
        let (retain, create) = (literal("retain_graph"), literal("create_graph"));
        self.tell(call.range(), What::Backward { loss, retain, create, by_engine, call });
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each method that matters")]
    fn method(
        &mut self,
        on: &'a Expr,
        receiver: Value,
        name: &str,
        call: &'a ExprCall,
        values: &[Value],
    ) -> Value {
        let at = call.range();
        let on_name = owner(on).unwrap_or_else(|| receiver.of.clone().unwrap_or_default());
        let first = values.first().cloned().unwrap_or_default();
        let n_args = call.arguments.args.len();
        self.tell(
            at,
            What::Method {
                receiver: on_name.clone(),
                name: name.to_owned(),
                value: receiver.clone(),
                call,
            },
        );
        match name {
            // Of a distribution: what is drawn has no graph.
            "sample" if receiver.attached => {
                return Value { attached: false, graph: Sources::default(), ..receiver };
            }
            "detach_" => self.detached(on),
            "send" if receiver.is(&Kind::Receiver) => {
                let arg = call.arguments.args.first().map_or(at, Ranged::range);
                self.kept(&on_name, How::Meter, &receiver, &first, arg);
                return Value::default();
            }
            // In place, and the graph of what is added hangs on it from now on.
            "add_" if receiver.is(&Kind::Tensor) && first.attached && !receiver.attached => {
                let arg = call.arguments.args.first().map_or(at, Ranged::range);
                self.kept(&on_name, How::Sum, &receiver, &first, arg);
            }
            "backward" => {
                let of_engine = n_args > 0
                    && !receiver.attached
                    && (first.attached || !receiver.is(&Kind::Tensor));
                let (loss, by_engine) = if of_engine { (first, true) } else { (receiver, false) };
                self.backward(loss, by_engine, call);
                return Value::default();
            }
            "manual_backward" => {
                self.backward(first, true, call);
                return Value::default();
            }
            "scale" if receiver.is(&Kind::Scaler) => return Value { scaled: true, ..first },
            "scale_loss" => return first,
            "step" if receiver.is(&Kind::Optimizer) => {
                // What takes more than a closure is another kind of optimizer, of contexts or of ranks.
                let known = call
                    .arguments
                    .args
                    .iter()
                    .all(|it| dotted(it).is_some_and(|it| it.contains("closure")));
                self.tell(at, What::Step { optimizer: on_name, by_scaler: false, known });
                return Value::default();
            }
            "step" if receiver.is(&Kind::Scaler) => {
                let optimizer = call.arguments.args.first().and_then(dotted).unwrap_or_default();
                self.tell(at, What::Step { optimizer, by_scaler: true, known: true });
                return Value::default();
            }
            "zero_grad" | "optimizer_zero_grad" | "clear_grads" | "clear_grad" => {
                self.tell(at, What::ZeroGrad { of: on_name });
                return Value::default();
            }
            "eval" | "train"
                if receiver.is_module()
                    || n_args == 0 && (!on_name.is_empty() || name == "eval") =>
            {
                let train = name == "train"
                    && !matches!(call.arguments.args.first(), Some(Expr::BooleanLiteral(it)) if !it.value);
                let is_known = name == "eval"
                    || n_args == 0
                    || matches!(call.arguments.args.first(), Some(Expr::BooleanLiteral(_)));
                if is_known && !on_name.is_empty() {
                    self.tell(at, What::Mode { model: on_name.clone(), train });
                }
                // `model.eval().requires_grad_(False)`
                let of = receiver.of.clone().or(Some(on_name)).filter(|it| !it.is_empty());
                let kind = match receiver.kind {
                    Kind::Unknown => Kind::Module,
                    kind => kind,
                };
                return Value { of, kind, is_eval: name == "eval", ..receiver };
            }
            "requires_grad_" => {
                let is_off = matches!(call.arguments.args.first(), Some(Expr::BooleanLiteral(it)) if !it.value);
                if is_off {
                    self.tell(at, What::Freeze { model: on_name });
                    return Value { frozen: true, ..receiver };
                } else if !receiver.is_module() {
                    self.tell(at, What::Walks);
                    return Value { attached: true, ..receiver };
                }
                return receiver;
            }
            "parameters" | "named_parameters" | "trainable_parameters" => {
                return Value { of: Some(on_name), ..Value::of(Kind::Parameters) };
            }
            "state_dict" => return Value { of: Some(on_name), ..Value::of(Kind::Dict) },
            "load_state_dict" => {
                if let Some(value) = values.first() {
                    self.tell(at, What::LoadState { of: on_name, value: value.clone() });
                }
                return Value::default();
            }
            // `stack.enter_context(torch.no_grad())`
            "enter_context" | "__enter__" => {
                if matches!(first.kind, Kind::NoGrad(_)) || matches!(receiver.kind, Kind::NoGrad(_))
                {
                    self.grad = Grad::Off;
                }
                if first.is(&Kind::Autocast) {
                    self.autocast = true;
                }
                return first;
            }
            "autocast" => return Value::of(Kind::Autocast),
            "no_grad" => return Value::of(Kind::NoGrad(true)),
            "clear" | "reset" | "popleft" | "pop" => {
                self.tell(at, What::Clear { target: on_name });
                return receiver;
            }
            _ => {}
        }
        if NUMBERS.contains(&name) {
            return Value { tick: self.tick, ..Value::number() };
        }
        if UNATTACHED.contains(&name) {
            return Value {
                attached: false,
                graph: Sources::default(),
                tick: self.tick,
                kind: Kind::Tensor,
                ..receiver
            };
        }
        // `self.method(...)`, or a method of an object that is made here.
        let class = match receiver.kind {
            Kind::Object(index) => Some(index),
            _ if on_name == "self" => self.class(),
            _ => None,
        };
        if let Some(index) = class
            && let Some(method) = self.file.classes[index].methods.get(name).copied()
        {
            if name == "forward" {
                return self.forward(&on_name, call, values);
            }
            return self.call_function(method, call, values, 1);
        }
        // A model of this file: its own methods.
        if receiver.is_module() {
            match name {
                "forward" => return self.forward(&on_name, call, values),
                "to" | "cuda" | "cpu" | "half" | "float" | "bfloat16" | "double" | "type" => {
                    self.tell(at, What::Move { model: on_name, call });
                    return receiver;
                }
                "module" => return self.forward(&on_name, call, values),
                "apply" | "requires_grad" | "share_memory" => return receiver,
                _ if guess::is_model(name) => {
                    let whole = format!("{on_name}.{name}");
                    return self.forward(&whole, call, values);
                }
                _ => {
                    let attached = self.grad != Grad::Off
                        && (guess::computes_loss(name) || name.starts_with("forward"));
                    let kind = if attached { Kind::Tensor } else { Kind::Unknown };
                    return Value {
                        attached,
                        tick: self.tick,
                        of: Some(on_name),
                        at: Some(at),
                        is_scalar: attached && !name.starts_with("forward"),
                        ..Value::of(kind)
                    };
                }
            }
        }
        if KEEPING.contains(&name)
            && matches!(receiver.kind, Kind::List | Kind::Unknown | Kind::Dict | Kind::Object(_))
        {
            let arg = if name == "insert" { 1 } else { 0 };
            if let (Some(value), Some(arg)) = (values.get(arg), call.arguments.args.get(arg)) {
                let value = value.clone();
                self.kept(&on_name, How::Append, &receiver, &value, arg.range());
                let mut held = receiver;
                if held.is(&Kind::Unknown) {
                    held.kind = Kind::List;
                }
                let tick = held.tick;
                let on_host = value.on_host;
                held = held.with(&value);
                (held.tick, held.on_host) = (tick, on_host);
                if !on_name.is_empty() && !on_name.ends_with("[]") {
                    self.bind(&on_name, held);
                }
            }
            return Value::default();
        }
        match name {
            "cpu" => return Value { on_host: true, tick: self.tick, ..receiver },
            "to" | "cuda" => {
                let target = call.arguments.args.first();
                let to_cpu = target.is_some_and(|it| guess::is_host(self.file.text_at(it.range())));
                let on_host = to_cpu && name == "to";
                let at = Some(at);
                return Value {
                    on_host: on_host || receiver.on_host && name == "to" && target.is_none(),
                    tick: self.tick,
                    at,
                    ..receiver
                };
            }
            "mean" | "sum" | "norm" | "prod" | "max" | "min"
                if n_args == 0 && call.arguments.keywords.is_empty() =>
            {
                return Value { is_scalar: true, tick: self.tick, ..receiver };
            }
            "div" | "div_" | "true_divide" => {
                return Value { divided: true, tick: self.tick, ..receiver };
            }
            "items" | "values" | "keys" => return Value { tick: self.tick, ..receiver },
            "get" | "copy" | "setdefault" => return receiver,
            _ => {}
        }
        if receiver.attached || receiver.is_output || receiver.is(&Kind::Tensor) {
            let mut res = receiver;
            for it in values {
                res = res.with(it);
            }
            res.attached &= self.grad != Grad::Off;
            return Value { kind: Kind::Tensor, tick: self.tick, at: Some(at), ..res };
        }
        // One of several, `for it in callbacks` or `meters[name]`: an object of a class of this file, whichever has such a method.
        let attached = values.iter().position(|it| it.attached);
        let is_one = || match on {
            Expr::Subscript(_) => true,
            Expr::Name(it) => self.is_target(it.id.as_str()),
            _ => false,
        };
        let keeps = || {
            let has = |(class, method): &(usize, String)| {
                method == name && self.file.classes[*class].methods.contains_key(name)
            };
            receiver.is(&Kind::Unknown) && self.known.keepers.iter().any(has) && is_one()
        };
        if let Some(n) = attached.filter(|_| keeps()) {
            let arg = self.argument(call, n);
            self.kept(&on_name, How::Meter, &Value::default(), &values[n].clone(), arg);
        }
        // `self.loss_function(output, y)`
        let mut res = Value { tick: self.tick, at: Some(at), ..Value::default() };
        for it in values {
            res.from.extend(&it.from);
        }
        res.from.extend(&receiver.from);
        res.graph = graphs(values);
        if receiver.attached {
            res.graph.extend(&receiver.graph);
        }
        if guess::computes_loss(name)
            && self.grad != Grad::Off
            && values.iter().any(|it| it.attached)
        {
            return Value { attached: true, is_scalar: true, kind: Kind::Tensor, ..res };
        }
        res
    }
}

/// Whether an expression moves one of these names to the device; without any, any name.
fn moves_an_item(expr: &Expr, items: &[String]) -> bool {
    struct Moves<'n> {
        items: &'n [String],
        found: bool,
    }
    impl<'a> Visitor<'a> for Moves<'_> {
        fn visit_expr(&mut self, expr: &'a Expr) {
            if let Expr::Call(call) = expr
                && let Expr::Attribute(func) = &*call.func
            {
                let device = |it: &Expr| match it {
                    Expr::StringLiteral(it) => it.value.to_str().starts_with("cuda"),
                    it => dotted(it).is_some_and(|it| it.ends_with("device")),
                };
                let is_moved = func.attr.as_str() == "cuda"
                    || func.attr.as_str() == "to"
                        && call.arguments.args.first().is_some_and(device);
                let of_item = |name: &String| {
                    self.items.is_empty()
                        || self.items.iter().any(|it| name.split(['.', '[']).next() == Some(it))
                };
                self.found |= is_moved && names_in(&func.value).iter().any(of_item);
            }
            visitor::walk_expr(self, expr);
        }
    }
    let mut moves = Moves { items, found: false };
    moves.visit_expr(expr);
    moves.found
}

/// How the thing is written that a method is called on: `logs[]` of `logs.setdefault(key, [])`, too.
pub(crate) fn owner(on: &Expr) -> Option<String> {
    if let Expr::Call(call) = on
        && let Expr::Attribute(func) = &*call.func
        && matches!(func.attr.as_str(), "setdefault" | "get")
    {
        return dotted(&func.value).map(|it| format!("{it}[]"));
    }
    dotted(on)
}

/// The names whose graph hangs on any of these.
fn graphs(values: &[Value]) -> Sources {
    let mut res = Sources::default();
    for it in values {
        res.extend(&it.graph);
    }
    res
}
