#!/usr/bin/env python3
"""Scripts as people write them (`bench/fit/people`, `loops`) under whatever PyTorch there is: measured on a GPU, and predicted, in one call.

    bench/accuracy/people.py --plimsoll BINARY --gpus 1 --jobs 10 --out people-2.15.json

Both times the same script runs up to its eighth step, or to its end if it trains nothing, and says what PyTorch counted. Prints a row a script. Without
`--gpus` only predictions are made, and compared with `--truth FILE`, an earlier `--out`.
"""
import argparse
import json
import os
import runpy
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from versions import show

HERE = os.path.dirname(os.path.abspath(__file__))
FIT = os.path.join(os.path.dirname(HERE), "fit")
STEPS = 8


def one(script, out):
    """In the process that is measured or predicted."""
    import torch
    from torch.optim import optimizer as optimizers

    steps = {}

    def stepped(optimizer, *_):
        steps[id(optimizer)] = steps.get(id(optimizer), 0) + 1
        if min(steps.values()) >= STEPS:
            raise SystemExit(0)

    optimizers.register_optimizer_step_post_hook(stepped)
    sys.argv = [script]
    sys.path[0] = os.path.dirname(script)
    failed = None
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit:
        pass
    except BaseException as error:
        failed = f"{type(error).__name__}: {error}"[:300]
    res = {"torch": torch.__version__, "max_allocated": torch.cuda.max_memory_allocated(), "max_reserved": torch.cuda.max_memory_reserved()}
    res |= {"steps": min(steps.values(), default=0), "num_alloc_retries": torch.cuda.memory_stats().get("num_alloc_retries", 0)}
    with open(out, "w") as file:
        json.dump(res | ({"failed": failed} if failed else {}), file)
    if failed:
        raise SystemExit(failed)


def ran(command, timeout, out, folder):
    began = time.time()
    env = dict(os.environ, HF_HUB_OFFLINE="1", OMP_NUM_THREADS="2")
    try:
        it = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=timeout)
        said = ((it.stderr or it.stdout).strip().splitlines() or [f"exit {it.returncode}"])[-1]
    except subprocess.TimeoutExpired:
        said = f"not done in {timeout:.0f} s"
    try:
        with open(out) as file:
            return json.load(file), round(time.time() - began, 1)
    except (OSError, ValueError):
        return {"failed": said[:300]}, round(time.time() - began, 1)


def main():
    if sys.argv[1:2] == ["--one"]:
        return one(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--gpu", default="h100-80g", help="the card that is predicted for")
    parser.add_argument("--gpus", type=int, default=0, help="1: measure here, one script at a time for each of --lanes")
    parser.add_argument("--lanes", type=int, default=2)
    parser.add_argument("--truth")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--without", nargs="*", default=[])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--each", type=float, default=120, help="seconds that a script has")
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    args.plimsoll = os.path.abspath(args.plimsoll)
    args.python = args.python if os.sep not in args.python else os.path.abspath(args.python)
    end = time.time() + args.seconds
    paths = [os.path.join(FIT, kind, it) for kind in ("people", "loops") for it in sorted(os.listdir(os.path.join(FIT, kind))) if it.endswith(".py")]
    scripts = {os.path.basename(it)[:-3]: it for it in paths}
    scripts = {name: it for name, it in scripts.items() if name not in args.without and (not args.only or name in args.only)}
    known = json.load(open(args.truth)) if args.truth else {}
    rows = {name: {"truth": known[name]["truth"]} if name in known else {} for name in scripts}

    with tempfile.TemporaryDirectory() as folder:

        def left():
            return min(args.each, end - time.time())

        def measure(name):
            if left() > 5:
                out = os.path.join(folder, name + ".truth")
                it, seconds = ran([args.python, os.path.abspath(__file__), "--one", scripts[name], out], left(), out, folder)
                rows[name]["truth"] = it | {"seconds": seconds}

        def predict(name):
            if left() > 5:
                report = os.path.join(folder, name + ".report")
                command = [args.plimsoll, "predict", "--gpu", args.gpu, "--until-exit", "--quiet", "--json", report, "--"]
                own = [args.python, os.path.abspath(__file__), "--one", scripts[name], os.path.join(folder, name + ".phantom")]
                it, seconds = ran(command + own, left(), report, folder)
                kept = {key: it[key] for key in ("failed", "outcome", "peak_allocated_bytes", "peak_reserved_bytes", "safe_bytes") if key in it}
                if it.get("outcome") == "script_failed":
                    kept["failed"] = it["notes"][0]["text"]
                rows[name]["predicted"] = kept | {"seconds": seconds, "notes": sorted({note["code"] for note in it.get("notes", [])})}

        with ThreadPoolExecutor(args.lanes) as gpu, ThreadPoolExecutor(args.jobs) as phantom:
            both = [gpu.submit(measure, it) for it in rows] if args.gpus else []
            both += [phantom.submit(predict, it) for it in rows]
            for it in both:
                it.result()
    with open(args.out, "w") as file:
        file.write("{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items()) + "\n}\n")
    show(rows)


if __name__ == "__main__":
    main()
