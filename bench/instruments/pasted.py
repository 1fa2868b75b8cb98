"""What `plimsoll explain` says of texts that people paste: tables, printed levels, logs (fixtures/pasted).

    python bench/instruments/pasted.py --plimsoll target/release/plimsoll [NAME ...]
    python bench/instruments/pasted.py ... --folder FOLDER      other texts, with an expected.json of their own (fixtures/reported)

`expected.json` was written down before the reader had seen the texts. Of each, as far as it is given: `kinds` of what is recognised
(`oom` for an error), `readings` with the numbers that have to be among those that were read, `says` (codes), `cause`, `next` (the command
in full, or a pattern after `re:`), the `first` words of the report, `words` that have to stand in it, and codes or words that `never` may.
A table, then a line of sums: right; partly, where only words are missing; nothing, where the report is NOTHING FOUND; else wrong.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from sets import ROOT

GRADES = ("right", "partly", "wrong", "nothing")
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def size(text):
    number, unit = re.fullmatch(r"([\d.]+)([A-Za-z]+)", text).groups()
    return float(number) * UNITS[unit]


def is_like(found, wanted):
    """A reading with all that is wanted; sizes may be off by what the text rounds."""
    for key, value in wanted.items():
        if key == "processes":
            if len(found.get("processes", [])) != value:
                return False
        elif isinstance(value, str) and re.fullmatch(r"[\d.]+(B|KiB|MiB|GiB)", value):
            is_ = found.get(f"{key}_bytes")
            if is_ is None or abs(is_ - size(value)) > max(1, 1e-4 * size(value)):
                return False
        elif found.get(key) != value:
            return False
    return True


def differences(path, expected, plimsoll):
    def run(*more):
        return subprocess.run([plimsoll, "explain", path, *more], capture_output=True, text=True)

    report, text = json.loads(run("--json", "-").stdout or "{}"), run().stdout
    found = report.get("printed") or []
    said = {it["code"] for it in report.get("says") or []}
    kinds = {it["kind"] for it in found} | ({"oom"} if report.get("ooms") else set())
    flat = " ".join(text.split())
    missing = [f"the report has no {it!r}" for it in expected["words"] if it.lower() not in flat.lower()]
    res = []
    if kinds != set(expected.get("kinds", kinds)):
        res.append(f"is {sorted(kinds)}, not {sorted(expected['kinds'])}")
    for wanted in expected.get("readings", []):
        if not any(is_like(it, wanted) for it in found):
            res.append(f"no reading with {wanted}")
    res += [f"does not say {it}" for it in expected.get("says", []) if it not in said]
    cause = (report.get("cause") or {}).get("code")
    wanted = expected.get("cause", cause)
    if cause != wanted and (wanted or "oom" not in expected["kinds"]):
        res.append(f"the cause is {cause}, not {wanted}")
    wanted, command = expected.get("next"), (report.get("next") or {}).get("command")
    if wanted and not (re.fullmatch(wanted[3:], command or "") if wanted.startswith("re:") else command == wanted):
        res.append(f"next is {command!r}, not {wanted!r}")
    if not flat.startswith(expected.get("first", "")):
        res.append(f"begins {flat.split(':')[0]!r}, not {expected['first'].rstrip(':')!r}")
    res += [f"has {it!r}" for it in expected["never"] if it in flat or it in said]
    if flat.startswith("NOTHING FOUND"):
        grade = "nothing" if res + missing else "right"
    else:
        grade = "wrong" if res else "partly" if missing else "right"
    return grade, res + missing


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--plimsoll", required=True, type=os.path.abspath)
    parser.add_argument("--folder", type=Path, default=ROOT / "fixtures/pasted")
    args = parser.parse_args()
    expected = json.loads((args.folder / "expected.json").read_text())
    names = [it for it in expected if not args.names or it in args.names]
    grades = Counter()
    print("| text | answer | not as written down |\n|---|---|---|")
    for name in names:
        grade, unlike = differences(args.folder / f"{name}.txt", expected[name], args.plimsoll)
        grades[grade] += 1
        print(f"| {name} | {grade} | {'; '.join(unlike)} |", flush=True)
    print("\n" + ", ".join(f"{grades[it]} {it}" for it in GRADES) + f", of {len(names)}")
    sys.exit(grades["right"] != len(names))


if __name__ == "__main__":
    main()
