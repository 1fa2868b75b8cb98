//! Where things are in a program's files, as the agent saw and looked them up.

use std::collections::BTreeMap;

use serde_json::Value;

/// First line and byte, last line and the byte after it; lines from 1, bytes from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) first: (u32, u32),
    pub(crate) end: (u32, u32),
}

/// A call in a file.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) span: Span,
    /// `loss` of `loss.backward()`.
    pub(crate) owner: Option<Span>,
    pub(crate) arguments: Vec<Span>,
    /// Their values, by name.
    pub(crate) keywords: BTreeMap<String, Span>,
    /// Where another keyword can be added: after the last argument.
    pub(crate) end: Option<(u32, u32)>,
    /// Neither `*args` nor `**kwargs`.
    pub(crate) plain: bool,
}

/// A place.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) what: String,
    pub(crate) file: String,
    pub(crate) statement: Span,
    /// The line of the function that it is in; 0 for the module.
    pub(crate) function: u64,
    pub(crate) name: Option<String>,
    pub(crate) call: Option<Call>,
    /// How the script calls the model whose parameters the optimizer has.
    pub(crate) model: Option<String>,
    /// The names of that model's blocks, if it is the one that is called.
    pub(crate) blocks: Vec<String>,
    /// It has a cache of transformers that would be filled again.
    pub(crate) cache: bool,
    /// The lines from the call of the model to what comes before backward.
    pub(crate) forward: Option<(u32, u32)>,
}

/// Every place that was found in one program.
#[derive(Clone, Debug, Default)]
pub struct Sites {
    all: Vec<Site>,
    /// After which line `torch` is a name in a file.
    torch: BTreeMap<String, u32>,
}

/// What a remedy looks at to say its edits.
pub(crate) struct Place<'a> {
    pub(crate) sites: &'a Sites,
    pub(crate) sources: &'a Sources,
}

impl Sites {
    /// From the agent's line; none if it is not one.
    pub fn read(line: &Value) -> Option<Sites> {
        let all = line["sites"].as_array()?.iter().filter_map(site).collect();
        let files = line["files"].as_object()?;
        let torch =
            files.iter().filter_map(|(file, it)| Some((file.clone(), number(&it["torch"])?)));
        Some(Sites { all, torch: torch.collect() })
    }

    /// The files that hold a place.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.all.iter().map(|it| it.file.as_str())
    }

    /// Whether there is a place of this kind: `distributed`, `evaluation`.
    pub fn has(&self, what: &str) -> bool {
        self.all(what).next().is_some()
    }

    /// Every place of this kind.
    pub(crate) fn all(&self, what: &str) -> impl Iterator<Item = &Site> {
        self.all.iter().filter(move |it| it.what == what)
    }

    /// The place of this kind, if there is one only.
    pub(crate) fn only(&self, what: &str) -> Option<&Site> {
        let mut all = self.all(what);
        all.next().filter(|_| all.next().is_none())
    }

    /// The line after which `torch` is a name in this file.
    pub(crate) fn torch(&self, file: &str) -> Option<u32> {
        self.torch.get(file).copied()
    }
}

impl Place<'_> {
    /// The source of a span within one line.
    pub(crate) fn text(&self, file: &str, span: Span) -> Option<&str> {
        let index = |it: u32| usize::try_from(it).ok();
        if span.first.0 != span.end.0 {
            return None;
        }
        let line = self.sources.get(file)?.lines().nth(index(span.first.0)?.checked_sub(1)?)?;
        line.get(index(span.first.1)?..index(span.end.1)?)
    }
}

fn site(it: &Value) -> Option<Site> {
    let text = |key: &str| it[key].as_str().map(str::to_owned);
    let names = it["blocks"].as_array().into_iter().flatten();
    let forward =
        it["from"].as_array().and_then(|it| Some((number(it.first()?)?, number(it.get(1)?)?)));
    Some(Site {
        what: text("what")?,
        file: text("file")?,
        statement: span(&it["statement"])?,
        function: it["function"].as_u64()?,
        name: text("name"),
        call: call(&it["call"]),
        model: text("model"),
        blocks: names.filter_map(|it| it.as_str().map(str::to_owned)).collect(),
        cache: it["cache"] == true,
        forward,
    })
}

fn call(it: &Value) -> Option<Call> {
    let keywords = it["keywords"].as_object()?.iter();
    let end = it["end"].as_array();
    Some(Call {
        span: span(&it["span"])?,
        owner: span(&it["owner"]),
        arguments: it["arguments"].as_array()?.iter().filter_map(span).collect(),
        keywords: keywords.filter_map(|(name, it)| Some((name.clone(), span(it)?))).collect(),
        end: end.and_then(|it| Some((number(it.first()?)?, number(it.get(1)?)?))),
        plain: it["plain"] == true,
    })
}

fn span(it: &Value) -> Option<Span> {
    let at = |i: usize| number(it.get(i)?);
    Some(Span { first: (at(0)?, at(1)?), end: (at(2)?, at(3)?) })
}

fn number(it: &Value) -> Option<u32> {
    u32::try_from(it.as_u64()?).ok()
}

/// The source of each file, by its path.
pub type Sources = BTreeMap<String, String>;
