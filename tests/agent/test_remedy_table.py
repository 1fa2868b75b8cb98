"""The table of remedies in the binary's agent: every row has its module, and every module its row.

That each row of it is one of the catalogue is a test of crates/remedies.
"""

import json
import subprocess

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
    "words": [sorted({it[i] for it in REMEDIES.values()}) for i in (1, 2, 3)],
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
    devices, bears, of = found["words"]
    assert devices == ["InTurn", "One", "Shares"]
    assert bears == ["Devices", "NoShares", "OneDevice"]
    assert of == ["Every", "SomeModels", "SomeOptimizers"]


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
    why = "L-BFGS, whose state is one whole"
    assert ran.process.one("refused") == {"kind": "refused", "id": "optimizer-offload", "why": why}
    assert "plimsoll: the remedy optimizer-offload does not suit %s" % why in ran.stderr
    assert not run(REFUSED).process.all("refused")
