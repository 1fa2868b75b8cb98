"""What `explain` says of each recording, in a line; and how much of each peak is called unknown: at most 1 % in 95 % is the aim.

    python bench/instruments/said.py --plimsoll target/release/plimsoll [--leaks NAME,...] RECORDING... [FOLDER...]

Recordings of `predict --record` and plain snapshots, packed or not. `--leaks` names those that have a leak or growth; of any other, a finding of
that kind, or of an evaluation's graph, is a false alarm. The exit code is 1 if there is one, or if too much is unknown.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
ENDS = (".zip", ".pickle", ".pickle.xz")
ALARMS = ("leak/", "growth/", "evaluation/")


def unknown(report):
    """The share of the peak that is unknown, in percent; none where there is no peak."""
    whole, part = 0, 0
    for line in (line for it in report["findings"] if it["code"] == "peak/composition" for line in it["evidence"]["facts"]):
        found = re.match(r"\s*([\d.]+) (\w+)\s+<?\d+ %\s+(.*?) \(", line)
        if found:
            size = float(found[1]) * UNITS[found[2]]
            whole += size
            part += size if found[3] == "unknown" else 0
    return 100 * part / whole if whole else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", nargs="+", type=Path)
    parser.add_argument("--plimsoll", required=True)
    parser.add_argument("--leaks", default="", help="names, or beginnings of names, with commas")
    args = parser.parse_args()
    leaks = tuple(it for it in args.leaks.split(",") if it)
    files = [it for given in args.inputs for it in (sorted(given.iterdir()) if given.is_dir() else [given]) if it.name.endswith(ENDS)]
    shares, alarms = [], 0
    print("| recording | leads with | other problems | chances | unknown |\n|---|---|---|---|---|")
    for path in files:
        ran = subprocess.run([args.plimsoll, "explain", path, "--json", "-"], capture_output=True, text=True)
        if not ran.stdout:
            print(f"| {path.name} | not read: {ran.stderr.strip()[:60]} | | | |", flush=True)
            continue
        report = json.loads(ran.stdout)
        cause = report.get("cause") or {}
        line = cause.get("line") or {}
        lead = f"{cause['code']}{':' + str(line['line']) if line else ''}" if cause else "-"

        def of(weight):
            codes = dict.fromkeys(it["code"] for it in report["findings"] if it["weight"] == weight and it["code"] != cause.get("code"))
            return ", ".join(codes) or "-"

        share = unknown(report)
        shares += [share] if share is not None else []
        codes = [cause.get("code", "")] + [it["code"] for it in report["findings"] if it["weight"] == "problem"]
        is_alarm = any(it.startswith(ALARMS) for it in codes) and not path.name.startswith(leaks or ("\0",))
        alarms += is_alarm
        shown = "-" if share is None else f"{share:.1f} %"
        print(f"| {path.name} | {lead}{' **alarm**' if is_alarm else ''} | {of('problem')} | {of('chance')} | {shown} |", flush=True)
    good = sum(it <= 1 for it in shares)
    print(f"\nat most 1 % unknown: {good} of {len(shares)} ({100 * good / max(1, len(shares)):.0f} %); false alarms: {alarms}")
    sys.exit(bool(alarms) or good < 0.95 * len(shares))


if __name__ == "__main__":
    main()
