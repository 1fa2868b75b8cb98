//! The parts of a file, before anything is made of them: what is imported, which functions and classes there are, and what is
//! done with each name.

use std::collections::{BTreeMap, BTreeSet};

use ruff_python_ast::{
    Expr, ExprCall, Stmt, StmtClassDef, StmtFunctionDef,
    visitor::{self, Visitor},
};
use ruff_text_size::{Ranged, TextRange};

use crate::bounds::Steps;

/// A function, or the file itself.
#[derive(Debug)]
pub(crate) struct Function<'a> {
    pub(crate) name: &'a str,
    pub(crate) class: Option<usize>,
    /// The function that it is written in; the file itself has none.
    pub(crate) parent: Option<usize>,
    pub(crate) at: TextRange,
    pub(crate) body: &'a [Stmt],
    pub(crate) def: Option<&'a StmtFunctionDef>,
}

impl<'a> Function<'a> {
    /// The names of its parameters, in order.
    pub(crate) fn parameters(&self) -> Vec<&'a str> {
        let Some(def) = self.def else { return Vec::new() };
        def.parameters.iter_non_variadic_params().map(|it| it.parameter.name.as_str()).collect()
    }

    /// The names of `*args` and `**kwargs`, whatever they are called.
    pub(crate) fn variadic(&self) -> Vec<&'a str> {
        let Some(def) = self.def else { return Vec::new() };
        let both = [&def.parameters.vararg, &def.parameters.kwarg];
        both.into_iter().flatten().map(|it| it.name.as_str()).collect()
    }
}

/// A class.
#[derive(Debug)]
pub(crate) struct Class<'a> {
    pub(crate) name: &'a str,
    pub(crate) def: &'a StmtClassDef,
    /// Full names, with those of the bases' bases that are in the file.
    pub(crate) bases: Vec<String>,
    pub(crate) methods: BTreeMap<&'a str, usize>,
}

impl Class<'_> {
    fn has_base(&self, is: impl Fn(&str) -> bool) -> bool {
        self.bases.iter().any(|it| is(it))
    }

    pub(crate) fn is_module(&self) -> bool {
        self.has_base(|base| {
            base.ends_with("nn.Module") || base == "Module" || base.starts_with("torch.nn.")
        }) || self.is_lightning()
            || self.methods.contains_key("forward") && !self.is_function()
    }

    pub(crate) fn is_lightning(&self) -> bool {
        self.has_base(|it| it.ends_with("LightningModule"))
    }

    /// Whether autograd calls it.
    pub(crate) fn is_function(&self) -> bool {
        self.has_base(|base| {
            base.ends_with("autograd.Function")
                || base.ends_with("autograd.function.Function")
                || base == "Function"
        })
    }

    pub(crate) fn is_dataset(&self) -> bool {
        self.has_base(|it| it.ends_with("Dataset"))
    }
}

/// A file.
#[derive(Debug, Default)]
pub(crate) struct File<'a> {
    pub(crate) text: &'a str,
    pub(crate) imports: BTreeMap<String, String>,
    /// The first is the file itself.
    pub(crate) functions: Vec<Function<'a>>,
    pub(crate) classes: Vec<Class<'a>>,
    /// By name: what is called on it, anywhere in the file.
    pub(crate) uses: BTreeMap<String, BTreeSet<&'a str>>,
    /// By function: names on which a backward pass is made.
    pub(crate) losses: BTreeSet<(usize, String)>,
    /// Whether it is a file of tests: what they do with a tiny model is no training, and no evaluation.
    pub(crate) is_of_tests: bool,
    /// What reading it has taken.
    pub(crate) steps: Steps,
    /// By the function's place.
    by_place: BTreeMap<TextRange2, usize>,
    /// By name: the first function that is no method, and the first class.
    functions_by_name: BTreeMap<&'a str, usize>,
    classes_by_name: BTreeMap<&'a str, usize>,
}

/// A class with as many has no others of its bases'.
const MOST_BASES: usize = 64;

/// A range that has an order.
type TextRange2 = (u32, u32);

fn key(range: TextRange) -> TextRange2 {
    (range.start().into(), range.end().into())
}

/// What is longer is no name that anybody writes.
pub(crate) const LONGEST_NAME: usize = 1000;
/// Nor is `a.b.c` of more pieces.
const MOST_PIECES: usize = 128;

