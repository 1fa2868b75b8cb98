//! A plan as a file that people read, keep and edit (docs/fit.md).

use std::fmt::Write as _;

use plimsoll_remedies::{CATALOGUE, Kind, Offer, Parameter, Takes, Value, find};
use toml::{
    Spanned,
    de::{DeString, DeTable, DeValue},
};

use crate::{recording::FirstStep, spelling, units::Bytes};

use super::{
    remedy::Remedy,
    strange,
    together::{Plan, VERSION},
};

/// A plan that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Not TOML.
    #[error("it is not TOML: {0}")]
    NotToml(String),
    /// Another version.
    #[error(
        "its version is {0}, and this plimsoll reads {VERSION}; make it again with `plimsoll fit`"
    )]
    Version(String),
    /// Something is missing, unknown or not allowed.
    #[error("line {line}: {what}")]
    Wrong {
        /// The line, from 1.
        line: usize,
        /// What was found there, and what was expected.
        what: String,
    },
}

impl Plan {
    /// Reads a plan file.
    pub fn parse(text: &str) -> Result<Plan, PlanError> {
        let table =
            DeTable::parse(text).map_err(|it| PlanError::NotToml(it.message().to_owned()))?;
        let table = table.get_ref();
        match table.get("version").map(Spanned::get_ref) {
            Some(it) if integer(it) == u64::try_from(VERSION).ok() => (),
            other => {
                let found = other.and_then(integer).map(|it| it.to_string());
                return Err(PlanError::Version(found.unwrap_or_else(|| "missing".to_owned())));
            }
        }
        if let Some((line, what)) = strange::find(table, text) {
            return Err(PlanError::Wrong { line, what });
        }
        let mut res = Plan::default();
        let predicted = table.get("predicted_reserved_bytes");
        res.predicted_reserved = predicted.and_then(|it| integer(it.get_ref())).map(Bytes);
        let first = table.get("first_step").and_then(|it| it.get_ref().as_table());
        res.first_step = first.map(first_step);
        let Some(remedies) = table.get("remedy") else { return Ok(res) };
        let file = File(text);
        let all = remedies.get_ref().as_array().ok_or_else(|| file.wrong(remedies, EXPECTED))?;
        for it in all {
            let remedy = file.remedy(it)?;
            if res.remedies.iter().any(|before| before.id == remedy.id) {
                return Err(file.wrong(it, &format!("{} is there a second time", remedy.id)));
            }
            res.remedies.push(remedy);
        }
        Ok(res)
    }

    /// The file, with what a person should know of it in `head`, a line each.
    pub fn file(&self, head: &[String]) -> String {
        let mut res = String::new();
        for line in head {
            let _ = writeln!(res, "# {line}");
        }
        let _ = writeln!(res, "version = {VERSION}");
        if let Some(Bytes(n)) = self.predicted_reserved {
            let _ = writeln!(res, "predicted_reserved_bytes = {n}");
        }
        if let Some(it) = &self.first_step {
            let inputs: Vec<String> = it.inputs.iter().map(|it| quoted(it)).collect();
            let _ = writeln!(
                res,
                "\n# its first step, which `plimsoll run` compares with the real one\n[first_step]\n\
                 allocated_bytes = {}\nreserved_bytes = {}\ntorch = {}\ngpu = {}\ninputs = [{}]",
                it.allocated.0,
                it.reserved.0,
                quoted(&it.torch),
                quoted(&it.gpu),
                inputs.join(", "),
            );
        }
        for remedy in &self.remedies {
            let what = find(remedy.id).map_or("", |it| it.what);
            let _ = writeln!(res, "\n# {what}\n[[remedy]]\nid = {:?}", remedy.id);
            for parameter in &remedy.parameters {
                let name = parameter.takes().name;
                let _ = match parameter.value() {
                    Value::Number(n) => writeln!(res, "{name} = {n}"),
                    Value::Numbers(all) => writeln!(res, "{name} = {all:?}"),
                    Value::Text(text) => writeln!(res, "{name} = {}", quoted(&text)),
                };
            }
        }
        res
    }
}

/// What a `remedy` has to be.
const EXPECTED: &str = "expected remedies as [[remedy]] tables, each with an id";

/// The text of a file whose remedies are read.
struct File<'a>(&'a str);

