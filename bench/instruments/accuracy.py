"""Predictions of plimsoll against what an H200 took, and PyTorch's MemTracker beside them.

    python bench/instruments/accuracy.py                      45 runs of ../programs/workloads.py
    python bench/instruments/accuracy.py --set montecarlo     also kinds, values: see sets.py

Prints a row a program, then median and 90th percentile of the absolute error, and xMem's verdict
measure (Middleware '25, `exp/run.py` of its repository) on emulated cards of 8, 12 and 40 GiB:
  round 1  is the verdict (process memory above the card, or not) the measured one?
  round 2  if a fit was predicted: does the run fit with the prediction as its cap, rounded to a whole percent of
           the card as there? Two ways to ask: is the measured process memory at most the cap; and, as
           `set_per_process_memory_fraction` has it, is what PyTorch reserved at most the cap and the process on the card
           (that reserved memory can be squeezed by the allocator's retry is credited in neither).
  PEF      the share of runs wrong in either round.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from sets import HERE, PLIMSOLL, programs

GIB = 2**30


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", default="workloads", choices=("workloads", "montecarlo", "kinds", "values"))
    parser.add_argument("--plimsoll", default=PLIMSOLL)
    parser.add_argument("--python", default=os.environ.get("PLIMSOLL_PYTHON", sys.executable))
    parser.add_argument("--gpu", default="h200", help="the card that the truths were measured on")
    parser.add_argument("--only", nargs="*", default=[], help="programs whose name contains one of these")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--no-memtracker", action="store_true")
    parser.add_argument("--out", help="write every number here, as JSON")
    return parser.parse_args()


def read_truth(truth):
    process = truth.get("nvml_process_bytes") or (truth.get("nvml_process") or [None])[0]
    if process and process < truth["max_reserved"]:
        process = None  # It was read at the end, after memory had been given back: not the peak.
    steps = truth.get("steps", 0)
    steps = steps if isinstance(steps, int) else len(steps)
    return {"allocated": truth["max_allocated"], "reserved": truth["max_reserved"], "process": process, "steps": steps, "oom": truth.get("oom")}


def predict(options, program, folder):
    """What plimsoll says, and how long it took."""
    out, report = (os.path.join(folder, program.name + end) for end in (".out", ".report"))
    command = [options.plimsoll, "predict", "--gpu", options.gpu, *program.options, "--json", report, "--", options.python, *program.command(folder, out)]
    start = time.perf_counter()
    run = subprocess.run(command, env=os.environ | program.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    seconds = time.perf_counter() - start
    try:
        it = json.load(open(report))
    except (OSError, ValueError):
        return {"failed": run.stderr.strip().splitlines()[-1:] or [f"exit {run.returncode}"], "seconds": seconds}
    if it["outcome"] == "script_failed":
        return {"failed": [str(it.get("notes", ""))[:200]], "seconds": seconds}
    return {
        "allocated": it["peak_allocated_bytes"], "reserved": it["peak_reserved_bytes"], "process": it["peak_device_bytes"],
        "safe": it.get("safe_bytes"), "outcome": it["outcome"], "oom": it.get("oom"), "steps": it["steps_seen"], "seconds": seconds,
    }


def memtracker(options, program, folder):
    case, out = program.command(folder, os.path.join(folder, program.name + ".tracker"))[1:]
    start = time.perf_counter()
    run = subprocess.run([options.python, HERE / "memtracker.py", case, out], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    seconds = time.perf_counter() - start
    try:
        return {"allocated": json.load(open(out))["peak"], "seconds": seconds}
    except (OSError, ValueError):
        return {"failed": run.stderr.strip().splitlines()[-1:] or [f"exit {run.returncode}"], "seconds": seconds}


def error(estimate, truth):
    return None if not estimate or not truth else 100 * (estimate / truth - 1)


def show(value, width=9):
    return "-".rjust(width) if value is None else f"{value:+{width}.3f}"


def summary(name, errors):
    errors = sorted(abs(it) for it in errors if it is not None)
    if not errors:
        return f"{name:34} no answers"
    nine = errors[min(len(errors) - 1, round(0.9 * (len(errors) - 1)))]
    return f"{name:34} n {len(errors):3}  median {statistics.median(errors):7.3f} %  90th percentile {nine:7.3f} %  worst {errors[-1]:7.3f} %"


def two_rounds(rows, which, capped):
    """xMem's PEF over emulated cards; `which` picks the estimate that is both verdict and cap, `capped` what the cap bounds."""
    wrong = runs = 0
    for card in (8 * GIB, 12 * GIB, 40 * GIB):
        for row in rows:
            truth, estimate = row["truth"]["process"], row["plimsoll"].get(which)
            if row["truth"]["oom"] or not truth or not estimate:
                continue
            runs += 1
            cap = min(card, round(estimate / card, 2) * card)
            first = (estimate > card) == (truth > card)
            second = estimate > card or row["truth"][capped] <= cap and truth <= card
            wrong += not (first and second)
    return wrong, runs


def main():
    options = arguments()
    chosen = [it for it in programs(options.set) if it.truth and (not options.only or any(part in it.name for part in options.only))]
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(options.jobs) as pool:

        def both(program):
            row = {"program": program.name, "truth": read_truth(program.truth), "plimsoll": predict(options, program, scratch)}
            row["memtracker"] = None if options.no_memtracker or not program.case else memtracker(options, program, scratch)
            return row

        print(f"{'program':36}{'allocated':>10}{'reserved':>10}{'process':>10}{'MemTracker':>11}{'seconds':>9}   (% off)")
        rows = []
        for row in pool.map(both, chosen):
            truth, ours, theirs = row["truth"], row["plimsoll"], row["memtracker"] or {}
            row["errors"] = {key: error(ours.get(key), truth[key]) for key in ("allocated", "reserved", "process")}
            # A run that stopped at a limit did not reach the peak that MemTracker speaks of.
            row["errors"]["memtracker"] = None if truth["oom"] else error(theirs.get("allocated"), truth["allocated"])
            rows.append(row)
            line = f"{row['program']:36}" + "".join(show(row["errors"][key], 10) for key in ("allocated", "reserved", "process")) + show(row["errors"]["memtracker"], 11) + f"{ours['seconds']:9.1f}"
            if "failed" in ours:
                line += f"   no prediction: {ours['failed']}"
            elif truth["oom"]:
                oom = ours.get("oom") or {}
                line += f"   out of memory at step {oom.get('step')}, {oom.get('phase')}"
                if isinstance(truth["oom"], dict):
                    line += f" (measured: step {truth['oom']['step']}, {truth['oom']['phase']})"
            print(line, flush=True)

    exact = sum(1 for it in rows if it["errors"]["reserved"] == 0)
    print()
    for key in ("allocated", "reserved", "process"):
        print(summary(f"plimsoll, {key}", [it["errors"][key] for it in rows]))
    if not options.no_memtracker:
        print(summary("MemTracker, against allocated", [it["errors"]["memtracker"] for it in rows]))
    print(f"reserved equal to the byte: {exact} of {len(rows)}")
    for which in ("process", "safe"):
        for capped in ("process", "reserved"):
            wrong, runs = two_rounds(rows, which, capped)
            if runs:
                print(f"xMem's two rounds with {which:8} as the cap of {capped:9} {wrong} of {runs} wrong (PEF {100 * wrong / runs:.1f} %)")
    if options.out:
        json.dump(rows, open(options.out, "w"), indent=1)


if __name__ == "__main__":
    main()
