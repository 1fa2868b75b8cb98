"""`plimsoll verify` and `plimsoll calibrate` on a machine whose card is a phantom."""

import json

import pytest
from described import assert_described
from harness import PYTHON

TRAIN = """
import torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(16 * 30 * 30, 10)).cuda()
optimizer = torch.optim.AdamW(net.parameters())
for step in range(50):
    loss = net(torch.randn(8, 3, 32, 32, device="cuda")).square().mean()
    MORE
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.save(net.state_dict(), "checkpoint.pt")
"""
# What only the card in this machine asks for: a phantom of `predict` has a session with a phantom.conf of its own.
ON_THE_CARD = "import os\n    if os.environ['PLIMSOLL_MODE'] == 'run': extra = torch.zeros(3 << 20, device='cuda')"


def plimsoll(program, *words, **more):
    return program.start(program.environment()["PLIMSOLL_BIN"], *words, **more)


def verify(program, more, *options):
    (program.folder / "train.py").write_text(TRAIN.replace("MORE", more))
    words = ("verify", "--gpu", "h200", "--json", "answer.json", *options, "--", PYTHON, "train.py")
    ran = plimsoll(program, *words, environment=program.on_a_device("--gpu", "h200"))
    path = program.folder / "answer.json"
    return ran, json.loads(path.read_text()) if path.stat().st_size else None


def test_a_card_that_is_as_its_phantom_is_verified(program):
    ran, answer = verify(program, "pass", "--report", "report.json")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.lstrip().startswith("VERIFIED h200: the phantom is within 1 % of the card"), ran.stdout
    assert answer["within"] is True and answer["first_difference"] is None
    assert_described("verify", answer)
    assert answer["real"]["reserved_bytes"] == answer["phantom"]["reserved_bytes"] != 0
    assert answer["real"]["steps"] == answer["phantom"]["steps"] == 3
    assert not (program.folder / "checkpoint.pt").exists(), "both runs write into a layer"
    report = (program.folder / "report.json").read_text()
    assert "train.py" not in report and str(program.folder) not in report
    assert len(json.loads(report)["requests_bytes"]["real"]) == answer["real"]["requests"]


def test_where_they_part_is_said(program):
    ran, answer = verify(program, ON_THE_CARD)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    first = answer["first_difference"]
    assert first["real_bytes"] == [12 << 20] and first["phantom_bytes"] == [], first
    assert first["line"] == 9 and first["step"] == 1, first
    assert "NOT THE SAME h200" in ran.stdout and "train.py:9" in ran.stdout


RANKS = """
import os
import torch
torch.distributed.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
net = torch.nn.Linear(256 << rank, 256).cuda()
optimizer = torch.optim.AdamW(net.parameters())
for step in range(20):
    loss = net(torch.randn(64, 256 << rank, device="cuda")).square().mean()
    torch.distributed.all_reduce(loss.detach())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
torch.distributed.destroy_process_group()
"""


def test_each_rank_is_compared_with_its_own(program):
    (program.folder / "ranks.py").write_text(RANKS)
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", 2)
    words = ("verify", "--gpu", "h200", "--json", "answer.json", "--report", "report.json", "--", PYTHON, *launcher, "ranks.py")
    ran = plimsoll(program, *words, environment=program.on_a_device("--gpu", "h200", "--gpus", "2"))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.lstrip().startswith("VERIFIED h200, 2 ranks: the phantom is within 1 % of the card in every rank"), ran.stdout
    assert "rank 0 " in ran.stdout and "rank 1 " in ran.stdout
    answer = json.loads((program.folder / "answer.json").read_text())
    first, second = answer["ranks"]
    assert (first["rank"], second["rank"], answer["within"]) == (0, 1, True)
    for it in (first, second):
        assert it["real"]["reserved_bytes"] == it["phantom"]["reserved_bytes"] != 0
    assert first["real"]["allocated_bytes"] < second["real"]["allocated_bytes"], "the second has the larger layer"
    report = json.loads((program.folder / "report.json").read_text())
    assert [len(it["requests_bytes"]["real"]) for it in report["ranks"]] == [it["real"]["requests"] for it in answer["ranks"]]


def test_without_a_gpu_there_is_nothing_to_compare_with(program):
    for words in (("verify", "--", "python", "train.py"), ("calibrate",)):
        ran = plimsoll(program, *words)
        assert ran.returncode == 2 and "found no NVIDIA GPU on this machine" in ran.stderr


@pytest.mark.soak
@pytest.mark.parametrize("gpus", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_a_calibrated_card_is_known_from_then_on(program, gpus):
    cards = program.folder / "cards"
    forgetful = {"PLIMSOLL_CARDS": str(cards), "PLIMSOLL_FORGET_CARDS": "h200"}
    environment = program.on_a_device("--gpu", "h200", "--gpus", str(gpus)) | {"PLIMSOLL_PYTHON": str(PYTHON)}
    ran = plimsoll(program, "calibrate", environment=environment | forgetful)
    assert ran.returncode == 0, ran.stderr
    if gpus == 2:
        assert "836.0 MiB with the first group of 2 ranks, 486.0 MiB with each further group" in ran.stdout, ran.stdout
    assert "equal on the phantom in 28 of 28 convolutions and matrix products" in ran.stdout, ran.stdout
    (file,) = cards.iterdir()
    assert "Every command now knows it as " in ran.stdout

    ours = program.environment()
    known = json.loads(plimsoll(program, "cards", "NVIDIA H200", "--json", environment=ours).stdout)
    measured = json.loads(plimsoll(program, "cards", "NVIDIA H200", "--json", environment=ours | forgetful).stdout)
    speeds = ["link_bytes_per_second", "host_step_us"] + ["between_bytes_per_second"] * (gpus - 1)
    for key in known:
        if key not in ("id", "aliases", "generation", "provenance", "context_bytes", "nccl_bytes", *speeds):
            assert measured[key] == known[key], key
    if gpus == 2:
        assert [it >> 20 for it in measured["nccl_bytes"]] == [164, 198, 388, 288, 186, 58, 64, 320], "as a phantom has it"
    assert all(0 < measured[it] for it in speeds)
    assert measured["provenance"]["cudnn"] == "measured"

    file.write_text(file.read_text().replace("NVIDIA H200", "NVIDIA H200\\ncudnn_json = 1"))
    ran = plimsoll(program, "cards", environment=ours | forgetful)
    assert ran.returncode == 0 and "skipped the card" in ran.stderr and "expected characters that can be seen" in ran.stderr
