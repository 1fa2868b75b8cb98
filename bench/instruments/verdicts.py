"""Whether `plimsoll predict` promises what is true: scripts with one planted truth each.

    python bench/instruments/verdicts.py --plimsoll target/release/plimsoll --python .venv/bin/python [NAME ...]
    python bench/instruments/verdicts.py --check      read the expectations, run nothing

The first line of a script's docstring (../programs/verdicts) is what has to be answered:

    expect: fits
    expect: fits, inference (64 forward passes)     also `generation`, `evaluation`: no step was meant
    expect: grows 16.0 MiB a step at line 20
    expect: out_of_memory in evaluation at line 18  the phase and the line may be missing
    expect: script_failed (no training step)

`, or fits for the training steps` behind an expectation allows that answer, too, if the report says so in its first lines.
More lines may follow:

    also right: line 15                        another line that may be named
    runs out: between step 1380 and 1480       where `runs_out_at_step` has to be
    peak: allocated at least 96 MiB            or reserved, device; at most
    says: WORDS                                the report says them; never: it does not
    cards: none                                no table of other cards by comparison
    within: 60 s                               how long the run may take
    options: --gpu rtx4060-8g                  for predict; else --gpu rtx4090
    command: torchrun --nproc-per-node 2       in the place of python
    environment: NAME=VALUE ...
    files: NAME=CONTENTS                       a file that is there before
    why: the arithmetic, for people

For growth the bytes are those of the tensors, by arithmetic, of sizes of which PyTorch's allocator rounds nothing (2 and 4 MiB fill its segments of
20 MiB without a rest, 16 MiB has a segment for itself); an answer may differ by 5 %. A line that has to be named carries a mark: `# keeps` what keeps a
tensor, `# makes` where it was made, `# dies` where memory runs out. The marks are for people; nothing may read them.
One line a script, a table at the end. The exit code is 1 if an answer is wrong.
"""

import argparse
import ast
import collections
import dataclasses
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sets import PROGRAMS

UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
EXIT_CODES = {"fits": 0, "grows": 1, "out_of_memory": 1, "script_failed": 2}

# The keys of the report that are asked for. The one place to change.
GROWTH = "growth_bytes_per_step"
RUNS_OUT = "runs_out_at_step"
SAFE = "safe_bytes"
PEAKS = {"allocated": "peak_allocated_bytes", "reserved": "peak_reserved_bytes", "device": "peak_device_bytes"}

# What the report says for a reason or a kind; any of the words will do.
WORDS = {
    "no training step": r"(no|without a) (training|optimizer) step",
    "one GPU": r"GPU",
    "inference": r"forward pass",
    "generation": r"forward pass",
    "evaluation": r"forward pass",
}
# The phases of an OOM as the report calls them.
PHASES = {
    "evaluation": {"evaluation", "validation"},
    "checkpoint": {"checkpoint", "saving", "between", "outside", None},
    "training": {"forward", "backward", "optimizer", "optimizer_step", "training"},
}
NUMBER = r"([\d.]+) (B|KiB|MiB|GiB)"
EXPECT = re.compile(
    r"(?P<outcome>fits|grows|out_of_memory|script_failed)"
    rf"(?: (?P<growth>{NUMBER}) a step)?(?: in (?P<phase>evaluation|checkpoint|training))?(?: at line (?P<line>\d+))?"
    r"(?:, (?P<kind>inference|generation|evaluation) \((?P<passes>\d+) forward passes\))?(?: \((?P<reason>[^)]+)\))?"
    r"(?P<either>, or fits for the training steps)?"
)
KEYS = ("expect", "also right", "runs out", "peak", "says", "never", "cards", "within", "options", "command", "environment", "files", "why")


def size(text):
    number, unit = re.fullmatch(NUMBER, text).groups()
    return float(number) * UNITS[unit]


@dataclasses.dataclass
class Script:
    """A script and what has to be answered for it."""

    path: Path
    lines: dict

    @staticmethod
    def read(path):
        lines, key = collections.defaultdict(list), None
        for line in ast.get_docstring(ast.parse(path.read_text()), clean=False).splitlines():
            word = line.partition(":")[0]
            if not line.startswith(" ") and word in KEYS:
                key = word
                lines[key].append(line.partition(":")[2].strip())
            elif key is not None:
                lines[key][-1] = f"{lines[key][-1]} {line.strip()}".strip()
        res = Script(path, dict(lines))
        if next(iter(lines), None) != "expect" or not EXPECT.fullmatch(lines["expect"][0]):
            raise SystemExit(f"{path}: no expectation that can be read: {lines.get('expect')}")
        return res

    @property
    def expected(self):
        return EXPECT.fullmatch(self.one("expect")).groupdict()

    def one(self, key, default=""):
        return self.lines.get(key, [default])[0]

    def right_lines(self):
        res = [self.expected["line"]] if self.expected["line"] else []
        return {int(it) for it in res + re.findall(r"\d+", self.one("also right"))}

    def check(self):
        """The lines named in the expectation are the marked ones, and the rest can be read."""
        text = self.path.read_text().splitlines()
        marked = {n for n, line in enumerate(text, 1) if re.search(r"# (keeps|makes|dies)$", line)}
        if not self.right_lines() <= marked:
            raise SystemExit(f"{self.path}: expects {sorted(self.right_lines())}, marked are {sorted(marked)}")
        if peak := self.one("peak"):
            what, way, limit = re.fullmatch(r"(\w+) (at least|at most) (.+)", peak).groups()
            assert what in PEAKS and size(limit) > 0, peak
        if out := self.one("runs out"):
            assert re.fullmatch(r"between step \d+ and \d+", out), out
        if self.expected["outcome"] == "grows":
            assert self.expected["growth"] and self.one("why"), self.path
        shlex.split(self.one("options"))


