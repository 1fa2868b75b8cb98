//! Reads statements.

use std::{collections::BTreeMap, rc::Rc};

use ruff_python_ast::{
    ExceptHandler, Expr, ExprCall, Operator, Stmt, StmtAssign, StmtAugAssign, StmtFor, StmtIf,
    StmtTry, StmtWith,
};
use ruff_text_size::{Ranged, TextRange};

use crate::reading::{
    events::{Grad, How, Loop, What},
    file::{dotted, names_in, takes_no_graph},
    guess,
    names::{Held, Joined, Names},
    value::{Kind, Sources, Value},
    walker::{Handler, Inside, Walker},
};

/// What a statement takes by itself: blocks begin and end, names come and go.
const STATEMENT: usize = 8;

impl<'a> Walker<'_, 'a> {
    pub(crate) fn function(&mut self, function: usize, grad: Grad) {
        let it = &self.file.functions[function];
        self.function = function;
        self.grad = grad;
        self.autocast = false;
        self.in_handler = false;
        // What the functions around it know; a class's body is none.
        let mut around = Vec::new();
        let mut parent = it.parent;
        while let Some(index) = parent {
            around.extend(self.known.names.get(&index).map(Rc::clone));
            parent = self.file.functions[index].parent;
        }
        self.names = Names::within(around);
        for name in it.parameters() {
            let known = self.known.parameters.get(&(function, name.to_owned())).cloned();
            // Where no call of this file says more, as it is given by default.
            let value = known.or_else(|| self.default_of(function, name)).unwrap_or_default();
            let value = Value { tick: 0, from: Sources::of(name), ..value };
            self.names.set(name, value);
        }
        for name in it.variadic() {
            let value =
                Value { from: Sources::of(name), graph: Sources::of(name), ..Value::default() };
            self.names.set(name, value);
        }
        self.tick += 1;
        self.began = self.tick;
        self.body(it.body);
        let seen_from_within = |it: Value| Value {
            tick: 0,
            from: Sources::default(),
            graph: Sources::default(),
            ..it
        };
        let names = std::mem::take(&mut self.names).end();
        let names: Held =
            names.into_iter().map(|(name, it)| (name, seen_from_within(it))).collect();
        self.next.names.insert(function, Rc::new(names));
    }

    /// An object of this file that a parameter is by default: `meter=Meter()`.
    fn default_of(&self, function: usize, parameter: &str) -> Option<Value> {
        let mut all = self.file.functions[function].def?.parameters.iter_non_variadic_params();
        let it = all.find(|it| it.parameter.name.as_str() == parameter)?;
        let Expr::Call(call) = it.default.as_deref()? else { return None };
        let class = self.file.class_named(&dotted(&call.func)?)?;
        let is_object = !self.file.classes[class].is_module();
        is_object.then(|| Value::of(Kind::Object(class)))
    }

    fn body(&mut self, body: &'a [Stmt]) {
        for it in body {
            if !self.file.steps.take(STATEMENT) {
                return;
            }
            let before = self.statement;
            self.statement = it.range();
            self.tick += 1;
            self.statement(it);
            self.statement = before;
        }
    }

    fn statement(&mut self, stmt: &'a Stmt) {
        match stmt {
            Stmt::Assign(it) => self.assign(it),
            Stmt::AnnAssign(it) => {
                if let Some(value) = &it.value {
                    let value = self.eval(value);
                    self.assign_to(&it.target, value);
                }
            }
            Stmt::AugAssign(it) => self.add(it),
            Stmt::Expr(it) => {
                let value = self.eval(&it.value);
                // As a statement it holds for what follows.
                if let (Kind::NoGrad(true), Expr::Call(call)) = (&value.kind, &*it.value) {
                    let is_switch =
                        dotted(&call.func).is_some_and(|it| it.ends_with("set_grad_enabled"));
                    if is_switch {
                        self.grad = Grad::Off;
                        self.next.grad_off |=
                            self.function == 0 && !self.is_in_a_branch() && self.inside.is_empty();
                    }
                } else if let Expr::Call(call) = &*it.value
                    && dotted(&call.func).is_some_and(|it| it.ends_with("set_grad_enabled"))
                {
                    self.grad = if value.is(&Kind::Plain) { Grad::On } else { Grad::Maybe };
                }
            }
            Stmt::Return(it) => {
                let Some(value) = &it.value else { return };
                let value = self.eval(value);
                let before = self.next.returns.remove(&self.function);
                let merged = match before {
                    Some(before) => before.or(&value),
                    None => value.clone(),
                };
                self.next.returns.insert(
                    self.function,
                    Value { from: Sources::default(), graph: Sources::default(), ..merged },
                );
                self.tell(it.range, What::Return { value });
            }
            Stmt::Delete(it) => {
                for name in it.targets.iter().filter_map(dotted) {
                    self.names.set(&name, Value::of(Kind::Plain));
                    self.tell(
                        stmt.range(),
                        What::Clear { target: name.trim_end_matches("[]").to_owned() },
                    );
                }
            }
            Stmt::For(it) => self.for_loop(it),
            Stmt::While(it) => {
                self.eval(&it.test);
                let index = self.loop_at(it.range, |walker| {
                    let head = TextRange::new(it.range.start(), it.test.range().end());
                    Loop {
                        at: it.range,
                        head,
                        body: it.body.first().map_or(head, Ranged::range),
                        function: walker.function,
                        iter: None,
                        target: None,
                        over_batches: false,
                        is_counted: true,
                        counter: None,
                        autocast: walker.autocast,
                    }
                });
                self.passes(index, &it.body, None);
                self.body(&it.orelse);
            }
            Stmt::If(it) => self.branches_of(it),
            Stmt::With(it) => self.with(it),
            Stmt::Try(it) => self.tries(it),
            Stmt::Match(it) => {
                self.eval(&it.subject);
                let mut after = Joined::default();
                for case in &it.cases {
                    self.names.begin();
                    self.branch(it.range, None);
                    self.body(&case.body);
                    self.leave_branch();
                    let changed = self.names.take_back();
                    after.take(changed, &self.names);
                }
                after.end(true, &mut self.names);
            }
            Stmt::FunctionDef(it) => {
                if let Some(index) = self.file.function_at(it) {
                    let value = Value { tick: self.tick, ..Value::of(Kind::Function(index)) };
                    self.names.set(it.name.as_str(), value);
                }
            }
            Stmt::ClassDef(it) => {
                if let Some(index) = self.file.class_named(it.name.as_str()) {
                    let value = Value { tick: self.tick, ..Value::of(Kind::Class(index)) };
                    self.names.set(it.name.as_str(), value);
                }
            }
            Stmt::Assert(it) => {
                self.eval(&it.test);
            }
            Stmt::Raise(it) => {
                if let Some(exc) = &it.exc {
                    self.eval(exc);
                }
            }
            _ => {}
        }
    }

    fn assign(&mut self, it: &'a StmtAssign) {
        if let Some(target) = it.targets.first()
            && self.added_up(target, &it.value)
        {
            return;
        }
        // `a, b = x, y`
        if let ([Expr::Tuple(targets)], Expr::Tuple(values)) = (it.targets.as_slice(), &*it.value)
            && targets.elts.len() == values.elts.len()
        {
            let mut made = Vec::new();
            for (target, expr) in targets.elts.iter().zip(&values.elts) {
                if !self.added_up(target, expr) {
                    made.push((target, self.eval(expr)));
                }
            }
            for (target, value) in made {
                self.evaluated(it.range, target, &value);
                self.assign_to(target, value);
            }
            return;
        }
        let value = self.eval(&it.value);
        let value = match self.made_anew(it) {
            Some(tick) => Value { tick, ..value },
            None => value,
        };
        if let Some((name, call)) = self.joined(it) {
            let before = self.look_up(&name);
            let one = call.arguments.args.first().map(|it| self.eval(it)).unwrap_or_default();
            self.kept(&name, How::Cat, &before, &one, call.range());
            let value = Value { tick: before.tick, ..value };
            self.names.set(&name, value);
            return;
        }
        for target in &it.targets {
            // `values, indices = torch.max(x, 1)`
            if let (Expr::Tuple(targets), Expr::Call(call)) = (target, &*it.value) {
                let name = dotted(&call.func).unwrap_or_default();
                let name = name.rsplit('.').next().unwrap_or_default();
                if matches!(name, "max" | "min" | "topk" | "sort" | "kthvalue" | "median")
                    && targets.elts.len() == 2
                {
                    self.assign_to(&targets.elts[0], value.clone());
                    let indices = Value { attached: false, ..value.clone() };
                    self.assign_to(&targets.elts[1], indices);
                    continue;
                }
            }
            self.entered(target, &it.value, &value);
            self.assign_to(target, value.clone());
            self.evaluated(it.range, target, &value);
        }
    }

    /// `model = load().eval().requires_grad_(False)`, also where a function of this file does it.
    fn evaluated(&mut self, at: TextRange, target: &Expr, value: &Value) {
        let Some(model) = dotted(target).filter(|_| value.is_eval) else { return };
        if value.frozen {
            self.tell(at, What::Freeze { model: model.clone() });
        }
        self.tell(at, What::Mode { model, train: false });
    }

    /// Reads `name = name + x`, if it is that.
    fn added_up(&mut self, target: &'a Expr, sum: &'a Expr) -> bool {
        let Some(name) = dotted(target).filter(|name| is_sum_with(sum, name)) else { return false };
        let before = self.look_up(&name);
        let value = self.eval(sum);
        self.kept(&name, How::Sum, &before, &value, sum.range());
        // What is added up stays the same thing.
        let value = Value { tick: before.tick, ..value };
        self.bind(&name, value);
        true
    }

    /// `stats = Stats(stats.loss + loss, stats.n + 1)`, `sums = (sums[0] + loss, sums[1] + 1)`
    /// The record stays the same thing: the answer is when that was made first.
    fn made_anew(&mut self, it: &'a StmtAssign) -> Option<u32> {
        let name = it.targets.first().and_then(dotted)?;
        let parts: Vec<&'a Expr> = match &*it.value {
            Expr::Call(call) => {
                let named = call.arguments.keywords.iter().map(|it| &it.value);
                call.arguments.args.iter().chain(named).collect()
            }
            Expr::Tuple(it) => it.elts.iter().collect(),
            _ => return None,
        };
        let is_of_it = |it: &Expr| {
            let rest = dotted(it).and_then(|it| Some(it.strip_prefix(&name)?.to_owned()));
            rest.is_some_and(|it| it.starts_with(['.', '[']))
        };
        let before = self.look_up(&name);
        let mut is_sum = false;
        for part in parts {
            if let Expr::BinOp(sum) = part
                && matches!(sum.op, Operator::Add)
                && (is_of_it(&sum.left) || is_of_it(&sum.right))
            {
                let value = self.eval(part);
                self.kept(&name, How::Sum, &before, &value, part.range());
                is_sum = true;
            }
        }
        is_sum.then_some(before.tick)
    }

    /// `x = torch.cat((x, y))`: the name, and the call.
    fn joined(&self, it: &'a StmtAssign) -> Option<(String, &'a ExprCall)> {
        let name = it.targets.first().and_then(dotted)?;
        // `x = y if x is None else torch.cat([x, y])`
        let either = match &*it.value {
            Expr::If(it) => vec![&*it.body, &*it.orelse],
            other => vec![other],
        };
        let joins =
            ["torch.cat", "torch.concat", "torch.concatenate", "torch.vstack", "torch.hstack"];
        let call = either.into_iter().find_map(|it| {
            let Expr::Call(call) = it else { return None };
            let path = self.import(&call.func)?;
            let names = names_in(call.arguments.args.first()?);
            (joins.contains(&path.as_str()) && names.contains(&name)).then_some(call)
        })?;
        Some((name, call))
    }

    fn add(&mut self, it: &'a StmtAugAssign) {
        let value = self.eval(&it.value);
        let Some(name) = dotted(&it.target) else { return };
        let value = if takes_no_graph(&name) { value.without_graph() } else { value };
        let before = self.look_up(&name);
        let before = match name.strip_suffix("[]") {
            Some(whole) if before.is(&Kind::Unknown) => {
                Value { attached: false, ..self.look_up(whole) }
            }
            _ => before,
        };
        let is_list = before.is(&Kind::List) && !name.ends_with("[]");
        let how = if is_list { How::Append } else { How::Sum };
        if matches!(it.op, Operator::Add | Operator::Sub) {
            self.kept(&name, how, &before, &value, it.value.range());
        }
        let tick = before.tick;
        let mut after = before.with(&value);
        if matches!(it.op, Operator::Div | Operator::FloorDiv) {
            after.divided = true;
        }
        if matches!(after.kind, Kind::Number | Kind::Unknown | Kind::Plain) && value.attached {
            after.kind = Kind::Tensor;
        }
        after.tick = tick;
        if !name.ends_with("[]") {
            self.bind(&name, after);
        }
    }

    fn for_loop(&mut self, it: &'a StmtFor) {
        let iter = self.eval(&it.iter);
        let index = self.loop_at(it.range, |walker| {
            let text = walker.file.text_at(it.iter.range());
            let head = TextRange::new(it.range.start(), it.iter.range().end());
            Loop {
                at: it.range,
                head,
                body: it.body.first().map_or(head, Ranged::range),
                function: walker.function,
                iter: Some(&it.iter),
                target: Some(&it.target),
                over_batches: iter.is(&Kind::Loader)
                    || guess::is_batches(text) && !text.contains(".batches("),
                is_counted: text.starts_with("range(") || text.contains("range("),
                counter: counter(it),
                autocast: walker.autocast,
            }
        });
        self.passes(index, &it.body, Some((it, iter)));
        self.body(&it.orelse);
    }

    /// The number of the loop that stands there; what it is, is asked when it is come to first.
    fn loop_at(&mut self, at: TextRange, told: impl FnOnce(&Self) -> Loop<'a>) -> usize {
        if let Some(index) = self.loops_by_place.get(&at.start()) {
            return *index;
        }
        let told = told(self);
        self.loops.push(told);
        let index = self.loops.len() - 1;
        self.loops_by_place.insert(at.start(), index);
        index
    }

    fn passes(&mut self, index: usize, body: &'a [Stmt], of: Option<(&'a StmtFor, Value)>) {
        self.tick += 1;
        let first = self.tick;
        self.names.begin();
        self.inside.push(Inside { index, first, second: None });
        for pass in 0..2 {
            self.tick += 1;
            if pass == 1
                && let Some(last) = self.inside.last_mut()
            {
                last.second = Some(self.tick);
            }
            if let Some((it, iter)) = &of {
                self.targets(&it.target, &it.iter, iter);
            }
            self.body(body);
            if pass == 0 {
                let mut after = Joined::default();
                after.take(self.names.take_back(), &self.names);
                after.end(true, &mut self.names);
            }
        }
        self.inside.pop();
    }

    /// What a loop's variables hold.
    fn targets(&mut self, target: &'a Expr, over: &'a Expr, iter: &Value) {
        let one = match &iter.kind {
            // Weights, on which gradients hang.
            Kind::Parameters => {
                Value { attached: true, of: iter.of.clone(), ..Value::of(Kind::Tensor) }
            }
            Kind::Loader => Value::of(Kind::Unknown),
            Kind::List | Kind::Tensor => Value { tick: self.tick, ..iter.clone() },
            _ => Value { of: iter.of.clone(), ..Value::default() },
        };
        let one = Value {
            kind: if one.is(&Kind::List) { Kind::Unknown } else { one.kind },
            tick: self.tick,
            ..one
        };
        // `for (n, p), q in zip(a.named_parameters(), b)`
        if let (Expr::Tuple(targets), Expr::Call(call)) = (target, over) {
            let name = dotted(&call.func).unwrap_or_default();
            if name == "zip" && call.arguments.args.len() == targets.elts.len() {
                for (target, over) in targets.elts.iter().zip(&call.arguments.args) {
                    let iter = self.eval(over);
                    self.targets(target, over, &iter);
                }
                return;
            }
            if name == "enumerate"
                && let (Some(inner), [_, target]) =
                    (call.arguments.args.first(), targets.elts.as_slice())
            {
                let iter = self.eval(inner);
                self.assign_to(&targets.elts[0], Value::number());
                self.targets(target, inner, &iter);
                return;
            }
            if name.ends_with(".items") && iter.is(&Kind::Dict) && targets.elts.len() == 2 {
                self.assign_to(&targets.elts[0], Value::of(Kind::Plain));
                let kind =
                    if iter.attached || iter.is_output { Kind::Tensor } else { Kind::Unknown };
                self.assign_to(&targets.elts[1], Value { kind, tick: self.tick, ..iter.clone() });
                return;
            }
            if name.ends_with("named_parameters") && targets.elts.len() == 2 {
                self.assign_to(&targets.elts[0], Value::of(Kind::Plain));
                self.assign_to(&targets.elts[1], one);
                return;
            }
        }
        self.assign_to(target, one);
    }

    fn branches_of(&mut self, it: &'a StmtIf) {
        self.eval(&it.test);
        let grad = self.grad;
        let mut after = Joined::default();
        self.names.begin();
        self.branch(it.range, Some(&it.test));
        self.body(&it.body);
        self.leave_branch();
        let changed = self.names.take_back();
        if !leaves(&it.body) {
            after.take(changed, &self.names);
        }
        let mut has_else = false;
        for clause in &it.elif_else_clauses {
            self.names.begin();
            if let Some(test) = &clause.test {
                self.eval(test);
            } else {
                has_else = true;
            }
            self.branch(it.range, clause.test.as_ref());
            self.body(&clause.body);
            self.leave_branch();
            let changed = self.names.take_back();
            if !leaves(&clause.body) {
                after.take(changed, &self.names);
            }
        }
        after.end(!has_else, &mut self.names);
        if self.grad != grad {
            self.grad = Grad::Maybe;
        }
    }

    fn with(&mut self, it: &'a StmtWith) {
        let (grad, autocast) = (self.grad, self.autocast);
        for item in &it.items {
            let value = self.eval(&item.context_expr);
            match value.kind {
                Kind::NoGrad(true) => self.grad = Grad::Off,
                Kind::NoGrad(false) if self.grad == Grad::On => self.grad = Grad::Maybe,
                Kind::Autocast => self.autocast = true,
                _ => {}
            }
            if let Expr::Call(call) = &item.context_expr {
                let name = dotted(&call.func).unwrap_or_default();
                if name.ends_with("enable_grad")
                    || name.ends_with("set_grad_enabled") && value.is(&Kind::Plain)
                {
                    self.grad = Grad::On;
                }
            }
            if let Some(target) = &item.optional_vars {
                self.assign_to(target, Value { tick: self.tick, ..value });
            }
        }
        self.body(&it.body);
        (self.grad, self.autocast) = (grad, autocast);
    }

    fn tries(&mut self, it: &'a StmtTry) {
        self.body(&it.body);
        // As they were when nothing was raised, of what a handler changed.
        let mut before: BTreeMap<String, Option<Value>> = BTreeMap::new();
        for handler in &it.handlers {
            let ExceptHandler::ExceptHandler(handler) = handler;
            let name = handler.name.as_ref().map(|it| it.as_str());
            if self.handlers_by_place.insert(handler.range.start()) {
                self.handlers.push(Handler {
                    at: handler.range,
                    type_: handler.type_.as_deref(),
                    name,
                    function: self.function,
                });
            }
            let was = std::mem::replace(&mut self.in_handler, true);
            self.names.begin();
            self.branch(handler.range, None);
            self.body(&handler.body);
            self.leave_branch();
            self.in_handler = was;
            for (name, value) in self.names.take_back() {
                let known = before.entry(name.clone());
                let known = known.or_insert_with(|| self.names.get(&name).cloned());
                let value = match known {
                    Some(known) => known.clone().or(&value),
                    None => value,
                };
                self.names.set(&name, value);
            }
        }
        self.body(&it.orelse);
        self.body(&it.finalbody);
    }
}