impl File<'_> {
    fn remedy(&self, found: &Spanned<DeValue<'_>>) -> Result<Remedy, PlanError> {
        let table = found.get_ref().as_table().ok_or_else(|| self.wrong(found, EXPECTED))?;
        let id = table.get("id").ok_or_else(|| self.wrong(found, EXPECTED))?;
        let kind = self.kind(id)?;
        let mut res = Remedy::plain(kind.id);
        for (name, value) in table.iter().filter(|(name, _)| name.get_ref() != "id") {
            res = res.with(self.parameter(&kind, name, value)?);
        }
        let has = |name: &str| res.parameters.iter().any(|it| it.takes().name == name);
        if let Some(lacks) = kind.takes.iter().find(|it| it.is_needed && !has(it.name)) {
            let expected = lacks.values.expected();
            return Err(self.wrong(id, &format!("{} needs `{}`: {expected}", kind.id, lacks.name)));
        }
        Ok(res)
    }

    /// The remedy of this id, if it can be in a plan.
    fn kind(&self, id: &Spanned<DeValue<'_>>) -> Result<Kind, PlanError> {
        let word = id.get_ref().as_str().ok_or_else(|| self.wrong(id, EXPECTED))?;
        let kind = find(word).ok_or_else(|| {
            let meant = spelling::meant(word, CATALOGUE.iter().map(|it| it.id));
            self.wrong(id, &format!("there is no remedy {word:?}{meant}"))
        })?;
        if kind.offer == Offer::ByHand {
            let sentence = format!(
                "{word} is a change by hand and cannot be in a plan; see docs/remedies/{word}.md"
            );
            return Err(self.wrong(id, &sentence));
        }
        Ok(kind)
    }

    fn parameter(
        &self,
        of: &Kind,
        name: &Spanned<DeString<'_>>,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<Parameter, PlanError> {
        let word = name.get_ref().as_ref();
        let known: Vec<&Takes> = of.takes.iter().filter(|it| !it.is_of_search).collect();
        let Some(takes) = known.iter().find(|it| it.name == word) else {
            let names: Vec<&str> = known.iter().map(|it| it.name).collect();
            let meant = match (spelling::meant(word, &names), names.as_slice()) {
                (near, _) if !near.is_empty() => near,
                (_, []) => "; it has none".to_owned(),
                (_, all) => format!("; it has `{}`", all.join("`, `")),
            };
            return Err(self.wrong(name, &format!("{} has no parameter `{word}`{meant}", of.id)));
        };
        let read = read(value.get_ref()).and_then(|it| takes.read(it));
        read.ok_or_else(|| {
            let (id, expected) = (of.id, takes.values.expected());
            let found = self.0.get(value.span()).unwrap_or_default();
            self.wrong(name, &format!("`{word}` of {id} is {found}; expected {expected}"))
        })
    }

    fn wrong<T>(&self, at: &Spanned<T>, what: &str) -> PlanError {
        let before = self.0.get(..at.span().start).unwrap_or(self.0);
        PlanError::Wrong { line: 1 + before.matches('\n').count(), what: what.to_owned() }
    }
}

/// A text of TOML, which is written as one of JSON. TOML has one character less.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// What is missing or of another kind is not compared.
fn first_step(table: &DeTable<'_>) -> FirstStep {
    let value = |key: &str| table.get(key).map(Spanned::get_ref);
    let bytes = |key: &str| value(key).and_then(integer).map(Bytes).unwrap_or_default();
    let text =
        |key: &str| value(key).and_then(DeValue::as_str).map(str::to_owned).unwrap_or_default();
    let inputs = value("inputs").and_then(DeValue::as_array).into_iter().flatten();
    FirstStep {
        allocated: bytes("allocated_bytes"),
        reserved: bytes("reserved_bytes"),
        torch: text("torch"),
        gpu: text("gpu"),
        inputs: inputs.filter_map(|it| it.get_ref().as_str().map(str::to_owned)).collect(),
        ..FirstStep::default()
    }
}

/// Not less than zero, and no more than TOML has.
fn integer(value: &DeValue<'_>) -> Option<u64> {
    let it = value.as_integer()?;
    let n = i64::from_str_radix(it.as_str(), it.radix()).ok()?;
    u64::try_from(n).ok()
}

