//! Who uses whom among the files of a crate, as the compiler would see it without the tests.
//!
//! - A *room* is a file. Modules that are written inside a file belong to it.
//! - A file uses another when its code names an item that is defined there, by whatever path: `crate::`, `super::`,
//!   `self::`, an import, or the first segments of a path in code or in a macro's arguments. So is a method that is
//!   called on `self`, on a typed argument, or on a field of either.
//! - `mod x;` uses nothing: a parent that only declares its children stands beside them.
//! - A re-export (`pub use`, `pub(crate) use`) is a signpost: whoever takes a name through it uses the file where
//!   the name is defined, and the file with the signpost uses nothing by it. If its own code names the item, too, it
//!   uses it like any other.
//! - So a `mod.rs` that defines what its children use, and calls its children, is in a circle with them.
//! - Code under `#[cfg(test)]` does not count.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

/// The text of each file of a crate.
pub(crate) type Files = BTreeMap<PathBuf, String>;

/// What one file takes from another: the names, by the two files.
pub(crate) type Arrows = BTreeMap<(PathBuf, PathBuf), BTreeSet<String>>;

/// The arrows between those of `files` that are of the crate whose root is `root`.
pub(crate) fn arrows(files: &Files, root: &Path) -> Arrows {
    let mut tree = Tree::default();
    tree.read_file(files, root, Vec::new());
    tree.note_methods();
    let mut res = Arrows::new();
    for (path, module) in &tree.modules {
        let own = None;
        let typed = Vec::new();
        let mut reader = Reader { tree: &tree, path, module, own, typed, res: &mut res };
        for item in &module.code {
            reader.visit_item(item);
        }
    }
    res
}

/// A module's path from the root of its crate.
type Name = Vec<String>;
/// A type: where it is defined, and its name.
type Type = (Name, String);

#[derive(Default)]
struct Tree {
    modules: BTreeMap<Name, Module>,
    /// The file in which a type gets a method or a constant of its own.
    methods: BTreeMap<(Type, String), PathBuf>,
}

#[derive(Default)]
struct Module {
    file: PathBuf,
    /// What is defined here, apart from modules.
    items: BTreeSet<String>,
    /// The types of the named fields of what is defined here.
    fields: BTreeMap<(String, String), syn::Type>,
    imports: BTreeMap<String, Import>,
    globs: Vec<Vec<String>>,
    code: Vec<syn::Item>,
}

struct Import {
    path: Vec<String>,
    is_signpost: bool,
}

/// Where a path leads.
enum Place {
    Module(Name),
    /// An item, by the module that defines it.
    Item(Type),
}

impl Tree {
    fn read_file(&mut self, files: &Files, file: &Path, name: Name) {
        let parsed =
            syn::parse_file(&files[file]).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let stem = file.file_stem().unwrap();
        let folder = file.parent().unwrap();
        let is_face = name.is_empty() || stem == "mod";
        let folder = if is_face { folder.to_owned() } else { folder.join(stem) };
        self.read_items(files, file, &folder, name, parsed.items);
    }

    fn read_items(
        &mut self,
        files: &Files,
        file: &Path,
        folder: &Path,
        name: Name,
        items: Vec<syn::Item>,
    ) {
        let mut module = Module { file: file.to_owned(), ..Module::default() };
        for item in items {
            if is_test(&item) {
                continue;
            }
            module.note(&item);
            match item {
                syn::Item::Mod(it) => {
                    let child = it.ident.to_string();
                    let mut child_name = name.clone();
                    child_name.push(child.clone());
                    match it.content {
                        Some((_, items)) => {
                            self.read_items(files, file, &folder.join(&child), child_name, items);
                        }
                        None => {
                            let beside = folder.join(format!("{child}.rs"));
                            let inside = folder.join(&child).join("mod.rs");
                            let is_beside = files.contains_key(&beside);
                            let at = written_path(&it.attrs).map(|it| folder.join(it));
                            let at = at.unwrap_or(if is_beside { beside } else { inside });
                            self.read_file(files, &at, child_name);
                        }
                    }
                }
                item => module.code.push(item),
            }
        }
        self.modules.insert(name, module);
    }

