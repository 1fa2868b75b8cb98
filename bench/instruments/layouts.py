"""Layouts on four GPUs (../programs/layouts) against the phantom: every rank of each.

    python bench/instruments/layouts.py FOLDER

FOLDER has `truth` (what the ranks of many.py left, and idle.csv of nvidia-smi) and `pred` (the reports of `predict --all-ranks`), by
the name of the layout.
"""

import collections
import json
import sys
from pathlib import Path

SIZES = ("allocated", "reserved", "device")


def off(said, real):
    return 100 * (said / real - 1)


def main():
    folder = Path(sys.argv[1])
    idle = [int(it.split(",")[2].split()[0]) << 20 for it in (folder / "truth" / "idle.csv").read_text().splitlines()[1:]]
    truths = collections.defaultdict(dict)
    for path in (folder / "truth").glob("*.rank*.json"):
        it = json.loads(path.read_text())
        truths[it["name"]][it["rank"]] = it
    rows, unsafe, n_layouts = [], [], 0
    print("| layout | ranks | allocated | reserved | process | worst rank: real, said, safe, MiB |")
    print("|---|---|---|---|---|---|")
    for path in sorted((folder / "pred").glob("*.json")):
        name, said = path.stem, json.loads(path.read_text())
        real = truths.get(name, {})
        if not real or said["verdict"] != "fits" or any(it["error"] for it in real.values()):
            print(f"| {name} | {'not measured' if not real else said['verdict']} | | | | |")
            continue
        n_layouts += 1
        by_rank = {it["rank"]: it for it in said["ranks"]}
        cells, worst = {size: [] for size in SIZES}, 0
        for rank, it in real.items():
            marks = it["marks"]
            taken = {"allocated": max(m[1] for m in marks), "reserved": max(m[2] for m in marks), "device": max(m[3] for m in marks) - idle[rank]}
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
