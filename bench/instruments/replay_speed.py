"""How fast the replay is, on one core: processor time over a generated recording, the best of several runs.

    python bench/instruments/replay_speed.py [EVENTS]
"""

import json
import subprocess
import sys

from sets import ROOT

if "--help" in sys.argv:
    sys.exit(__doc__)
words = ["cargo", "run", "--quiet", "--release", "--package", "plimsoll-core", "--example", "replay_speed", "--", *sys.argv[1:]]
row = json.loads(subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
assert row["mismatches"] == 0 and row["same_peak"], row
for name in ["columns_once", "checked", "what_if"]:
    seconds = row[f"seconds_{name}"]
    print(f"{name:<13} {seconds:8.3f} s  {row['events'] / seconds / 1e6:8.1f} million events/s")
