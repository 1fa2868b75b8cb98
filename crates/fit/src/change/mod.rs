//! The change that a person would make to their script instead of letting a plan be applied: a unified diff, where the
//! places are known with certainty. What no edit is known for stays to be done by hand.

mod dictionary;
mod edit;
mod edits;
mod sites;
mod switches;

pub use sites::{Places, Sources};
pub use switches::{Line, Recipe, Switch};

use std::collections::BTreeMap;

use plimsoll_core::{
    plan::{Plan, Remedy, remedies},
    recording::Averages,
};
use similar::TextDiff;

use self::{edit::Edit, sites::Place};

/// What a person would change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// For `patch`, see [`patch_line`]; empty if there is nothing that is certain.
    pub diff: String,
    /// The remedies that it leaves to be done by hand.
    pub by_hand: Vec<&'static str>,
}

/// The change for `plan` in a program with these places, whose loss averages over this. Names in the diff are relative to `folder`.
pub fn change(
    plan: &Plan,
    Places { sites, sources }: &Places,
    averages: Option<Averages>,
    folder: &str,
) -> Change {
    let mut res = Change::default();
    let mut edits: Vec<Edit> = Vec::new();
    // The loop over the parts of a batch goes around what other remedies put around the forward pass.
    let (parts, rest): (Vec<&Remedy>, Vec<&Remedy>) =
        plan.remedies.iter().partition(|it| it.id == remedies::MICRO_BATCHES);
    for remedy in parts.into_iter().chain(rest) {
        let wanted = edits::edits(remedy, plan, averages, &Place { sites, sources });
        // All of a remedy or nothing, and never in the way of another.
        let together = wanted.map(|it| edits.iter().cloned().chain(it).collect::<Vec<_>>());
        match together.filter(|it| edited(it, sources).is_some()) {
            Some(it) => edits = it,
            None => res.by_hand.push(remedy.id),
        }
    }
    res.diff = diff(&edits, sources, folder);
    res
}

/// What `edits` make of the files, names relative to `folder`; whole ones if a file is elsewhere, which `patch` refuses to follow from there.
fn diff(edits: &[Edit], sources: &Sources, folder: &str) -> String {
    let mut res = String::new();
    let files = edited(edits, sources).unwrap_or_default();
    let inside = |file: &str| {
        file.strip_prefix(folder).and_then(|it| it.strip_prefix('/')).map(str::to_owned)
    };
    let are_inside = files.keys().all(|it| inside(it).is_some());
    for (file, text) in files {
        let Some(before) = sources.get(&file) else { continue };
        let name = &inside(&file).filter(|_| are_inside).unwrap_or_else(|| file.clone());
        let diff = TextDiff::from_lines(before.as_str(), text.as_str());
        res.push_str(&diff.unified_diff().context_radius(3).header(name, name).to_string());
    }
    res
}

/// The command that applies `diff`, which is in the file `shown`: `patch` follows no whole names, but from the root it follows them as relative ones.
pub(crate) fn patch_line(diff: &str, shown: &str) -> String {
    let has_whole_names = diff.starts_with("--- /");
    format!("patch {} < {shown}", if has_whole_names { "-d / -p1" } else { "-p0" })
}

/// Each file that changes, as it then is; none if two edits are in each other's way.
fn edited(edits: &[Edit], sources: &Sources) -> Option<BTreeMap<String, String>> {
    let mut by_file: BTreeMap<&str, Vec<&Edit>> = BTreeMap::new();
    for it in edits {
        by_file.entry(&it.file).or_default().push(it);
    }
    let apply = |(file, edits): (&str, Vec<&Edit>)| {
        Some((file.to_owned(), edit::apply(sources.get(file)?, &edits)?))
    };
    by_file.into_iter().map(apply).collect()
}

