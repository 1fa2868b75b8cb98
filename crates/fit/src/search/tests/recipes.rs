//! What is said in the switches of the script's own framework, once it ran so.

use expect_test::expect;
use plimsoll_core::recording::{Framework, Setting};
use serde_json::{Value, json};

use super::made::{Made, fails, reserves, takes};
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

const ADAPTERS: &str = "model = AutoModel.from_pretrained(path)\nconfig = LoraConfig(r=64)\n";

/// A model that is loaded in the first line, below adapters that the second line asks for.
fn adapters(is_in_4_bits: bool, missing: &[&str]) -> Noted {
    let load = json!({ "span": [1, 8, 1, 39], "callee": [1, 8, 1, 33], "owner": [1, 8, 1, 17], "arguments": [[1, 34, 1, 38]],
        "keywords": {}, "end": [1, 38], "plain": true });
    let lora = json!({ "span": [2, 9, 2, 25], "callee": [2, 9, 2, 19], "owner": null, "arguments": [],
        "keywords": { "r": [2, 22, 2, 24] }, "end": [2, 24], "plain": true });
    let site = |line: u32, call: Value| json!({ "what": "call", "file": "/train.py", "statement": [line, 0, line, 25], "function": 0, "call": call });
    let all: Value = json!([
        { "what": "loading", "name": "from_pretrained", "values": { "load_in_4bit": is_in_4_bits, "quantized_otherwise": false },
          "rest": "", "from_words": false, "site": site(1, load) },
        { "what": "adapters", "name": "LoraConfig", "values": { "r": 64 }, "rest": "", "from_words": false, "site": site(2, lora) },
    ]);
    let sites = sites_of(
        &json!({ "kind": "sites", "sites": [], "files": {}, "switches": all, "missing": missing }),
    );
    let sources = [("/train.py".to_owned(), ADAPTERS.to_owned())].into();
    Noted { places: Some(Places { sites, sources }), ..Noted::default() }
}

/// The script with adapters, which needs so many MiB in 4 bits.
fn with_adapters(in_4_bits: u64) -> Made {
    let ran = move |run: &Run| {
        let is_in_4_bits = run.files.iter().any(|it| it.is.contains("load_in_4bit"));
        let mib = if is_in_4_bits { in_4_bits } else { 12_000 };
        Ran { noted: adapters(is_in_4_bits, &[]), ..takes(mib) }
    };
    Made::new(8_000, ran).allow(&["detach-losses", "quantization"])
}

#[test]
fn what_adapters_stand_on_is_tried_in_4_bits_and_said_where_it_fits() {
    let found = with_adapters(5_000).plans();
    let said = "in transformers: 1: from_pretrained(quantization_config=BitsAndBytesConfig(load_in_4bit=True";
    assert!(found.contains(said) && found.contains("needs 5.37 GiB"), "{found}");
    let found = with_adapters(11_000).plans();
    assert!(found.contains("load_in_4bit") && !found.contains("in transformers"), "{found}");
    let found = with_adapters(5_000).rules(|it| it.keep_numerics = true).plans();
    assert!(!found.contains("load_in_4bit"), "{found}");
    let found = with_adapters(5_000).forbid(&["quantization"]).plans();
    assert!(!found.contains("load_in_4bit"), "{found}");
}

#[test]
fn what_needs_a_library_that_is_not_there_is_not_run() {
    let ran = |run: &Run| {
        assert!(run.files.iter().all(|it| !it.is.contains("load_in_4bit")));
        Ran { noted: adapters(false, &["bitsandbytes"]), ..takes(12_000) }
    };
    let found = Made::new(8_000, ran).allow(&["detach-losses", "quantization", "lora"]).plans();
    assert!(found.contains("\"16\" instead of \"64\""), "{found}");
    assert!(found.contains("not tried: frozen weights in 4 bits, bitsandbytes\n"), "{found}");
}

#[test]
fn what_the_script_does_not_bear_alone_is_not_run_beside_others() {
    let ran = |run: &Run| {
        if run.files.iter().any(|it| it.is.contains("load_in_4bit")) {
            return fails("it has fused experts");
        }
        Ran { noted: adapters(false, &[]), ..takes(12_000) }
    };
    let made = Made::new(8_000, ran).allow(&["detach-losses", "quantization", "lora"]);
    let found = made.plans();
    // In a run that ends an epoch early, and in one that does not.
    assert_eq!(found.matches("load_in_4bit").count(), 2, "{found}");
    assert!(found.contains("\"16\" instead of \"64\""), "{found}");
    assert!(
        found.contains("not tried: frozen weights in 4 bits, it has fused experts\n"),
        "{found}"
    );
}

/// The same where batches differ in size, and the script makes a collator in that line.
fn collator(padded: bool) -> Noted {
    let mut noted = trainer(1, false, "");
    noted.sizes_differ = true;
    for it in noted.places.iter_mut().flat_map(|it| &mut it.sites.switches) {
        it.framework = Framework::Collator;
        let to = if padded { Setting::Whole(64) } else { Setting::Nothing };
        it.values = [("pad_to_multiple_of".to_owned(), to)].into();
    }
    noted
}

#[test]
fn batches_are_padded_where_they_differ_and_the_allocator_may_not_change() {
    let ran = |run: &Run| {
        let padded = run.files.iter().any(|it| it.is.contains("pad_to_multiple_of=64"));
        let took = if padded { reserves(7_000, 7_200) } else { reserves(7_100, 12_000) };
        Ran { took, noted: collator(padded), ..takes(0) }
    };
    let found = Made::new(8_000, ran).forbid(&["allocator", "empty-cache"]).plans();
    let run = "a validation, on the card, sites, \", pad_to_multiple_of=64\" instead of";
    assert!(found.contains(run) && found.contains("in transformers: 1: "), "{found}");
    let found = Made::new(8_000, ran).plans();
    assert!(!found.contains("pad_to"), "{found}");
}
