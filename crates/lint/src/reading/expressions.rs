//! Reads expressions: what each may be, as far as memory is concerned.

use ruff_python_ast::{Comprehension, Expr};

use crate::reading::{
    file::dotted,
    value::{Kind, Value},
    walker::Walker,
};

impl<'a> Walker<'_, 'a> {
    pub(crate) fn eval(&mut self, expr: &'a Expr) -> Value {
        match expr {
            Expr::Name(it) => {
                let mut value = self.name(it.id.as_str(), expr);
                value.from.insert(it.id.to_string());
                value
            }
            Expr::Attribute(it) => {
                if let Some(name) = dotted(expr) {
                    if let Some(value) = self.names.get(&name).filter(|it| !it.is(&Kind::Unknown)) {
                        let mut value = value.clone();
                        value.from.insert(name);
                        return value;
                    }
                    if let Some(path) = self.import(expr) {
                        return self.import_value(path);
                    }
                    if name.starts_with("self.") {
                        let mut value = self.look_up(&name);
                        value.from.insert(name);
                        return value;
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
                        let kind = match crate::reading::guess::is_model(attr) || attr == "module" {
                            true => Kind::Module,
                            false => Kind::Unknown,
                        };
                        Value { of: value.of, ..Value::of(kind) }
                    }
                    _ if value.attached || value.is_output => Value { kind: Kind::Tensor, ..value },
                    _ => {
                        let mut res = dotted(expr).map(|it| self.look_up(&it)).unwrap_or_default();
                        res.from.extend(value.from);
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
                        let kind = if value.attached || value.is_output {
                            Kind::Tensor
                        } else {
                            Kind::Unknown
                        };
                        Value { kind, ..value }
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
                one.or(&other)
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
            Expr::ListComp(it) => self.comprehension(&it.generators, &it.elt, Kind::List),
            Expr::SetComp(it) => self.comprehension(&it.generators, &it.elt, Kind::List),
            Expr::Generator(it) => self.comprehension(&it.generators, &it.elt, Kind::List),
            Expr::DictComp(it) => self.comprehension(&it.generators, &it.value, Kind::Dict),
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
            Expr::Yield(it) => {
                if let Some(value) = &it.value {
                    self.eval(value);
                }
                Value::default()
            }
            // What a lambda does, it does later.
            _ => Value::default(),
        }
    }

    fn name(&mut self, name: &str, expr: &'a Expr) -> Value {
        if !self.names.contains_key(name) {
            if let Some(path) = self.import(expr) {
                return self.import_value(path);
            }
            // Defined further down.
            let functions = &self.file.functions;
            if let Some(it) = functions.iter().position(|it| it.name == name && it.class.is_none())
            {
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
        if self.names.contains_key(first) {
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
        for it in elements {
            let one = self.eval(it);
            if one.is_module() && res.is(&Kind::Unknown) {
                res.kind = Kind::List;
            }
            res = res.with(&one);
        }
        res
    }

    fn comprehension(
        &mut self,
        generators: &'a [Comprehension],
        element: &'a Expr,
        kind: Kind,
    ) -> Value {
        let before = self.names.clone();
        for it in generators {
            let iter = self.eval(&it.iter);
            let one = match iter.kind {
                Kind::Parameters => {
                    Value { attached: true, of: iter.of.clone(), ..Value::of(Kind::Tensor) }
                }
                Kind::List | Kind::Dict if iter.attached || iter.is_output => {
                    Value { kind: Kind::Tensor, ..iter }
                }
                _ => Value {
                    of: iter.of.clone(),
                    from: iter.from.clone(),
                    attached: iter.attached,
                    is_output: iter.is_output,
                    on_host: iter.on_host,
                    ..Value::default()
                },
            };
            self.assign_to(&it.target, one);
            for test in &it.ifs {
                self.eval(test);
            }
        }
        let value = self.eval(element);
        self.names = before;
        let res = Value { tick: self.tick, ..Value::of(kind) };
        let on_host = value.on_host;
        Value { on_host, is_scalar: false, ..res.with(&value) }
    }
}
