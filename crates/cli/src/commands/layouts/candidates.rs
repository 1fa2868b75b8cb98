//! Which layouts there are: the names in the command, the values of each, and what does not multiply to the number of GPUs.

use std::{collections::BTreeMap, ffi::OsString};

use anyhow::{Context as _, bail, ensure};

use crate::options::{constraint::Constraint, factor_values::FactorValues};

/// Names whose values split the GPUs between them.
const SPLITS: [&str; 8] = ["tp", "pp", "cp", "sp", "dp", "fsdp", "dp_shard", "dp_replicate"];
/// Of these, those that take what the others leave: with one of them in the command, all splits multiply to the number of GPUs.
const REST: [&str; 4] = ["dp", "fsdp", "dp_shard", "dp_replicate"];
/// Names of what is spread over ranks that other splits made.
const SPREADS: [&str; 2] = ["ep", "etp"];
/// Names of batch sizes of a rank, and their values.
const BATCHES: [&str; 5] = ["mbs", "bs", "batch", "batch_size", "micro_batch_size"];
const BATCH_SIZES: [&str; 4] = ["1", "2", "4", "8"];
/// The GPUs of a machine, as clusters are built.
pub(super) const OF_A_MACHINE: u32 = 8;

/// A layout: the value of each name, in the order of the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) values: Vec<(String, String)>,
}

impl Layout {
    /// As in `tp=2 pp=4`.
    pub(super) fn name(&self) -> String {
        let all: Vec<String> =
            self.values.iter().map(|(name, it)| format!("{name}={it}")).collect();
        all.join(" ")
    }

    /// Its value of `name`, 1 where the command has none.
    fn number(&self, name: &str) -> u64 {
        let found = self.values.iter().find(|it| it.0 == name);
        found.and_then(|it| it.1.parse().ok()).unwrap_or(1)
    }

    /// Roughly how much it communicates and computes again: less comes first. Splits within layers talk most, and most beyond a
    /// machine; then rings of a context, stages, and activations that are computed again.
    pub(super) fn effort(&self) -> (bool, u64, u64, u64, u64) {
        let product = |names: &[&str]| {
            names.iter().fold(1_u64, |so_far, it| so_far.saturating_mul(self.number(it)))
        };
        let within = product(&["tp", "sp", "ep"]);
        let computes_again = ["ac", "recompute", "checkpoint", "activation_checkpointing"];
        let is_off = |it: &str| matches!(it, "none" | "off" | "0" | "false" | "no");
        let again = self
            .values
            .iter()
            .filter(|it| computes_again.contains(&it.0.as_str()) && !is_off(&it.1));
        (
            u64::from(OF_A_MACHINE) < within,
            within.saturating_mul(self.number("cp")),
            self.number("pp"),
            again.count() as u64,
            u64::MAX - product(&BATCHES),
        )
    }
}

/// The names in `{}` in a command, in their order, each once.
pub(super) fn names(command: &[OsString]) -> Vec<String> {
    let mut res: Vec<String> = Vec::new();
    for word in command.iter().filter_map(|it| it.to_str()) {
        for part in word.split('{').skip(1) {
            let Some((name, _)) = part.split_once('}') else { continue };
            let is_name =
                !name.is_empty() && name.chars().all(|it| it.is_ascii_alphanumeric() || it == '_');
            if is_name && !res.iter().any(|it| it == name) {
                res.push(name.to_owned());
            }
        }
    }
    res
}

/// What does not differ between layouts.
fn constants(gpus: u32) -> BTreeMap<&'static str, String> {
    let machines = gpus.div_ceil(OF_A_MACHINE);
    let of_each = gpus.min(OF_A_MACHINE);
    BTreeMap::from([
        ("gpus", gpus.to_string()),
        ("nodes", machines.to_string()),
        ("gpus_per_node", of_each.to_string()),
    ])
}

