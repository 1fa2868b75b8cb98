"""Scripts fitted to a limit of reserved memory; then the script with the diff that `fit` gives is predicted as it is, and has to take what
the plan takes.

    PLIMSOLL_BIN=target/release/plimsoll python bench/instruments/fitted.py [--folder loops] [--gib 8] [--allow REMEDIES] [NAME ...]

A folder of ../programs: loops as people write them, or `snippets`, those of widely read texts. One JSON line for each script.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sets import PLIMSOLL, PROGRAMS

PYTHON = os.environ.get("PLIMSOLL_PYTHON", sys.executable)
# What scripts of the folder import.
NO_SCRIPTS = ("rest",)


def run(folder, *words):
    return subprocess.run([str(it) for it in (PLIMSOLL, *words)], cwd=folder, capture_output=True, text=True)


def fitted(source, name, gib, allow):
    folder = Path(tempfile.mkdtemp())
    for it in (name, *NO_SCRIPTS):
        if (source / f"{it}.py").exists():
            shutil.copy(source / f"{it}.py", folder)
    script, limit = [PYTHON, f"{name}.py"], f"{gib}GiB"
    options = ["--gpu", "h200", "--limit-reserved", limit, "--json", "fit.json", "--quiet"]
    more = ["--allow", allow] if allow else []
    began = time.time()
    ran = run(folder, "fit", *options, *more, "--", *script)
    res = {"script": name, "gib": gib, "seconds": round(time.time() - began, 1)}
    if ran.returncode == 2:
        return res | {"failed": ran.stderr.strip()[-300:]}
    answer = json.loads((folder / "fit.json").read_text())
    best = (answer["plans"] or [{}])[0]
    res |= {key: answer[key] for key in ("outcome", "runs", "seen")} | {"as_it_is": answer["as_it_is"]["needs_bytes"]}
    res |= {"plan": best.get("remedies"), "needs": best.get("needs_bytes"), "reserved": best.get("peak_reserved_bytes")}
    res["by_hand"] = answer["change"]["by_hand"]
    if (folder / "plan.diff").exists() and not res["by_hand"]:
        subprocess.run(["patch", "-p0", "-s", "-i", "plan.diff"], cwd=folder, check=True)
        ran = run(folder, "predict", "--gpu", "h200", "--json", "predict.json", "--quiet", "--", *script)
        report = json.loads((folder / "predict.json").read_text()) if ran.returncode != 2 else {}
        res["patched_reserved"] = report.get("peak_reserved_bytes", ran.stderr.strip()[-300:])
    shutil.rmtree(folder)
    return res


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--folder", default="loops", choices=("loops", "snippets", "people"))
    parser.add_argument("--gib", type=int, default=8)
    parser.add_argument("--allow")
    args = parser.parse_intermixed_args()
    source = PROGRAMS / args.folder
    for name in args.names or sorted(it.stem for it in source.glob("*.py") if it.stem not in NO_SCRIPTS):
        print(json.dumps(fitted(source, name, args.gib, args.allow)), flush=True)


if __name__ == "__main__":
    main()