/// Whether the last statement leaves.
fn leaves(body: &[Stmt]) -> bool {
    matches!(
        body.last(),
        Some(Stmt::Return(_) | Stmt::Raise(_) | Stmt::Continue(_) | Stmt::Break(_))
    )
}

/// `name + x`, with `name` somewhere in a sum.
fn is_sum_with(expr: &Expr, name: &str) -> bool {
    match expr {
        Expr::BinOp(it) if matches!(it.op, Operator::Add | Operator::Sub) => {
            // `0.9 * name + 0.1 * x`
            let is = |it: &Expr| dotted(it).is_some_and(|it| it == name) || is_sum_with(it, name);
            let is_part = |part: &Expr| match part {
                Expr::BinOp(both) if matches!(both.op, Operator::Mult | Operator::Div) => {
                    is(&both.left) || is(&both.right)
                }
                other => is(other),
            };
            is_part(&it.left) || is_part(&it.right)
        }
        // `operator.add(name, x)`, `torch.add(name, x)`, `name.add(x)`
        Expr::Call(call) => {
            let Expr::Attribute(func) = &*call.func else { return false };
            let is = |it: &Expr| dotted(it).is_some_and(|it| it == name);
            func.attr.as_str() == "add"
                && (is(&func.value) || call.arguments.args.iter().any(is))
                && (1..=2).contains(&call.arguments.args.len())
        }
        _ => false,
    }
}

/// The variable that counts from 0.
fn counter(it: &StmtFor) -> Option<String> {
    let Expr::Call(call) = &*it.iter else { return None };
    let name = dotted(&call.func)?;
    let has_start = call.arguments.args.len() > 1 || !call.arguments.keywords.is_empty();
    let last = name.rsplit('.').next().unwrap_or_default();
    match (last, &*it.target) {
        // `tqdm(enumerate(loader))`
        ("tqdm" | "trange", _) => {
            let inner = call.arguments.args.first()?;
            if last == "trange" {
                return dotted(&it.target);
            }
            let Expr::Call(inner) = inner else { return None };
            let is_from_0 = inner.arguments.args.len() == 1 && inner.arguments.keywords.is_empty();
            match (dotted(&inner.func)?.as_str(), &*it.target) {
                ("enumerate", Expr::Tuple(target)) if is_from_0 => dotted(target.elts.first()?),
                ("range", target) if is_from_0 => dotted(target),
                _ => None,
            }
        }
        ("enumerate", Expr::Tuple(target)) if !has_start => dotted(target.elts.first()?),
        ("range", target) if !has_start => dotted(target),
        _ => None,
    }
}
