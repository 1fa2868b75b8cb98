"""Every program of `sets.py` under two builds, or under one build with two settings: which answers differ?

    python bench/instruments/same.py --jobs 16 before=BINARY after=BINARY
    python bench/instruments/same.py --jobs 16 with=BINARY without="BINARY --assume values=off"

A side is a name, a binary and options of `predict`. A script's answer is what its report says of memory: verdict, peaks,
safe number, categories, lines, steps and the codes of its notes. Some scripts differ from run to run by themselves (threads,
time): where two sides differ, each runs twice more, and they are the same if they have an answer in common. `--out` takes
the answers as JSON lines, and `--known` reads such a file, so that a side need not run again.

Where a script has a truth of an H200, the error of each side's reserved memory stands beside it.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from accuracy import read_truth
from sets import SETS, programs

MEMORY = (
    "outcome peak_allocated_bytes peak_reserved_bytes peak_device_bytes safe_bytes context_bytes steps_seen steady categories "
    "top_lines late overflow workspaces ranks oom"
).split()
REPEATS = 2


def answer(side, script, args):
    """What this side's report says of memory."""
    with tempfile.TemporaryDirectory() as folder:
        report = f"{folder}/report.json"
        own = [*shlex.split(side)]
        words = script.command(folder, f"{folder}/out.json")
        command = [own[0], "predict", "--gpu", "h200", "--quiet", "--json", report, *script.options, *own[1:], "--", args.python, *words]
        env = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"} | script.environment
        began = time.time()
        try:
            ran = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=args.timeout)
        except subprocess.TimeoutExpired:
            return {"failed": f"not done in {args.timeout} s"}, args.timeout
        seconds = round(time.time() - began, 1)
        try:
            said = json.loads(Path(report).read_text())
        except (OSError, ValueError):
            return {"failed": ran.stderr.strip().splitlines()[-1:]}, seconds
    result = {key: said[key] for key in MEMORY if key in said}
    for it in result.get("ranks", []):
        it.pop("pid", None)
    for it in result.get("top_lines", []):
        if "/torchinductor" in str(it.get("file")) or "/inductor/" in str(it.get("file")):
            it["file"] = "compiled"  # It has a name of its own in each run.
    result["notes"] = sorted(it.get("code", "") if isinstance(it, dict) else str(it) for it in said.get("notes", []))
    return result, seconds


def key(it):
    return json.dumps(it, sort_keys=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sides", nargs="+", metavar="NAME=BINARY [OPTIONS]")
    parser.add_argument("--python", default=os.environ.get("PLIMSOLL_PYTHON", sys.executable))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--sets", nargs="*", default=SETS, choices=SETS)
    parser.add_argument("--only", nargs="*", default=[], help="scripts whose name contains one of these")
    parser.add_argument("--timeout", type=int, default=150)
    parser.add_argument("--known", action="append", default=[])
    parser.add_argument("--out")
    args = parser.parse_args()
    sides = dict(it.split("=", 1) for it in args.sides)
    by_name = {f"{it.set}/{it.name}": it for it in programs(*args.sets)}
    by_name = {name: it for name, it in by_name.items() if not args.only or any(part in name for part in args.only)}
    known, out = {}, open(args.out, "w") if args.out else None
    for path in args.known:
        for line in Path(path).read_text().splitlines():
            it = json.loads(line)
            known.setdefault((it["script"], it["side"]), []).append(it["answer"])

    def ask(job):
        name, side = job
        said, seconds = answer(sides[side], by_name[name], args)
        known.setdefault((name, side), []).append(said)
        if out:
            out.write(json.dumps({"script": name, "side": side, "answer": said, "seconds": seconds}) + "\n")
            out.flush()

    def differs(name):
        answers = [{key(it) for it in known.get((name, side), [])} for side in sides]
        return not set.intersection(*answers)

    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(ask, [(name, side) for name in by_name for side in sides if (name, side) not in known]))
        again = [name for name in by_name if differs(name)]
        list(pool.map(ask, [(name, side) for name in again for side in sides for _ in range(REPEATS)]))

    for name in filter(differs, by_name):
        print(f"{name}:")
        answers = [known[name, side][-1] for side in sides]
        for field in sorted(set().union(*answers)):
            values = [it.get(field) for it in answers]
            if any(it != values[0] for it in values):
                print(f"    {field}: " + " | ".join(f"{side} {str(it)[:160]}" for side, it in zip(sides, values)))
    n_failed = {side: sum("failed" in known[name, side][0] for name in by_name) for side in sides}
    print(f"{len(by_name)} scripts: {sum(not differs(it) for it in by_name)} the same; without an answer: {n_failed}")
    for side in sides:
        exact = near = n = 0
        for name, script in by_name.items():
            truth, said = read_truth(script.truth)["reserved"] if script.truth else None, known[name, side][0].get("peak_reserved_bytes")
            if truth and said:
                n, exact, near = n + 1, exact + (said == truth), near + (abs(said / truth - 1) <= 0.01)
        print(f"{side}: reserved equal to the byte of an H200 in {exact} of {n}, within 1 % in {near}")


if __name__ == "__main__":
    main()
