"""Scripts for several GPUs, written as people write them and run once on two H200s, against what a phantom says of them.

    python bench/instruments/spread.py --plimsoll target/release/plimsoll --python PYTHON --keep FOLDER [NAME...]

`../programs/spread` has the scripts, `../results/raw/spread-h200.jsonl` what PyTorch's allocator counted in each process until it
ended (a rank and a device a line). The error is that of the nearer of the two orders (docs/distributed.md) for rank 0, and
for every rank where a script starts its own. Reports that FOLDER has are not made again.
"""

import argparse
import json
import os
import subprocess
from pathlib import Path

from sets import RAW, programs

SIZES = ("allocated", "reserved")


def report(program, args):
    path = Path(args.keep) / f"{program.name}.json"
    if not path.exists():
        options = ["--gpu", "h200", *program.options, "--quiet", "--json", str(path.resolve())]
        command = [args.plimsoll, "predict", *options, "--", args.python, *program.command(args.keep, "")]
        subprocess.run(command, cwd=args.keep, env=os.environ | {"HF_HUB_OFFLINE": "1"}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return json.loads(path.read_text()) if path.exists() else None


def errors(said, truth):
    """By size, the error of the nearest order in percent: of the rank and device of `truth`, or of the one that ran."""
    own = [it for it in said.get("ranks", []) if it["rank"] in (None, truth["rank"]) and it["device"] == truth["device"]]
    result = {}
    for size in SIZES:
        if own:
            orders = [it[f"{size}_bytes"] for it in own]
        else:
            orders = [said[f"peak_{size}_bytes"]]
            orders += [said["late"][f"{size}_bytes"]] if said.get("late") else []
        result[size] = min((100 * (it / truth[f"max_{size}"] - 1) for it in orders), key=abs)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--keep", required=True)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    truths = [json.loads(line) for line in (RAW / "spread-h200.jsonl").read_text().splitlines()]
    print("| script | rank | allocated | reserved | reserved there | safe covers |\n|---|---|---|---|---|---|")
    jobs = {it.name: it for it in programs("spread")}
    for name in args.names or sorted(jobs):
        said = report(jobs[name], args)
        if said is None:
            print(f"| {name} | | no report | | | |")
            continue
        for truth in (it for it in truths if it["name"] == name):
            if truth["rank"] and not said.get("ranks"):
                continue
            off = errors(said, truth)
            reserved = truth["max_reserved"]
            covers = "yes" if reserved + (760 << 20) <= said["safe_bytes"] else "NO"
            print(f"| {name} | {truth['rank']} | {off['allocated']:+.3f} % | {off['reserved']:+.3f} % | {reserved} | {covers} |")


if __name__ == "__main__":
    main()
