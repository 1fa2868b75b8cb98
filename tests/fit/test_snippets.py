"""Loops as widely read texts have them, fitted to 8 GB: the plan that is promised gets through on that card.

`bench/instruments/fitted.py` fits all of them, with every remedy; here a few, with few remedies, so that it is quick.
"""

import json

import pytest
from harness import PYTHON, ROOT, binary

CARD = ("--gpu", "rtx4060-8g")
pytestmark = pytest.mark.soak


@pytest.mark.parametrize(
    "name, allowed",
    [("accumulation", "micro-batches"), ("deep_cnn", "micro-batches"), ("transformer", "autocast")],
)
def test_a_loop_of_others_fits_8_gb_with_its_plan(plimsoll, name, allowed):
    script = [PYTHON, ROOT / "bench/programs/snippets" / f"{name}.py"]
    # Data and weights are made on the CPU; tests beside this one want its processors, too.
    environment = plimsoll.environment(OMP_NUM_THREADS="1")
    path = plimsoll.folder / "fit.json"
    options = [*CARD, "--allow", allowed, "--plan", "plan.toml", "--json", path]
    ran = plimsoll.run("fit", *options, "--", *script, environment=environment, timeout=900)
    assert ran.code == 0, ran
    answer = json.loads(path.read_text())
    plan, limit = answer["plans"][0], answer["limit"]["bytes"]
    assert answer["outcome"] == "fits_with_plan"
    assert plan["needs_bytes"] <= limit < answer["as_it_is"]["needs_bytes"]
    assert plan["remedies"] and all(it.split()[0] in allowed.split(",") for it in plan["remedies"])

    again = plimsoll.predict(
        binary(), "run", "--plan", "plan.toml", "--", *script, options=CARD, environment=environment
    )
    assert again.code == 0, again
    assert again.report["safe_bytes"] <= plan["needs_bytes"]
