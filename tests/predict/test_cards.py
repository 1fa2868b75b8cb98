"""Other cards than the one that a script ran on: by comparison, by another run, or not at all."""

import json

import pytest

HEAD = """
import subprocess, torch
model = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
TAIL = """
for step in range(8):
    model(torch.randn(rows, 1024, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def carried(ran):
    return {it["id"]: it["carries"] for it in ran.report["cards"]}


def notes(ran):
    return {it["code"]: it["text"] for it in ran.report["notes"]}


def predict(plimsoll, middle, *options):
    (plimsoll.folder / "size.py").write_text(HEAD + middle + TAIL)
    return plimsoll.predict("size.py", options=("--gpu", "rtx4090", *options))


def test_who_asks_how_large_the_card_is_is_told_of_no_other(plimsoll):
    asks = {
        "rows = torch.cuda.mem_get_info()[0] // 2 // 16384": "(torch.cuda.mem_get_info at size.py:6)",
        "rows = torch.cuda.get_device_properties(0).total_memory // 2 // 16384": "(total_memory at size.py:6)",
        "rows = int(subprocess.check_output(['nvidia-smi', '--query-gpu=memory.total', '--format=csv,noheader,nounits'])) * 32": "(nvidia-smi)",
    }
    for line, named in asks.items():
        ran = predict(plimsoll, "\n" + line)
        assert (ran.code, ran.report["cards"]) == (0, []), ran
        assert named in notes(ran)["asked-size"], notes(ran)


def test_who_asks_for_something_else_is_told_of_all(plimsoll):
    ran = predict(
        plimsoll,
        "rows = 64; torch.cuda.get_device_properties(0).name; torch.nn.DataParallel(model)\n"
        "subprocess.check_output(['nvidia-smi', '-L'])\n"
        "subprocess.check_output(['nvidia-smi', '--query-gpu=name', '--format=csv'])",
    )
    assert carried(ran)["rtx4060-8g"] == "yes", ran.report["cards"]


def test_each_of_the_cards_is_run_on(plimsoll):
    line = "free, total = torch.cuda.mem_get_info()\nrows = 64 if total < 12 << 30 else free // 16384"
    ran = predict(plimsoll, line, "--cards", "rtx4060-8g,rtx4090,h200", "--steps", "2")
    assert carried(ran) == {"rtx4060-8g": "yes", "rtx4090": "no", "h200": "no"}
    assert "asked-size" not in notes(ran) and "cards" in notes(ran)


def test_what_does_not_fit_is_tried_on_the_largest(plimsoll):
    ran = predict(plimsoll, "rows = (16 << 30) // 8192")
    assert ran.code == 1, ran
    found = carried(ran)
    assert [found[it] for it in ("rtx4060-8g", "rtx4090", "a100-80g", "h200")] == ["no", "no", "yes", "yes"]
    assert "unknown" not in json.dumps(list(found.values()))


@pytest.mark.soak
def test_ctrl_c_in_a_further_run_leaves_no_half_answer(plimsoll):
    line = "rows = 64\nif torch.cuda.mem_get_info()[1] > 100 << 30:\n    import os, signal\n    os.kill(os.getppid(), signal.SIGINT)"
    (plimsoll.folder / "size.py").write_text(HEAD + line + TAIL)
    # From within a layer a script cannot send us a signal.
    words = ["--cards", "rtx4060-8g,h200", "--writes", "through", "--", "size.py"]
    ran = plimsoll.run("predict", *words, environment=plimsoll.cold())
    assert (ran.code, ran.stdout) == (2, "")
    ran.assert_sentence("interrupted during the confirmation run on a phantom NVIDIA H200", "which is not a safe bound")
    plimsoll.assert_nothing_left()


@pytest.mark.soak
def test_ctrl_c_in_a_further_run_leaves_what_is_known(plimsoll):
    line = "rows = (16 << 30) // 8192\nif '4060' not in torch.cuda.get_device_properties(0).name:\n    import os, signal\n    os.kill(os.getppid(), signal.SIGINT)"
    (plimsoll.folder / "size.py").write_text(HEAD + line + TAIL)
    for options in ("--gpu", "rtx4060-8g"), ("--cards", "rtx4060-8g,h200"):
        words = [*options, "--writes", "through", "--", "size.py"]
        ran = plimsoll.run("predict", *words, environment=plimsoll.cold())
        assert (ran.code, "DOES NOT FIT" in ran.stdout) == (1, True), ran
        assert "interrupted while the script ran again on a phantom NVIDIA" in " ".join(ran.stdout.split()), ran
    plimsoll.assert_nothing_left()
