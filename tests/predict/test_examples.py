"""The examples, as `make demo` runs them."""

import pytest
from harness import ROOT, assert_consistent

GPT2 = ROOT / "examples" / "finetune_gpt2.py"
RESNET = ROOT / "examples" / "train_resnet50.py"


@pytest.mark.soak
def test_fits_a_large_card(plimsoll):
    ran = plimsoll.predict(GPT2, options=["--gpu", "h200"])
    assert ran.code == 0, ran
    assert_seen(ran.report, GPT2)


@pytest.mark.soak
def test_without_a_card_it_says_which_carry_it_and_a_maximum_is_a_limit(plimsoll):
    ran = plimsoll.predict(RESNET, "--batch-size", "16", "--amp", options=["--max", "1GiB"])
    assert ran.code == 1, ran
    assert_seen(ran.report, RESNET)
    carries = {it["id"]: it["carries"] for it in ran.report["cards"]}
    assert carries["h200"] in (True, "yes"), carries


def assert_seen(report, script):
    assert report["outcome"] == "fits"
    assert report["steady"] and 3 <= report["steps_seen"], report
    assert_consistent(report)
    assert script.name in str(report["top_lines"]), report["top_lines"]


def test_a_sharded_model_over_a_cluster(plimsoll):
    script = ROOT / "examples" / "fsdp2_llama.py"
    ran = plimsoll.predict(script, "--size", "tiny", options=["--gpu", "h100-80g", "--world-size", "64"])
    assert ran.code == 0, ran
    assert ran.report["steady"]
    assert_consistent(ran.report)


@pytest.mark.soak
@pytest.mark.parametrize("script", [GPT2, RESNET], ids=["gpt2", "resnet"])
def test_does_not_fit_a_small_one(plimsoll, script):
    ran = plimsoll.predict(script, "--batch-size", "64", options=["--gpu", "rtx3060-12g", "--memory", "5GiB"])
    assert ran.code == 1, ran
    assert ran.report["outcome"] == "out_of_memory", ran
    assert script.name in ran.stdout, "the report names the line of the script where memory runs out"


def test_no_checkpoint_of_a_run_that_is_ended(plimsoll):
    ran = plimsoll.predict(GPT2, "--epochs", "1", options=["--gpu", "h200", "--until", "steady"])
    assert ran.code == 0, ran
    assert not (plimsoll.folder / "gpt2-finetuned").exists()


def test_steps_and_the_card_s_memory_can_be_set(plimsoll):
    options = ["--gpu", "h200", "--memory", "20GiB", "--steps", "5", "--max", "100GiB"]
    ran = plimsoll.predict(RESNET, "--batch-size", "8", options=options)
    assert ran.code == 0, ran
    assert ran.report["steps_seen"] == 5, ran