    /// Where `path` leads that is written in the module `from`.
    fn find(&self, from: &[String], path: &[String], steps_left: usize) -> Option<Place> {
        let steps_left = steps_left.checked_sub(1)?;
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" | "$crate" => self.walk(Vec::new(), rest, true, steps_left),
            "self" => self.walk(from.to_vec(), rest, true, steps_left),
            "super" => {
                let (_, parent) = from.split_last()?;
                let mut parent = parent.to_vec();
                let mut rest = rest;
                while let Some(("super", more)) =
                    rest.split_first().map(|(it, more)| (it.as_str(), more))
                {
                    parent.pop();
                    rest = more;
                }
                self.walk(parent, rest, true, steps_left)
            }
            _ => self.walk(from.to_vec(), path, false, steps_left),
        }
    }

    /// `made_by_macros`: a name that nobody is seen to define is one that a macro made in the module that is named.
    fn walk(
        &self,
        module: Name,
        path: &[String],
        made_by_macros: bool,
        steps_left: usize,
    ) -> Option<Place> {
        let Some((first, rest)) = path.split_first() else {
            return Some(Place::Module(module));
        };
        let here = self.modules.get(&module)?;
        let mut child = module.clone();
        child.push(first.clone());
        let is_module = self.modules.contains_key(&child);
        // A function may have the name of a module; what has a path behind it is the module.
        if here.items.contains(first) && (rest.is_empty() || !is_module) {
            return Some(Place::Item((module, first.clone())));
        }
        if is_module {
            return self.walk(child, rest, true, steps_left);
        }
        let led_on = |it: &[String]| {
            let whole: Vec<String> = it.iter().chain(rest).cloned().collect();
            self.find(&module, &whole, steps_left)
        };
        if let Some(import) = here.imports.get(first) {
            // `use x::y as x;` means another crate's `x`.
            return if import.path.first() == Some(first) { None } else { led_on(&import.path) };
        }
        for glob in &here.globs {
            if let Some(Place::Module(from)) = self.find(&module, glob, steps_left)
                && from != module
                && let Some(place) = self.walk(from, path, false, steps_left.checked_sub(1)?)
            {
                return Some(place);
            }
        }
        made_by_macros.then(|| Place::Item((module, first.clone())))
    }

    fn item(&self, from: &[String], path: &[String]) -> Option<Type> {
        match self.find(from, path, 20)? {
            Place::Item(it) => Some(it),
            Place::Module(_) => None,
        }
    }

    /// The type that `it` names, behind references and boxes.
    fn type_of(&self, from: &[String], it: &syn::Type) -> Option<Type> {
        match it {
            syn::Type::Reference(it) => self.type_of(from, &it.elem),
            syn::Type::Path(it) => {
                let last = it.path.segments.last()?;
                if ["Box", "Rc", "Arc"].contains(&last.ident.to_string().as_str())
                    && let syn::PathArguments::AngleBracketed(inner) = &last.arguments
                    && let Some(syn::GenericArgument::Type(inner)) = inner.args.first()
                {
                    return self.type_of(from, inner);
                }
                self.item(from, &segments(&it.path))
            }
            _ => None,
        }
    }

    fn note_methods(&mut self) {
        let mut methods = BTreeMap::new();
        for (name, module) in &self.modules {
            for item in &module.code {
                if let syn::Item::Impl(it) = item
                    && it.trait_.is_none()
                    && let Some(owner) = self.type_of(name, &it.self_ty)
                {
                    for method in it.items.iter().filter_map(member_name) {
                        methods.insert((owner.clone(), method.to_string()), module.file.clone());
                    }
                }
            }
        }
        self.methods = methods;
    }
}

