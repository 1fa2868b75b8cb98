"""`plimsoll.predict`: a function on the phantom, from wherever it is called."""

import json

import pytest
from harness import PYTHON

TRAIN = """
import torch
from torch import nn

def train(batch, width=1024):
    model = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width)).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(8):
        optimizer.zero_grad()
        model(torch.randn(batch, width, device="cuda")).pow(2).mean().backward()
        optimizer.step()
"""

ASK = """
if __name__ == "__main__":
    import json, sys
    import plimsoll
    answer = plimsoll.predict(train, int(sys.argv[1]), gpu="t4", memory="1GiB", width=512)
    at = answer.out_of_memory
    print(json.dumps({
        "fits": answer.fits, "peak": answer.peak, "allocated": answer.peak_allocated, "safe": answer.safe,
        "steps": answer.steps, "sum": sum(answer.categories.values()), "headroom": answer.headroom,
        "findings": [it.code for it in answer.findings], "file": at and at.file, "line": at and at.line, "text": str(answer),
    }))
"""


@pytest.mark.soak
def test_a_function_of_the_script_takes_what_the_script_takes(program, plimsoll):
    ran = program.run(TRAIN + ASK, 64)
    assert ran.returncode == 0, ran
    answer = json.loads(ran.stdout)
    plimsoll.script(TRAIN + "train(64, 512)\n")
    report = plimsoll.predict(PYTHON, "train.py", options=("--gpu", "t4", "--memory", "1GiB")).report
    assert answer["fits"] and answer["allocated"] == report["peak_allocated_bytes"]
    assert answer["peak"] == answer["sum"] == report["peak_device_bytes"] <= answer["safe"]
    of_what = f" for {report['seen']['covers']['words']}" if report["seen"]["covers"] else ""
    assert answer["headroom"] == 2**30 - answer["peak"]
    assert answer["steps"] >= 3 and answer["text"].startswith(f"fits Tesla T4 (1.00 GiB){of_what}: needs")
    assert "peak/composition" in answer["findings"]


MASKED = """
import torch

def train(rows):
    model, score = torch.nn.Linear(1024, 1024).cuda(), torch.nn.Linear(1024, 1).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    data = torch.randn(rows, 1024, device="cuda")
    for _ in range(6):
        hard = score(data).squeeze(1) > 0
        optimizer.zero_grad()
        (model(data[hard]).square().sum() + model(data[:8]).square().mean()).backward()
        optimizer.step()

if __name__ == "__main__":
    import plimsoll
    answer = plimsoll.predict(train, 100_000, gpu="t4", memory="1GiB")
    print(answer.fits, answer.headroom, answer)
"""


def test_what_depends_on_masks_is_an_answer_and_no_error(program):
    ran = program.run(MASKED)
    assert ran.returncode == 0, ran
    assert ran.stdout.startswith("False None may not fit Tesla T4 (1.00 GiB): needs "), ran
    assert ran.stdout.rstrip().endswith("if boolean masks select nothing, more than it has if they select everything"), ran


def test_one_that_does_not_fit_says_where(program):
    ran = program.run(TRAIN + ASK, 200_000)
    assert ran.returncode == 0, ran
    answer = json.loads(ran.stdout)
    assert not answer["fits"] and answer["headroom"] is None
    line = TRAIN.splitlines()[answer["line"] - 1]
    assert answer["file"].endswith("train.py") and "model(" in line, answer


def test_what_the_function_writes_goes_where_it_is_asked_to_go(program):
    text = TRAIN + """
def writes(batch):
    open("kept.txt", "w").write("here")
    train(batch, 64)
if __name__ == "__main__":
    import os, plimsoll
    for where in None, "keep=" + os.path.abspath("kept"), "through":
        plimsoll.predict(writes, 8, gpu="t4", steps=2, writes=where)
        print(os.path.exists("kept.txt"))
"""
    ran = program.run(text)
    assert ran.stdout.split() == ["False", "False", "True"], ran
    assert (program.folder / "kept" / program.folder.relative_to("/") / "kept.txt").read_text() == "here"


def test_what_the_function_raises_is_raised(program):
    text = """
import plimsoll
def train(batch):
    import torch
    torch.zeros(1, device="cuda")
    raise ValueError("no data for %d" % batch)
if __name__ == "__main__":
    try:
        plimsoll.predict(train, 3, gpu="t4")
    except plimsoll.FunctionFailed as error:
        print(type(error.__cause__).__name__, error.__cause__)
        print("train.py" in str(error))
"""
    ran = program.run(text)
    assert ran.stdout.split("\n")[:2] == ["ValueError no data for 3", "True"], ran


def test_a_script_without_a_guard_is_told_so(program):
    ran = program.run(TRAIN + "import plimsoll\nplimsoll.predict(train, 3, gpu='t4')\n")
    assert ran.returncode == 1 and 'if __name__ == "__main__":' in ran.stderr.splitlines()[-1], ran
    assert "CannotReach" in ran.stderr.splitlines()[-1]


UNREACHABLE = {
    "an interactive session": TRAIN + "import plimsoll; print(plimsoll.predict(train, 8, gpu='t4').fits)\n",
    "inside a function": "def outer():\n    def train():\n        pass\n    return train\n"
    "import plimsoll; plimsoll.predict(outer(), gpu='t4')\n",
    "a lambda": "import plimsoll; plimsoll.predict(lambda: None, gpu='t4')\n",
}


@pytest.mark.parametrize("case", UNREACHABLE)
def test_a_function_that_cannot_be_reached_is_refused_with_what_to_do(program, case):
    text = "import sys; sys.modules['cloudpickle'] = None\n" + UNREACHABLE[case]
    ran = program.start(PYTHON, "-c", text)
    last = ran.stderr.splitlines()[-1]
    assert ran.returncode == 1 and "CannotReach" in last and "install cloudpickle" in last, ran


def test_cloudpickle_carries_it(program):
    pytest.importorskip("cloudpickle")
    ran = program.start(PYTHON, "-c", UNREACHABLE["an interactive session"])
    assert ran.stdout == "True\n", ran


def test_a_module_of_a_package_and_arguments_of_its_own_class(program):
    package = program.folder / "project"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "sizes.py").write_text("class Sizes:\n    def __init__(self, batch):\n        self.batch = batch\n")
    (package / "main.py").write_text(
        "from .sizes import Sizes\n" + TRAIN + "def of(sizes):\n    train(sizes.batch, 256)\n"
        "if __name__ == '__main__':\n    import plimsoll\n    print(plimsoll.predict(of, Sizes(8), gpu='t4', steps=3).steps)\n"
    )
    ran = program.start(PYTHON, "-m", "project.main")
    assert ran.stdout == "3\n", ran


def test_a_card_that_does_not_exist(program):
    ran = program.run("import plimsoll\ndef f(): pass\nif __name__ == '__main__': plimsoll.predict(f, gpu='rtx9999')\n")
    last = ran.stderr.splitlines()[-1]
    assert last.startswith("plimsoll._binary.PlimsollError: ") and "rtx9999" in last, ran
