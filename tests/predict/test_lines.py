"""Numbers that nobody computed and that decide sizes: a line reads what it read when they were known, or what the user says."""

import json

import pytest

SPEAKS = """
import torch
embed, predict, speak = torch.nn.Embedding(60, 16).cuda(), torch.nn.Linear(16, 1).cuda(), torch.nn.Conv1d(16, 80, 9).cuda()
optimizer = torch.optim.SGD([*embed.parameters(), *predict.parameters(), *speak.parameters()], 0.01)

def regulate(x, durations):
    return torch.repeat_interleave(x, durations, dim=0)

def run(phones, durations):
    x = embed(phones)
    if durations is None:
        durations = predict(x).squeeze(-1).exp().round().long()
    return speak(regulate(x, durations).T)

for total in (30, 40):
    optimizer.zero_grad()
    run(torch.arange(10).cuda(), torch.full((10,), total // 10).cuda()).sum().backward()
    optimizer.step()
with torch.no_grad():
    print([run(torch.arange(10).cuda(), None).shape[-1] for _ in range(3)])
"""

DETERMINISTIC = """
import torch
torch.use_deterministic_algorithms(True, warn_only=True)
x = torch.empty(72, 3, device="cuda").log_normal_() @ torch.empty(3, 2, device="cuda").log_normal_()
print([len(x[:, 0].unique()), len(x.nonzero()), (x @ x.T).sum().item() < 1])
"""


def texts(ran, code):
    return [it["text"] for it in ran.report["notes"] if it["code"] == code]


def test_a_line_reads_what_it_read_when_it_was_known(plimsoll):
    """A model that regulates lengths trains with durations of its data, and speaks with its own."""
    plimsoll.script(SPEAKS)
    ran = plimsoll.predict("train.py", options=("--gpu", "h200", "--until-exit"))
    assert ran.code == 0, ran
    assert "[22, 32, 22]" in ran.stdout, "a convolution of nine takes eight from 30, 40 and 30"
    (said,) = texts(ran, "read-as-before")
    assert said.startswith("3 times train.py:7 read a number that was not computed") and "--assume train.py:7=NUMBER" in said


LIBRARY = """
def tokens(x): return x.item()

def loss(x): return x.item()

def number(x): return x.item()
"""


def test_a_library_s_lines_are_told_apart_and_a_loss_is_no_size(plimsoll):
    """One line of the user's calls a trainer, which reads how many tokens there are, and losses."""
    installed = plimsoll.folder / "site-packages"
    installed.mkdir()
    (installed / "trainer.py").write_text(LIBRARY)
    plimsoll.script(
        "import sys, torch; sys.path.insert(0, 'site-packages'); import trainer\n"
        "a = torch.randn(64, 64).cuda() @ torch.randn(64, 64).cuda()\n"
        "n = torch.tensor(4096).cuda()\n"
        "print([trainer.tokens(n), trainer.loss(a.long().sum()), trainer.number(n), round(trainer.number(a.sum()))])\n"
    )
    ran = plimsoll.predict("train.py", options=("--gpu", "h200", "--until-exit"))
    assert "[4096, 0, 4096, 0]" in ran.stdout, ran
    assert not texts(ran, "read-as-before"), ran.report["notes"]


def test_where_nothing_was_known_the_line_and_the_option_are_named(plimsoll):
    plimsoll.script(SPEAKS.replace("    if durations is None:", "    if durations is not None:\n        return speak(x.T)\n    if True:"))
    ran = plimsoll.predict("train.py", options=("--gpu", "h200", "--until-exit"))
    assert ran.code == 2, ran
    assert "Kernel size can't be greater" in ran.stderr and "--assume train.py:7=NUMBER" in ran.stderr, ran
    said = plimsoll.predict("train.py", options=("--gpu", "h200", "--until-exit", "--assume", "train.py:7=33"))
    assert said.code == 0 and "[25, 25, 25]" in said.stdout, said


KINDS = """
import json, torch
a = torch.randn(64, 64).cuda() @ torch.randn(64, 64).cuda()
out = []
for kind in (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8):
    x = (a[0, :3] * 0.5).tanh().to(kind)
    out.append([x[0].item(), x.tolist(), int(x[1])])
out.append(bool(a[0, 0].long() > 3))
out.append(range(a[0].long().max())[-1])
x = a.long().sum(1)[:3]
out.append([x.cpu().tolist(), x.sum().item()])
known = torch.arange(5).cuda()
out.append(known.tolist())
print(json.dumps(out))
"""


def test_what_is_said_of_a_line_is_read_in_every_kind(plimsoll):
    plimsoll.script(KINDS)
    lines = {7: "2.5", 8: "1", 9: "12", 11: "4", 13: "8"}
    options = [it for line, number in lines.items() for it in ("--assume", f"train.py:{line}={number}")]
    ran = plimsoll.predict("train.py", options=("--gpu", "h200", "--until-exit", *options))
    values = json.loads(ran.stdout.splitlines()[0])
    assert values[:4] == 4 * [[2.5, [2.5, 2.5, 2.5], 2]], values
    assert values[4:7] == 3 * [[2, [2, 2, 2], 2]], values
    assert values[7:] == [True, 11, [[4, 4, 4], 4], [0, 1, 2, 3, 4]], "what is known stays"


