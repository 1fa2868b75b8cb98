"""Whole scripts as people have them (scripts/), from memory of public tutorials: run as they are.

They are copied first, because some write checkpoints where they are started.
"""

import shutil
from pathlib import Path

import pytest
from harness import assert_consistent

SCRIPTS = Path(__file__).parent / "scripts"


def predict(plimsoll, name, *arguments, options=("--gpu", "rtx3090")):
    shutil.copytree(SCRIPTS, plimsoll.folder, dirs_exist_ok=True)
    script = plimsoll.folder / name
    if script.parent != plimsoll.folder:
        cache, plimsoll = plimsoll.cache, type(plimsoll)(script.parent, plimsoll.cache)
        assert plimsoll.cache == cache
    return plimsoll.predict(script.name, *arguments, options=options)


def notes(ran):
    return {it["code"] for it in ran.report["notes"]}


@pytest.mark.matrix(1)
@pytest.mark.parametrize("name", ["classifier.py", "gan.py", "lightning_autoencoder.py", "notebook.py", "trainer.py"])
def test_runs_as_it_is(plimsoll, name):
    ran = predict(plimsoll, name)
    assert ran.code == 0, ran
    assert 3 <= ran.report["steps_seen"] <= 30, ran
    assert_consistent(ran.report)
    assert {"steps"} <= notes(ran) and not notes(ran) & {"mismatches", "recording-incomplete", "not-imitated"}, ran.report["notes"]


def test_two_optimizers_are_one_step(plimsoll):
    """The discriminator's and the generator's: a step is over when both have stepped."""
    ran = predict(plimsoll, "gan.py", options=("--gpu", "rtx3090", "--steps", "6"))
    assert ran.code == 0, ran
    curve = ran.report["steps"]
    assert len(curve) == ran.report["steps_seen"] == 6
    assert len({it["peak_reserved_bytes"] for it in curve[2:]}) == 1, curve


def test_a_project_with_modules_data_and_arguments_of_its_own(plimsoll):
    ran = predict(plimsoll, "project/train.py", "--lr", "1e-3")
    assert ran.code == 0, ran
    wrong = predict(plimsoll, "project/train.py")
    wrong.assert_sentence("exited with code 2")
    assert "--lr" in wrong.stderr, "argparse's own words stay"
    nowhere = predict(plimsoll, "project/train.py", "--lr", "1e-3", "--data", "data/other.csv")
    nowhere.assert_sentence("FileNotFoundError", "data/other.csv", "train.py:6")


@pytest.mark.soak
def test_the_whole_script_with_validation_and_checkpoints(plimsoll):
    ran = predict(plimsoll, "classifier.py", options=("--gpu", "rtx3090", "--until-exit"))
    assert ran.code == 0, ran
    written = {it["path"]: it["kind"] for it in ran.report["writes"]["files"]}
    assert written[str(plimsoll.folder / "checkpoints" / "best.pt")] == "created"
    assert not (plimsoll.folder / "checkpoints").exists()
    assert "epoch 1" in ran.stdout and ran.report["steps_seen"] == 2 * 20 // 4
    assert_consistent(ran.report)


def test_data_parallel_on_one_card_and_on_two(plimsoll):
    one = predict(plimsoll, "data_parallel.py")
    assert one.code == 0, one
    two = predict(plimsoll, "data_parallel.py", options=("--gpu", "rtx3090", "--gpus", "2"))
    assert two.code == 0, two
    assert "2 GPUs" in two.stdout and "input size torch.Size([64, 1000])" in two.stdout
    # The first card gathers; the other holds a copy of the model while it computes.
    assert one.report["peak_allocated_bytes"] < two.report["peak_allocated_bytes"]