def names_line(value, name, line):
    """Whether something in the report names a line of the script: {"file", "line"} or `NAME.py:LINE`."""
    if isinstance(value, dict):
        here = str(value.get("file", "")).endswith(name) and value.get("line") == line
        return here or any(names_line(it, name, line) for it in value.values())
    if isinstance(value, list):
        return any(names_line(it, name, line) for it in value)
    return isinstance(value, str) and re.search(rf"{re.escape(name)}:{line}\b", value) is not None


def verdict_lines(text):
    """The first lines of the report for people: what a reader cannot miss."""
    lines = text.splitlines()
    at = [n for n, it in enumerate(lines) if re.match(r"(FITS|DOES NOT FIT|GROWS|COULD NOT TELL|RUNS OUT|plimsoll:)", it)]
    return "\n".join(lines[at[-1] : at[-1] + 4]) if at else ""


def check_line(script, report, text, keys):
    lines = script.right_lines()
    if not lines:
        return []
    told = {key: it for key, it in report.items() if any(word in key for word in keys)}
    name = script.path.name
    if any(names_line(told, name, it) or names_line(verdict_lines(text), name, it) for it in lines):
        return []
    return [f"does not name line {' or '.join(map(str, sorted(lines)))}"]


def check_growth(script, report, text):
    found, expected = [], script.expected
    told = report.get(GROWTH)
    right = size(expected["growth"])
    if told is None or abs(told - right) > 0.05 * right:
        found.append(f"grows by {told} a step, not {right:.0f}")
    if report.get(SAFE) is not None:
        found.append("promises a safe size")
    if out := script.one("runs out"):
        low, high = map(int, re.findall(r"\d+", out))
        if not low <= (report.get(RUNS_OUT) or 0) <= high:
            found.append(f"runs out at step {report.get(RUNS_OUT)}, not {low} to {high}")
    return found + check_line(script, report, text, ("grow", "leak", "finding"))


def check_out_of_memory(script, report, text):
    found, expected = [], script.expected
    oom = report.get("oom") or {}
    if phase := expected["phase"]:
        words = "|".join(it for it in PHASES[phase] if it)
        if oom.get("phase") not in PHASES[phase] and not re.search(words, verdict_lines(text)):
            found.append(f"dies in {oom.get('phase')}, not in {phase}")
    return found + check_line(script, report, text, ("oom",))


def check_fits(script, report, text):
    """Also what goes with an answer for the training steps only."""
    found, expected = [], script.expected
    whole = text + json.dumps(report)
    if expected["kind"]:
        if not re.search(WORDS[expected["kind"]], whole):
            found.append(f"does not say {expected['kind']}")
        if not re.search(rf"\b{expected['passes']} forward pass", whole):
            found.append(f"does not count {expected['passes']} forward passes")
        if re.search(r"\b[1-9]\d* (training|optimizer) steps?\b", verdict_lines(text)):
            found.append("speaks of training steps")
    if report.get(GROWTH):
        found.append(f"grows by {report[GROWTH]} a step")
    return found


def judge(script, code, report, text, seconds):
    """What is wrong with an answer; nothing if all is right."""
    expected = script.expected
    outcome = report.get("outcome")
    allowed = expected["outcome"]
    if outcome != allowed and not (expected["either"] and outcome == "fits"):
        return [f"answers {outcome or 'nothing'}, not {allowed}"]
    found = []
    if code != EXIT_CODES[outcome]:
        found.append(f"ends with {code}, not {EXIT_CODES[outcome]}")
    if outcome != allowed:
        if not re.search(r"for the [\d,]+ [\w ]+ seen", " ".join(verdict_lines(text).split())):
            found.append("does not say first that only the training steps were seen")
    elif outcome == "grows":
        found += check_growth(script, report, text)
    elif outcome == "out_of_memory":
        found += check_out_of_memory(script, report, text)
    elif outcome == "fits":
        found += check_fits(script, report, text)
    elif (reason := expected["reason"]) and not re.search(WORDS.get(reason, re.escape(reason)), text + json.dumps(report)):
        found.append(f"does not say: {reason}")
    if peak := script.one("peak"):
        what, way, limit = re.fullmatch(r"(\w+) (at least|at most) (.+)", peak).groups()
        told = report.get(PEAKS[what]) or 0
        if (told < size(limit)) == (way == "at least") and told != size(limit):
            found.append(f"{what} {told / 2**20:.0f} MiB, not {way} {limit}")
    whole = text + json.dumps(report)
    found += [f"does not say {it}" for it in script.lines.get("says", []) if it not in whole]
    found += [f"says {it}" for it in script.lines.get("never", []) if re.search(rf"\b{it}\b", verdict_lines(text), re.IGNORECASE)]
    if script.one("cards") == "none" and len(report.get("cards") or []) > 1:
        found.append("compares other cards")
    if (limit := script.one("within")) and seconds > float(limit.split()[0]):
        found.append(f"took {seconds:.0f} s, not {limit}")
    return found


