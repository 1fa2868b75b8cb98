#!/usr/bin/env python3
"""How often the findings of `plimsoll explain` are right.

    bench/findings/run.py --plimsoll target/release/plimsoll --shared ../shared --python .venv/bin/python

Three parts, printed as Markdown:
- recordings of special situations, each with the finding that it has to yield;
- truth snapshots of healthy runs, where every `leak/` or `growth/` finding is a false alarm;
- variants.py and loops.py, recorded on the phantom, read with the agent's notes and again as a plain snapshot.
"""

import argparse
import collections
import json
import pathlib
import subprocess
import sys
import tempfile
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import loops  # noqa: E402
import variants  # noqa: E402

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
}


def explain(plimsoll, path):
    done = subprocess.run([plimsoll, "explain", str(path), "--json", "-"], capture_output=True, text=True)
    if done.returncode == 2:
        raise SystemExit(f"{path}: {done.stderr}")
    return json.loads(done.stdout)


def codes(report):
    return [it["code"] for it in report["findings"] if it["code"] != "peak/composition"]


def growths(found):
    return [it for it in found if it.startswith(("leak/", "growth/"))]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--plimsoll", required=True)
    parser.add_argument("--shared", type=pathlib.Path, required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--recorder", help="the plimsoll that records (default: the same)")
    parser.add_argument("--keep", type=pathlib.Path, help="where recordings of the variants are kept")
    args = parser.parse_args()
    right = wrong = 0

    print("| recording | has to yield | yields | right |\n|---|---|---|---|")
    for name, expected in RECORDINGS.items():
        found = codes(explain(args.plimsoll, args.shared / f"data/recordings/{name}.pickle.xz"))
        good = set(expected) <= set(found) and set(growths(found)) <= set(expected)
        right, wrong = right + good, wrong + (not good)
        print(f"| {name} | {', '.join(expected) or 'no growth'} | {', '.join(found)} | {'yes' if good else '**no**'} |")

    print("\n| truth | findings that promise bytes | alarms |\n|---|---|---|")
    alarms = 0
    folders = ("truth", "distributed")
    for path in sorted(it for name in folders for it in (args.shared / "data" / name).glob("*.pickle.xz")):
        report = explain(args.plimsoll, path)
        found = growths(codes(report)) + [it["code"] for it in report["findings"] if it["weight"] == "problem"]
        alarms += bool(found)
        chances = [f"{it['code']} {it['bytes'] >> 20} MiB" for it in report["findings"] if it["weight"] != "fact"]
        print(f"| {path.name.removesuffix('.pickle.xz')} | {', '.join(chances) or '-'} | {', '.join(found) or '-'} |")

    print("\n| variant | has to yield | with notes | plain snapshot | right |\n|---|---|---|---|---|")
    score = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        keep = args.keep or pathlib.Path(folder)
        keep.mkdir(exist_ok=True)
        programs = [(it, *case) for it in (variants, loops) for case in it.EXPECTED.items()]
        for module, name, expected in programs:
            zipped = keep / f"{name}.zip"
            if not zipped.exists():
                command = [args.recorder or args.plimsoll, "predict", "--quiet", "--until-exit", "--record", str(zipped), "--",
                           args.python, str(pathlib.Path(module.__file__)), name]
                subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
            plain = pathlib.Path(folder) / f"{name}.pickle"
            with zipfile.ZipFile(zipped) as it:
                member = next(it for it in it.namelist() if it.endswith("snapshot.pickle"))
                plain.write_bytes(it.read(member))
            both = [growths(codes(explain(args.plimsoll, path))) for path in (zipped, plain)]
            good = [(not found) if expected is None else bool(set(found) & expected) for found in both]
            score["notes"] += good[0]
            score["plain"] += good[1]
            score["all"] += 1
            shown = " or ".join(sorted(expected)) if expected else "no growth"
            print(f"| {name} | {shown} | {', '.join(both[0]) or '-'} | {', '.join(both[1]) or '-'} | "
                  f"{' / '.join('yes' if it else '**no**' for it in good)} |")

    print(f"\nrecordings: {right} of {right + wrong} right; truth: {alarms} false alarms; variants: "
          f"{score['notes']} of {score['all']} with notes, {score['plain']} of {score['all']} as plain snapshots")


if __name__ == "__main__":
    main()
