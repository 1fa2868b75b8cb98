"""Adapters and quantized training (programs/adapters): the peaks of each phase on a phantom against those of a real card.

Each program prints a line of JSON after loading, the first and the last step, evaluation, merging and saving, with PyTorch's own counters, so the same
lines come from both. `--real` runs the programs on this machine's GPU, `--phantom` under `plimsoll predict`; `--compare` reads what both wrote.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "programs" / "adapters"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plimsoll", default=os.environ.get("PLIMSOLL_BIN", "plimsoll"))
    parser.add_argument("--python", default=sys.executable, help="the Python that runs the programs")
    parser.add_argument("--gpu", default="h100-80g", help="the card that the phantom imitates")
    parser.add_argument("--real", metavar="FILE", help="run on this machine's GPU, and write what was measured there")
    parser.add_argument("--phantom", metavar="FILE", help="run on a phantom, and write what was predicted there")
    parser.add_argument("--jobs", type=int, default=2, help="at a time, of each of the two")
    parser.add_argument("--timeout", type=float, default=300)
    parser.add_argument("--compare", nargs=2, metavar=("REAL", "PHANTOM"))
    parser.add_argument("programs", nargs="*", help="names; default: all")
    return parser.parse_args()


def run(words, timeout):
    """The lines of JSON that a program printed, how it ended, and the end of what it said."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        began = time.monotonic()
        # The files of a saved model lie outside the layer of a run on a GPU: they go with the folder.
        environment = {**os.environ, "TMPDIR": folder, "OMP_NUM_THREADS": "2", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        words = [it.replace("REPORT", str(report)) for it in words]
        try:
            done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout)
            code, out, err = done.returncode, done.stdout, done.stderr
        except subprocess.TimeoutExpired:
            code, out, err = None, "", "it did not end in %d s" % timeout
        res = {"code": code, "seconds": round(time.monotonic() - began, 1)}
        phases = [json.loads(it) for it in (out + "\n" + err).splitlines() if it.startswith('{"phase"')]
        res["phases"] = [[it["phase"], it["allocated"], it["reserved"]] for it in phases]
        if code != 0:
            res["end"] = (out[-1500:] + err[-1500:]).splitlines()[-25:]
        if report.exists():
            res["report"] = json.loads(report.read_text())
        return res


def main():
    args = arguments()
    if args.compare:
        return compare(*map(Path, args.compare))
    programs = args.programs or sorted(it.stem for it in FOLDER.glob("*.py") if it.stem != "parts")
    with ThreadPoolExecutor(2 * args.jobs) as pool:
        waiting = []
        for name in programs:
            script = [args.python, str(FOLDER / name) + ".py"]
            if args.phantom:
                words = [args.plimsoll, "predict", "--gpu", args.gpu, "--until-exit", "--json", "REPORT", "--", *script]
                waiting.append((args.phantom, name, pool.submit(run, words, args.timeout)))
            if args.real:
                waiting.append((args.real, name, pool.submit(run, script, args.timeout)))
        for file, name, it in waiting:
            with open(file, "a") as out:
                out.write(json.dumps({"program": name, **it.result()}) + "\n")
    return 0


def read(path):
    return {it["program"]: it for it in map(json.loads, path.read_text().splitlines())}


def compare(real, phantom):
    """A row a program: the largest peak of the card, and how far each phase of the phantom is off."""
    truth, predicted = read(real), read(phantom)
    same = close = 0
    for name, one in sorted(truth.items()):
        other = predicted.get(name, {"phases": [], "code": None})
        here, there = one["phases"], other["phases"]
        if [it[0] for it in here] != [it[0] for it in there] or not here:
            print("| `%s` | - | - | ended %s on the card, %s on the phantom; %d and %d phases |" % (name, one["code"], other["code"], len(here), len(there)))
            continue
        off = [(a[0], 100 * (b[1] / a[1] - 1), 100 * (b[2] / a[2] - 1), b[1] - a[1], b[2] - a[2]) for a, b in zip(here, there)]
        worst = max(max(abs(it[1]), abs(it[2])) for it in off)
        same, close = same + (worst == 0), close + (worst <= 0.5)
        said = "; ".join("%s: allocated %+d B, reserved %+d MiB" % (it[0], it[3], it[4] >> 20) for it in off if it[3] or it[4])
        print("| `%s` | %.2f | %s | %s |" % (name, max(it[2] for it in here) / 2**30, "equal" if worst == 0 else "%.2f %%" % worst, said))
    print("\n%d of %d equal to the byte in all phases, %d within 0.5 %%" % (same, len(truth), close))
    return 0


if __name__ == "__main__":
    sys.exit(main())
