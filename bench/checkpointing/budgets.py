"""Per-block checkpointing under a budget beside the two simple ways: all blocks, and the first blocks that are enough.

    PLIMSOLL_BIN=target/release/plimsoll python bench/checkpointing/budgets.py [gpt2m llama1b resnet152]

For each model three budgets, a quarter, a half and three quarters of the way from all blocks to none; one JSON line for
each. `recomputation` is the share of what running all blocks again takes, as the phantom counts it; every plan was run.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
BIN = os.environ["PLIMSOLL_BIN"]
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


def main():
    for name in sys.argv[1:] or BATCHES:
        script = [PYTHON, HERE / "models.py", name, BATCHES[name]]
        none, all_blocks = needs(script), needs(script, [{"id": "checkpoint"}])
        for quarter in (1, 2, 3):
            budget = all_blocks + (none - all_blocks) * quarter // 4
            plan, told = tempfile.mktemp(suffix=".toml"), tempfile.mktemp(suffix=".json")
            began = time.time()
            ran = run(BIN, "fit", "--gpu", CARD, "--budget", budget, "--allow", "checkpoint", "--plan", plan, "--json", told, "--", *script)
            assert ran.returncode == 0, ran
            best = json.loads(Path(told).read_text())["plans"][0]
            choices = re.findall(r"(\d+) of (\d+) blocks, (\d+) % .* solved in ([\d.]+) ms", ran.stderr)
            chosen = json.loads(re.search(r"^blocks = (\[.*\])", Path(plan).read_text(), re.M)[1])
            shares = {int(n): int(share) for n, _, share, _ in choices}
            print(
                json.dumps(
                    {
                        "model": name,
                        "budget": budget,
                        "needs": best["needs_bytes"],
                        "over": best["needs_bytes"] > budget,
                        "blocks": int(choices[0][1]),
                        "chosen": len(chosen),
                        "recomputation_percent": shares[len(chosen)],
                        "first_blocks": first_blocks(script, int(choices[0][1]), budget) if os.environ.get("FIRST") else None,
                        "proofs": len(choices),
                        "slowest_solve_ms": max(float(ms) for *_, ms in choices),
                        "seconds": round(time.time() - began, 1),
                        "which": chosen,
                    }
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
