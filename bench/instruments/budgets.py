"""Per-block checkpointing under a budget beside the two simple ways: all blocks, and the first blocks that are enough.

    PLIMSOLL_BIN=target/release/plimsoll python bench/instruments/budgets.py [gpt2m llama1b resnet152]

For each model three budgets, a quarter, a half and three quarters of the way from all blocks to none; one JSON line for
each. What runs again is counted on the phantom, in TFLOP and GB moved; every plan was run. `FIRST=1` adds the fewest
first blocks that fit, found by halving.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

from sets import PROGRAMS

BIN = os.environ.get("PLIMSOLL_BIN")
PYTHON = os.environ.get("PLIMSOLL_PYTHON", sys.executable)
CARD = "h200"
BATCHES = {"gpt2m": 8, "llama1b": 8, "resnet152": 64}


def run(*words, **more):
    return subprocess.run([str(it) for it in words], capture_output=True, text=True, env={**os.environ, **more})


def needs(script, plan=None):
    """What `fit` compares with the budget, for the script with a plan."""
    path = tempfile.mktemp(suffix=".json")
    more = {"PLIMSOLL_PLAN": json.dumps({"version": 1, "remedies": plan})} if plan else {}
    ran = run(BIN, "predict", "--gpu", CARD, "--memory", "140GiB", "--quiet", "--json", path, "--", *script, **more)
    assert ran.returncode == 0, ran
    answer = json.loads(Path(path).read_text())
    return answer["safe_bytes"]


def first_blocks(script, n, budget):
    """The fewest first blocks with which it fits."""
    too_few, enough = 0, n
    while too_few + 1 < enough:
        middle = (too_few + enough) // 2
        if needs(script, [{"id": "checkpoint", "blocks": list(range(middle))}]) <= budget:
            enough = middle
        else:
            too_few = middle
    return enough


def work(script):
    """What each block computes and moves in one forward pass, counted on the phantom: [flop, bytes]."""
    path = tempfile.mktemp(suffix=".zip")
    plan = {"version": 1, "remedies": [{"id": "checkpoint", "blocks": [], "measure": 1}]}
    options = ["--gpu", CARD, "--memory", "140GiB", "--quiet", "--steps", 3, "--record", path]
    ran = run(BIN, "predict", *options, "--", *script, PLIMSOLL_PLAN=json.dumps(plan))
    assert ran.returncode == 0, ran
    with zipfile.ZipFile(path) as recording:
        for name in recording.namelist():
            if name.endswith("agent.jsonl"):
                for line in recording.read(name).splitlines():
                    if line.startswith(b'{"kind":"block-work"'):
                        blocks = json.loads(line)["blocks"]
                        return [[sum(o["count"] * o[of] for o in it) for of in ("flops", "bytes")] for it in blocks]
    raise AssertionError("no block-work in " + path)


def again(works, blocks):
    """Recomputation of these blocks, in TFLOP and GB."""
    return [round(sum(works[it][i] for it in blocks) / unit, 2) for i, unit in ((0, 1e12), (1, 1e9))]


def main():
    if "--help" in sys.argv:
        sys.exit(__doc__)
    for name in sys.argv[1:] or BATCHES:
        script = [PYTHON, PROGRAMS / "checkpointed.py", name, BATCHES[name]]
        none, all_blocks = needs(script), needs(script, [{"id": "checkpoint"}])
        works = work(script)
        everything = range(len(works))
        for quarter in (1, 2, 3):
            budget = all_blocks + (none - all_blocks) * quarter // 4
            plan, told = tempfile.mktemp(suffix=".toml"), tempfile.mktemp(suffix=".json")
            began = time.time()
            ran = run(BIN, "fit", "--gpu", CARD, "--budget", f"{budget}B", "--allow", "checkpoint", "--plan", plan, "--json", told, "--", *script)
            assert ran.returncode == 0, ran
            best = json.loads(Path(told).read_text())["plans"][0]
            choices = re.findall(r"(\d+) of (\d+) blocks, (\d+) % .* solved in ([\d.]+) ms", ran.stderr)
            chosen = json.loads(re.search(r"^blocks = (\[.*\])", Path(plan).read_text(), re.M)[1])
            answer = {
                "model": name,
                "budget": budget,
                "needs": best["needs_bytes"],
                "over": best["needs_bytes"] > budget,
                "chosen": len(chosen),
                "of": len(works),
                "again_chosen": again(works, chosen),
                "again_all": again(works, everything),
                "proofs": len(choices),
                "slowest_solve_ms": max(float(ms) for *_, ms in choices),
                "seconds": round(time.time() - began, 1),
                "which": chosen,
            }
            if os.environ.get("FIRST"):
                first = first_blocks(script, len(works), budget)
                answer |= {"first_blocks": first, "again_first": again(works, range(first))}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
