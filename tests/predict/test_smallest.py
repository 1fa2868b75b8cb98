"""Without `--gpu`: the smallest card is found by runs, where most of what the largest card needs is PyTorch's cache."""

import pytest
from harness import COLD, PYTHON

# Each step wants more than what the last one gave back, in one block: on a large card all of it stays cached.
GROWING_BATCHES = """
import torch
layer = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for gib in [4, 6, 8, 10, 12, 14, 16, 18] * 2:
    batch = torch.empty(gib << 30, dtype=torch.uint8, device="cuda")
    optimizer.zero_grad()
    layer(torch.ones(4, 8, device="cuda")).sum().backward()
    optimizer.step()
    del batch
"""


def test_the_smallest_card_is_one_that_a_run_showed(plimsoll):
    plimsoll.script(GROWING_BATCHES)
    ran = plimsoll.predict(PYTHON, "train.py", options=("--until-exit",))
    assert ran.code == 0, ran
    # Blocks of 4 to 18 GiB are 88 GiB of cache, of which one is needed at a time.
    assert ran.report["peak_reserved_bytes"] > 80 << 30
    smallest = ran.report["smallest"]
    first = next(it for it in ran.report["cards"] if it["id"] == smallest["gpu"])
    assert first["total_bytes"] < 40 << 30 and smallest["peak"]["device_bytes"] <= first["total_bytes"]
    assert smallest["too_small"] == [] or first["total_bytes"] > 18 << 30
    assert 1 + len(smallest["too_small"]) <= 3
    assert f"on {smallest['gpu']}, as a run there shows" in " ".join(ran.stdout.split()), ran
    assert "expandable_segments" in ran.stdout or "fragmentation/slack" in ran.stdout, ran
    # A named card says the same.
    named = plimsoll.predict(PYTHON, "train.py", options=("--gpu", smallest["gpu"], "--until-exit"))
    assert named.code == 0 and named.report["verdict"] == "fits" and "smallest" not in named.report, named


@pytest.mark.soak
def test_what_needs_little_cache_is_run_once(plimsoll):
    plimsoll.script(GROWING_BATCHES.replace("[4, 6, 8, 10, 12, 14, 16, 18]", "[18]"))
    ran = plimsoll.predict(COLD, "train.py", options=("--until-exit",))
    assert ran.code == 0 and "smallest" not in ran.report, ran