def one(args, script, top):
    folder = top / script.path.stem
    folder.mkdir()
    (folder / script.path.name).write_text(script.path.read_text())
    for file in script.lines.get("files", []):
        name, _, contents = file.partition("=")
        (folder / name).write_text(contents)
    environment = {key: it for key, it in os.environ.items() if not key.startswith(("PLIMSOLL_", "PYTORCH_"))}
    for name in ("CUDA_VISIBLE_DEVICES", "RANK", "WORLD_SIZE", "LOCAL_RANK"):
        environment.pop(name, None)
    environment |= {"PLIMSOLL_CACHE": str(top / "cache"), "HF_HUB_OFFLINE": "1", "COLUMNS": "120"}
    environment["PATH"] = f"{Path(args.python).parent}:{environment['PATH']}"
    environment |= dict(it.split("=", 1) for it in shlex.split(script.one("environment")))
    options = shlex.split(script.one("options"))
    if "--gpu" not in options:
        options = ["--gpu", "rtx4090", *options]
    words = shlex.split(script.one("command")) or [args.python]
    words = [args.plimsoll, "predict", *options, *shlex.split(args.options), "--json", str(top / f"{script.path.stem}.json"), "--", *words, script.path.name]
    began = time.time()
    with subprocess.Popen(
        words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        try:
            text, code = process.communicate(timeout=args.timeout)[0], process.returncode
        except subprocess.TimeoutExpired:
            # Politely first, so that plimsoll ends what it started.
            process.terminate()
            try:
                text = process.communicate(timeout=20)[0]
            except subprocess.TimeoutExpired:
                process.kill()
                text = process.communicate()[0]
            code = "timeout"
    seconds = time.time() - began
    (top / f"{script.path.stem}.txt").write_text(text)
    path = top / f"{script.path.stem}.json"
    report = json.loads(path.read_text()) if path.exists() and path.stat().st_size else {}
    wrong = [f"ran longer than {args.timeout} s"] if code == "timeout" else judge(script, code, report, text, seconds)
    return {
        "script": script.path.stem, "expected": script.one("expect"), "outcome": report.get("outcome"), "code": code,
        "wrong": wrong, "steps_seen": report.get("steps_seen"), "seconds": round(seconds, 1),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="only these scripts")
    parser.add_argument("--plimsoll", type=os.path.abspath)
    parser.add_argument("--python", default=sys.executable, type=os.path.abspath)
    parser.add_argument("--check", action="store_true", help="read the expectations and end")
    parser.add_argument("--options", default="", help="more options for predict, as one word")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--timeout", type=int, default=300, help="seconds for one script")
    parser.add_argument("--out", type=Path, help="where reports go; a new folder if not given")
    args = parser.parse_intermixed_args()

    there = {it.stem: Script.read(it) for it in sorted((PROGRAMS / "verdicts").glob("*.py"))}
    if unknown := set(args.names) - there.keys():
        raise SystemExit(f"no such script: {', '.join(sorted(unknown))}")
    chosen = [there[it] for it in args.names] if args.names else list(there.values())
    for script in chosen:
        script.check()
    if args.check:
        for script in chosen:
            print(f"{script.path.stem:24} {script.one('expect')}")
        return 0
    if not args.plimsoll:
        parser.error("--plimsoll is needed")
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
    top = Path(tempfile.mkdtemp(prefix="plimsoll-verdicts-", dir=args.out))
    print(f"reports: {top}", flush=True)
    results = []
    with ThreadPoolExecutor(args.jobs) as pool, open(top / "results.jsonl", "w") as file:
        for res in pool.map(lambda it: one(args, it, top), chosen):
            results.append(res)
            print(f"{res['script']:24} {res['seconds']:5.0f} s  {'; '.join(res['wrong']) or 'right'}", flush=True)
            print(json.dumps(res), file=file, flush=True)
    print("\n| script | expected | answered | steps seen | seconds | right |\n|---|---|---|---|---|---|")
    for res in results:
        cells = [res["expected"], res["outcome"], res["steps_seen"], res["seconds"], "; ".join(res["wrong"]) or "yes"]
        print(f"| {res['script']} | {' | '.join(map(str, cells))} |")
    right = sum(not it["wrong"] for it in results)
    print(f"\n{right} of {len(results)} are right.")
    return int(right < len(results))


if __name__ == "__main__":
    sys.exit(main())
