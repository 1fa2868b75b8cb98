"""Scripts whose batches differ in length, with an evaluation: what `fit` says of them without being asked."""

import json
import re
import shlex

import pytest
from harness import PYTHON

SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Texts(Dataset):
    def __len__(self): return 400
    def __getitem__(self, i): return torch.full((16 + i * 7 % 400,), 1 + i % 90)

def collate(texts): return nn.utils.rnn.pad_sequence(texts, batch_first=True)

net = nn.Sequential(nn.Embedding(100, 512), *[nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512)) for _ in range(8)], nn.Linear(512, 100)).cuda()
optimizer = torch.optim.Adam(net.parameters())
for epoch in range(3):
    for x in DataLoader(Texts(), batch_size=32, shuffle=True, collate_fn=collate):
        x = x.cuda()
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten()).backward()
        optimizer.step()
    with torch.no_grad():
        for x in DataLoader(Texts(), batch_size={evaluated}, collate_fn=collate):
            scores = net(x.cuda())
            pairs = scores[:, :, None, :{kept}].expand(-1, -1, 64, -1).contiguous()
"""


def fitted(plimsoll, budget, **values):
    script, path = plimsoll.folder / "train.py", plimsoll.folder / "fit.json"
    script.write_text(SCRIPT.replace("{evaluated}", str(values["evaluated"])).replace("{kept}", str(values["kept"])))
    options = ["--gpu", "h200", "--budget", budget, "--allow", "allocator,micro-batches,checkpoint", "--plan", "plan.toml", "--json", path]
    ran = plimsoll.run("fit", *options, "--", PYTHON, script, timeout=600)
    return ran, json.loads(path.read_text())


def test_an_evaluation_that_does_not_fit_by_itself_ends_the_search(plimsoll):
    ran, found = fitted(plimsoll, "1500MiB", evaluated=400, kept=100)
    assert ran.code == 1 and found["outcome"] == "does_not_fit", ran
    assert not found["plans"] and found["runs"] <= 8, found
    alone = found["evaluation_alone"]
    assert "train.py:23" in alone["at"] and found["limit"]["bytes"] < alone["needs_bytes"], alone
    assert "batches differ in size (samples 16 to 415, in 400 samples)" in ran.stderr, ran
    assert "the evaluation at train.py:23" in ran.stdout and "a smaller batch in the evaluation's DataLoader" in ran.stdout, ran


def test_the_longest_batch_decides_and_the_allocator_is_in_the_plan(plimsoll):
    ran, found = fitted(plimsoll, "1500MiB", evaluated=8, kept=1)
    assert ran.code == 0 and found["outcome"] == "fits_with_plan", ran
    plan = found["plans"][0]
    assert plan["remedies"][0].startswith("allocator (expandable_segments:True"), plan
    assert plan["needs_bytes"] <= found["limit"]["bytes"] < found["as_it_is"]["needs_bytes"]
    assert found["seen"]["evaluation"], found["seen"]


IMAGES = """
import sys, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Pictures(Dataset):
    def __len__(self): return 96
    def __getitem__(self, i): return torch.zeros(3, 64 + i % 5 * 32, 96 + i % 3 * 32)

def collate(pictures):
    height, width = (max(it.shape[d] for it in pictures) for d in (1, 2))
    return torch.stack([nn.functional.pad(it, (0, width - it.shape[2], 0, height - it.shape[1])) for it in pictures])

net = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), *[nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU()) for _ in range(6)]).cuda()
optimizer = torch.optim.Adam(net.parameters())
rows = int(sys.argv[1]) if len(sys.argv) > 1 else 12
for epoch in range(2):
    for x in DataLoader(Pictures(), batch_size=rows, shuffle=True, collate_fn=collate):
        optimizer.zero_grad()
        net(x.cuda()).square().mean().backward()
        optimizer.step()
    with torch.no_grad():
        for x in DataLoader(Pictures(), batch_size=4, collate_fn=collate):
            net(x.cuda()).mean().item()
