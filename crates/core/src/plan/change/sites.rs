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
    /// The method by which that model has its blocks run again in backward.
    pub(crate) switch: Option<String>,
    /// The lines from the call of the model to what comes before backward.
    pub(crate) forward: Option<(u32, u32)>,
}

/// The switches of a framework, as a program has them.
#[derive(Clone, Debug)]
pub(crate) struct Switches {
    /// `transformers`, `lightning`, `accelerate`, `loader`, `generate`.
    pub(crate) framework: String,
    /// What is called to set them.
    pub(crate) name: String,
    /// What they came to.
    pub(crate) values: BTreeMap<String, Value>,
    /// What tells all its other settings from others.
    rest: String,
    /// The call, where a line of the script has it.
    pub(crate) site: Option<Site>,
    /// They are read from the command line.
    pub(crate) from_words: bool,
}

/// Every place that was found in one program.
#[derive(Clone, Debug, Default)]
pub struct Sites {
    all: Vec<Site>,
    pub(crate) switches: Vec<Switches>,
    /// After which line `torch` is a name in a file.
    torch: BTreeMap<String, u32>,
}

/// Where things are in a program's files, and what these hold.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// Where.
    pub sites: Sites,
    /// The files.
    pub sources: Sources,
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
        let switches = line["switches"].as_array().into_iter().flatten().filter_map(switches);
        Some(Sites { all, switches: switches.collect(), torch: torch.collect() })
    }

    /// The files that hold a place.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        let more = self.switches.iter().filter_map(|it| it.site.as_ref());
        self.all.iter().chain(more).map(|it| it.file.as_str())
    }

    /// The switches of this framework, if they are set once only.
    pub(crate) fn of(&self, framework: &str) -> Option<&Switches> {
        let mut all = self.switches.iter().filter(|it| it.framework == framework);
        all.next().filter(|_| all.next().is_none())
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
    /// What a line begins with.
    pub(crate) fn indent(&self, file: &str, line: u32) -> Option<&str> {
        let index = usize::try_from(line).ok()?.checked_sub(1)?;
        let line = self.sources.get(file)?.lines().nth(index)?;
        line.get(..line.len() - line.trim_start().len())
    }

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
        switch: text("switch"),
        forward,
    })
}

fn switches(it: &Value) -> Option<Switches> {
    let text = |key: &str| it[key].as_str().map(str::to_owned);
    let values = it["values"].as_object()?.iter();
    Some(Switches {
        framework: text("what")?,
        name: text("name")?,
        values: values.map(|(name, it)| (name.clone(), it.clone())).collect(),
        rest: text("rest")?,
        site: site(&it["site"]),
        from_words: it["from_words"] == true,
    })
}

impl Switches {
    /// The number that a switch has.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.values.get(name)?.as_u64()
    }

    /// Whether it is on.
    pub(crate) fn is_on(&self, name: &str) -> bool {
        self.values.get(name).is_some_and(|it| it == true)
    }

    /// Whether these differ from `before` as `changed` says, and in nothing else.
    pub(crate) fn is(&self, before: &Switches, changed: &[(String, Value)]) -> bool {
        let mut wanted = before.values.clone();
        wanted.extend(changed.iter().cloned());
        self.values == wanted && self.rest == before.rest
    }
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
