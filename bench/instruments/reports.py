"""What `predict` and `explain` say of the scripts of `programs/reports` and of their fixed twins, held against `truth.toml`.

    python bench/instruments/reports.py --plimsoll BINARY --out rows.jsonl [--jobs 4] [--seconds 120] [--only WORD] [--names A,B] [--before rows.jsonl]

A row for each script that was done in time: the verdict, the codes of the findings, what both commands printed. Needs torch, no GPU.
"""

import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import tomllib

PROGRAMS = Path(__file__).resolve().parents[1] / "programs" / "reports"


def wanted():
    """(name, card, verdict) of each script, those with a mistake first."""
    reports = tomllib.loads(PROGRAMS.joinpath("truth.toml").read_text())["report"]
    yield from ((it["name"], it["card"], it["verdict"]) for it in reports)
    yield from ((it["name"] + "_fixed", it["card"], "FITS") for it in reports if PROGRAMS.joinpath(it["name"] + "_fixed.py").exists())


def row(plimsoll, seconds, name, card, verdict):
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        begun = time.monotonic()
        record, report = Path(folder, "run.zip"), Path(folder, "run.json")
        script = str(PROGRAMS / f"{name}.py")
        predict = [plimsoll, "predict", "--gpu", card, "--record", record, "--json", report, "--", sys.executable, script]
        try:
            ran = subprocess.run(predict, cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds)
            took = round(time.monotonic() - begun, 1)
            explained = subprocess.run([plimsoll, "explain", record], cwd=folder, capture_output=True, text=True, timeout=60)
        except subprocess.TimeoutExpired:
            return None
        said = json.loads(report.read_text()) if report.exists() else {}
    return {
        "name": name,
        "wanted": verdict,
        "verdict": said.get("verdict"),
        "findings": [it["code"] for it in said.get("findings", [])],
        "needs": said.get("needs_bytes"),
        "safe": said.get("safe_bytes"),
        "seconds": took,
        "predict": ran.stdout[-4000:] or ran.stderr[-1500:],
        "explain": explained.stdout[:2500],
    }


def is_right(it):
    """Whether the verdict is one of those that the truth allows."""
    said = (it["verdict"] or "").upper().replace("_", " ")
    return said in re.findall("FITS SO FAR|DOES NOT FIT|GROWS|FITS", it["wanted"])


def in_order(pool, rows):
    """As they are done. Ctrl-C begins no more."""
    try:
        yield from concurrent.futures.as_completed(rows)
    except KeyboardInterrupt:
        pool.shutdown(wait=False, cancel_futures=True)
        raise


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--plimsoll", required=True, type=os.path.abspath)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--only", default="")
    parser.add_argument("--names", type=lambda it: set(filter(None, it.split(","))), help="these only, with `_fixed` where a twin is meant")
    parser.add_argument("--before", type=Path)
    args = parser.parse_args()
    before = {it["name"]: it for it in map(json.loads, args.before.read_text().splitlines())} if args.before else {}
    tasks = [it for it in wanted() if args.only in it[0] and (not args.names or it[0] in args.names)]
    judged = right = 0
    with args.out.open("w") as out, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        rows = [pool.submit(row, args.plimsoll, args.seconds, *task) for task in tasks]
        for it in in_order(pool, rows):
            found = it.result()
            if found is None:
                continue
            out.write(json.dumps(found) + "\n")
            out.flush()
            judged, right = judged + 1, right + is_right(found)
            if not is_right(found):
                print(f"{found['name']}: {found['verdict']}, which is {found['wanted']}", flush=True)
            old = before.get(found["name"])
            if old and [old["verdict"], old["findings"]] != [found["verdict"], found["findings"]]:
                print(f"{found['name']}: {old['verdict']} {old['findings']} -> {found['verdict']} {found['findings']}", flush=True)
    print(f"{right} of {judged} verdicts as truth.toml has them; {len(tasks) - judged} of {len(tasks)} were not done in time")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        os._exit(130)  # What was done is in the file; the pool would begin the rest.
