"""`plimsoll fit` of two builds over the scripts of `raw/three_fifths.jsonl`: the same plans? And the step times that each reports beside those that were measured then.

    python bench/instruments/same_plans.py --jobs 14 before=BINARY after=BINARY

Anywhere: nothing runs on a GPU. A script is searched under the limit of its row, those that take long last. A plan is its remedies and what it needs.
A step's ratio is compared where the row's plan is among those that a build proposes. Searches run beside each other, which slows the host that reported times assume idle.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from three_fifths import scripts

ROWS = Path(__file__).parent.parent / "results" / "raw" / "three_fifths.jsonl"
NEAR = math.log(1.25)


def search(binary, row, words, until):
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "fit.json")
        card = {"h100": "h100-80g"}.get(row["card"], row["card"])
        command = [binary, "fit", "--gpu", card, "--limit-reserved", f'{row["fit"]["limit"]}B', "--json", report, "--quiet", "--", sys.executable, *words]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        try:
            subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=max(1, until - time.monotonic()))
            said = json.loads(report.read_text())
        except (subprocess.TimeoutExpired, OSError, ValueError):
            return None
    plans = [(it["remedies"], it["needs_bytes"]) for it in said["plans"]]
    times = {str(it["remedies"]): (it.get("time_factor"), it.get("time_factor_range") or (math.inf, -math.inf)) for it in said["plans"]}
    return {"outcome": said["outcome"], "plans": plans, "times": times}


def measured(row):
    """How many times as long a step took with the row's plan, and that plan; nothing if it did not run to its end."""
    try:
        if row["plan"].get("code"):
            return None
        return row["plan"]["step"]["median"] / row["bare"]["step"]["median"], str(row["fit"]["plans"][0]["remedies"])
    except (KeyError, IndexError, TypeError):
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sides", nargs=2, metavar="NAME=BINARY")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--budget-seconds", type=float, default=1e6)
    parser.add_argument("--only", nargs="*", help="scripts of these names")
    args = parser.parse_args()
    sides = dict(it.split("=", 1) for it in args.sides)
    known, until = scripts(), time.monotonic() + args.budget_seconds
    rows = [json.loads(line) for line in ROWS.read_text().splitlines()]
    rows = [it for it in rows if it["script"] in known and it.get("fit", {}).get("plans") and (not args.only or it["script"] in args.only)]
    rows.sort(key=lambda row: row["fit"]["seconds"])

    def both(row):
        answers = [search(binary, row, known[row["script"]], until) if time.monotonic() < until else None for binary in sides.values()]
        return row, answers

    with ThreadPoolExecutor(args.jobs) as pool:
        done = [(row, answers) for row, answers in pool.map(both, rows) if all(answers)]
    n_same = n_first = 0
    for row, (before, after) in done:
        same = sorted(map(str, before["plans"])) == sorted(map(str, after["plans"])) and before["outcome"] == after["outcome"]
        first = before["plans"][:1] == after["plans"][:1]
        n_same, n_first = n_same + same, n_first + first
        if not (same and first):
            print(row["script"], "has other plans:" if not same else "has another order:", before["plans"], after["plans"])
    print(f"{len(done)} of {len(rows)} scripts searched: {n_same} with the same plans and needs, {n_first} with the same plan first")
    for index, side in enumerate(sides):
        off, n_in = [], 0
        for row, answers in done:
            ratio, plan = measured(row) or (None, None)
            reported, (low, high) = answers[index]["times"].get(plan, (None, (math.inf, -math.inf)))
            if ratio and reported:
                off.append(abs(math.log(reported / ratio)))
                n_in += low <= ratio <= high
        if off:
            print(f"{side}: {len(off)} ratios of step times, {math.expm1(statistics.median(off)):.1%} off at the median, {sum(it <= NEAR for it in off)} within 25 %, {n_in} in the range")


if __name__ == "__main__":
    main()