impl Module {
    fn note(&mut self, item: &syn::Item) {
        let defined = match item {
            syn::Item::Const(it) => Some(&it.ident),
            syn::Item::Enum(it) => Some(&it.ident),
            syn::Item::Fn(it) => Some(&it.sig.ident),
            syn::Item::Macro(it) => it.ident.as_ref(),
            syn::Item::Static(it) => Some(&it.ident),
            syn::Item::Trait(it) => Some(&it.ident),
            syn::Item::Type(it) => Some(&it.ident),
            syn::Item::Union(it) => Some(&it.ident),
            syn::Item::Struct(it) => {
                for field in &it.fields {
                    if let Some(name) = &field.ident {
                        let key = (it.ident.to_string(), name.to_string());
                        self.fields.insert(key, field.ty.clone());
                    }
                }
                Some(&it.ident)
            }
            syn::Item::Use(it) => {
                let is_signpost = !matches!(it.vis, syn::Visibility::Inherited);
                self.note_use(&mut Vec::new(), &it.tree, is_signpost);
                None
            }
            _ => None,
        };
        self.items.extend(defined.map(ToString::to_string));
    }

    fn note_use(&mut self, before: &mut Vec<String>, tree: &syn::UseTree, is_signpost: bool) {
        let mut add = |before: &[String], name: &syn::Ident, known_as: &syn::Ident| {
            let mut path = before.to_vec();
            let mut known_as = known_as.to_string();
            if name != "self" {
                path.push(name.to_string());
            } else if known_as == "self" {
                known_as = path.last().unwrap().clone();
            }
            self.imports.insert(known_as, Import { path, is_signpost });
        };
        match tree {
            syn::UseTree::Name(it) => add(before, &it.ident, &it.ident),
            syn::UseTree::Rename(it) => add(before, &it.ident, &it.rename),
            syn::UseTree::Glob(_) => self.globs.push(before.clone()),
            syn::UseTree::Path(it) => {
                before.push(it.ident.to_string());
                self.note_use(before, &it.tree, is_signpost);
                before.pop();
            }
            syn::UseTree::Group(it) => {
                for tree in &it.items {
                    self.note_use(before, tree, is_signpost);
                }
            }
        }
    }
}

/// Reads the code of one module.
struct Reader<'a> {
    tree: &'a Tree,
    path: &'a [String],
    module: &'a Module,
    /// The type whose `impl` is being read.
    own: Option<Type>,
    /// The arguments whose types are known, innermost function last.
    typed: Vec<BTreeMap<String, Type>>,
    res: &'a mut Arrows,
}

impl<'a> Reader<'a> {
    fn uses(&mut self, file: &'a Path, name: &str) {
        if file != self.module.file {
            let key = (self.module.file.clone(), file.to_owned());
            self.res.entry(key).or_default().insert(name.to_owned());
        }
    }

    fn uses_path(&mut self, path: &[String]) {
        if let Some((module, name)) = self.tree.item(self.path, path) {
            self.uses(&self.tree.modules[&module].file, &name);
        }
    }

    fn uses_method(&mut self, owner: &Type, name: &str) {
        if let Some(file) = self.tree.methods.get(&(owner.clone(), name.to_owned())) {
            self.uses(file, name);
        }
    }

    /// The type of `self`, of a typed argument, or of a field of either.
    fn type_of(&self, it: &syn::Expr) -> Option<Type> {
        match it {
            syn::Expr::Path(it) => {
                let name = it.path.get_ident()?.to_string();
                if name == "self" {
                    return self.own.clone();
                }
                self.typed.iter().rev().find_map(|it| it.get(&name)).cloned()
            }
            syn::Expr::Field(it) => {
                let (module, owner) = self.type_of(&it.base)?;
                let syn::Member::Named(field) = &it.member else { return None };
                let typed = self.tree.modules[&module].fields.get(&(owner, field.to_string()))?;
                self.tree.type_of(&module, typed)
            }
            syn::Expr::Reference(it) => self.type_of(&it.expr),
            syn::Expr::Paren(it) => self.type_of(&it.expr),
            _ => None,
        }
    }

