"""Are leaks told in time, are clean runs left alone, and what does it cost? On one GPU, without a network.

    python bench/instruments/watch.py --binary target/release/plimsoll --python python3 --out results

leaks   small trainings (../programs/watch) with a planted leak, each in a room of its own: is there an alarm before half of what was free is gone,
        with the line that keeps it?
clean   trainings of variable length without one: any alarm is false
speed   blocks of steps with the watch on and off in one process; and the script alone, under `run`, under `run --watch` and with `plimsoll.watch()`

Writes leaks.jsonl, clean.jsonl and speed.jsonl, a line each as it is known, and prints a table.
"""

import argparse
import concurrent.futures
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sets import PROGRAMS, ROOT

WATCH = PROGRAMS / "watch"
sys.path.insert(0, str(WATCH))

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--binary", required=True)
parser.add_argument("--python", required=True)
parser.add_argument("--out", required=True)
parser.add_argument("--jobs", type=int, default=min(os.cpu_count() or 1, 16))
parser.add_argument("--parts", default="leaks,clean,speed")
parser.add_argument("--later", action="store_true", help="of leaks and clean runs only those that were written last")
parser.add_argument("--only", default="", help="programs, with commas")
parser.add_argument("--leak-seconds", type=float, default=75.0)
parser.add_argument("--clean-seconds", type=float, default=30.0)
parser.add_argument("--clean-steps", type=int, default=1 << 62)
it = parser.parse_args()
out = Path(it.out)
out.mkdir(parents=True, exist_ok=True)
only = {name for name in it.only.split(",") if name}
binary = str(Path(it.binary).resolve())


def started(words, folder):
    package = os.pathsep.join(filter(None, [str(ROOT / "python"), os.environ.get("PYTHONPATH")]))
    environment = dict(os.environ, PLIMSOLL_RUNNING=str(folder / "running"), OMP_NUM_THREADS="1", PYTHONPATH=package, PLIMSOLL_BIN=binary)
    began = time.monotonic()
    ran = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return ran, round(time.monotonic() - began, 1)


def watched(module, name, mib, seed, seconds, steps):
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        words = [binary, "run", "--watch", "--alarms", str(folder / "alarms.jsonl"), "--", it.python, str(WATCH / "program.py")]
        words += [module, name, "--mib", str(mib), "--seed", str(seed), "--most-seconds", str(seconds), "--most-steps", str(steps)]
        words += ["--alarms", str(folder / "alarms.jsonl"), "--out", str(folder / "seen.json")]
        ran, wall = started(words, folder)
        alarms = []
        if (folder / "alarms.jsonl").exists():
            alarms = [json.loads(line) for line in (folder / "alarms.jsonl").read_text().splitlines()]
        seen = json.loads((folder / "seen.json").read_text()) if (folder / "seen.json").exists() else None
        failed = None if ran.returncode == 0 and seen else (ran.stdout + ran.stderr)[-1500:]
        return {"module": module, "name": name, "seed": seed, "mib": mib, "wall": wall, "seen": seen, "alarms": alarms, "failed": failed}


def text_of(at):
    if not at:
        return ""
    try:
        return Path(at["file"]).read_text().splitlines()[at["line"] - 1].strip()
    except (OSError, IndexError):
        return ""


def judged_leak(row):
    growth = [alarm for alarm in row["alarms"] if alarm["code"] == "watch/growth"]
    half = row["seen"] and row["seen"]["half_gone_at"]
    row["in_time"] = bool(growth) and (half is None or growth[0]["step"] < half)
    row["line"] = text_of(growth[0]["at"]) if growth else ""
    row["line_is_right"] = row["line"].endswith("# leak")
    row["others"] = [alarm["code"] for alarm in row["alarms"] if alarm["code"] != "watch/growth"]
    return row


def programs(modules):
    for module in modules:
        for name, told in __import__(module).PROGRAMS.items():
            if not only or name in only:
                for seed in range(told[2] if len(told) > 2 else 1):
                    yield module, name, told[1], seed