/// `a.b`, `self.a[]`: how a name is written, if it is one.
pub(crate) fn dotted(expr: &Expr) -> Option<String> {
    let mut pieces = Vec::new();
    let mut at = expr;
    let first = loop {
        match at {
            Expr::Name(it) => break it.id.as_str(),
            Expr::Attribute(it) => {
                pieces.extend([it.attr.as_str(), "."]);
                at = &it.value;
            }
            Expr::Subscript(it) => {
                pieces.push("[]");
                at = &it.value;
            }
            _ => return None,
        }
        if MOST_PIECES < pieces.len() {
            return None;
        }
    };
    pieces.push(first);
    let len: usize = pieces.iter().map(|it| it.len()).sum();
    (len <= LONGEST_NAME).then(|| pieces.into_iter().rev().collect())
}

impl<'a> File<'a> {
    pub(crate) fn of(text: &'a str, body: &'a [Stmt]) -> File<'a> {
        let whole = body.first().zip(body.last()).map(|(a, b)| a.range().cover(b.range()));
        let whole = whole.unwrap_or_default();
        let mut res = File { text, ..File::default() };
        res.functions.push(Function {
            name: "",
            class: None,
            parent: None,
            at: whole,
            body,
            def: None,
        });
        Parts { file: &mut res, function: 0, class: None }.visit_body(body);
        res.is_of_tests = res.imports_tests() || 1 < res.tests();
        res.inherit();
        res
    }

    /// The function that is defined there.
    pub(crate) fn function_at(&self, def: &StmtFunctionDef) -> Option<usize> {
        self.by_place.get(&key(def.range)).copied()
    }

    pub(crate) fn class_named(&self, name: &str) -> Option<usize> {
        self.classes_by_name.get(name).copied()
    }

    /// The first function of this name that is no method.
    pub(crate) fn function_named(&self, name: &str) -> Option<usize> {
        self.functions_by_name.get(name).copied()
    }

    /// The class that the function is a method of.
    pub(crate) fn class_of(&self, function: usize) -> Option<&Class<'a>> {
        self.functions[function].class.map(|it| &self.classes[it])
    }

    /// The full name of what is imported, `torch.nn.functional.mse_loss`; none of what is not.
    pub(crate) fn import(&self, expr: &Expr) -> Option<String> {
        let name = dotted(expr)?;
        let (first, rest) = name.split_once('.').map_or((name.as_str(), ""), |it| it);
        let path = self.imports.get(first)?;
        Some(if rest.is_empty() { path.clone() } else { format!("{path}.{rest}") })
    }

    /// Whether something of this name is called on `name`.
    pub(crate) fn is_used(&self, name: &str, method: &str) -> bool {
        self.uses.get(name).is_some_and(|it| it.contains(method))
    }

    /// The text there, which takes a step for some of its bytes: whoever asks goes through it.
    pub(crate) fn text_at(&self, at: TextRange) -> &'a str {
        let text = self.text.get(at.start().to_usize()..at.end().to_usize()).unwrap_or_default();
        if self.steps.take_text(text.len()) { text } else { "" }
    }

    /// The text there, if it is short enough to be said, or written elsewhere.
    pub(crate) fn piece(&self, at: TextRange) -> Option<&'a str> {
        Some(self.text_at(at)).filter(|it| it.len() <= LONGEST_NAME)
    }

    /// The line that `at` stands in, until there.
    pub(crate) fn line_until(&self, at: usize) -> &'a str {
        let line = self.text[..at].rsplit('\n').next().unwrap_or_default();
        if self.steps.take_text(line.len()) { line } else { "" }
    }

    /// Whether the text there says any of these words.
    pub(crate) fn says(&self, at: TextRange, words: &[&str]) -> bool {
        words.iter().any(|it| self.text_at(at).contains(it))
    }

    /// Whether the text anywhere says any of these words.
    pub(crate) fn says_anywhere(&self, words: &[&str]) -> bool {
        words.iter().any(|it| self.steps.take_text(self.text.len()) && self.text.contains(it))
    }

    /// Whether it imports what tests are written with.
    fn imports_tests(&self) -> bool {
        let is_of_tests =
            |path: &String| matches!(path.split('.').next(), Some("unittest" | "pytest"));
        self.imports.values().any(is_of_tests)
    }

    /// How many of its own functions are named as tests; `test_step` of a class is none.
    fn tests(&self) -> usize {
        let is_test = |it: &&Function<'_>| {
            it.class.is_none() && it.parent == Some(0) && it.name.starts_with("test_")
        };
        self.functions.iter().filter(is_test).count()
    }

    /// Bases of bases.
    fn inherit(&mut self) {
        for _ in 0..3 {
            for n in 0..self.classes.len() {
                let bases = self.classes[n].bases.iter().filter_map(|it| self.class_named(it));
                let bases: Vec<usize> = bases.collect();
                for base in bases {
                    for k in 0..self.classes[base].bases.len() {
                        let own = &self.classes[n].bases;
                        if MOST_BASES <= own.len() || !self.steps.take(1) {
                            break;
                        }
                        let more = &self.classes[base].bases[k];
                        if !own.contains(more) {
                            let more = more.clone();
                            self.classes[n].bases.push(more);
                        }
                    }
                }
            }
        }
    }
}

