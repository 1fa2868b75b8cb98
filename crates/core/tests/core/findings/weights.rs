//! What the agent noted of a model's weights, and weights that are there twice.

use plimsoll_core::{
    explanation::Explanation,
    findings::Weight,
    recording::{Notes, Skip, Unfrozen, WeightsNote, WideWeights},
    units::Bytes,
};

use super::program::{MIB, Program};

const TORCH: &str = "/venv/lib/python3.12/site-packages/torch";

fn bytes(of: &Explanation, code: &str) -> Option<Bytes> {
    of.findings.iter().find(|it| it.code.word() == code).map(|it| it.bytes)
}

/// A step of 120 MiB of activations in a run whose model was noted so.
fn trained(weights: WeightsNote) -> Explanation {
    let mut program = Program::default();
    for _ in 0..3 {
        let output = program.step(false, true);
        program.free(output);
    }
    program.explain_noted(Notes { weights: vec![weights], ..Notes::default() })
}

fn quantized(wide: WideWeights) -> WeightsNote {
    let packed = Bytes::mib(64);
    WeightsNote { packed, packed_modules: 8, wide: vec![wide], ..WeightsNote::default() }
}

fn wide(mib: u64, bits: u32, is_table: bool) -> WideWeights {
    WideWeights {
        name: "layers.*.experts.down_proj".into(),
        class: "Experts".into(),
        bits,
        is_table,
        tensors: 4,
        bytes: Bytes::mib(mib),
        skip: None,
    }
}

fn skip(is_of_checkpoint: bool) -> Option<Skip> {
    let entries = vec!["up_proj".into(), "down_proj".into()];
    Some(Skip { list: "llm_int8_skip_modules".into(), is_of_checkpoint, entries })
}

#[test]
fn large_weights_of_a_quantized_model_that_are_not_packed_are_found() {
    let code = "weights/not-quantized";
    let found = trained(quantized(wide(50, 16, false)));
    assert_eq!(bytes(&found, code), Some(Bytes::mib(50)));
    let title = &found.findings.iter().find(|it| it.code.word() == code).unwrap().title;
    assert_eq!(
        title,
        "the model is quantized, but 50.0 MiB of its weights are not: `layers.*.experts.down_proj` (4 tensors in 16 bits); 64.0 MiB are packed"
    );
    // A table in 32 bits would be half as large; one in 16 bits is as the libraries leave it.
    assert_eq!(bytes(&trained(quantized(wide(80, 32, true))), code), Some(Bytes::mib(40)));
    assert_eq!(bytes(&trained(quantized(wide(80, 16, true))), code), None);
    assert_eq!(bytes(&trained(quantized(wide(8, 16, false))), code), None, "too little");
    let one = WeightsNote { packed_modules: 1, ..quantized(wide(50, 16, false)) };
    assert_eq!(bytes(&trained(one), code), None, "a table of whole numbers is no quantization");
}

#[test]
fn a_list_that_leaves_weights_out_is_named_with_who_wrote_it() {
    let finding = |weights: WeightsNote| {
        let mut all = trained(weights).findings.into_iter();
        all.find(|it| it.code.word() == "weights/not-quantized").unwrap()
    };
    let listed = |mib| WideWeights { skip: skip(false), ..wide(mib, 16, false) };
    let found = finding(quantized(listed(80)));
    assert_eq!(
        found.title,
        "the model is quantized, but 80.0 MiB of its weights are not: `layers.*.experts.down_proj` (4 tensors in 16 bits); the script's list `llm_int8_skip_modules` leaves them out; 64.0 MiB are packed"
    );
    assert_eq!(
        found.remedy,
        "take `down_proj`, `up_proj` out of `llm_int8_skip_modules`, then these weights are packed too"
    );
    assert_eq!(found.weight, Weight::Problem, "most of the model");
    assert_eq!(finding(quantized(listed(50))).weight, Weight::Chance, "a part of it");
    let of_checkpoint = WideWeights { skip: skip(true), ..wide(80, 16, false) };
    let found = finding(quantized(of_checkpoint));
    assert!(found.title.contains("the checkpoint's list `llm_int8_skip_modules`"), "{found:?}");
    let none = WeightsNote { wide: vec![listed(80)], ..WeightsNote::default() };
    let found = finding(none);
    assert!(found.title.ends_with("leaves them out; nothing is packed"), "{found:?}");
    assert_eq!(found.weight, Weight::Problem);
}

