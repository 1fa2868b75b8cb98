//! The remedies there are, and what is so of each: everything that more than one part of plimsoll has to know.
//!
//! Told here once, in [`CATALOGUE`]. The search in `plimsoll-core` reads it; the build of the binary writes it into the
//! agent as `plimsoll_agent/remedies/table.py`. How a remedy is applied inside a process is a module of the agent, what a
//! person would write for it is its page in `pages/` (and, by a link, in `docs/remedies/`), and which edits of a script that makes, where they are
//! certain, is in `plimsoll-fit`, `change/edits.rs`.
//!
//! A new remedy is a row in `table.rs`, a page, a module of the agent, and a test of what it does.

#![forbid(unsafe_code)]

mod kind;
mod parameter;
mod table;
mod work;

pub use kind::*;
pub use parameter::*;
pub use table::*;
pub use work::Op;

/// The remedy called `id`.
pub fn find(id: &str) -> Option<Kind> {
    CATALOGUE.iter().find(|it| it.id == id).copied()
}

/// The remedies that a process can be told, from the outermost inwards.
pub fn inwards() -> Vec<&'static Kind> {
    let mut res: Vec<&Kind> =
        CATALOGUE.iter().filter(|it| it.is_applied() || it.offer != Offer::ByHand).collect();
    res.sort_by_key(|it| it.layer);
    res
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    #[test]
    fn ids_are_unique_and_each_page_says_what_it_is_about() {
        for kind in CATALOGUE {
            assert_eq!(CATALOGUE.iter().filter(|it| it.id == kind.id).count(), 1, "{}", kind.id);
            assert_eq!(kind.page.lines().next(), Some(&*format!("# {}", kind.id)));
            for part in
                ["What it does", "When it applies", "What it changes in the numbers", "By hand"]
            {
                assert!(kind.page.contains(&format!("\n## {part}\n")), "{}: {part}", kind.id);
            }
            assert!(!kind.snippet().is_empty() && !kind.snippet().contains("```"), "{}", kind.id);
        }
    }

    #[test]
    fn what_changes_training_is_never_used_unasked() {
        for kind in CATALOGUE.iter().filter(|it| it.numbers == Numbers::Training) {
            assert_ne!(kind.offer, Offer::Usual, "{}", kind.id);
        }
    }

    #[test]
    fn who_is_around_whom() {
        let mut layers: Vec<(Layer, Vec<&str>)> = Vec::new();
        for it in inwards() {
            match layers.last_mut() {
                Some((layer, ids)) if *layer == it.layer => ids.push(it.id),
                _ => layers.push((it.layer, vec![it.id])),
            }
        }
        let shown: Vec<String> =
            layers.iter().map(|(layer, ids)| format!("{layer:?}: {}", ids.join(" "))).collect();
        assert_eq!(
            shown,
            [
                "Loop: no-grad-evaluation empty-cache",
                "Weights: pure-bf16",
                "Devices: zero1 fsdp2 model-parallel",
                "Model: attention lora quantization smaller-model depthwise pruning",
                "Batch: micro-batches",
                "Input: channels-last",
                "Forward: inplace-activations autocast autocast-fp16",
                "Saved: offload",
                "Blocks: checkpoint parameter-offload",
                "Functions: chunked-loss detach-losses tf32",
                "Options: fused foreach set-to-none bucket-view",
                "Optimizer: optimizer-8bit optimizer-offload adafactor sgd",
                "Step: optimizer-in-backward",
                "Outside: allocator",
            ]
        );
    }

    #[test]
    fn every_row_has_its_module_in_the_agent_and_every_module_its_row() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut modules = BTreeSet::new();
        for it in fs::read_dir(root.join("agent/plimsoll_agent/remedies")).unwrap() {
            let path = it.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            if path.extension().is_some_and(|it| it == "py") && name != "__init__" {
                let text = fs::read_to_string(&path).unwrap();
                let says = |it: &str| text.contains(&format!("\ndef {it}("));
                assert!(says("apply"), "{name}");
                let of = find(&name.replace('_', "-")).map(|it| it.of);
                assert_eq!(says("suits"), of == Some(Use::SomeModels), "{name}");
                modules.insert(name);
            }
        }
        let applied = CATALOGUE.iter().filter(|it| it.is_applied());
        assert_eq!(applied.map(|it| it.id.replace('-', "_")).collect::<BTreeSet<_>>(), modules);
    }

    #[test]
    fn each_parameter_is_on_its_remedys_page_and_a_row_of_the_manual() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let manual = fs::read_to_string(root.join("fit.md")).unwrap();
        let mut rows: Vec<(&str, Vec<String>, String)> = Vec::new();
        for kind in CATALOGUE {
            for takes in kind.takes.iter().filter(|it| !it.is_of_search) {
                let (id, name) = (kind.id, takes.name);
                assert!(kind.page.contains(&format!("`{name}")), "{id}: {name}");
                let id = format!("`{id}`");
                match rows.iter_mut().find(|it| it.0 == name) {
                    Some((_, of, _)) => of.push(id),
                    None => rows.push((name, vec![id], takes.values.expected())),
                }
            }
        }
        let expected: BTreeSet<String> = rows
            .iter()
            .map(|(name, of, values)| format!("| `{name}` | {} | {values} ", of.join(", ")))
            .collect();
        let (_, table) =
            manual.split_once("| key | of | value | means |\n|---|---|---|---|\n").unwrap();
        let found = table.lines().take_while(|it| it.starts_with('|'));
        let found: BTreeSet<String> =
            found.map(|it| it.rsplitn(3, '|').last().unwrap().to_owned()).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_value_that_is_read_is_what_was_written() {
        let all = CATALOGUE.iter().flat_map(|it| it.takes);
        for takes in all {
            let values = [
                Value::Number(1),
                Value::Number(2),
                Value::Numbers(vec![1, 2]),
                Value::Text("step".to_owned()),
            ];
            let read: Vec<(Value, Parameter)> =
                values.into_iter().filter_map(|it| Some((it.clone(), takes.read(it)?))).collect();
            assert!(!read.is_empty(), "{}", takes.name);
            for (value, parameter) in read {
                assert_eq!((parameter.takes().name, parameter.value()), (takes.name, value));
            }
        }
    }

    #[test]
    fn the_manual_names_every_remedy_and_no_other() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let overview = fs::read_to_string(root.join("fit.md")).unwrap();
        for kind in CATALOGUE {
            assert!(overview.contains(&format!("(remedies/{}.md)", kind.id)), "{}", kind.id);
        }
        for it in fs::read_dir(root.join("remedies")).unwrap() {
            let name = it.unwrap().file_name().into_string().unwrap();
            // The site's list of them, whose entries are made when it is built.
            let is_the_list = name == "index.md";
            assert!(is_the_list || find(name.trim_end_matches(".md")).is_some(), "{name}");
        }
    }
}
