"""DeepSpeed's ZeRO on real GPUs and on the phantom, in one call: the jobs of `../programs/jobs/zero.py`, each with one rank and with two.

    python bench/instruments/zero.py --plimsoll BINARY --gpus 2 --out h100-zero.json

Jobs are measured `--at-once` at a time; meanwhile one imagined rank of each job is predicted, `--jobs` at a time. Prints a row a job
and number of ranks: the peaks of each rank, and how far the nearest of the phantom's two orders is from the farthest rank.
Without `--gpus` only the predictions are made, and compared with what `--truth FILE`, an earlier `--out`, says.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from sets import PROGRAMS
from several import SIZES, off, orders

SCRIPT = str(PROGRAMS / "job.py")


def said(command, timeout, **env):
    """Seconds, and the last line of a command that failed; None of one that did not."""
    began = time.time()
    try:
        it = subprocess.run(command, env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "2", **env}, capture_output=True, text=True, timeout=timeout)
        lines = (it.stdout + it.stderr).strip().splitlines()
        failed = None if it.returncode == 0 else (lines or ["exit %d" % it.returncode])[-1][:300]
    except subprocess.TimeoutExpired:
        failed = "not done in %.0f s" % timeout
    return round(time.time() - began, 1), failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--gpu", default="h100-80g", help="the card that is predicted for")
    parser.add_argument("--gpus", type=int, default=0, help="how many GPUs measure; 0: none")
    parser.add_argument("--at-once", type=int, default=1, help="jobs at a time on the GPUs")
    parser.add_argument("--truth", help="what an earlier run measured")
    parser.add_argument("--jobs", type=int, default=8, help="predictions at a time")
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    end = time.time() + args.seconds
    names = [it for it in subprocess.check_output([args.python, SCRIPT, "list"], text=True).split() if it.startswith("zero-")]
    known = json.load(open(args.truth)) if args.truth else {}
    rows = {f"{name}.{world}": {"truth": known.get(f"{name}.{world}", {}).get("truth")} for world in (1, 2) for name in names}
    alone = ["-m", "torch.distributed.run", "--nproc-per-node"]

    with tempfile.TemporaryDirectory() as folder:

        def measure(key):
            name, world = key.split(".")
            prefix = os.path.join(folder, key)
            port = str(29600 + list(rows).index(key))
            seconds, failed = said([args.python, *alone, world, "--master-port", port, SCRIPT, name, prefix], max(end - time.time(), 1))
            truth = {"seconds": seconds, "failed": failed, "ranks": []}
            for rank in range(int(world)):
                if os.path.exists(f"{prefix}.rank{rank}.json"):
                    it = json.load(open(f"{prefix}.rank{rank}.json"))
                    truth["ranks"].append({key: it[key] for key in ("max_allocated", "max_reserved", "process_bytes", "torch", "gpu")})
            rows[key]["truth"] = truth

        def predict(key):
            name, world = key.split(".")
            report = os.path.join(folder, key + ".report")
            # One rank is given what its launcher would say; of several one is imagined.
            ranks, launcher = ([], [*alone, "1", "--master-port", str(29700 + list(rows).index(key))]) if world == "1" else (["--world-size", world], [])
            options = ["--gpu", args.gpu, *ranks, "--until-exit", "--quiet", "--json", report]
            command = [args.plimsoll, "predict", *options, "--", args.python, *launcher, SCRIPT, name, os.path.join(folder, key + ".phantom")]
            seconds, failed = said(command, max(end - time.time(), 1))
            it = json.load(open(report)) if os.path.exists(report) else {}
            kept = {"seconds": seconds, "failed": failed, "outcome": it.get("outcome"), "notes": sorted(note["code"] for note in it.get("notes", []))}
            rows[key]["predicted"] = kept | ({"orders": orders(it), "safe": it["safe_bytes"]} if it.get("peak_reserved_bytes") else {})

        with ThreadPoolExecutor(args.at_once) as gpu, ThreadPoolExecutor(args.jobs) as phantom:
            both = [gpu.submit(measure, it) for it in rows if int(it[-1]) <= args.gpus]
            both += [phantom.submit(predict, it) for it in rows]
            for it in both:
                it.result()
    with open(args.out, "w") as file:
        file.write("{\n" + ",\n".join(f"{json.dumps(key)}: {json.dumps(row)}" for key, row in rows.items()) + "\n}\n")
    for key, row in rows.items():
        show(key, row)


def show(key, row):
    truth, ours = row["truth"] or {"ranks": []}, row["predicted"]
    line = f"{key:26}"
    for size in SIZES:
        real = [it["max_" + size][0] for it in truth["ranks"]]
        line += f" {size} {', '.join(str(it >> 20) for it in real) or '-'} MiB"
        if "orders" in ours:
            both = [it[size] for it in ours["orders"]]
            line += f", ours {both[0] >> 20}" + (f" or {both[1] >> 20}" if both[0] != both[1] else "")
            if real:
                worst = max((off(both, it) for it in real), key=abs)
                line += f" ({worst:+.3f} %{', equal' if all(it in both for it in real) else ''})"
        line += ";"
    for side, it in (("GPU", truth), ("phantom", ours)):
        if it.get("failed"):
            line += f" {side}: {it['failed']}"
    print(line, flush=True)


if __name__ == "__main__":
    main()
