"""Whether `plimsoll explain` leads with the true cause, finds what is planted, and says nothing else.

    python bench/instruments/explained.py causes --plimsoll target/release/plimsoll [--keep FOLDER] [NAME ...]
    python bench/instruments/explained.py findings --plimsoll target/release/plimsoll [--keep FOLDER] [NAME ...]
    python bench/instruments/explained.py recordings --plimsoll target/release/plimsoll --shared FOLDER

causes      ../programs/causes: one planted cause each, on cards that are too small. The first lines of a script's docstring say what is planted:

                cause: leak/eval-without-no-grad at line 20  the line may be missing
                also right: line 15                          another line that may be named
                also right: size/activations                 another code
                memory: 3GiB 4GiB                            the cards; on each of them it has to run out

findings    ../programs/findings: loops with a mistake, or with what only looks like one. A module has EXPECTED, the codes that a loop has to
            yield (None: none of `leak/` and `growth/`), or LEAKS and CLEAN, whose first finding has to name a line with the comment `leak` or `or`
recordings  recordings of special situations, each with the finding that it has to yield, and healthy runs of a GPU, in which every `leak/`
            or `growth/` is a false alarm: FOLDER has data/recordings, data/truth and data/distributed

Programs are recorded on the phantom, and each recording is read twice: with the agent's notes, and as the plain snapshot that PyTorch writes. A
table, then a line of sums; the exit code is 1 if an answer is wrong. With `--keep` recordings are kept, and read again the next time.
"""

import argparse
import ast
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sets import PROGRAMS

# What each recording has to yield; () is none of leak/ and growth/.
RECORDINGS = {
    "leak-loss-list": ("leak/graph-retained",),
    "eval-without-no-grad": ("leak/eval-without-no-grad",),
    "generate-kv-cache": ("growth/kv-cache", "recording/began-late"),
    # Every free in it completed at once, so nothing waits.
    "streams-prefetch": (),
    "torture-streams": ("streams/pending-frees",),
    "mempool": ("pools/idle-private",),
    "ring-truncated": ("recording/ring-too-small",),
    "started-late": ("recording/began-late",),
    "big": ("inputs/dynamic-shapes", "fragmentation/slack"),
    "annotated": (), "cpp-stacks": (), "no-context": (), "state-only": (),
    "torture-default": (), "torture-expandable": (), "torture-oom": (),
}  # fmt: skip


def recorded(args, name, words, *options):
    """The recording of a program on the phantom."""
    zipped = args.keep / f"{name}.zip"
    if not zipped.exists():
        command = [args.plimsoll, "predict", "--quiet", "--until-exit", "--record", zipped, *options, "--", args.python, *words]
        with tempfile.TemporaryDirectory() as folder:
            ran = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=args.timeout)
        if not zipped.exists():
            raise SystemExit(f"{name}: {ran.stderr[-500:]}")
    return zipped


def explain(args, path):
    ran = subprocess.run([args.plimsoll, "explain", path, "--json", "-"], capture_output=True, text=True)
    return json.loads(ran.stdout) if ran.stdout else {}


def both(args, zipped):
    """What is said with notes, and of the plain snapshot; of several processes, the one that ran out is not known without the notes."""
    res = [explain(args, zipped)]
    with zipfile.ZipFile(zipped) as it, tempfile.TemporaryDirectory() as folder:
        members = [name for name in it.namelist() if name.endswith("snapshot.pickle")]
        if len(members) == 1:
            plain = Path(folder, "snapshot.pickle")
            plain.write_bytes(it.read(members[0]))
            res.append(explain(args, plain))
    return res


def planted(path):
    """The codes, the lines, and the cards."""
    text = ast.get_docstring(ast.parse(path.read_text()))
    code, line = re.match(r"cause: (\S+)(?: at line (\d+))?", text).groups()
    also = re.findall(r"^also right: (?:line (\d+)|(\S+))$", text, re.MULTILINE)
    lines = [int(it) for it in (line, *(number for number, _ in also)) if it]
    marks = [n for n, it in enumerate(path.read_text().splitlines(), 1) if it.endswith("# here")]
    if marks and marks != lines[:1]:
        raise SystemExit(f"{path}: says {lines[:1]}, marked are {marks}")
    return [code, *(it for _, it in also if it)], lines, re.search(r"^memory: (.*)$", text, re.MULTILINE)[1].split()


def leads_with(report, codes, lines):
    """(what it leads with, whether that is right)."""
    cause = report.get("cause") or {}
    line = cause.get("line") or {}
    shown = f"{cause.get('code')} at {line['line']}" if line else str(cause.get("code"))
    if not report.get("oom"):
        return f"{shown}, did not run out", False
    return shown, cause.get("code") in codes and (not lines or line.get("line") in lines)