fn read(value: &DeValue<'_>) -> Option<Value> {
    match value {
        DeValue::Integer(_) => integer(value).map(Value::Number),
        DeValue::String(text) => Some(Value::Text(text.to_string())),
        DeValue::Array(all) => {
            all.iter().map(|it| integer(it.get_ref())).collect::<Option<_>>().map(Value::Numbers)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let plan = Plan {
            predicted_reserved: Some(Bytes(7)),
            first_step: Some(FirstStep {
                allocated: Bytes(5),
                reserved: Bytes(6),
                torch: "2.11.0+cu130".to_owned(),
                gpu: "NVIDIA \"X\"".to_owned(),
                inputs: vec!["args[0] 8x512 int64".to_owned(), "\x1b\x7f\u{202e}\n".to_owned()],
                ..FirstStep::default()
            }),
            remedies: vec![
                Remedy::plain("fused"),
                Remedy::plain("micro-batches").with(Parameter::Parts(4)),
                Remedy::plain("checkpoint").with(Parameter::Blocks(vec![0, 1, 5])),
                Remedy::plain("allocator")
                    .with(Parameter::Settings("expandable_segments:True".to_owned())),
            ],
        };
        let text = plan.file(&["for a card".to_owned()]);
        assert_eq!(Plan::parse(&text), Ok(plan.clone()));
        assert_eq!(plan.alloc_conf(), Some("expandable_segments:True"));
        assert_eq!(
            plan.shown(),
            "fused + micro-batches (4 parts) + checkpoint (3 blocks) + allocator (expandable_segments:True)"
        );
    }

    #[test]
    fn says_what_is_wrong_with_a_file() {
        let error = |it: &str| Plan::parse(it).unwrap_err().to_string();
        assert_eq!(
            error("[[remedy]]"),
            "its version is missing, and this plimsoll reads 1; make it again with `plimsoll fit`"
        );
        assert_eq!(
            error("version = 1\n[[remedy]]\nid = \"magic\""),
            "line 3: there is no remedy \"magic\""
        );
        assert_eq!(
            error("version = 1\n[[remedy]]\nid = \"autocats\""),
            "line 3: there is no remedy \"autocats\"; did you mean `autocast`?"
        );
        assert_eq!(
            error("version = 1\n[[remedy]]\nid = \"metrics-on-cpu\""),
            "line 3: metrics-on-cpu is a change by hand and cannot be in a plan; see docs/remedies/metrics-on-cpu.md"
        );
        assert_eq!(
            error("version = 1\n[[remedy]]\nid = \"fused\"\n[[remedy]]\nid = \"fused\""),
            "line 4: fused is there a second time"
        );
        assert!(error("version = ").starts_with("it is not TOML"));
        assert!(error("version = 1\nremedy = 3").starts_with("line 2: expected remedies"));
    }
    #[test]
    fn a_parameter_is_one_that_its_remedy_takes_with_a_value_that_is_allowed() {
        let error = |id: &str, line: &str| {
            let text = format!("version = 1\n\n[[remedy]]\nid = {id:?}\n{line}\n");
            Plan::parse(&text).unwrap_err().to_string()
        };
        assert_eq!(
            error("micro-batches", "prats = 4"),
            "line 5: micro-batches has no parameter `prats`; did you mean `parts`?"
        );
        assert_eq!(
            error("checkpoint", "pieces = 4"),
            "line 5: checkpoint has no parameter `pieces`; it has `blocks`, `segments`"
        );
        assert_eq!(
            error("autocast", "dtype = \"float16\""),
            "line 5: autocast has no parameter `dtype`; it has none"
        );
        for (id, line, expected) in [
            (
                "micro-batches",
                "parts = 0",
                "`parts` of micro-batches is 0; expected a number, 1 or more",
            ),
            (
                "micro-batches",
                "parts = \"4\"",
                "`parts` of micro-batches is \"4\"; expected a number, 1 or more",
            ),
            (
                "micro-batches",
                "parts = true",
                "`parts` of micro-batches is true; expected a number, 1 or more",
            ),
            (
                "checkpoint",
                "blocks = 3",
                "`blocks` of checkpoint is 3; expected a list of numbers, each 0 or more",
            ),
            (
                "checkpoint",
                "blocks = [0, -1]",
                "`blocks` of checkpoint is [0, -1]; expected a list of numbers, each 0 or more",
            ),
            ("zero1", "gpus = 1", "`gpus` of zero1 is 1; expected a number from 2 to 1024"),
            (
                "empty-cache",
                "after = \"lunch\"",
                "`after` of empty-cache is \"lunch\"; expected one of \"evaluation\", \"forward\", \"backward\", \"step\"",
            ),
            ("allocator", "settings = \"\"", "`settings` of allocator is \"\"; expected a text"),
        ] {
            assert_eq!(error(id, line), format!("line 5: {expected}"));
        }
        assert_eq!(error("fsdp2", ""), "line 4: fsdp2 needs `gpus`: a number from 2 to 1024");
        assert_eq!(error("allocator", ""), "line 4: allocator needs `settings`: a text");
        assert_eq!(
            error("checkpoint", "measure = 1"),
            "line 5: checkpoint has no parameter `measure`; it has `blocks`, `segments`",
            "a search asks for it"
        );
    }
}