/// The layouts of `gpus` that `command` can say and that satisfy everything.
pub(super) fn all(
    command: &[OsString],
    gpus: u32,
    given: &[FactorValues],
    constraints: &[Constraint],
) -> anyhow::Result<Vec<Layout>> {
    let constants = constants(gpus);
    let names: Vec<String> =
        names(command).into_iter().filter(|it| !constants.contains_key(it.as_str())).collect();
    ensure!(
        !names.is_empty(),
        "the command names nothing that differs between layouts; write names in braces, for example --tp {{tp}} --pp {{pp}} --mbs {{mbs}}"
    );
    if let Some(it) = given.iter().find(|it| !names.contains(&it.name)) {
        bail!("--values {it}: the command has no {{{}}}", it.name);
    }
    if let Some(it) =
        (1..given.len()).find(|&at| given[..at].iter().any(|it| it.name == given[at].name))
    {
        bail!("--values gives {} twice; give all its values at once", given[it].name);
    }
    let mut res = vec![Layout { values: Vec::new() }];
    for name in &names {
        let values = values_of(name, gpus, given)?;
        let more = |it: &Layout| {
            let before = it.values.clone();
            let with = |value: &String| {
                let own = (name.clone(), value.clone());
                Layout { values: before.iter().cloned().chain([own]).collect() }
            };
            values.iter().map(with).collect::<Vec<_>>()
        };
        res = res.iter().flat_map(more).filter(|it| splits(it, u64::from(gpus)).0).collect();
    }
    let has_rest = names.iter().any(|it| REST.contains(&it.as_str()));
    res.retain(|it| !has_rest || splits(it, u64::from(gpus)).1);
    let mut kept = Vec::new();
    for layout in res {
        let value_of = |name: &str| {
            let own = layout.values.iter().find(|it| it.0 == name).map(|it| it.1.clone());
            own.or_else(|| constants.get(name).cloned())
        };
        let mut holds = true;
        for it in constraints {
            holds &= it
                .holds(value_of)
                .map_err(anyhow::Error::msg)
                .with_context(|| format!("--where '{it}'"))?;
        }
        if holds {
            kept.push(layout);
        }
    }
    ensure!(!kept.is_empty(), "no layout of {gpus} GPUs satisfies every --where");
    Ok(kept)
}

/// Whether the splits of a layout divide the GPUs, and whether they use all.
fn splits(layout: &Layout, gpus: u64) -> (bool, bool) {
    let parts = layout.values.iter().filter(|it| SPLITS.contains(&it.0.as_str()));
    let product = parts.fold(1_u64, |so_far, it| so_far.saturating_mul(it.1.parse().unwrap_or(1)));
    (product != 0 && gpus.is_multiple_of(product), product == gpus)
}

fn values_of(name: &str, gpus: u32, given: &[FactorValues]) -> anyhow::Result<Vec<String>> {
    if let Some(it) = given.iter().find(|it| it.name == name) {
        return Ok(it.values.clone());
    }
    if SPLITS.contains(&name) || SPREADS.contains(&name) {
        return Ok((1..=gpus)
            .filter(|it| gpus.is_multiple_of(*it))
            .map(|it| it.to_string())
            .collect());
    }
    if BATCHES.contains(&name) {
        return Ok(BATCH_SIZES.map(str::to_owned).to_vec());
    }
    bail!("which values can {{{name}}} have? For example: --values {name}=1,2,4")
}

