//! A plan as a file that people read, keep and edit (docs/fit.md).

use std::fmt::Write as _;

use crate::{recording::FirstStep, spelling, units::Bytes};

use super::{CATALOGUE, Offer, Plan, Remedy, VERSION, Value, find};

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
    /// Something is missing or of another kind.
    #[error("{0}")]
    Wrong(String),
}

impl Plan {
    /// Reads a plan file.
    pub fn parse(text: &str) -> Result<Plan, PlanError> {
        let table: toml::Table = text
            .parse()
            .map_err(|it: toml::de::Error| PlanError::NotToml(it.message().to_owned()))?;
        match table.get("version") {
            Some(toml::Value::Integer(VERSION)) => (),
            other => {
                let found = other.and_then(toml::Value::as_integer).map(|it| it.to_string());
                return Err(PlanError::Version(found.unwrap_or_else(|| "missing".to_owned())));
            }
        }
        let mut res = Plan::default();
        let predicted = table.get("predicted_reserved_bytes").and_then(toml::Value::as_integer);
        res.predicted_reserved = predicted.and_then(|it| u64::try_from(it).ok()).map(Bytes);
        res.first_step = table.get("first_step").and_then(toml::Value::as_table).map(first_step);
        let Some(remedies) = table.get("remedy") else { return Ok(res) };
        let wrong = |what: &str| PlanError::Wrong(what.to_owned());
        let expected = "expected remedies as [[remedy]] tables, each with an id";
        for it in remedies.as_array().ok_or_else(|| wrong(expected))? {
            let it = it.as_table().ok_or_else(|| wrong(expected))?;
            let id = it.get("id").and_then(toml::Value::as_str).ok_or_else(|| wrong(expected))?;
            let kind = find(id).ok_or_else(|| {
                let meant = spelling::meant(id, CATALOGUE.iter().map(|it| it.id));
                wrong(&format!("there is no remedy {id:?}{meant}"))
            })?;
            if kind.offer == Offer::ByHand {
                let sentence = format!(
                    "{id} is done by hand and cannot be in a plan; see docs/remedies/{id}.md"
                );
                return Err(PlanError::Wrong(sentence));
            }
            let mut remedy = Remedy::plain(kind.id);
            for (name, value) in it.iter().filter(|(name, _)| *name != "id") {
                let value = read(value).ok_or_else(|| {
                    wrong(&format!(
                        "the {name} of {id} is not a number, a list of numbers or a text"
                    ))
                })?;
                if name == "parts" && value == Value::Number(0) {
                    return Err(wrong(&format!("the parts of {id} are 0; expected at least 1")));
                }
                remedy = remedy.with(name, value);
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
            for (name, value) in &remedy.parameters {
                let _ = match value {
                    Value::Number(n) => writeln!(res, "{name} = {n}"),
                    Value::Numbers(all) => writeln!(res, "{name} = {all:?}"),
                    Value::Text(text) => writeln!(res, "{name} = {}", quoted(text)),
                };
            }
        }
        res
    }
}

/// A text of TOML, which is written as one of JSON. TOML has one character less.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// What is missing or of another kind is not compared.
fn first_step(table: &toml::Table) -> FirstStep {
    let bytes = |key: &str| {
        let number = table.get(key).and_then(toml::Value::as_integer);
        number.and_then(|it| u64::try_from(it).ok()).map(Bytes).unwrap_or_default()
    };
    let text = |key: &str| {
        table.get(key).and_then(toml::Value::as_str).map(str::to_owned).unwrap_or_default()
    };
    let inputs = table.get("inputs").and_then(toml::Value::as_array).into_iter().flatten();
    FirstStep {
        allocated: bytes("allocated_bytes"),
        reserved: bytes("reserved_bytes"),
        torch: text("torch"),
        gpu: text("gpu"),
        inputs: inputs.filter_map(|it| it.as_str().map(str::to_owned)).collect(),
        ..FirstStep::default()
    }
}

fn read(value: &toml::Value) -> Option<Value> {
    let number = |it: &toml::Value| u64::try_from(it.as_integer()?).ok();
    match value {
        toml::Value::Integer(_) => number(value).map(Value::Number),
        toml::Value::String(text) => Some(Value::Text(text.clone())),
        toml::Value::Array(all) => {
            all.iter().map(number).collect::<Option<_>>().map(Value::Numbers)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_done_in_no_parts() {
        let text = "version = 1\n[[remedy]]\nid = \"micro-batches\"\nparts = 0\n";
        let text = text.replace("version = 1", &format!("version = {VERSION}"));
        let error = Plan::parse(&text).unwrap_err().to_string();
        assert_eq!(error, "the parts of micro-batches are 0; expected at least 1");
    }

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
                Remedy::plain("micro-batches").with("parts", Value::Number(4)),
                Remedy::plain("checkpoint").with("blocks", Value::Numbers(vec![0, 1, 5])),
                Remedy::plain("allocator")
                    .with("settings", Value::Text("expandable_segments:True".to_owned())),
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
            "there is no remedy \"magic\""
        );
        assert_eq!(
            error("version = 1\n[[remedy]]\nid = \"autocats\""),
            "there is no remedy \"autocats\"; did you mean `autocast`?"
        );
        assert_eq!(
            error("version = 1\n[[remedy]]\nid = \"metrics-on-cpu\""),
            "metrics-on-cpu is done by hand and cannot be in a plan; see docs/remedies/metrics-on-cpu.md"
        );
        assert!(error("version = ").starts_with("it is not TOML"));
        assert!(error("version = 1\nremedy = 3").starts_with("expected remedies"));
    }
}