def each(kind, jobs, judge):
    rows = []
    with open(out / f"{kind}.jsonl", "w") as file, concurrent.futures.ThreadPoolExecutor(it.jobs) as pool:
        for done in concurrent.futures.as_completed([pool.submit(*job) for job in jobs]):
            row = judge(done.result())
            rows.append(row)
            file.write(json.dumps(row) + "\n")
            file.flush()
    return sorted(rows, key=lambda row: (row["name"], row["seed"]))


def modules_of(kind):
    """Those written first, and those written when the watch was done."""
    return [f"{kind}_later"] if it.later else [kind, f"{kind}_later"]


def leaks():
    jobs = [(watched, *job, it.leak_seconds, 1 << 62) for job in programs(modules_of("leaks"))]
    rows = each("leaks", jobs, judged_leak)
    print(f"{'leak':30} {'bytes/step':>10} {'alarm at':>9} {'half gone':>10} {'runs out':>9}  line")
    for row in rows:
        growth = next((alarm for alarm in row["alarms"] if alarm["code"] == "watch/growth"), {})
        half = (row["seen"] or {}).get("half_gone_at")
        verdict = "failed" if row["failed"] else "in time" if row["in_time"] else "MISSED"
        print(
            f"{row['name']:30} {growth.get('bytes_per_step', '-'):>10} {growth.get('step', '-'):>9} {half or '-':>10} "
            f"{growth.get('runs_out_at_step', '-'):>9}  {'right' if row['line_is_right'] else 'WRONG: ' + row['line']}  {verdict} {row['others'] or ''}"
        )
    print(f"leaks: {sum(row['in_time'] for row in rows)} of {len(rows)} in time, {sum(row['line_is_right'] for row in rows)} with the right line")


def clean():
    jobs = [(watched, *job, it.clean_seconds, it.clean_steps) for job in programs(modules_of("clean"))]
    rows = each("clean", jobs, lambda row: row)
    for row in rows:
        if row["alarms"] or row["failed"]:
            print(f"{row['name']} {row['seed']}: {[alarm['text'] for alarm in row['alarms']]} {row['failed'] or ''}")
    steps = sum((row["seen"] or {}).get("steps", 0) for row in rows)
    print(f"clean: {sum(bool(row['alarms']) for row in rows)} of {len(rows)} runs with an alarm, {sum(bool(row['failed']) for row in rows)} failed; {steps} steps")


def speed():
    rows = []

    def measure(kind, before, what, *options):
        with tempfile.TemporaryDirectory() as folder:
            ran, wall = started([*before, it.python, str(WATCH / "speed.py"), what, *options], Path(folder))
            if ran.returncode:
                print(f"speed {kind} {what} failed: {(ran.stdout + ran.stderr)[-1500:]}")
                return
            told = json.loads(ran.stdout.splitlines()[-1])
            rows.append({"kind": kind, "wall": wall, **told})
            with open(out / "speed.jsonl", "a") as file:
                file.write(json.dumps(rows[-1]) + "\n")

    run = [binary, "run"]
    for what in ("small", "large"):
        measure("toggled", [*run, "--watch", "--"], what, "--toggle")
        measure("alone", [], what)
        measure("run", [*run, "--"], what)
        measure("run --watch", [*run, "--watch", "--"], what)
        measure("plimsoll.watch()", [], what, "--own")
    for what in ("small", "large"):
        of = lambda kind, key="on": [s for row in rows if row["kind"] == kind and row["what"] == what for s in row[key]]
        on, off = of("toggled"), of("toggled", "off")
        if on and off:
            a, b = statistics.median(on), statistics.median(off)
            print(f"{what}: a step takes {a * 1e3:.3f} ms watched and {b * 1e3:.3f} ms not, in one process: {100 * (a / b - 1):+.2f} %")
        for kind in ("alone", "run", "run --watch", "plimsoll.watch()"):
            if of(kind):
                print(f"{what}: {kind}: {statistics.median(of(kind)) * 1e3:.3f} ms")


began = time.monotonic()
for part in it.parts.split(","):
    {"leaks": leaks, "clean": clean, "speed": speed}[part]()
print(f"{time.monotonic() - began:.0f} s")
