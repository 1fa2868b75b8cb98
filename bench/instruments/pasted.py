"""What `plimsoll explain` says of texts that people paste: tables, printed levels, logs (fixtures/pasted).

    python bench/instruments/pasted.py --plimsoll target/release/plimsoll [NAME ...]
    python bench/instruments/pasted.py ... --folder FOLDER      other texts, with an expected.json of their own

`expected.json` was written down before the reader had seen the texts. Of each: `kinds` of what is recognised (`oom` for an error),
`readings` with the numbers that have to be among those that were read, `says` (codes), `cause`, `next` (the command in full, or a
pattern after `re:`), `words` that have to stand in the report, and codes or words that `never` may. A table, then a line of sums.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from sets import ROOT

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
    res = []
    if kinds != set(expected["kinds"]):
        res.append(f"is {sorted(kinds)}, not {sorted(expected['kinds'])}")
    for wanted in expected["readings"]:
        if not any(is_like(it, wanted) for it in found):
            res.append(f"no reading with {wanted}")
    res += [f"does not say {it}" for it in expected["says"] if it not in said]
    cause = (report.get("cause") or {}).get("code")
    if cause != expected["cause"] and (expected["cause"] or "oom" not in expected["kinds"]):
        res.append(f"the cause is {cause}, not {expected['cause']}")
    wanted, command = expected["next"], (report.get("next") or {}).get("command")
    if wanted and not (re.fullmatch(wanted[3:], command or "") if wanted.startswith("re:") else command == wanted):
        res.append(f"next is {command!r}, not {wanted!r}")
    flat = " ".join(text.split())
    res += [f"the report has no {it!r}" for it in expected["words"] if it not in flat]
    res += [f"has {it!r}" for it in expected["never"] if it in flat or it in said]
    return res


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--plimsoll", required=True, type=os.path.abspath)
    parser.add_argument("--folder", type=Path, default=ROOT / "fixtures/pasted")
    args = parser.parse_args()
    expected = json.loads((args.folder / "expected.json").read_text())
    names = [it for it in expected if not args.names or it in args.names]
    right = 0
    print("| text | as written down |\n|---|---|")
    for name in names:
        unlike = differences(args.folder / f"{name}.txt", expected[name], args.plimsoll)
        right += not unlike
        print(f"| {name} | {'; '.join(unlike) or 'yes'} |", flush=True)
    print(f"\n{right} of {len(names)} as written down")
    sys.exit(right != len(names))


if __name__ == "__main__":
    main()
