"""Replays recordings and compares with what PyTorch itself counted.

    python bench/instruments/replay.py FOLDER...

FOLDER has `NAME.pickle.xz` and `NAME.json` (as in shared/data/recordings, truth, distributed). Prints one line
for each recording: what the checked replay disagrees with, how its statistics compare with the recorded ones,
whether the free run arrives at the same peak reserved, and events per second; at the end a summary.
"""

import argparse
import json
import lzma
import os
import pathlib
import subprocess
import tempfile

from sets import ROOT



def truth_of(path):
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return {}


def compare(row, truth):
    """(statistics that are equal, all that are recorded, the names of those that are not)"""
    recorded = dict(truth.get("stats", {}))
    ours = row["stats"]
    names = [name for name in ours if name in recorded]
    wrong = [name for name in names if ours[name] != recorded[name]]
    for key, own in [
        ("max_allocated", row["peak_allocated"]),
        ("max_reserved", row["peak_reserved"]),
        ("max_requested", row["peak_requested"]),
        ("reserved", row["final_reserved"]),
        ("num_alloc_retries", ours["num_alloc_retries"]),
        ("num_ooms", ours["num_ooms"]),
    ]:
        if key in truth:
            names.append(key)
            if truth[key] != own:
                wrong.append(key)
    return len(names) - len(wrong), len(names), wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wrong", type=int, default=6, help="how many wrong statistics to name")
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    command = ["cargo", "run", "--quiet", "--release", "--package", "plimsoll-core", "--example", "replay_bench", "--"]
    files = [path for folder in args.folders for path in sorted(folder.glob("*.pickle.xz"))]
    with tempfile.TemporaryDirectory() as scratch:
        plain = []
        for number, path in enumerate(files):
            plain.append(os.path.join(scratch, f"{number}.pickle"))
            pathlib.Path(plain[-1]).write_bytes(lzma.decompress(path.read_bytes()))
        out = subprocess.run(command + plain, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        rows = [json.loads(line) for line in out.splitlines()]
        names = dict(zip(plain, files))
    total = dict(recordings=0, events=0, mismatches=0, clean=0, exact=0, fresh=0, free_exact=0, ruled_exact=0, late_exact=0, seconds=0.0, free=0.0)
    for row in rows:
        path = names[row["path"]]
        right, known, wrong = compare(row, truth_of(path.with_name(path.name.replace(".pickle.xz", ".json"))))
        fresh = row["reserved_before"] == 0
        ruled = row["ruled_peak_reserved"] - row["peak_reserved"]
        gap = row["free_peak_reserved"] - row["peak_reserved"]
        total["recordings"] += 1
        total["events"] += row["events"]
        total["mismatches"] += row["mismatches"]
        total["clean"] += row["mismatches"] == 0
        total["exact"] += right == known
        total["fresh"] += fresh
        total["free_exact"] += fresh and gap == 0
        total["ruled_exact"] += fresh and ruled == 0
        total["late_exact"] += not fresh and gap == 0
        total["seconds"] += row["seconds_checked"]
        total["free"] += row["seconds_free"]
        print(
            f"{path.name.removesuffix('.pickle.xz'):<34} {row['events']:>8} events {row['mismatches']:>4} mismatches "
            f"{row['mismatch_kinds'] or ''} statistics {right}/{known} {' '.join(wrong[: args.wrong])} "
            f"{'' if fresh else 'began late; '}free run {gap:+d} ({100 * gap / max(row['peak_reserved'], 1):+.2f} %), by rule {ruled:+d}"
            f"{' RAN OUT' if row['free_ran_out'] else ''}; torch {row['torch']}; "
            f"{row['events'] / max(row['seconds_checked'], 1e-9) / 1e6:.1f} M/s checked, "
            f"{row['events'] / max(row['seconds_free'], 1e-9) / 1e6:.1f} M/s free"
        )
    summary = (
        f"{total['recordings']} recordings, {total['events']} events: {total['mismatches']} mismatches "
        f"({total['clean']} recordings with none); all recorded statistics equal in {total['exact']}; free run under the "
        f"recorded settings has the recorded peak reserved to the byte in {total['free_exact']} of the {total['fresh']} "
        f"that start from nothing (with the phantom's rule of addresses instead of the recorded ones: "
        f"{total['ruled_exact']}), and in {total['late_exact']} of the {total['recordings'] - total['fresh']} that began late; {total['events'] / total['seconds'] / 1e6:.1f} million events/s checked, "
        f"{total['events'] / total['free'] / 1e6:.1f} million events/s free"
    )
    print(summary)

if __name__ == "__main__":
    main()
