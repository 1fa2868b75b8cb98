//! Averages of weights that are updated with their graph: PLM110.

use ruff_python_ast::{
    Expr, Operator, Stmt,
    visitor::{self, Visitor},
};
use ruff_text_size::{Ranged, TextRange};

use crate::{
    reading::{
        events::{Event, Grad},
        file::{dotted, names_in, takes_no_graph},
        story::Story,
        value::{Kind, Value},
    },
    rules::found::{Found, wrapped},
};

/// `shadow[name] = decay * shadow[name] + (1 - decay) * param`, with its graph.
pub(super) fn with_graphs(story: &Story<'_, '_>, acc: &mut Vec<Found>) {
    for (index, function) in story.file.functions.iter().enumerate() {
        let mut seen = Averages { found: Vec::new(), in_place: Vec::new() };
        seen.visit_body(function.body);
        for (statement, value) in seen.in_place {
            let names = names_in(value);
            let text = story.file.text_at(statement);
            let cut = text.contains(".data") || text.contains("detach");
            let off = story.known.grad_off || is_off(story, index, statement);
            let is_weight = |name: &String| {
                let held = story.known.name(story.file, index, name);
                held.is_some_and(|it| {
                    it.attached && it.of.is_some() && it.is(&Kind::Tensor) && !it.is_output
                })
            };
            if !off && !cut && matches!(names.as_slice(), [name] if is_weight(name)) {
                acc.push(Found {
                    code: "PLM110",
                    at: statement,
                    statement,
                    message: format!("the average keeps the autograd graph of all earlier updates: update it under `torch.no_grad()`, or from `{}.detach()`", names[0]),
                    mend: wrapped(story, value.range(), "(", ").detach()"),
                });
            }
        }
        for (statement, target, value) in seen.found {
            // Weights, under gradients: what the walk knows of the names in it.
            let off = story.known.grad_off || is_off(story, index, statement);
            let names = names_in(value);
            let text = story.file.text_at(value.range());
            let is_weight = |name: &String| {
                let held = story.known.name(story.file, index, name);
                let is_made = |it: &Value| it.is_output || it.is_scalar;
                held.is_some_and(|it| {
                    it.attached && it.of.is_some() && it.is(&Kind::Tensor) && !is_made(it)
                })
            };
            let cut = text.contains(".data") || text.contains("detach") || text.contains(".item");
            let is_asked = text.contains(".get_parameter(") || text.contains("parameters()");
            if !off && !cut && (is_asked || names.iter().any(|it| is_weight(it) && *it != target)) {
                acc.push(Found {
                    code: "PLM110",
                    at: statement,
                    statement,
                    message: format!("the average `{target}` keeps the autograd graph of all earlier updates: update it under `torch.no_grad()`, or from `.detach()`ed weights"),
                    mend: wrapped(story, value.range(), "(", ").detach()"),
                });
            }
        }
    }
}

/// Whether gradients are off at a statement, by the events around it, or by the text around it.
fn is_off(story: &Story<'_, '_>, function: usize, statement: TextRange) -> bool {
    let inside = |it: &&Event<'_>| it.function == function && statement.contains_range(it.at);
    if let Some(it) = story.all().find(inside) {
        return it.grad == Grad::Off;
    }
    story.file.says(story.file.functions[function].at, &["no_grad", "inference_mode"])
}

/// `a * x + b * y`, `torch.lerp(x, y, w)`, `x.mul(a).add(y)`
fn mixes(expr: &Expr) -> bool {
    match expr {
        Expr::BinOp(_) => true,
        Expr::Call(call) => {
            matches!(&*call.func, Expr::Attribute(it) if matches!(it.attr.as_str(), "lerp" | "add" | "addcmul"))
        }
        _ => false,
    }
}

/// Whether a name is multiplied somewhere in it: an average takes a share of what was there, and a plain sum all of it.
fn weighs(expr: &Expr, name: &str) -> bool {
    let has = |it: &Expr| names_in(it).iter().any(|it| it == name);
    match expr {
        Expr::BinOp(it) if matches!(it.op, Operator::Mult | Operator::Div) => has(expr),
        Expr::BinOp(it) => weighs(&it.left, name) || weighs(&it.right, name),
        Expr::Call(call) => {
            let Expr::Attribute(func) = &*call.func else { return false };
            match func.attr.as_str() {
                "mul" | "div" | "lerp" => has(expr),
                _ => {
                    weighs(&func.value, name)
                        || call.arguments.args.iter().any(|it| weighs(it, name))
                }
            }
        }
        _ => false,
    }
}

struct Averages<'a> {
    found: Vec<(TextRange, String, &'a Expr)>,
    /// Statements like `average.mul_(a).add_(weight, alpha=b)`, each with the weight.
    in_place: Vec<(TextRange, &'a Expr)>,
}

impl<'a> Visitor<'a> for Averages<'a> {
    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        if let Stmt::Assign(it) = stmt
            && let Some(target) = it.targets.first().and_then(dotted)
            && let Some((sum, target)) = match &*it.value {
                sum @ (Expr::BinOp(_) | Expr::Call(_)) if target.ends_with("[]") => {
                    Some((sum, target))
                }
                Expr::DictComp(it) => Some((&*it.value, format!("{target}[]"))),
                _ => None,
            }
            && mixes(sum)
            && weighs(sum, &target)
        {
            self.found.push((it.range, target, &it.value));
        }
        if let Stmt::Expr(it) = stmt
            && let Expr::Call(call) = &*it.value
            && let Expr::Attribute(func) = &*call.func
            && matches!(func.attr.as_str(), "add_" | "lerp_")
            && let Some(weight) = call.arguments.args.first()
            && !dotted(&func.value).is_some_and(|it| takes_no_graph(&it))
        {
            self.in_place.push((it.range, weight));
        }
        if !matches!(stmt, Stmt::FunctionDef(_) | Stmt::ClassDef(_)) {
            visitor::walk_stmt(self, stmt);
        }
    }
}
