"""The bench's programs under whatever PyTorch there is: measured on a GPU, and predicted on the phantom, in one call.

    python bench/instruments/versions.py --plimsoll BINARY --gpus 1 --jobs 12 --out torch-2.15.json
    python bench/instruments/versions.py ... --sets people loops --steps 8 --lanes 2 --each 120      scripts as people write them

A machine that has a GPU runs each program on it (`--gpus N` are used in turn) and, beside that, predicts it. Without a GPU, or with
`--truth FILE` (an earlier `--out`), only the predictions are made. Prints a row a program, and how many are equal to the byte.
`--seconds` bounds the whole; what was not run is named.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from sets import SETS, programs


def environment(program, gpu=None):
    res = dict(os.environ, HF_HUB_OFFLINE="1", OMP_NUM_THREADS="2") | program.environment
    if gpu is not None:
        res["CUDA_VISIBLE_DEVICES"] = str(gpu)
    return res


def ran(command, env, timeout, out, folder):
    """What it left, and the last line that it said if it left nothing."""
    began = time.time()
    try:
        it = subprocess.run(list(map(str, command)), cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=timeout)
        said = (it.stderr or it.stdout).strip().splitlines()[-1:] or [f"exit {it.returncode}"]
    except subprocess.TimeoutExpired:
        said = [f"not done in {timeout:.0f} s"]
    try:
        with open(out) as file:
            return json.load(file), round(time.time() - began, 1)
    except (OSError, ValueError):
        return {"failed": said[0][:300]}, round(time.time() - began, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--gpu", default="h200", help="the card that is predicted for")
    parser.add_argument("--gpus", type=int, default=0, help="how many GPUs measure; 0: none")
    parser.add_argument("--truth", help="what an earlier run measured")
    parser.add_argument("--sets", nargs="*", default=["workloads"], choices=SETS)
    parser.add_argument("--kinds", nargs="*", default=[], help="programs of kinds to run beside them: what differs between releases shows in work areas and compiled code")
    parser.add_argument("--steps", type=int, help="people's trainings are ended after so many")
    parser.add_argument("--only", nargs="*", default=[], help="programs whose name contains one of these")
    parser.add_argument("--without", nargs="*", default=[], help="programs that are left out")
    parser.add_argument("--jobs", type=int, default=2, help="programs at a time, on the GPU and on the phantom each")
    parser.add_argument("--lanes", type=int, help="on the GPU, if not as many")
    parser.add_argument("--each", type=float, default=3600, help="seconds that a program has")
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    end = time.time() + args.seconds
    args.plimsoll = os.path.abspath(args.plimsoll)
    args.python = os.path.abspath(args.python) if os.sep in args.python else args.python
    chosen = [*programs(*args.sets, steps=args.steps), *(it for it in programs("kinds") if it.name in args.kinds)]
    chosen = [it for it in chosen if it.name not in args.without and (not args.only or any(part in it.name for part in args.only))]
    rows = {it.name: {} for it in chosen}
    if args.truth:
        with open(args.truth) as file:
            for name, row in json.load(file)["programs"].items():
                if name in rows:
                    rows[name]["truth"] = row["truth"]

    def write():
        version = subprocess.run([args.python, "-c", "import torch; print(torch.__version__, torch.backends.cudnn.version())"], capture_output=True, text=True)
        lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
        with open(args.out, "w") as file:
            file.write('{"torch": %s, "programs": {\n%s\n}}\n' % (json.dumps(version.stdout.strip()), lines))

    with tempfile.TemporaryDirectory() as folder:

        def left():
            return min(args.each, end - time.time())

        def measure(numbered):
            number, program = numbered
            if left() < 10:
                return
            out = os.path.join(folder, program.name + ".truth")
            it, seconds = ran([args.python, *program.command(folder, out)], environment(program, number % args.gpus), left(), out, folder)
            keys = ("failed", "torch", "max_allocated", "max_reserved", "nvml_process", "nvml_process_bytes", "num_alloc_retries", "oom")
            rows[program.name]["truth"] = {key: it[key] for key in keys if key in it} | {"seconds": seconds}

        def predict(program):
            if left() < 10:
                return
            report = os.path.join(folder, program.name + ".report")
            its = program.command(folder, os.path.join(folder, program.name + ".out"))
            command = [args.plimsoll, "predict", "--gpu", args.gpu, *program.options, "--json", report, "--", args.python, *its]
            it, seconds = ran(command, environment(program), left(), report, folder)
            keys = ("failed", "outcome", "peak_allocated_bytes", "peak_reserved_bytes", "peak_device_bytes", "safe_bytes")
            kept = {key: it[key] for key in keys if key in it} | {"seconds": seconds}
            if it.get("outcome") == "script_failed":
                kept["failed"] = it["notes"][0]["text"]
            rows[program.name]["predicted"] = kept | {"notes": sorted(note["code"] for note in it.get("notes", []))}

        with ThreadPoolExecutor(args.lanes or args.jobs) as gpu, ThreadPoolExecutor(args.jobs) as phantom:
            both = [gpu.submit(measure, it) for it in enumerate(chosen)] if args.gpus else []
            both += [phantom.submit(predict, it) for it in chosen]
            for it in both:
                it.result()
        write()
    show(rows)


def show(rows):
    errors = {"allocated": [], "reserved": []}
    equal = 0
    for name, row in rows.items():
        truth, ours = row.get("truth", {}), row.get("predicted", {})
        line = f"{name:36}"
        for key in errors:
            theirs, its = truth.get(f"max_{key}"), ours.get(f"peak_{key}_bytes")
            off = 100 * (its / theirs - 1) if theirs and its else None
            line += "         -" if off is None else f"{off:+10.3f}"
            if off is not None:
                errors[key].append(abs(off))
        equal += bool(truth.get("max_reserved")) and truth.get("max_reserved") == ours.get("peak_reserved_bytes")
        line += f"  {truth.get('seconds', 0):5.1f} {ours.get('seconds', 0):5.1f} s"
        for side, it in (("GPU", truth), ("phantom", ours)):
            if "failed" in it:
                line += f"  {side}: {it['failed'][:200]}"
        print(line)
    for key, it in errors.items():
        it.sort()
        if it:
            nearly = sum(error <= 1 for error in it)
            print(f"{key}: {len(it)} programs, median {statistics.median(it):.3f} %, worst {it[-1]:.3f} %, within 1 % {nearly}")
    print(f"reserved equal to the byte: {equal} of {len(errors['reserved'])}")


if __name__ == "__main__":
    main()