struct Parts<'f, 'a> {
    file: &'f mut File<'a>,
    function: usize,
    class: Option<usize>,
}

impl<'a> Parts<'_, 'a> {
    fn used(&mut self, call: &'a ExprCall) {
        let Expr::Attribute(func) = &*call.func else { return };
        if let Some(name) = dotted(&func.value) {
            self.file.uses.entry(name).or_default().insert(func.attr.as_str());
        }
        if matches!(func.attr.as_str(), "backward" | "scale" | "manual_backward" | "scale_loss") {
            let mut names = Names(Vec::new());
            if func.attr.as_str() == "backward" && call.arguments.args.is_empty() {
                names.visit_expr(&func.value);
            }
            for it in &call.arguments.args {
                names.visit_expr(it);
            }
            for it in names.0 {
                self.file.losses.insert((self.function, it));
            }
        }
    }
}

impl<'a> Visitor<'a> for Parts<'_, 'a> {
    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        match stmt {
            Stmt::Import(it) => {
                for alias in &it.names {
                    let name = alias.name.as_str();
                    let (bound, path) = match &alias.asname {
                        Some(asname) => (asname.as_str(), name),
                        None => {
                            let first = name.split('.').next().unwrap_or(name);
                            (first, first)
                        }
                    };
                    self.file.imports.insert(bound.to_owned(), path.to_owned());
                }
            }
            Stmt::ImportFrom(it) => {
                let module = it.module.as_ref().map_or("", |it| it.as_str());
                for alias in &it.names {
                    let bound = alias.asname.as_ref().unwrap_or(&alias.name);
                    let dots = ".".repeat(usize::try_from(it.level).unwrap_or(0));
                    let path = format!("{dots}{module}.{}", alias.name);
                    self.file.imports.insert(bound.to_string(), path);
                }
            }
            Stmt::FunctionDef(it) => {
                let index = self.file.functions.len();
                self.file.functions.push(Function {
                    name: it.name.as_str(),
                    class: self.class,
                    parent: Some(self.function),
                    at: it.range,
                    body: &it.body,
                    def: Some(it),
                });
                self.file.by_place.insert(key(it.range), index);
                match self.class {
                    Some(class) => {
                        self.file.classes[class].methods.insert(it.name.as_str(), index);
                    }
                    None => {
                        self.file.functions_by_name.entry(it.name.as_str()).or_insert(index);
                    }
                }
                let (function, class) = (self.function, self.class);
                (self.function, self.class) = (index, None);
                // A function in a method knows `self`, too.
                visitor::walk_stmt(self, stmt);
                (self.function, self.class) = (function, class);
                return;
            }
            Stmt::ClassDef(it) => {
                let bases = it.arguments.iter().flat_map(|it| it.args.iter());
                let bases =
                    bases.filter_map(|it| self.file.import(it).or_else(|| dotted(it))).collect();
                let class = self.file.classes.len();
                self.file.classes.push(Class {
                    name: it.name.as_str(),
                    def: it,
                    bases,
                    methods: BTreeMap::new(),
                });
                self.file.classes_by_name.entry(it.name.as_str()).or_insert(class);
                let outer = self.class.replace(class);
                visitor::walk_stmt(self, stmt);
                self.class = outer;
                return;
            }
            _ => {}
        }
        visitor::walk_stmt(self, stmt);
    }

    fn visit_expr(&mut self, expr: &'a Expr) {
        if let Expr::Call(it) = expr {
            self.used(it);
        }
        visitor::walk_expr(self, expr);
    }
}

/// The names in an expression.
struct Names(Vec<String>);

impl<'a> Visitor<'a> for Names {
    fn visit_expr(&mut self, expr: &'a Expr) {
        if let Some(it) = dotted(expr) {
            self.0.push(it);
        } else {
            visitor::walk_expr(self, expr);
        }
    }
}

/// `x.data = y`, `x.grad = y`: the tensor goes in without the graph that made it.
pub(crate) fn takes_no_graph(name: &str) -> bool {
    let name = name.trim_end_matches("[]");
    name.ends_with(".data") || name.ends_with(".grad")
}

/// All names in an expression.
pub(crate) fn names_in(expr: &Expr) -> Vec<String> {
    let mut names = Names(Vec::new());
    names.visit_expr(expr);
    names.0
}
