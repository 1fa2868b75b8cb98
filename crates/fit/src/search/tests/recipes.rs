//! What is said in the switches of the script's own framework, once it ran so.

use expect_test::expect;
use serde_json::{Value, json};

use super::made::{Made, takes};
use crate::{
    change::{Places, sites_of},
    search::{Noted, Ran, Run},
};

const SCRIPT: &str = "args = TrainingArguments(\"out\")\n";

/// A program with a Trainer of transformers, whose batches of 8 are in `parts`.
fn trainer(parts: u64, checkpointing: bool, rest: &str) -> Noted {
    let statement = json!([1, 0, 1, 31]);
    let call = json!({ "span": [1, 7, 1, 31], "callee": [1, 7, 1, 24], "owner": null, "arguments": [[1, 25, 1, 30]],
        "keywords": {}, "end": [1, 30], "plain": true });
    let site = json!({ "what": "TrainingArguments", "file": "/train.py", "statement": statement, "function": 0, "call": call });
    let values = json!({ "per_device_train_batch_size": 8 / parts, "gradient_accumulation_steps": parts,
        "gradient_checkpointing": checkpointing, "bf16": false, "fp16": false, "optim": "adamw" });
    let all: Value = json!([{ "what": "transformers", "name": "TrainingArguments", "values": values, "rest": rest,
        "from_words": false, "site": site }]);
    let sites = sites_of(&json!({ "kind": "sites", "sites": [], "files": {}, "switches": all }));
    let sources = [("/train.py".to_owned(), SCRIPT.to_owned())].into();
    Noted { places: Some(Places { sites, sources }), ..Noted::default() }
}

fn ran(run: &Run, rest: &str) -> Ran {
    let written: String = run.files.iter().map(|it| it.is.clone()).collect();
    let parts = [2, 4, 8].into_iter().find(|it| written.contains(&format!("steps={it}")));
    let checkpointing = written.contains("checkpointing");
    let mib = match () {
        () if run.has("checkpoint") => 7_000,
        () if checkpointing => 8_500,
        () => 12_000 / parts.unwrap_or(1) + 500,
    };
    let rest = if written.is_empty() { "" } else { rest };
    Ran { noted: trainer(parts.unwrap_or(1), checkpointing, rest), ..takes(mib) }
}

#[test]
fn what_ran_and_fits_is_said_after_what_the_plan_does() {
    let made = Made::new(8_000, |run| ran(run, "")).allow(&["checkpoint", "micro-batches"]);
    expect![[r#"
        the unchanged script, steady, sites -> 12.70 GiB
        " without changes: 12.70 GiB to be safe
        micro-batches (2 parts), 2 steps -> 12.70 GiB
        micro-batches (4 parts), 2 steps -> 12.70 GiB
        checkpoint, 2 steps -> 7.32 GiB
        checkpoint, steady, reserves up to 7.32 GiB -> 7.32 GiB
        checkpoint, steady, reserves up to 7.32 GiB, work -> 7.32 GiB
        the unchanged script, 2 steps, work -> 12.70 GiB
        the unchanged script, one validation, on the card, sites, ", gradient_checkpointing=True" instead of "" -> out of memory
        the unchanged script, one validation, on the card, sites, ", per_device_train_batch_size=4, gradient_accumulation_steps=2" instead of "" -> 6.84 GiB
        checkpoint, a validation, alone on the card -> 7.32 GiB
        as it is: does not fit, needs 12.70 GiB
        plan: checkpoint, needs 7.32 GiB, same
        in transformers: 1: TrainingArguments(per_device_train_batch_size=4, gradient_accumulation_steps=2), needs 6.84 GiB
        seen: 3 steps
    "#]].assert_eq(&made.plans());
}

#[test]
fn a_script_that_has_other_settings_with_them_is_not_that_script() {
    let made = Made::new(8_000, |run| ran(run, "another")).allow(&["checkpoint", "micro-batches"]);
    let found = made.plans();
    assert!(found.contains("plan: checkpoint") && !found.contains("in transformers"), "{found}");
}

#[test]
fn nothing_is_said_where_files_may_not_be_written() {
    let made = Made::new(8_000, |run| ran(run, "")).allow(&["checkpoint", "micro-batches"]);
    let found = made.rules(|it| it.may_edit = false).plans();
    assert!(found.contains("plan: checkpoint") && !found.contains("instead of"), "{found}");
}