def causes(args):
    """Name, what is planted, and (shown, right) of both readings, of each script and card."""
    scripts = [it for it in sorted((PROGRAMS / "causes").glob("*.py")) if not args.names or it.stem in args.names]

    def one(job):
        path, memory = job
        codes, lines, _ = planted(path)
        zipped = recorded(args, f"{path.stem}-{memory}", [path], "--gpu", "h200", "--memory", memory)
        at = f" at {lines[0]}" if lines else ""
        return f"{path.stem}, {memory}", codes[0] + at, [leads_with(it, codes, lines) for it in both(args, zipped)]

    return one, [(path, memory) for path in scripts for memory in planted(path)[2]]


def growths(report):
    return [it for it in report.get("findings", []) if it["code"].startswith(("leak/", "growth/"))]


def marked(path, name):
    """Lines of a loop that a finding may name."""
    text = path.read_text().splitlines()
    start = next(n for n, it in enumerate(text, 1) if it.startswith(f"def {name.replace('-', '_')}("))
    end = next((n for n, it in enumerate(text, 1) if start < n and it.startswith("def ")), len(text))
    return {n for n in range(start, end) if text[n - 1].endswith(("# leak", "# or"))}


def findings(args):
    sys.path.insert(0, str(PROGRAMS / "findings"))
    jobs = []
    for path in sorted((PROGRAMS / "findings").glob("*.py")):
        module = importlib.import_module(path.stem)
        names = getattr(module, "EXPECTED", None) or [*module.LEAKS, *module.CLEAN]
        jobs += [(module, path, it) for it in names if not args.names or it in args.names]

    def one(job):
        module, path, name = job
        zipped = recorded(args, f"{path.stem}-{name}", [path, name], "--gpu", "rtx4090")
        expected = getattr(module, "EXPECTED", None)
        leaks = expected[name] if expected else name in module.LEAKS
        answers = []
        for report in both(args, zipped):
            found = growths(report)
            codes = [it["code"] for it in found]
            if not leaks:
                right = not found
            elif expected:
                right = bool(set(codes) & leaks)
            else:
                right = any(f'"line": {n},' in json.dumps(found[:1]) for n in marked(path, name))
            answers.append((", ".join(codes) or "-", right))
        wanted = " or ".join(sorted(leaks)) if expected and leaks else "its line" if leaks else "nothing"
        return f"{path.stem}: {name}", wanted, answers

    return one, jobs


def recordings(args):
    data = args.shared / "data"
    jobs = [(data / f"recordings/{name}.pickle.xz", set(expected)) for name, expected in RECORDINGS.items()]
    jobs += [(it, set()) for folder in ("truth", "distributed") for it in sorted((data / folder).glob("*.pickle.xz"))]

    def one(job):
        path, expected = job
        report = explain(args, path)
        found = {it["code"] for it in report["findings"]} - {"peak/composition"}
        alarms = {it["code"] for it in growths(report)} - expected
        if not expected and path.parent.name != "recordings":
            alarms |= {it["code"] for it in report["findings"] if it["weight"] == "problem"}
        right = expected <= found and not alarms
        return path.name.removesuffix(".pickle.xz"), ", ".join(sorted(expected)) or "no growth", [(", ".join(sorted(found)) or "-", right)]

    return one, [it for it in jobs if not args.names or it[0].name.removesuffix(".pickle.xz") in args.names]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("causes", "findings", "recordings"))
    parser.add_argument("names", nargs="*", help="only these")
    parser.add_argument("--plimsoll", required=True, type=os.path.abspath)
    parser.add_argument("--python", default=sys.executable, type=os.path.abspath)
    parser.add_argument("--shared", type=Path, help="where data/recordings, data/truth and data/distributed are")
    parser.add_argument("--keep", type=Path, help="where recordings of programs are kept")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--timeout", type=int, default=300)
    args = parser.parse_intermixed_args()
    if args.what == "recordings" and not args.shared:
        parser.error("recordings need --shared")
    right, seen = [0, 0], [0, 0]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(args.jobs) as pool:
        args.keep = (args.keep or Path(folder)).absolute()
        args.keep.mkdir(exist_ok=True)
        print("| what | planted | with notes | plain snapshot |\n|---|---|---|---|")
        one, jobs = {"causes": causes, "findings": findings, "recordings": recordings}[args.what](args)
        for name, wanted, answers in pool.map(one, jobs):
            for n, (_, good) in enumerate(answers):
                right[n] += good
                seen[n] += 1
            shown = [it if good else f"**{it}**" for it, good in answers]
            print(f"| {name} | {wanted} | {' | '.join([*shown, '-'][:2])} |", flush=True)
    print(f"\nright: {right[0]} of {seen[0]} with notes, {right[1]} of {seen[1]} as plain snapshots")
    sys.exit(right != seen)


if __name__ == "__main__":
    main()