/// The places of a line of the agent.
#[cfg(test)]
pub(crate) fn sites_of(line: &serde_json::Value) -> plimsoll_core::recording::Sites {
    use plimsoll_core::sources::{ProcessFiles, read_process};

    let line = line.to_string();
    let files = ProcessFiles { pid: 7, notes: line.as_bytes(), snapshot: None, phantom_log: None };
    let reading = read_process(files);
    assert!(reading.warnings.is_empty(), "{:?}", reading.warnings);
    reading.recording.notes.plan.survey.unwrap().sites
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use plimsoll_core::{
        plan::{Parameter, Point},
        recording::{Batch, Blocks, Span},
    };
    use serde_json::json;

    use super::*;

    const SCRIPT: &str = "\
import torch
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
for x in data:
    optimizer.zero_grad(set_to_none=False)
    out = model(x)
    loss = out.mean()
    loss.backward()
    clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
";

    fn sites() -> plimsoll_core::recording::Sites {
        let call = |span: [u32; 4],
                    callee: [u32; 4],
                    owner: serde_json::Value,
                    end: serde_json::Value| {
            json!({ "span": span, "callee": callee, "owner": owner, "arguments": [], "keywords": {}, "end": end, "plain": true })
        };
        let mut optimizer =
            call([3, 12, 3, 56], [3, 12, 3, 28], json!([3, 12, 3, 23]), json!([3, 55]));
        optimizer["arguments"] = json!([[3, 29, 3, 47]]);
        optimizer["keywords"] = json!({ "lr": [3, 52, 3, 55] });
        let mut zero_grad =
            call([5, 4, 5, 42], [5, 4, 5, 23], json!([5, 4, 5, 13]), json!([5, 41]));
        zero_grad["keywords"] = json!({ "set_to_none": [5, 36, 5, 41] });
        let place = |what: &str, statement: [u32; 4]| json!({ "what": what, "file": "/home/me/train.py", "statement": statement, "function": 0 });
        let mut all = vec![
            place("optimizer", [3, 0, 3, 56]),
            place("zero_grad", [5, 4, 5, 42]),
            place("backward", [8, 4, 8, 19]),
            place("clip", [9, 4, 9, 44]),
            place("step", [10, 4, 10, 20]),
        ];
        all[0]["call"] = optimizer;
        all[0]["name"] = json!("Adam");
        all[0]["model"] = json!("model");
        all[0]["blocks"] = json!(["h.0", "h.1", "h.2", "tail"]);
        all[1]["call"] = zero_grad;
        all[2]["call"] = call([8, 4, 8, 19], [8, 4, 8, 17], json!([8, 4, 8, 8]), json!(null));
        all[2]["from"] = json!([6, 7]);
        all[3]["call"] = call([9, 4, 9, 44], [9, 4, 9, 19], json!(null), json!([9, 43]));
        all[4]["call"] =
            call([10, 4, 10, 20], [10, 4, 10, 18], json!([10, 4, 10, 13]), json!(null));
        sites_of(
            &json!({ "kind": "sites", "sites": all, "files": { "/home/me/train.py": { "torch": 1 } } }),
        )
    }

    fn check(remedies: Vec<Remedy>, expected: &Expect) {
        let sources = Sources::from([("/home/me/train.py".to_owned(), SCRIPT.to_owned())]);
        let places = Places { sites: sites(), sources };
        let it = change(&Plan::of(remedies), &places, Some(Averages::ShiftedLabels), "/home/me");
        expected.assert_eq(&format!("{}by hand: {:?}\n", it.diff, it.by_hand));
    }

    #[test]
    fn a_file_elsewhere_is_patched_from_the_root() {
        let sources: Sources = [("/home/me/train.py".to_owned(), SCRIPT.to_owned())].into();
        let places = Places { sites: sites(), sources };
        let plan = Plan::of(vec![Remedy::plain("set-to-none")]);
        let of = |folder: &str| {
            let diff = change(&plan, &places, None, folder).diff;
            let head = diff.lines().next().unwrap_or_default().to_owned();
            (head, patch_line(&diff, "plan.diff"))
        };
        let line = |head: &str, command: &str| (head.to_owned(), command.to_owned());
        assert_eq!(of("/home/me"), line("--- train.py", "patch -p0 < plan.diff"));
        assert_eq!(
            of("/home/me/runs"),
            line("--- /home/me/train.py", "patch -d / -p1 < plan.diff")
        );
        assert_eq!(of("/home/m"), line("--- /home/me/train.py", "patch -d / -p1 < plan.diff"));
    }

    #[test]
    fn options_of_the_optimizer_and_what_is_left_by_hand() {
        check(
            vec![Remedy::plain("fused"), Remedy::plain("set-to-none"), Remedy::plain("offload")],
            &expect![[r#"
                --- train.py
                +++ train.py
                @@ -1,8 +1,8 @@
                 import torch
                 model = Net()
                -optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
                +optimizer = torch.optim.Adam(model.parameters(), lr=0.1, fused=True)
                 for x in data:
                -    optimizer.zero_grad(set_to_none=False)
                +    optimizer.zero_grad(set_to_none=True)
                     out = model(x)
                     loss = out.mean()
                     loss.backward()
                by hand: ["offload"]
            "#]],
        );
    }

    #[test]
    fn mixed_precision_with_a_scaler() {
        check(
            vec![Remedy::plain("autocast-fp16")],
            &expect![[r#"
            --- train.py
            +++ train.py
            @@ -1,10 +1,14 @@
             import torch
             model = Net()
             optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
            +scaler = torch.amp.GradScaler("cuda")
             for x in data:
                 optimizer.zero_grad(set_to_none=False)
            -    out = model(x)
            -    loss = out.mean()
            -    loss.backward()
            +    with torch.autocast("cuda", dtype=torch.float16):
            +        out = model(x)
            +        loss = out.mean()
            +    scaler.scale(loss).backward()
            +    scaler.unscale_(optimizer)
                 clip_grad_norm_(model.parameters(), 1.0)
            -    optimizer.step()
            +    scaler.step(optimizer)
            +    scaler.update()
            by hand: []
        "#]],
        );
    }

    /// Two encoders that train together: a plan has the blocks of both run again.
    #[test]
    fn blocks_of_each_model_that_trains() {
        let mut sites = sites();
        let site = &mut sites.all[0];
        let blocks = ["layer.0", "layer.1"].map(str::to_owned).into();
        site.beside = vec![Blocks { model: "other".into(), blocks, cache: true }];
        let sources = Sources::from([("/home/me/train.py".to_owned(), SCRIPT.to_owned())]);
        let some = Remedy::plain("checkpoint").with(Parameter::Blocks(vec![0, 2]));
        let diff = change(&Plan::of(vec![some]), &Places { sites, sources }, None, "/home/me").diff;
        let lines = |what: &str| diff.lines().filter(|it| it.contains(what)).count();
        assert!(
            diff.contains("+for checkpointed in [0, 2]:\n+    checkpointed = model."),
            "{diff}"
        );
        assert!(diff.contains("+other.config.use_cache = False"), "{diff}");
        assert!(
            diff.contains("+for checkpointed in range(1):\n+    checkpointed = other."),
            "{diff}"
        );
        assert_eq!(lines("import functools"), 1);
    }

    #[test]
    fn blocks_by_name() {
        let some = Remedy::plain("checkpoint").with(Parameter::Blocks(vec![0, 2]));
        check(
            vec![Remedy::plain("autocast"), some],
            &expect![[r#"
                --- train.py
                +++ train.py
                @@ -1,10 +1,20 @@
                 import torch
                +import functools
                +
                +import torch.utils.checkpoint
                 model = Net()
                 optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
                +# these run again in backward instead of keeping their activations
                +for checkpointed in [0, 2]:
                +    checkpointed = model.get_submodule(f"h.{checkpointed}")
                +    checkpointed.forward = functools.partial(
                +        torch.utils.checkpoint.checkpoint, checkpointed.forward, use_reentrant=False
                +    )
                 for x in data:
                     optimizer.zero_grad(set_to_none=False)
                -    out = model(x)
                -    loss = out.mean()
                +    with torch.autocast("cuda", dtype=torch.bfloat16):
                +        out = model(x)
                +        loss = out.mean()
                     loss.backward()
                     clip_grad_norm_(model.parameters(), 1.0)
                     optimizer.step()
                by hand: []
            "#]],
        );
        check(
            vec![Remedy::plain("checkpoint")],
            &expect![[r#"
                --- train.py
                +++ train.py
                @@ -1,6 +1,15 @@
                 import torch
                +import functools
                +
                +import torch.utils.checkpoint
                 model = Net()
                 optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
                +# these run again in backward instead of keeping their activations
                +for checkpointed in ["h.0", "h.1", "h.2", "tail"]:
                +    checkpointed = model.get_submodule(checkpointed)
                +    checkpointed.forward = functools.partial(
                +        torch.utils.checkpoint.checkpoint, checkpointed.forward, use_reentrant=False
                +    )
                 for x in data:
                     optimizer.zero_grad(set_to_none=False)
                     out = model(x)
                by hand: []
            "#]],
        );
    }

    #[test]
    fn a_batch_goes_through_the_model_in_parts() {
        let script = SCRIPT.replace("for x in data:", "for batch in data:").replace(
            "    out = model(x)\n    loss = out.mean()\n",
            "    with autocast():\n        loss = model(**batch).loss\n",
        );
        let sources = Sources::from([("/home/me/train.py".to_owned(), script)]);
        let mut places = Places { sites: sites(), sources };
        let batch = Batch {
            name: "batch".to_owned(),
            at: Span { first: (7, 23), end: (7, 28) },
            loss: "loss".to_owned(),
        };
        places.sites.all[2].batch = Some(batch);
        let plan = |more: &[Remedy]| {
            let parts = Remedy::plain("micro-batches").with(Parameter::Parts(4));
            Plan::of([&[parts], more].concat())
        };
        let of = |plan: &Plan, averages| change(plan, &places, averages, "/home/me");
        let it = of(&plan(&[]), Some(Averages::ShiftedLabels));
        expect![[r#"
            --- train.py
            +++ train.py
            @@ -3,8 +3,19 @@
             optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
             for batch in data:
                 optimizer.zero_grad(set_to_none=False)
            -    with autocast():
            -        loss = model(**batch).loss
            -    loss.backward()
            +    # the batch in parts (gradient accumulation), each weighted by its labels that count
            +    all_of_batch, n_rows_of_batch, loss_of_parts = (batch["labels"][:, 1:] != -100).sum(), len(next(iter(batch.values()))), 0
            +    rows_of_part = -(-n_rows_of_batch // 4)
            +    for start_of_part in range(0, n_rows_of_batch, rows_of_part):
            +        part_of_batch = {key: it[start_of_part : start_of_part + rows_of_part] for key, it in batch.items()}
            +        share_of_part = (part_of_batch["labels"][:, 1:] != -100).sum() / all_of_batch
            +        if share_of_part == 0:
            +            continue
            +        with autocast():
            +            loss = model(**part_of_batch).loss
            +        loss = loss * share_of_part
            +        loss.backward()
            +        loss_of_parts = loss_of_parts + loss.detach()
            +        loss = loss_of_parts
                 clip_grad_norm_(model.parameters(), 1.0)
                 optimizer.step()
            by hand: []
        "#]].assert_eq(&format!("{}by hand: {:?}\n", it.diff, it.by_hand));
        let samples = of(&plan(&[]), Some(Averages::Samples)).diff;
        assert!(
            samples.contains(
                "+        share_of_part = len(next(iter(part_of_batch.values()))) / all_of_batch\n"
            ),
            "{samples}"
        );
        // What a sum or something else weighs is the script's matter, and so are lines that another remedy wants.
        let cache = Remedy::plain("empty-cache").with(Parameter::After(Point::Backward));
        for (plan, averages) in [(plan(&[]), None), (plan(&[cache]), Some(Averages::Samples))] {
            assert_eq!(of(&plan, averages).by_hand, ["micro-batches"]);
        }
        // Around the forward pass of each part.
        let both = Plan::of([Remedy::plain("autocast-fp16"), plan(&[]).remedies[0].clone()].into());
        let it = of(&both, Some(Averages::Samples));
        expect![[r#"
            --- train.py
            +++ train.py
            @@ -1,10 +1,25 @@
             import torch
             model = Net()
             optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
            +scaler = torch.amp.GradScaler("cuda")
             for batch in data:
                 optimizer.zero_grad(set_to_none=False)
            -    with autocast():
            -        loss = model(**batch).loss
            -    loss.backward()
            +    # the batch in parts (gradient accumulation), each weighted by its samples
            +    all_of_batch, n_rows_of_batch, loss_of_parts = len(next(iter(batch.values()))), len(next(iter(batch.values()))), 0
            +    rows_of_part = -(-n_rows_of_batch // 4)
            +    for start_of_part in range(0, n_rows_of_batch, rows_of_part):
            +        part_of_batch = {key: it[start_of_part : start_of_part + rows_of_part] for key, it in batch.items()}
            +        share_of_part = len(next(iter(part_of_batch.values()))) / all_of_batch
            +        if share_of_part == 0:
            +            continue
            +        with torch.autocast("cuda", dtype=torch.float16):
            +            with autocast():
            +                loss = model(**part_of_batch).loss
            +        loss = loss * share_of_part
            +        scaler.scale(loss).backward()
            +        loss_of_parts = loss_of_parts + loss.detach()
            +        loss = loss_of_parts
            +    scaler.unscale_(optimizer)
                 clip_grad_norm_(model.parameters(), 1.0)
            -    optimizer.step()
            +    scaler.step(optimizer)
            +    scaler.update()
            by hand: []
        "#]].assert_eq(&format!("{}by hand: {:?}\n", it.diff, it.by_hand));
    }

    #[test]
    fn settings_of_the_allocator_stand_before_torch() {
        let settings = Parameter::Settings("expandable_segments:True".to_owned());
        check(
            vec![Remedy::plain("allocator").with(settings)],
            &expect![[r#"
                --- train.py
                +++ train.py
                @@ -1,3 +1,6 @@
                +import os
                +
                +os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
                 import torch
                 model = Net()
                 optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
                by hand: []
            "#]],
        );
    }

    #[test]
    fn another_optimizer_and_its_options_exclude_each_other() {
        check(
            vec![Remedy::plain("sgd"), Remedy::plain("fused")],
            &expect![[r#"
            --- train.py
            +++ train.py
            @@ -1,6 +1,6 @@
             import torch
             model = Net()
            -optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
            +optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
             for x in data:
                 optimizer.zero_grad(set_to_none=False)
                 out = model(x)
            by hand: ["fused"]
        "#]],
        );
    }
}
