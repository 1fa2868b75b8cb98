"""Causes that a script can have without an error in it: each is named in a script that has it, and not in its fixed twin."""

import pathlib

import pytest

SCRIPTS = pathlib.Path(__file__).parent / "scripts" / "causes"

CAUSES = [
    # script, code, MiB, words of the title, words of the remedy
    ("attention", "attention/written-out", 3231, "12 matrices of 2304 x 2304", "scaled_dot_product_attention"),
    ("casts", "casts/repeated", 360, "45 copies of 2 weights", "torch.autocast"),
    ("frozen", "gradients/no-optimizer", 78, "is not frozen", "requires_grad_(False)"),
    ("teacher", "gradients/no-optimizer", 272, "`Teacher.layers` is not frozen", "no_grad"),
    ("table", "gradients/dense-table", 562, "2000000 rows of `items.weight`", "sparse=True"),
    ("validation", "evaluation/large-batch", 3700, "5000 rows in one forward pass, the training 64", "batches"),
    ("volume", "evaluation/whole-volume", 514, "64 forward passes", "sw_device"),
    ("closures", "leak/earlier-models", 640, "5 earlier models", "`reports[...] > model` keeps the model"),
    ("before", "outputs/step-before", 768, "of the step before", "del outputs, loss"),
    ("batches", "outputs/step-before", 600, "of the batch before", "del outputs, loss"),
]


def found(ran):
    assert ran.report["outcome"] == "fits", ran
    return {it["code"]: it for it in ran.report["findings"]}


@pytest.mark.parametrize(("name", "code", "mib", "title", "remedy"), CAUSES, ids=[it[0] for it in CAUSES])
def test_a_cause_is_named_and_its_fixed_twin_has_none(plimsoll, name, code, mib, title, remedy):
    bad = found(plimsoll.predict(SCRIPTS / f"{name}.py", options=["--gpu", "rtx4090"]))
    it = bad[code]
    assert abs(it["bytes"] / 2**20 - mib) <= max(1, mib / 50) and title in it["title"] and remedy in it["remedy"], it
    worse = [other for other in bad.values() if other["weight"] == "problem" and other["code"] != code]
    assert not worse, worse
    ours = {it[1] for it in CAUSES}
    fixed = found(plimsoll.predict(SCRIPTS / f"{name}_fixed.py", options=["--gpu", "rtx4090"]))
    assert not ours.intersection(fixed), fixed


LARGER = [
    # script, what is larger, code
    ("attention", "torch.randn(4, 3, 384", "torch.randn(40, 3, 384", "attention/written-out"),
    ("casts", "1024", "8192", "casts/repeated"),
    ("validation", "5000", "30000", "evaluation/large-batch"),
]


@pytest.mark.parametrize(("name", "before", "larger", "code"), LARGER, ids=[it[0] for it in LARGER])
def test_a_recording_of_a_run_that_ran_out_leads_with_the_cause(plimsoll, name, before, larger, code):
    text = (SCRIPTS / f"{name}.py").read_text()
    script = plimsoll.script(text.replace(before, larger).replace("4096", "32768"))
    plimsoll.run("predict", "--gpu", "rtx3060-12g", "--record", "rec", "--quiet", "--", script)
    told = plimsoll.run("explain", "rec").stdout
    assert told.startswith("OUT OF MEMORY") and f"[{code}]" in told.split("\n\n")[0], told
