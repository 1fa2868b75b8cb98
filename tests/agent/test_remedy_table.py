"""The table of remedies in the binary's agent: every row has its module, and every module its row.

That each row of it is one of the catalogue is a test of crates/remedies.
"""

import json
import subprocess

import pytest
from harness import PYTHON

LOOK = """
import inspect, json, pkgutil
from plimsoll_agent import remedies
from plimsoll_agent.remedies.table import REMEDIES
modules = {it.name for it in pkgutil.iter_modules(remedies.__path__)} - {"support", "table"}
takes = lambda it: list(inspect.signature(it.apply).parameters)
print(json.dumps({
    "modules": sorted(modules),
    "takes": {id: takes(remedies.module_of(id)) for id, it in REMEDIES.items() if it.is_applied},
    "not applied": [id for id, it in REMEDIES.items() if not it.is_applied],
    "words": [sorted({it[i] for it in REMEDIES.values()}) for i in (1, 2, 3, 4)],
    "kinds": sorted({it.kind for kind in REMEDIES.values() for it in kind.takes.values()}),
}))
"""


def test_every_row_has_its_module_and_every_module_its_row(bare):
    ran = subprocess.run(
        [PYTHON, "-c", LOOK], env={"PYTHONPATH": bare.unpacked.agent}, check=True, capture_output=True, text=True
    )
    found = json.loads(ran.stdout)
    assert sorted(id.replace("-", "_") for id in found["takes"]) == found["modules"]
    assert all(it == ["torch", "parameters", "hooks", "note"] for it in found["takes"].values())
    assert found["not applied"] == ["allocator"]
    # As plimsoll_agent/remedies/__init__.py and survey/idle.py spell them.
    devices, bears, of, untrained = found["words"]
    assert devices == ["InTurn", "One", "Shares"]
    assert bears == ["Devices", "NoShares", "OneDevice"]
    assert untrained == ["Nothing", "NothingSaid", "Something"]
    assert of == ["Every", "SomeModels", "SomeOptimizers"]
    # As remedies/support/parameters.py spells them.
    assert found["kinds"] == ["number", "numbers", "text", "word"]


APPLIED = """
import json, sys
from plimsoll_agent import remedies
from plimsoll_agent.run.refusal import CannotApply
try:
    remedies.apply(None, sys.argv[1], None)
except CannotApply as error:
    print(error)
"""


@pytest.mark.matrix(5)
@pytest.mark.parametrize(
    ("remedy", "sentence"),
    [
        ({"prats": 4}, "gives micro-batches a parameter 'prats', which it does not have; did you mean 'parts'?"),
        ({"lunch": 4}, "gives micro-batches a parameter 'lunch', which it does not have; it has parts"),
        ({"id": "tf32", "parts": 4}, "gives tf32 a parameter 'parts', which it does not have; it has none"),
        ({"parts": 0}, "'parts' of micro-batches is 0; expected a number, 1 or more"),
        ({"parts": "4"}, "'parts' of micro-batches is '4'; expected a number, 1 or more"),
        ({"parts": True}, "'parts' of micro-batches is True; expected a number, 1 or more"),
        ({"parts": 2.5}, "'parts' of micro-batches is 2.5; expected a number, 1 or more"),
        ({"id": "checkpoint", "blocks": [0, -1]}, "'blocks' of checkpoint is [0, -1]; expected a list of numbers, each 0 or more"),
        ({"id": "zero1"}, "the plan has zero1 without 'gpus': a number from 2 to 1024"),
        ({"id": "zero1", "gpus": 2000}, "'gpus' of zero1 is 2000; expected a number from 2 to 1024"),
        ({"id": "empty-cache", "after": "lunch"}, "expected one of \"evaluation\", \"forward\", \"backward\", \"step\""),
        ({"id": "allocator", "settings": ""}, "'settings' of allocator is ''; expected a text"),
        ({"id": "magic"}, "names remedies that this plimsoll does not know: ['magic']"),
        (3, "is not a plan"),
    ],
)
def test_a_plan_says_nothing_that_is_not_done(bare, remedy, sentence):
    """Plans also come through the environment, where nobody has read them before."""
    remedy = {"id": "micro-batches"} | remedy if isinstance(remedy, dict) else remedy
    plan = json.dumps({"version": 1, "remedies": [remedy]})
    words = [PYTHON, "-c", APPLIED, plan]
    ran = subprocess.run(words, env={"PYTHONPATH": bare.unpacked.agent}, check=True, capture_output=True, text=True)
    assert sentence in ran.stdout, ran
    assert ran.stdout.startswith("plimsoll: ")


def test_a_remedy_is_in_a_plan_once(bare):
    plan = json.dumps({"version": 1, "remedies": [{"id": "tf32"}, {"id": "tf32"}]})
    words = [PYTHON, "-c", APPLIED, plan]
    ran = subprocess.run(words, env={"PYTHONPATH": bare.unpacked.agent}, check=True, capture_output=True, text=True)
    assert ran.stdout == "plimsoll: the plan has a remedy more than once: tf32\n"


REFUSED = """
import torch
model = torch.nn.Linear(4, 4).cuda()
optimizer = torch.optim.LBFGS(model.parameters())

def closure():
    optimizer.zero_grad()
    loss = model(torch.ones(2, 4, device="cuda")).sum()
    loss.backward()
    return loss

try:
    optimizer.step(closure)
except RuntimeError as error:
    raise ValueError("training failed") from error
"""


def test_a_refusal_is_a_line_of_the_recording(run):
    plan = json.dumps({"version": 1, "remedies": [{"id": "optimizer-offload"}]})
    ran = run(REFUSED, env={"PLIMSOLL_PLAN": plan})
    why = "L-BFGS, whose state cannot be split"
    assert ran.process.one("refused") == {"kind": "refused", "id": "optimizer-offload", "why": why}
    assert "plimsoll: the remedy optimizer-offload does not suit %s" % why in ran.stderr
    assert not run(REFUSED).process.all("refused")