/// The command of one layout.
pub(super) fn command_of(command: &[OsString], layout: &Layout, gpus: u32) -> Vec<OsString> {
    let constants = constants(gpus);
    let constants = constants.iter().map(|(name, it)| (*name, it.as_str()));
    let own = layout.values.iter().map(|(name, it)| (name.as_str(), it.as_str()));
    let all: Vec<(&str, &str)> = own.chain(constants).collect();
    let filled = |word: &OsString| match word.to_str() {
        Some(text) => {
            let put = |text: String, (name, value): &(&str, &str)| {
                text.replace(&format!("{{{name}}}"), value)
            };
            OsString::from(all.iter().fold(text.to_owned(), put))
        }
        None => word.clone(),
    };
    command.iter().map(filled).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    fn shown(text: &str, gpus: u32, values: &[&str], constraints: &[&str]) -> Vec<String> {
        let values: Vec<FactorValues> = values.iter().map(|it| it.parse().unwrap()).collect();
        let constraints: Vec<Constraint> =
            constraints.iter().map(|it| it.parse().unwrap()).collect();
        all(&words(text), gpus, &values, &constraints).unwrap().iter().map(Layout::name).collect()
    }

    #[test]
    fn splits_divide_the_gpus_and_all_of_them_with_one_that_takes_the_rest() {
        let some = shown("train.py --tp {tp} --pp={pp}", 4, &[], &[]);
        assert_eq!(
            some,
            ["tp=1 pp=1", "tp=1 pp=2", "tp=1 pp=4", "tp=2 pp=1", "tp=2 pp=2", "tp=4 pp=1"]
        );
        let all = shown("train.py {tp} {dp}", 4, &[], &[]);
        assert_eq!(all, ["tp=1 dp=4", "tp=2 dp=2", "tp=4 dp=1"]);
        assert_eq!(
            shown("train.py {tp} {ac}", 2, &["ac=none,full"], &["tp==2"]),
            ["tp=2 ac=none", "tp=2 ac=full"]
        );
        assert_eq!(shown("train.py {ep}", 4, &[], &["ep<=gpus/2"]), ["ep=1", "ep=2"]);
    }

    #[test]
    fn what_cannot_be_enumerated_is_refused() {
        let refused = |text: &str| all(&words(text), 4, &[], &[]).unwrap_err().to_string();
        assert!(refused("train.py").contains("write names in braces"));
        assert!(refused("train.py {ac}").contains("--values ac="));
        let twice = ["tp=1", "tp=2"].map(|it| it.parse().unwrap());
        let refused = all(&words("train.py {tp}"), 4, &twice, &[]).unwrap_err().to_string();
        assert_eq!(refused, "--values gives tp twice; give all its values at once");
    }

    #[test]
    fn no_value_is_too_large() {
        let huge = format!("={}", u64::MAX);
        let values = ["tp", "ep", "mbs", "bs"].map(|it| format!("{it}{huge}"));
        let values = values.each_ref().map(String::as_str);
        assert_eq!(shown("t.py {ep} {mbs} {bs}", 4, &values[1..], &[]).len(), 1);
        let given = [values[0].parse().unwrap()];
        let refused = all(&words("t.py {tp} {pp}"), 4, &given, &[]).unwrap_err().to_string();
        assert!(refused.contains("no layout"), "{refused}");
        let value = |name: &str| (name.to_owned(), u64::MAX.to_string());
        let layout = Layout { values: ["tp", "sp", "cp", "mbs", "bs"].map(value).to_vec() };
        assert_eq!(layout.effort().4, 0);
    }

    #[test]
    fn a_command_gets_the_values_of_its_layout() {
        let command = words(
            "torchrun --nnodes {nodes} --nproc-per-node {gpus_per_node} t.py --split={tp}x{pp} {x",
        );
        let layout = Layout { values: vec![("tp".into(), "2".into()), ("pp".into(), "4".into())] };
        let expected = "torchrun --nnodes 8 --nproc-per-node 8 t.py --split=2x4 {x";
        assert_eq!(command_of(&command, &layout, 64), words(expected));
    }

    #[test]
    fn less_talk_comes_first() {
        let of = |tp: &str, pp: &str, ac: &str| Layout {
            values: [("tp", tp), ("pp", pp), ("ac", ac)]
                .map(|(a, b)| (a.to_owned(), b.to_owned()))
                .to_vec(),
        };
        let mut all = [
            of("16", "1", "none"),
            of("2", "1", "full"),
            of("2", "1", "none"),
            of("1", "4", "none"),
        ];
        all.sort_by_key(Layout::effort);
        let names: Vec<String> = all.iter().map(Layout::name).collect();
        assert_eq!(
            names,
            ["tp=1 pp=4 ac=none", "tp=2 pp=1 ac=none", "tp=2 pp=1 ac=full", "tp=16 pp=1 ac=none"]
        );
    }
}
