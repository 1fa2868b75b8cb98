"""Layouts on four H200s (../results/raw/layouts-h200-four.jsonl, by ../programs/layouts/many.py) against the phantom: every rank of each.

    python bench/instruments/layouts.py --plimsoll target/release/plimsoll --python PYTHON --keep FOLDER [NAME...]

Reports that FOLDER has are not made again.
"""

import argparse
import collections
import json
import subprocess
from pathlib import Path

from sets import PROGRAMS, RAW

SIZES = ("allocated", "reserved", "device")


def off(said, real):
    return 100 * (said / real - 1)


def report(name, words, args):
    path = Path(args.keep) / f"{name}.json"
    if not path.exists():
        launcher = [args.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]
        script = [str(PROGRAMS / "layouts" / "split.py"), "--name", name, *words]
        options = ["--gpu", "h200", "--all-ranks", "--until-exit", "--quiet", "--json", str(path)]
        subprocess.run([args.plimsoll, "predict", *options, "--", *launcher, *script], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return json.loads(path.read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", default="plimsoll")
    parser.add_argument("--python", default="python3")
    parser.add_argument("--keep", required=True)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    truths = collections.defaultdict(dict)
    for line in (RAW / "layouts-h200-four.jsonl").read_text().splitlines():
        it = json.loads(line)
        truths[it["name"]][it["rank"]] = it
    lines = [it.split() for it in (PROGRAMS / "layouts" / "layouts.txt").read_text().splitlines() if it.strip()]
    wanted = [it for it in lines if not args.names or it[0] in args.names]
    rows, unsafe, n_layouts = [], [], 0
    print("| layout | ranks | allocated | reserved | process | worst rank: real, said, safe, MiB |")
    print("|---|---|---|---|---|---|")
    for name, *words in wanted:
        said, real = report(name, words, args), truths.get(name, {})
        if not real or said["verdict"] != "fits" or any(it["error"] for it in real.values()):
            print(f"| {name} | {'not measured' if not real else said['verdict']} | | | | |")
            continue
        n_layouts += 1
        by_rank = {it["rank"]: it for it in said["ranks"]}
        cells, worst = {size: [] for size in SIZES}, 0
        for rank, it in real.items():
            marks = it["marks"]
            taken = {"allocated": max(m[1] for m in marks), "reserved": max(m[2] for m in marks), "device": max(m[3] for m in marks)}
            worst = max(worst, taken["device"])
            for size in SIZES:
                error = off(by_rank[rank][size + "_bytes"], taken[size])
                cells[size].append(error)
                rows.append((size, abs(error), name, rank, error))
        if said["safe_bytes"] < worst:
            unsafe.append(name)
        shown = [" | ".join("equal" if max(map(abs, cells[size])) < 0.0005 else f"{min(cells[size]):+.2f} to {max(cells[size]):+.2f} %" for size in SIZES)]
        print(f"| {name} | {len(real)} | {shown[0]} | {worst >> 20}, {said['peak_device_bytes'] >> 20}, {said['safe_bytes'] >> 20} |")
    print()
    for size in SIZES:
        of = [it for it in rows if it[0] == size]
        equal, within = sum(it[1] < 0.0005 for it in of), sum(it[1] <= 1 for it in of)
        far = max(of, key=lambda it: it[1])
        print(f"{size}: {len(of)} ranks of {n_layouts} layouts, equal {equal}, within 1 % {within}; worst {far[2]} rank {far[3]}: {far[4]:+.2f} %")
    print("over the safe size:", ", ".join(unsafe) or "none")


if __name__ == "__main__":
    main()
