"""Random programs on the real allocator: the replay explains every event, and counts what PyTorch counted."""

import json
import subprocess
from pathlib import Path

import pytest
from harness import PYTHON, warm_up

# Each process runs some; the last drop pools on the way, which nothing names then. Of each dozen four are enough for every day.
CHUNKS = [(0, 6, ["--named-pools"]), (12, 16, ["--named-pools"]), (518, 522, [])]
CHUNKS += [
    pytest.param(*it, marks=pytest.mark.soak)
    for it in ((6, 12, ["--named-pools"]), (16, 36, ["--named-pools"]), (522, 530, []))
]
# Pools that are gone: a segment among the default one's that go together, a line that asks several pools, garbage
# that agrees for long with the wrong pool, and another pool's end in the middle of a retry.
CHUNKS += [(seed, seed + 1, []) for seed in (500375, 500040, 500207, 500230)]
CARD = ("--gpu", "h200", "--memory", "2GiB", "--gpus", "2")


def differences(name, plimsoll, folder, device):
    """Mismatches, and statistics that differ."""
    known = json.loads((folder / f"{name}.json").read_text())
    ran = plimsoll.run("replay", folder / f"{name}.pickle", "--device", device, "--json", "-")
    document = json.loads(ran.stdout)
    ours = document["replayed"]["statistics"]
    # An empty_cache with nothing to give back waits all the same, and leaves no event. A retry without stacks
    # cannot always be told from an empty_cache before the request; nor, in torch 2.11, which names no pools in
    # events, a failed request that tried again from one inside use_mem_pool, which may not; nor a retry from a
    # collection of garbage, where only a few events show what the limit is.
    has_pools = known["pools"] or known["graphs"]
    is_ambiguous = has_pools or not known["stacks"] or "garbage" in known["settings"]
    unseen = {"num_sync_all_streams"} | ({"num_alloc_retries"} if is_ambiguous else set())
    theirs = known["stats"][str(device)]
    wrong = {key: (ours[key], theirs[key]) for key in ours if key in theirs and key not in unseen and ours[key] != theirs[key]}
    return [document["mismatches"], wrong]


@pytest.mark.matrix(1)
@pytest.mark.parametrize("first, last, options", CHUNKS)
def test_every_event_and_statistic_is_pytorch_s(plimsoll, unpack, first, last, options):
    folder = plimsoll.folder / "programs"
    folder.mkdir()
    warm_up(plimsoll.cache)
    environment = unpack(*CARD).environment(plimsoll.folder / "session")
    words = [PYTHON, Path(__file__).with_name("programs.py"), folder, str(first), str(last), *options]
    subprocess.run(words, env=environment, check=True, timeout=300)
    seen = {}
    for path in sorted(folder.glob("*.json")):
        for device in json.loads(path.read_text())["stats"]:
            seen[path.stem, device] = differences(path.stem, plimsoll, folder, device)
    assert len(seen) >= 3 * (last - first)
    assert {key: it for key, it in seen.items() if it != [0, {}]} == {}