    fn in_function(&mut self, signature: &syn::Signature, read: impl FnOnce(&mut Self)) {
        let mut typed = BTreeMap::new();
        for it in &signature.inputs {
            if let syn::FnArg::Typed(it) = it
                && let syn::Pat::Ident(name) = &*it.pat
                && let Some(its) = self.tree.type_of(self.path, &it.ty)
            {
                typed.insert(name.ident.to_string(), its);
            }
        }
        self.typed.push(typed);
        read(self);
        self.typed.pop();
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item_use(&mut self, it: &'ast syn::ItemUse) {
        let mut told = Module::default();
        told.note(&syn::Item::Use(it.clone()));
        for import in told.imports.values().filter(|it| !it.is_signpost) {
            self.uses_path(&import.path);
        }
    }

    fn visit_path(&mut self, it: &'ast syn::Path) {
        let path = segments(it);
        if let [first, second, ..] = path.as_slice()
            && first == "Self"
            && let Some(own) = self.own.clone()
        {
            self.uses_method(&own, second);
        }
        self.uses_path(&path);
        if let [.., _, last] = path.as_slice()
            && let Some(owner) = self.tree.item(self.path, &path[..path.len() - 1])
        {
            self.uses_method(&owner, last);
        }
        visit::visit_path(self, it);
    }

    fn visit_expr_method_call(&mut self, it: &'ast syn::ExprMethodCall) {
        if let Some(owner) = self.type_of(&it.receiver) {
            self.uses_method(&owner, &it.method.to_string());
        }
        visit::visit_expr_method_call(self, it);
    }

    fn visit_macro(&mut self, it: &'ast syn::Macro) {
        self.visit_path(&it.path);
        for path in paths_in(it.tokens.clone()) {
            self.uses_path(&path);
        }
    }

    fn visit_item_impl(&mut self, it: &'ast syn::ItemImpl) {
        self.own = self.tree.type_of(self.path, &it.self_ty);
        visit::visit_item_impl(self, it);
        self.own = None;
    }

    fn visit_item_fn(&mut self, it: &'ast syn::ItemFn) {
        self.in_function(&it.sig, |this| visit::visit_item_fn(this, it));
    }

    fn visit_impl_item_fn(&mut self, it: &'ast syn::ImplItemFn) {
        if !is_cfg_test(&it.attrs) {
            self.in_function(&it.sig, |this| visit::visit_impl_item_fn(this, it));
        }
    }
}

fn segments(path: &syn::Path) -> Vec<String> {
    path.segments.iter().map(|it| it.ident.to_string()).collect()
}

fn member_name(it: &syn::ImplItem) -> Option<&syn::Ident> {
    match it {
        syn::ImplItem::Fn(it) => Some(&it.sig.ident),
        syn::ImplItem::Const(it) => Some(&it.ident),
        _ => None,
    }
}

/// `a::b::c` wherever it stands in a macro's arguments, which have no other form that all macros share.
fn paths_in(tokens: TokenStream) -> Vec<Vec<String>> {
    let mut res: Vec<Vec<String>> = Vec::new();
    // How many colons came since the last name; a name after two of them goes on with its path.
    let mut colons = None;
    for token in tokens {
        match token {
            TokenTree::Ident(it) => {
                match res.last_mut().filter(|_| colons == Some(2)) {
                    Some(path) => path.push(it.to_string()),
                    None => res.push(vec![it.to_string()]),
                }
                colons = Some(0);
            }
            TokenTree::Punct(it) if it.as_char() == ':' => colons = colons.map(|it| it + 1),
            TokenTree::Group(it) => {
                res.extend(paths_in(it.stream()));
                colons = None;
            }
            _ => colons = None,
        }
    }
    res
}

fn is_test(item: &syn::Item) -> bool {
    let attrs = match item {
        syn::Item::Const(it) => &it.attrs,
        syn::Item::Enum(it) => &it.attrs,
        syn::Item::Fn(it) => &it.attrs,
        syn::Item::Impl(it) => &it.attrs,
        syn::Item::Macro(it) => &it.attrs,
        syn::Item::Mod(it) => &it.attrs,
        syn::Item::Static(it) => &it.attrs,
        syn::Item::Struct(it) => &it.attrs,
        syn::Item::Trait(it) => &it.attrs,
        syn::Item::Use(it) => &it.attrs,
        _ => return false,
    };
    is_cfg_test(attrs)
}

fn is_cfg_test(attrs: &[syn::Attribute]) -> bool {
    attrs.iter().any(|it| {
        let syn::Meta::List(list) = &it.meta else { return false };
        let first = list.tokens.clone().into_iter().next();
        let is_test = matches!(first, Some(TokenTree::Ident(it)) if it == "test");
        it.path().is_ident("cfg") && is_test
    })
}

/// The file of `#[path = "..."]`.
fn written_path(attrs: &[syn::Attribute]) -> Option<String> {
    attrs.iter().find(|it| it.path().is_ident("path")).and_then(|it| {
        let syn::Meta::NameValue(it) = &it.meta else { return None };
        let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(it), .. }) = &it.value else {
            return None;
        };
        Some(it.value())
    })
}

