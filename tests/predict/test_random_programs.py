"""Random programs of allocations: what the report says is what PyTorch's own counters said, to the byte.

The report's numbers come from our replay of the recording; the counters from the real allocator on the
phantom, printed by the program itself. A mistake in either shows as a difference.
"""

import json

import pytest

PROGRAM = """
import json, random, sys, torch
seed = int(sys.argv[1])
r = random.Random(seed)
KIB, MIB = 1 << 10, 1 << 20
# At and around the allocator's own limits.
LIMITS = [512, MIB, 2 * MIB, 10 * MIB, 20 * MIB, 32 * MIB]

def size():
    kind = r.random()
    if kind < 0.4:
        return r.randrange(1, 64 * KIB)
    if kind < 0.6:
        return max(1, r.choice(LIMITS) + r.choice([-512, -1, 0, 1, 512]))
    return r.randrange(MIB, 60 * MIB)

def allocate(n):
    return torch.empty(n, dtype=torch.uint8, device="cuda")

streams = [torch.cuda.default_stream(), torch.cuda.Stream()]
live = []
for i in range(1500):
    x = r.random()
    if x < 0.56 or not live:
        try:
            with torch.cuda.stream(r.choice(streams)):
                live.append(allocate(size()))
        except torch.OutOfMemoryError:
            del live[::2]
    elif x < 0.98:
        live.pop(r.randrange(len(live)))
    elif x < 0.99:
        torch.cuda.empty_cache()
    else:
        live = live[len(live) // 2:]
stats = torch.cuda.memory_stats()
names = {"allocated": "allocated_bytes.all.peak", "reserved": "reserved_bytes.all.peak", "retries": "num_alloc_retries"}
print(json.dumps({key: stats[name] for key, name in names.items()}))
"""

CONFIGURATIONS = [
    "",
    "expandable_segments:True",
    "max_split_size_mb:32",
    "roundup_power2_divisions:4",
    "garbage_collection_threshold:0.6",
    "max_split_size_mb:64,roundup_power2_divisions:8",
]


@pytest.mark.matrix(2)
@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda it: it or "default")
@pytest.mark.parametrize("seed", [1, 2])
def test_peaks_are_pytorch_s_own(plimsoll, configuration, seed):
    script = plimsoll.script(PROGRAM)
    environment = plimsoll.environment(PYTORCH_CUDA_ALLOC_CONF=configuration) if configuration else None
    # A card that the program fills: cached blocks are given back and collected, too.
    ran = plimsoll.predict(script, seed, options=["--gpu", "h200", "--memory", "2GiB", "--until-exit"], environment=environment)
    assert ran.code in (0, 1), ran
    counters = json.loads(ran.stdout.splitlines()[0])
    assert counters["retries"] or "expandable" in configuration
    assert ran.report["peak_allocated_bytes"] == counters["allocated"]
    assert ran.report["peak_reserved_bytes"] == counters["reserved"]
    assert not [it for it in ran.report["notes"] if it["code"] in ("mismatches", "recording-incomplete")]
