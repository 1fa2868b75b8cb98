#!/usr/bin/env python3
"""Whether `plimsoll explain` leads with the true cause: scripts with one planted cause each, on cards that are too small.

    bench/causes/run.py --plimsoll target/release/plimsoll --python .venv/bin/python [NAME ...]
    bench/causes/run.py ... --unseen             those that nobody looked at before: the first try counts
    bench/causes/run.py ... --keep FOLDER        recordings are kept there, and read again the next time

The first lines of a script's docstring say what is planted:

    cause: leak/eval-without-no-grad at line 20  the line may be missing
    also right: line 15                          another line that may be named
    also right: size/activations                 another code
    memory: 3GiB 4GiB                            the cards; on each of them it has to run out

Each recording is read twice: with the agent's notes, and as the plain snapshot that PyTorch writes. The line has to be right
in both. A table, then one line of sums; the exit code is 1 if an answer is wrong.
"""

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent


def planted(path):
    """The code, the lines, other codes, and the cards."""
    text = ast.get_docstring(ast.parse(path.read_text()))
    code, line = re.match(r"cause: (\S+)(?: at line (\d+))?", text).groups()
    also = re.findall(r"^also right: (?:line (\d+)|(\S+))$", text, re.MULTILINE)
    lines = [int(it) for it in (line, *(number for number, _ in also)) if it]
    marks = [n for n, it in enumerate(path.read_text().splitlines(), 1) if it.endswith("# here")]
    if marks and marks != lines[:1]:
        raise SystemExit(f"{path}: says {lines[:1]}, marked are {marks}")
    return [code, *(it for _, it in also if it)], lines, re.search(r"^memory: (.*)$", text, re.MULTILINE)[1].split()


def record(path, memory, args):
    zipped = args.keep / f"{path.stem}-{memory}.zip"
    if not zipped.exists():
        command = [args.plimsoll, "predict", "--quiet", "--until-exit", "--gpu", "h200", "--memory", memory, "--record", zipped]
        with tempfile.TemporaryDirectory() as folder:
            ran = subprocess.run([*command, "--", args.python, path], cwd=folder, capture_output=True, text=True, timeout=args.timeout)
        if not zipped.exists():
            raise SystemExit(f"{path.name} on {memory}: {ran.stderr[-500:]}")
    return zipped


def explained(path, args):
    ran = subprocess.run([args.plimsoll, "explain", path, "--json", "-"], capture_output=True, text=True)
    if ran.returncode == 2 and not ran.stdout:
        return {}
    return json.loads(ran.stdout)


def judge(report, codes, lines):
    """(what it leads with, whether that is right)."""
    cause = report.get("cause") or {}
    line = cause.get("line") or {}
    shown = f"{cause.get('code')} at {line['line']}" if line else str(cause.get("code"))
    if not report.get("oom"):
        return f"{shown}, did not run out", False
    return shown, cause.get("code") in codes and (not lines or line.get("line") in lines)


def one(job):
    path, memory, args = job
    codes, lines, _ = planted(path)
    zipped = record(path, memory, args)
    answers = [judge(explained(zipped, args), codes, lines)]
    with zipfile.ZipFile(zipped) as it, tempfile.TemporaryDirectory() as folder:
        members = [name for name in it.namelist() if name.endswith("snapshot.pickle")]
        # Of several processes, the one that ran out is not known without the notes.
        for member in members[:1] if len(members) == 1 else []:
            plain = Path(folder) / "snapshot.pickle"
            plain.write_bytes(it.read(member))
            answers.append(judge(explained(plain, args), codes, lines))
    return path.stem, memory, codes[0], lines, answers


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="only these scripts")
    parser.add_argument("--plimsoll", required=True, type=os.path.abspath)
    parser.add_argument("--python", default=sys.executable, type=os.path.abspath)
    parser.add_argument("--unseen", action="store_true", help="those of unseen/ instead")
    parser.add_argument("--keep", type=Path, help="where recordings are kept")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--timeout", type=int, default=300)
    args = parser.parse_args()
    scripts = sorted((HERE / ("unseen" if args.unseen else "scripts")).glob("*.py"))
    scripts = [it for it in scripts if not args.names or it.stem in args.names]
    with tempfile.TemporaryDirectory() as folder:
        args.keep = (args.keep or Path(folder)).absolute()
        args.keep.mkdir(exist_ok=True)
        jobs = [(path, memory, args) for path in scripts for memory in planted(path)[2]]
        right = [0, 0]
        seen = [0, 0]
        print("| script | card | planted | with notes | plain snapshot |\n|---|---|---|---|---|")
        with ThreadPoolExecutor(args.jobs) as pool:
            for name, memory, code, lines, answers in pool.map(one, jobs):
                for n, (_, good) in enumerate(answers):
                    right[n] += good
                    seen[n] += 1
                at = f" at {lines[0]}" if lines else ""
                shown = [it if good else f"**{it}**" for it, good in answers]
                print(f"| {name} | {memory} | {code}{at} | {' | '.join([*shown, '-'][:2])} |", flush=True)
        print(f"\nright: {right[0]} of {seen[0]} with notes, {right[1]} of {seen[1]} as plain snapshots")
    sys.exit(right != seen)


if __name__ == "__main__":
    main()
