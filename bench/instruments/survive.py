"""Does `plimsoll run --survive` bring a training through a step that does not fit, with the numbers of an undisturbed one?

    python bench/instruments/survive.py --plimsoll target/release/plimsoll --python .venv/bin/python
    python bench/instruments/survive.py ... --phantom h200            on a machine without a GPU: whether it ends, and in which ways; numbers are zeros
    python bench/instruments/survive.py ... --neighbour --share 0.6 gan unet

Each program in `../programs/survive` trains six steps. It runs undisturbed once, which tells what its usual steps and its large one reserve;
then with a limit between the two (`--share` of the way), bare and with `--survive`. With `--neighbour` no step is large, and what is
free is taken in the middle, but for half of what a step needs above what stays.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from sets import PROGRAMS, on_phantom

FOLDER = PROGRAMS / "survive"
NAMES = sorted(it.stem for it in FOLDER.glob("*.py") if it.stem != "planted")
MIB = 1 << 20


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", required=True, type=Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--phantom", metavar="CARD", help="a phantom in the place of the machine's GPU")
    parser.add_argument("--neighbour", action="store_true", help="memory is taken by another instead of by a large batch")
    parser.add_argument("--share", type=float, default=0.4, help="where between usual and large the limit lies")
    parser.add_argument("--out", type=Path, help="a line of JSON for each program")
    parser.add_argument("names", nargs="*", metavar="PROGRAM")
    args = parser.parse_args()
    args.plimsoll = args.plimsoll.resolve()
    device = on_phantom(args.plimsoll, args.phantom) if args.phantom else {}
    print(f"{'program':<20}{'limit':>8}  bare     survive  ways, or why not")
    for name in args.names or NAMES:
        line = tried(args, name, device)
        print(f"{name:<20}{line['limit'] / MIB:>8.0f}  {line['bare']:<9}{line['survive']:<9}{line['said']}", flush=True)
        if args.out:
            with args.out.open("a") as file:
                file.write(json.dumps(line) + "\n")


def tried(args, name, device):
    with tempfile.TemporaryDirectory() as folder:
        undisturbed = run(args, name, device, folder, {})
        steps = undisturbed["steps"]
        usual, large = max(steps[2]["reserved"], steps[1]["reserved"]), steps[3]["reserved"]
        if args.neighbour:
            settings = {"LIMIT": 2 * usual, "NEIGHBOUR": int(2 * usual - usual * (1 - args.share / 2))}
            undisturbed = run(args, name, device, folder, {"NEIGHBOUR": 1})
        else:
            settings = {"LIMIT": int(usual + args.share * (large - usual))}
        bare = run(args, name, device, folder, settings)
        survived = run(args, name, device, folder, settings, "run", "--survive", "--no-gpu", "--json", "run.json", "--")
        processes = json.loads(Path(folder, "run.json").read_text())["processes"]
        redone = [it | {"file": Path(it["file"] or "").name} for process in processes for it in process["redone"]]
    said = [it["refused"] or f"{it['phase'] or 'loss'}: {it['way']}{' in %d' % it['parts'] if it['parts'] else ''}" for it in redone]
    return {
        "program": name,
        "limit": settings["LIMIT"],
        "usual": usual,
        "large": large,
        "bare": outcome(bare, undisturbed),
        "survive": outcome(survived, undisturbed),
        "said": "; ".join(dict.fromkeys(said)),
        "redone": redone,
        "losses": [[it["loss"] for it in run["steps"]] for run in (undisturbed, survived)],
        "weights": [[it["weights"] for it in run["steps"]] for run in (undisturbed, survived)],
    }


def run(args, name, device, folder, settings, *words):
    words = [args.plimsoll, *words] if words else []
    environment = os.environ | device | {it: str(value) for it, value in settings.items()}
    environment["PYTHONPATH"] = str(FOLDER)
    ran = subprocess.run(
        [*map(str, words), args.python, str(FOLDER / f"{name}.py")], cwd=folder, env=environment, capture_output=True, text=True
    )
    steps = [json.loads(it.removeprefix("STEP ")) for it in ran.stdout.splitlines() if it.startswith("STEP ")]
    if not settings and (ran.returncode or len(steps) != 6):
        sys.exit(f"{name} does not run undisturbed:\n{ran.stderr[-2000:]}")
    return {"code": ran.returncode, "steps": steps, "stderr": ran.stderr}


def outcome(ran, undisturbed):
    """`same`, `rounding` or `OTHER` numbers; how it died."""
    if ran["code"]:
        return "OOM" if "out of memory" in ran["stderr"].lower() else "FAILED"
    if len(ran["steps"]) != len(undisturbed["steps"]):
        return "STEPS"
    pairs = [(a[key], b[key]) for a, b in zip(ran["steps"], undisturbed["steps"]) for key in ("loss", "weights")]
    worst = max(abs(a - b) / max(abs(b), 1e-12) for a, b in pairs)
    return "same" if worst == 0 else "rounding" if worst < 1e-3 else "OTHER"


if __name__ == "__main__":
    main()