#[test]
fn a_model_that_no_step_calls_beside_its_packed_form_is_there_twice() {
    let beside = |mib| {
        let packed = quantized(wide(8, 16, false));
        trained(WeightsNote { uncalled: Bytes::mib(mib), ..packed })
    };
    let code = "weights/loaded-twice";
    assert_eq!(bytes(&beside(70), code), Some(Bytes::mib(70)));
    assert_eq!(bytes(&beside(0), code), None);
}

#[test]
fn tables_in_16_bits_are_named_where_they_are_a_large_part_of_the_peak() {
    let found = trained(quantized(wide(300, 16, true)));
    assert_eq!(bytes(&found, "weights/not-quantized"), Some(Bytes::mib(150)));
    assert_eq!(bytes(&trained(quantized(wide(200, 16, true))), "weights/not-quantized"), None);
}

#[test]
fn weights_below_adapters_matter_where_they_have_gradients() {
    let note = |mib: u64| WeightsNote {
        adapters: Bytes::mib(1),
        unfrozen: Unfrozen { tensors: 2, bytes: Bytes::mib(mib), first: Some("a.weight".into()) },
        ..WeightsNote::default()
    };
    let code = "adapters/all-trainable";
    let with_gradients = |mib: u64| {
        let mut program = Program::default();
        program.step(true, true);
        let backward = program.stack(&[
            ("/home/u/train.py", "main", 12),
            ("/venv/site-packages/torch/autograd/__init__.py", "backward", 1),
        ]);
        program.alloc(100 * MIB, backward);
        program.explain_noted(Notes { weights: vec![note(mib)], ..Notes::default() })
    };
    let found = bytes(&with_gradients(99), code).unwrap();
    assert!(Bytes::mib(90) < found && found < Bytes::mib(130), "{found}");
    assert_eq!(bytes(&with_gradients(2), code), None, "a layer that is trained on purpose");
}

/// 10 weights of 40 MiB, of which each becomes 20 MiB on the device, and then a pass of `activations`.
fn made_half(activations: u64) -> Explanation {
    let mut program = Program::default();
    let apply = format!("{TORCH}/nn/modules/module.py");
    let moved = program.stack(&[("/home/u/train.py", "main", 3), (&apply, "_apply", 7)]);
    let wide: Vec<u64> = (0..10).map(|_| program.alloc(40 * MIB, moved)).collect();
    for it in wide {
        program.alloc(20 * MIB, moved);
        program.free(it);
    }
    for _ in 0..2 {
        let inside = program.module(11, 1);
        let made = program.alloc(activations * MIB, inside);
        let backward = program.stack(&[
            ("/home/u/train.py", "main", 12),
            ("/venv/site-packages/torch/autograd/__init__.py", "backward", 1),
        ]);
        let seed = program.alloc(512, backward);
        program.free(made);
        program.free(seed);
    }
    program.explain()
}

#[test]
fn weights_that_become_smaller_on_the_device_make_the_peak_of_loading() {
    let code = "weights/loaded-twice";
    assert_eq!(bytes(&made_half(20), code), Some(Bytes(420 * MIB - 220 * MIB - 512)));
    assert_eq!(bytes(&made_half(300), code), None, "training needs more");
}

#[test]
fn a_state_dict_beside_its_model_is_there_twice() {
    let kept = |of: &[u64]| {
        let mut program = Program::default();
        let apply = format!("{TORCH}/nn/modules/module.py");
        let moved = program.stack(&[("/home/u/train.py", "main", 3), (&apply, "_apply", 7)]);
        for _ in 0..4 {
            program.alloc(30 * MIB, moved);
        }
        let file = "/venv/lib/python3.12/site-packages/safetensors/torch.py";
        let loaded = program.stack(&[("/home/u/train.py", "main", 5), (file, "load_file", 7)]);
        of.iter().for_each(|it| {
            program.alloc(*it * MIB, loaded);
        });
        for _ in 0..3 {
            let output = program.step(false, true);
            program.free(output);
        }
        program.explain()
    };
    let twice = kept(&[30; 4]);
    assert_eq!(bytes(&twice, "weights/loaded-twice"), Some(Bytes::mib(120)));
    assert_eq!(bytes(&twice, "copies/double-buffer"), None);
    let at = twice.findings.iter().find(|it| it.code.word() == "weights/loaded-twice");
    assert_eq!(at.unwrap().at.as_ref().unwrap().line, 5);
    // With the state of an optimizer it is a checkpoint.
    let checkpoint = kept(&[30; 12]);
    assert_eq!(bytes(&checkpoint, "weights/loaded-twice"), None);
    assert_eq!(bytes(&checkpoint, "copies/double-buffer"), Some(Bytes::mib(360)));
}
