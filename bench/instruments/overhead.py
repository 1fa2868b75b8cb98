"""What plimsoll costs beside the script itself: three training steps, alone on the phantom and under `plimsoll predict`.

    python bench/instruments/overhead.py [--repeats 5] [--only gpt2]

"Alone" is the same Python, script and phantom, started with LD_PRELOAD and without the agent: imports, model
construction and three steps of Python, which is what a prediction cannot avoid. The two are measured in turn.
Prints medians of wall seconds and of the largest resident set of any process of the run, and what `predict`
adds, against the bar of issue 2: at most 1.5 s and 300 MB more. Exit code 1 if it is over.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sets import PLIMSOLL, PROGRAMS, on_phantom

MOST_SECONDS = 1.5
MOST_BYTES = 300_000_000

CASES = [
    {"name": "gpt2", "model": "gpt2", "batch": 8, "seq": 512, "optimizer": "adamw", "precision": "fp32", "steps": 3},
    {"name": "resnet50", "model": "tv/resnet50", "batch": 32, "image": 224, "optimizer": "sgdm", "precision": "fp32", "steps": 3},
]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", default=PLIMSOLL)
    parser.add_argument("--python", default=os.environ.get("PLIMSOLL_PYTHON", sys.executable))
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[it["name"] for it in CASES])
    parser.add_argument("--json", help="every measurement goes here")
    return parser.parse_args()


def measure(command, environment, log):
    """Wall seconds, and the largest resident set of the process and of everything that it waited for."""
    start = time.perf_counter()
    with open(log, "wb") as out:
        process = subprocess.Popen(list(map(str, command)), env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    if os.waitstatus_to_exitcode(status):
        sys.exit(f"{' '.join(map(str, command))} failed:\n{Path(log).read_text()[-2000:]}")
    return {"seconds": seconds, "bytes": usage.ru_maxrss * 1024}


def main():
    options = arguments()
    over = False
    everything = {}
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        plain = os.environ | on_phantom(options.plimsoll, options.gpu)
        for case in (it for it in CASES if it["name"] in options.only):
            path = folder / "case.json"
            path.write_text(json.dumps(case))
            script = [options.python, PROGRAMS / "workloads.py", path, folder / "out.json"]
            predict = [options.plimsoll, "predict", "--gpu", options.gpu, "--steps", case["steps"], "--", *script]
            alone, under = [], []
            measure(script, plain, folder / "log")  # Warms the page cache.
            for _ in range(options.repeats):
                alone.append(measure(script, plain, folder / "log"))
                under.append(measure(predict, dict(os.environ), folder / "log"))
            everything[case["name"]] = {"alone": alone, "predict": under}
            middle = lambda runs, key: statistics.median(it[key] for it in runs)
            seconds, size = middle(alone, "seconds"), middle(alone, "bytes")
            more, larger = middle(under, "seconds") - seconds, middle(under, "bytes") - size
            over |= MOST_SECONDS < more or MOST_BYTES < larger
            print(
                f"{case['name']:10} alone {seconds:6.2f} s {size / 1e6:6.0f} MB   predict {seconds + more:6.2f} s {(size + larger) / 1e6:6.0f} MB"
                f"   {more:+.2f} s ({1 + more / seconds:.2f}x) {larger / 1e6:+.0f} MB ({1 + larger / size:.2f}x)   {options.repeats} repeats"
            )
    if options.json:
        Path(options.json).write_text(json.dumps(everything, indent=1) + "\n")
    sys.exit(over)


if __name__ == "__main__":
    main()