"""

TEXTS = SCRIPT.replace("{evaluated}", "8").replace("{kept}", "1").replace("batch_size=32", "batch_size=rows").replace("for epoch", "import sys\nrows = int(sys.argv[1]) if len(sys.argv) > 1 else 32\nfor epoch", 1)


@pytest.mark.soak
@pytest.mark.parametrize("script, budget", [(TEXTS, "1500MiB"), (IMAGES, "1300MiB")])
def test_the_same_question_has_one_answer(plimsoll, script, budget):
    """A plan's needs are those that `predict` gives for it; a second search finds the same; the largest batch fits, and the next does not."""
    path, found = plimsoll.folder / "train.py", []
    path.write_text(script)
    options = ["--gpu", "h200", "--memory", budget, "--allow", "allocator,micro-batches,checkpoint"]
    for _ in range(2):
        ran = plimsoll.run("fit", *options, "--plan", "plan.toml", "--json", "fit.json", "--", PYTHON, path, timeout=600)
        assert ran.code == 0, ran
        found.append(json.loads((plimsoll.folder / "fit.json").read_text()))
    plans = [[(it["remedies"], it["needs_bytes"]) for it in one["plans"]] for one in found]
    assert plans[0] == plans[1]
    needs, limit = found[0]["plans"][0]["needs_bytes"], found[0]["limit"]["bytes"]

    def predicted(*words, options=()):
        ran = plimsoll.run("predict", "--gpu", "h200", "--memory", budget, "--json", "predict.json", *options, "--", PYTHON, path, *words, timeout=300)
        return ran, json.loads((plimsoll.folder / "predict.json").read_text())

    ran, of_plan = predicted(options=("--plan", "plan.toml"))
    assert ran.code == 0 and of_plan["safe_bytes"] <= limit and abs(of_plan["safe_bytes"] - needs) <= needs // 50, (of_plan["safe_bytes"], needs)
    assert "batches differ in size" in ran.stdout and "drawn batches first" in " ".join(ran.stdout.split()), ran

    ran = plimsoll.run("fit", "--gpu", "h200", "--memory", budget, "--find-max", "rows=1..40", "--json", "max.json", "--", PYTHON, path, "{rows}", timeout=600)
    assert ran.code == 0, ran
    most = json.loads((plimsoll.folder / "max.json").read_text())["found"]["rows"]
    assert predicted(str(most))[0].code == 0 and predicted(str(most + 1))[0].code == 1, most


@pytest.mark.soak
def test_who_says_how_far_predict_goes_has_batches_as_they_are_drawn(plimsoll):
    path = plimsoll.folder / "train.py"
    path.write_text(IMAGES)
    for options, is_said in (((), True), (("--steps", "3"), False), (("--worst-size", "300"), False)):
        ran = plimsoll.run("predict", "--gpu", "h200", *options, "--", PYTHON, path, timeout=300)
        assert ran.code == 0 and ("drawn batches first" in " ".join(ran.stdout.split())) == is_said, ran


def test_predict_looks_at_few_samples_of_one_size(plimsoll):
    path = plimsoll.folder / "train.py"
    path.write_text(IMAGES.replace("64 + i % 5 * 32, 96 + i % 3 * 32", "64, 96"))
    ran = plimsoll.run("predict", "--gpu", "h200", "--", PYTHON, path, timeout=300)
    assert ran.code == 0 and "batches differ in size" not in ran.stdout, ran


@pytest.mark.soak
def test_the_check_that_a_report_prints_says_the_same(plimsoll):
    """Of a plan, and of a value under a budget: the same size, to the byte."""
    ran, found = fitted(plimsoll, "1500MiB", evaluated=8, kept=1)
    checked = check(plimsoll, ran)
    plan = found["plans"][0]
    assert checked.code == 0 and abs(checked.report["safe_bytes"] - plan["needs_bytes"]) <= plan["needs_bytes"] / 200, (checked.report["safe_bytes"], plan)
    text = SCRIPT.replace("{evaluated}", "8").replace("{kept}", "1").replace("batch_size=32", "batch_size=int(__import__('sys').argv[1])")
    plimsoll.script(text)
    path = plimsoll.folder / "value.json"
    options = ["--find-max", "batch=8..64:8", "--gpu", "h200", "--budget", "1700MiB", "--json", path]
    ran = plimsoll.run("fit", *options, "--", PYTHON, "train.py", "{batch}", timeout=600)
    found = json.loads(path.read_text())
    (value,) = [it for it in found["tried"] if it["value"] == found["found"]["batch"]]
    checked = check(plimsoll, ran)
    assert checked.report["peak_device_bytes"] == value["peak_device_bytes"], (checked.report, value)


def check(plimsoll, ran):
    (line,) = re.findall(r"^ +(plimsoll predict .*)", ran.stdout, re.MULTILINE)
    words = shlex.split(line)[2:]
    at = words.index("--")
    return plimsoll.predict(*words[at + 1 :], options=words[:at])
