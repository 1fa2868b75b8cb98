"""Large sharded models on a small machine: what `examples/fsdp2_llama.py` costs to predict.

    python bench/instruments/large_jobs.py --plimsoll target/release/plimsoll --python PYTHON

Prints one row a job: seconds by the clock and by the CPU, the most that one process held in memory, and what
was predicted. The peak of memory is that of the largest process (`ru_maxrss` of children).
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sets import PLIMSOLL, ROOT

JOBS = [("1b", 8), ("8b", 8), ("70b", 64)]


def measure(arguments):
    """In a process of its own, because the peak of children is that of all children so far."""
    command, report = arguments
    began = time.monotonic()
    code = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = {"code": code, "wall": time.monotonic() - began, "cpu": used.ru_utime + used.ru_stime}
    result["gib"] = used.ru_maxrss / 2**20
    return result | json.loads(Path(report).read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", default=str(PLIMSOLL))
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--job", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        print(json.dumps(measure(args.job)))
        return
    print("| job | seconds | CPU seconds | host memory | reserved | on the GPU |")
    print("|---|---|---|---|---|---|")
    for size, world in JOBS:
        with tempfile.TemporaryDirectory() as folder:
            report = os.path.join(folder, "report.json")
            script = str(ROOT / "examples" / "fsdp2_llama.py")
            options = ["--gpu", "h100-80g", "--world-size", str(world), "--quiet", "--json", report]
            command = [args.plimsoll, "predict", *options, "--", args.python, script, "--size", size]
            again = [sys.executable, __file__, "--job", json.dumps([command, report])]
            it = json.loads(subprocess.run(again, capture_output=True, text=True, check=True).stdout)
            assert it["code"] == 0, it
            gib = lambda key: f"{it[key] / 2**30:.2f} GiB"
            print(
                f"| Llama {size.upper()}, FSDP2 over {world} H100s | {it['wall']:.0f} | {it['cpu']:.0f} "
                f"| {it['gib']:.1f} GiB | {gib('peak_reserved_bytes')} | {gib('peak_device_bytes')} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
