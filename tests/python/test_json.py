"""What the program writes for programs is what docs/schemas says, and what 0.1 wrote is still described by it."""

import json
import zipfile

import pytest
from described import SCHEMAS, assert_described, schema, validator
from harness import PYTHON, ROOT

SNAPSHOTS = ROOT / "fixtures" / "snapshots"
RANKS = sorted((ROOT / "fixtures" / "distributed").glob("ddp.rank*.pickle.xz"))
OOM = SNAPSHOTS / "oom-gpt2-b32-cap12.pickle"
LOG = ROOT / "fixtures" / "pasted" / "mixed-smi-and-oom.txt"
# A file of 0.1, by the schema that it is of.
WRITTEN_BY_0_1 = {path.stem: path for path in sorted((ROOT / "fixtures" / "0.1" / "json").glob("*.json"))}
OF_ANOTHER_NAME = {"explain-ranks": "explain", "explain-text": "explain"}
SCRIPT = """
import os
import torch
layers = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)]).cuda()
optimizer = torch.optim.AdamW(layers.parameters())
for _ in range(5):
    optimizer.zero_grad()
    layers(torch.randn(int(os.environ.get("B", 1024)), 512, device="cuda")).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize("name", [it.name.split(".")[0] for it in sorted(SCHEMAS.glob("*.schema.json"))])
def test_a_schema_is_one_and_the_manual_names_it(name):
    type(validator(name)).check_schema(schema(name))
    assert f"schemas/{name}.schema.json" in (ROOT / "docs" / "json.md").read_text()


@pytest.mark.parametrize("name", WRITTEN_BY_0_1)
def test_what_0_1_wrote_can_still_be_read(name):
    document = json.loads(WRITTEN_BY_0_1[name].read_text())
    wrong = list(validator(OF_ANOTHER_NAME.get(name, name), is_closed=False).iter_errors(document))
    assert not wrong, wrong[0].message
    assert document["version"] == 1


def test_a_recording_of_0_1_can_still_be_read(plimsoll):
    with zipfile.ZipFile(plimsoll.folder / "oom.zip", "w") as file:
        for member in ("agent.jsonl", "snapshot.pickle"):
            file.write(ROOT / "fixtures" / "recordings" / "oom" / member, f"process-1/{member}")
    found = json.loads(plimsoll.run("explain", "--json", "-", "oom.zip").stdout)
    assert_described("explain", found)
    assert found["kind"] == "recording" and found["oom"]["phase"] == "forward", found


@pytest.mark.parametrize(
    "name, words",
    [
        ("explain", ("explain", "--json", "-", OOM)),
        ("explain", ("explain", "--json", "-", *RANKS)),
        ("explain", ("explain", "--json", "-", LOG)),
        ("findings", ("explain", "--list", "--json", "-")),
        ("replay", ("replay", "--json", "-", OOM, "--capacity", "8GiB", "--sweep")),
        ("diff", ("diff", "--json", "-", *RANKS)),
        ("cards", ("cards", "--json")),
        ("card", ("cards", "t4", "--json")),
        ("config", ("config", "--json")),
    ],
)
def test_what_is_written_is_as_described(plimsoll, name, words):
    ran = plimsoll.run(*words)
    assert_described(name, json.loads(ran.stdout))


def test_what_fit_writes_is_as_described(plimsoll):
    # The harness holds each report of `predict` against its schema.
    (plimsoll.folder / "train.py").write_text(SCRIPT)
    for name, words in [
        ("fit", ("fit", "-q", "--gpu", "t4", "--budget", "200MiB", "--allow", "fused", "--json", "-", "--", PYTHON, "train.py")),
        ("find-max", ("fit", "-q", "--gpu", "t4", "--find-max", "b=1..2", "--json", "-", "--", "B={b}", PYTHON, "train.py")),
    ]:
        ran = plimsoll.run(*words)
        assert ran.code in (0, 1), ran
        assert_described(name, json.loads(ran.stdout))


def test_doctor_is_as_described(plimsoll):
    assert_described("doctor", json.loads(plimsoll.run("doctor", "--json").stdout))