#[test]
fn a_name_is_followed_to_the_file_that_defines_it() {
    let files = [
        ("src/lib.rs", "mod face; mod user; pub fn start() { crate::user::go(); }"),
        (
            "src/face/mod.rs",
            "mod inner; pub use inner::{Thing, made as make}; pub const SIZE: u32 = 1;",
        ),
        ("src/face/inner.rs", "pub struct Thing; pub fn made() -> u32 { super::SIZE }"),
        (
            "src/user.rs",
            "use crate::face::{self, Thing};
             pub fn go() { println!(\"{}\", face::make()); }
             #[cfg(test)] mod tests { use crate::start; }",
        ),
    ];
    expect(
        &files,
        "src/face/inner.rs -> src/face/mod.rs: SIZE
         src/lib.rs -> src/user.rs: go
         src/user.rs -> src/face/inner.rs: Thing, made",
    );
}

#[test]
fn a_method_is_used_where_it_is_written() {
    let files = [
        ("src/lib.rs", "mod search; mod rest; mod caller;"),
        (
            "src/search.rs",
            "pub struct Search { pub n: u32 } impl Search { fn run(&self) { self.rest(); } }",
        ),
        ("src/rest.rs", "use crate::search::Search; impl Search { pub fn rest(&self) {} }"),
        (
            "src/caller.rs",
            "use crate::search::Search;
             struct Caller { search: Search }
             impl Caller { fn call(&self) { self.search.rest(); } }
             fn other(it: &Search) { it.rest() }",
        ),
    ];
    expect(
        &files,
        "src/caller.rs -> src/rest.rs: rest
         src/caller.rs -> src/search.rs: Search
         src/rest.rs -> src/search.rs: Search
         src/search.rs -> src/rest.rs: rest",
    );
}

fn expect(files: &[(&str, &str)], expected: &str) {
    let files =
        files.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned())).collect();
    let told = arrows(&files, Path::new("src/lib.rs")).into_iter().map(|((from, to), names)| {
        let names: Vec<String> = names.into_iter().collect();
        format!("{} -> {}: {}", from.display(), to.display(), names.join(", "))
    });
    let expected: Vec<&str> = expected.lines().map(str::trim).collect();
    assert_eq!(told.collect::<Vec<_>>(), expected);
}
