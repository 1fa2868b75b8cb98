"""What the recorder of `plimsoll run` costs on a GPU: step times of ../programs/recorded.py alone and under it, in turn.

    python bench/instruments/recorder.py [--repeats 3] [--ranks N] [--stacks sampled] [tiny:16 gpt2:8 ...]

With ranks the script is DDP under torchrun, and all of that is recorded. Each run is a process of its own, which prints the median time between events at the ends of its steps, the first 15 left
out. Prints the medians of these, and what recording adds, against the bar of issue 5: less than 1 %. Exit code 1 if it is over.
The mean over the same steps, which has the steps with stacks in it where only some have any, stands beside.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from sets import PLIMSOLL, PROGRAMS

MOST = 0.01
CASES = ("gpt2:8", "gpt2:1", "resnet50:64", "tiny:16", "cells:16")


def step(options, model, batch, recorded, folder):
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", options.ranks]
    steps = ["--steps", 215] if model in ("tiny", "cells") else []
    script = [options.python, *(torchrun if options.ranks > 1 else []), PROGRAMS / "recorded.py", model, "--batch", batch, *steps]
    prefix = [options.plimsoll, "run", "--record", "run.zip", "--stacks", options.stacks, "--"] if recorded else []
    command = list(map(str, [*prefix, *script]))
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if ran.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{ran.stderr[-2000:]}")
    said = json.loads(ran.stdout.splitlines()[-1])
    if recorded and options.sampling:
        print(f"{model:10} batch {batch:>3}   {sampling(Path(folder, 'run.zip'))}", flush=True)
    return said["device_median"], said["wall_per_step"]


def sampling(recording):
    """How many steps were seen in full, and which were the last of them, by the recording's own lines."""
    with zipfile.ZipFile(recording) as it:
        name = next(name for name in it.namelist() if name.endswith("agent.jsonl"))
        lines = [json.loads(line) for line in it.read(name).splitlines()]
    step, full, sees = 0, [], True
    for line in lines:
        if line.get("what") == "step_end":
            step += 1
            full += [step] if sees else []
        if line.get("kind") == "stacks" or "kept" in line:
            sees = line["kept"]
    return f"{len(full)} of {step} steps in full, the last of them {full[-8:]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", default=PLIMSOLL)
    parser.add_argument("--python", default=os.environ.get("PLIMSOLL_PYTHON", sys.executable))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--stacks", choices=("all", "sampled", "none"), default="sampled")
    parser.add_argument("--sampling", action="store_true", help="say of each recording which steps were seen in full")
    parser.add_argument("cases", nargs="*", default=CASES, metavar="MODEL:BATCH")
    options = parser.parse_args()
    options.plimsoll = Path(options.plimsoll).resolve()
    over = False
    with tempfile.TemporaryDirectory() as folder:
        for case in options.cases:
            model, batch = case.split(":")
            times = {False: [], True: []}
            for repeat in range(options.repeats):
                for recorded in (False, True) if repeat % 2 == 0 else (True, False):
                    times[recorded].append(step(options, model, batch, recorded, folder))
            alone, under = (statistics.median(it for it, _ in times[which]) for which in (False, True))
            means = [statistics.median(it for _, it in times[which]) for which in (False, True)]
            over |= MOST < under / alone - 1
            every = "   ".join(", ".join(f"{it * 1e3:.3f}" for it, _ in times[which]) for which in (False, True))
            print(f"{model:10} batch {batch:>3}   alone {alone * 1e3:7.2f} ms   recorded {under * 1e3:7.2f} ms   {100 * (under / alone - 1):+.2f} %   mean {100 * (means[1] / means[0] - 1):+.2f} %   ({every})", flush=True)
    sys.exit(over)


if __name__ == "__main__":
    main()
