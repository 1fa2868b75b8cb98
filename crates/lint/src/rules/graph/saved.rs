//! Tensors that a function of autograd keeps as attributes of its context: PLM108.

use std::collections::BTreeMap;

use ruff_python_ast::{
    Expr, Stmt,
    visitor::{self, Visitor},
};
use ruff_text_size::{Ranged, TextRange};

use crate::{
    reading::{file::dotted, story::Story},
    rules::found::Found,
};

/// `ctx.name = tensor` in the forward of an autograd function.
pub(super) fn in_contexts(story: &Story<'_, '_>, acc: &mut Vec<Found>) {
    for class in story.file.classes.iter().filter(|it| it.is_function()) {
        let Some(forward) = class.methods.get("forward").copied() else { continue };
        let function = &story.file.functions[forward];
        let parameters = function.parameters();
        let Some(ctx) = parameters.first().copied() else { continue };
        let mut seen = Assigned { ctx, found: Vec::new(), values: BTreeMap::new() };
        seen.visit_body(function.body);
        for (statement, name, value) in &seen.found {
            let Some(given) = dotted(value) else { continue };
            let is_parameter = parameters.contains(&given.as_str());
            let is_tensor = match (is_parameter, seen.values.get(&given)) {
                (true, _) => is_used_as_tensor(story, forward, &given),
                (false, Some(made)) => makes_tensor(story, made),
                (false, None) => false,
            };
            if is_tensor {
                acc.push(Found {
                    code: "PLM108",
                    at: *statement,
                    statement: *statement,
                    message: format!("`{ctx}.{name}` holds a tensor past the backward pass of this function, and forever if the tensor is the output: use `{ctx}.save_for_backward({given})`"),
                    mend: Vec::new(),
                });
            }
        }
    }
}

struct Assigned<'a> {
    ctx: &'a str,
    found: Vec<(TextRange, &'a str, &'a Expr)>,
    /// What was assigned to a name first.
    values: BTreeMap<String, &'a Expr>,
}

impl<'a> Assigned<'a> {
    fn assigned(&mut self, at: TextRange, target: &'a Expr, value: &'a Expr) {
        if let Expr::Attribute(it) = target
            && dotted(&it.value).is_some_and(|it| it == self.ctx)
        {
            self.found.push((at, it.attr.as_str(), value));
        }
    }
}

impl<'a> Visitor<'a> for Assigned<'a> {
    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        if let Stmt::Assign(it) = stmt {
            for target in &it.targets {
                match target {
                    Expr::Attribute(_) => self.assigned(it.range, target, &it.value),
                    Expr::Tuple(targets) => match &*it.value {
                        Expr::Tuple(values) if values.elts.len() == targets.elts.len() => {
                            for (target, value) in targets.elts.iter().zip(&values.elts) {
                                self.assigned(value.range(), target, value);
                            }
                        }
                        _ => {}
                    },
                    _ => {
                        if let Some(name) = dotted(target) {
                            self.values.entry(name).or_insert(&it.value);
                        }
                    }
                }
            }
        }
        visitor::walk_stmt(self, stmt);
    }
}

/// Methods that only tensors have, and what names of tensors look like.
fn is_used_as_tensor(story: &Story<'_, '_>, function: usize, name: &str) -> bool {
    let at = story.file.functions[function].at;
    let methods = [
        "view(",
        "size(",
        "clone(",
        "contiguous(",
        "new(",
        "mul(",
        "add(",
        "matmul(",
        "mm(",
        "exp(",
        "clamp(",
        "sum(",
        "mean(",
        "abs(",
        "detach(",
        "new_zeros(",
        "new_empty(",
        "relu(",
        "sigmoid(",
        "pow(",
        "sqrt(",
        "log(",
        "norm(",
        "shape",
        "dim(",
        "t(",
    ];
    let has = |it: &str| story.file.says(at, &[&format!("{name}.{it}")]);
    let annotated =
        story.file.says(at, &[&format!("{name}: torch.Tensor"), &format!("{name}: Tensor")]);
    let names = ["input", "inputs", "x", "weight", "bias", "output", "tensor", "logits"];
    annotated || names.contains(&name) || methods.iter().any(|it| has(it))
}

fn makes_tensor(story: &Story<'_, '_>, expr: &Expr) -> bool {
    match expr {
        Expr::Call(call) => {
            let path = story.file.import(&call.func).unwrap_or_default();
            let by_torch = path.starts_with("torch.")
                && !path.starts_with("torch.cuda")
                && path
                    .rsplit('.')
                    .next()
                    .is_some_and(|it| it.starts_with(|it: char| it.is_ascii_lowercase()));
            let method = match &*call.func {
                Expr::Attribute(it) => it.attr.as_str(),
                _ => "",
            };
            by_torch && !path.ends_with("size")
                || [
                    "exp", "clamp", "sigmoid", "relu", "softmax", "matmul", "mm", "mul", "clone",
                    "tanh", "abs",
                ]
                .contains(&method)
        }
        Expr::BinOp(it) => makes_tensor(story, &it.left) || makes_tensor(story, &it.right),
        _ => false,
    }
}