def test_a_line_that_reads_nothing_unknown_is_told(plimsoll):
    plimsoll.script(SPEAKS)
    ran = plimsoll.predict("train.py", options=("--gpu", "h200", "--until-exit", "--assume", "other.py:7=3", "--assume", "train.py:7=50"))
    assert "[42, 42, 42]" in ran.stdout, ran
    (said,) = texts(ran, "assumed-unused")
    assert said.startswith("--assume other.py:7 was not used"), said
    assert not texts(ran, "read-as-before") and not texts(ran, "unknown-reads"), ran.report["notes"]


def test_what_deterministic_algorithms_put_into_new_tensors_is_not_read(plimsoll):
    """PyTorch fills them with NaN and with the largest number, and no kernel on a phantom writes over that."""
    plimsoll.script(DETERMINISTIC)
    ran = plimsoll.predict("train.py", options=("--gpu", "h200", "--until-exit"))
    assert ran.code == 0, ran
    assert "[72, 0, True]" in ran.stdout, ran
    assert texts(ran, "approximated"), ran.report["notes"]


MERGES = """
import torch
score, head = torch.nn.Linear(16, 1).cuda(), torch.nn.Linear(16, 4).cuda()
optimizer = torch.optim.SGD([*score.parameters(), *head.parameters()], 0.01)

def kept(x):
    return int((score(x) > 0.5).sum(1).max()) + 1

for step in range(3):
    x = torch.randn(8, 32, 16, device="cuda")
    loss = head(x[:, : kept(x)]).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    right = 0
    right += (head(x).argmax(-1) == 1).sum().item()
    print(loss.item(), right)
"""


def test_what_decides_sizes_and_nobody_computed_is_said_beside_the_answer(plimsoll):
    """A count that is printed decides nothing, and is not named there."""
    plimsoll.script(MERGES)
    ran = plimsoll.predict("train.py", options=("--gpu", "h200", "--until-exit"))
    assert ran.code == 0, ran
    (said,) = texts(ran, "sizes-unknown")
    assert said == "the answer depends on values that a phantom does not compute: sizes follow from values that read as 0 at train.py:7 (give one: --assume train.py:7=NUMBER)"
    answer = ran.stdout.index("FITS")
    assert answer < ran.stdout.index("! the answer depends on values") < ran.stdout.index("At the peak"), ran.stdout
    ran = plimsoll.predict("train.py", options=("--gpu", "h200", "--until-exit", "--assume", "train.py:7=20"))
    assert not texts(ran, "sizes-unknown"), ran.report["notes"]


def test_what_masks_find_is_said_beside_the_answer(plimsoll):
    script = "import torch\nx = torch.empty({rows}, 9, device='cuda').log_normal_()\nprint(x[x[:, 0] > 0].repeat(1, 20).shape)\n"
    plimsoll.script(script.format(rows=64))
    ran = plimsoll.predict("train.py", options=("--gpu", "h200", "--until-exit"))
    assert "everything_found" in ran.report and not texts(ran, "sizes-unknown"), "it takes the same both ways"
    plimsoll.script(script.format(rows=20_000_000))
    ran = plimsoll.predict("train.py", options=("--gpu", "h200", "--until-exit"))
    assert texts(ran, "sizes-unknown") == ["the answer depends on values that a phantom does not compute: sizes follow from the results of nonzero()"]
    assert "everything_found" in ran.report, "it was run both ways"
    ran = plimsoll.predict("train.py", options=("--gpu", "h200", "--until-exit", "--assume", "nonzero=0.5"))
    assert not texts(ran, "sizes-unknown"), ran.report["notes"]


FINDS_MUCH = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 10)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
data, score = torch.randn(400_000, 1024, device="cuda"), torch.nn.Linear(1024, 1).cuda()
for _ in range(6):
    with torch.no_grad():
        hard = score(data).squeeze(1) > 0
    loss = model(data[hard]).square().sum() + model(data[:64]).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
"""


@pytest.mark.parametrize("card, code, verdict", [("t4", 2, "depends"), ("h200", 0, "fits")])
def test_what_fits_only_if_a_mask_finds_little_is_not_said_to_fit(plimsoll, card, code, verdict):
    plimsoll.script(FINDS_MUCH)
    ran = plimsoll.predict("train.py", options=("--gpu", card))
    assert (ran.code, ran.report["verdict"], ran.report["outcome"]) == (code, verdict, "fits"), ran
    if verdict == "depends":
        assert "IT DEPENDS t4" in ran.stdout and "FITS" not in ran.stdout, ran
        assert ran.report["safe_bytes"] is None and "yes" not in {it["carries"] for it in ran.report["cards"]}
        ran = plimsoll.predict("train.py", options=("--gpu", card, "--assume", "nonzero=0.1"))
        assert (ran.code, ran.report["verdict"]) == (0, "fits"), ran
    else:
        everything = ran.report["everything_found"]["device_bytes"]
        assert ran.report["safe_bytes"] > everything > 10 * ran.report["peak_device_bytes"]
        ran = plimsoll.predict("train.py", options=("--gpu", card, "--max", f"{everything // 2}B"))
        assert ran.code == 2 and ran.report["verdict"] == "depends" and "IT DEPENDS h200" in ran.stdout, ran
