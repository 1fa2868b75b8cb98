"""Layouts of one or two GPUs with few layers, real and predicted. Each line of LAYOUTS is a name and the options of `large.py`.

    python shrunk.py real LAYOUTS OUT SECONDS            every rank of each, one layout after the other
    python shrunk.py predict LAYOUTS OUT SECONDS PLIMSOLL CORES   a report of each, as many at a time as there are CORES
    python shrunk.py edges LAYOUTS OUT COUNT             new lines: these layouts with limits between what is allocated and reserved
    python shrunk.py compare REAL OUT                    the lines of REAL (a rank each) against the reports
"""

import json
import math
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
EACH = 45
MIB = 1 << 20


def lines_of(path):
    with open(path) as f:
        return [it.split() for it in f if it.strip()]


def ranks_of(words):
    """What the splits multiply to."""
    sizes = [int(words[words.index(it) + 1]) for it in ("--tp", "--pp", "--cp", "--dp") if it in words]
    return math.prod(sizes)


def real(lines, out, seconds):
    sys.path.insert(0, HERE)
    import large
    import torch.distributed.pipelining  # noqa: F401 - So that no rank imports it.

    os.environ["OUT_LAYOUTS"] = out
    began = time.time()
    for number, (name, *words) in enumerate(lines):
        if seconds < time.time() - began + 8:
            print(f"DONE {number} of {len(lines)}", flush=True)
            break
        then, pids, n = time.time(), [], ranks_of(words)
        for rank in range(n):
            pid = os.fork()
            if pid == 0:
                os.environ.update({
                    "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(n), "LOCAL_WORLD_SIZE": str(n),
                    "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(29600 + number),
                })
                try:
                    large.main(["--name", name, *words])
                finally:
                    sys.stdout.flush()
                    os._exit(0)
            pids.append(pid)
        end, alive = then + EACH, list(pids)
        while alive and time.time() < end:
            left = [it for it in alive if os.waitpid(it, os.WNOHANG)[0] == 0]
            if len(left) < len(alive):
                end = min(end, time.time() + 4)  # If one has failed, the other waits for it.
            alive = left
            time.sleep(0.02)
        for pid in alive:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        print(f"RAN {name} {'killed ' if alive else ''}{time.time() - then:.1f} s", flush=True)


def predict(lines, out, seconds, plimsoll, cores):
    end = time.time() + seconds

    def one(line):
        name, *words = line
        command = [plimsoll, "predict", "--gpu", "h200", "--until-exit", "--world-size", str(ranks_of(words)), "--json", os.path.join(out, name + ".json"), "--"]
        then = time.time()
        if end < then + 20:
            return
        try:
            code = subprocess.run(
                [*command, sys.executable, os.path.join(HERE, "large.py"), *words],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=end - then, check=False,
            )
            words = code.stderr.decode(errors="replace")[-300:] if code.returncode > 1 else ""
            print(f"SAID {name} {code.returncode} {time.time() - then:.1f} s {words}", flush=True)
        except subprocess.TimeoutExpired:
            print(f"LATE {name}", flush=True)

    with ThreadPoolExecutor(cores) as pool:
        list(pool.map(one, lines))


def edges(lines, out, count):
    """The levels of one layout follow each other by turns with those of the others, so that each has some when the time is over."""
    res = []
    for level in range(count):
        for name, *words in lines:
            try:
                with open(os.path.join(out, name + ".json")) as f:
                    report = json.load(f)
            except (OSError, ValueError):
                continue
            low, high = 0.985 * report["peak_allocated_bytes"], 1.015 * report["peak_reserved_bytes"]
            # The middle first, then the ends.
            at = sorted(range(count), key=lambda it: abs(it - (count - 1) / 2))[level] / (count - 1)
            limit = round((low + at * (high - low)) / MIB)
            res.append(f"{name}_at_{limit} {' '.join(words)} --limit {limit}")
    print("\n".join(res))


def compare(path, out):
    real = {}
    with open(path) as f:
        for it in map(json.loads, f):
            real.setdefault(it["name"], []).append(it)
    n_right, n_limits = 0, 0
    for name, ranks in real.items():
        try:
            with open(os.path.join(out, name + ".json")) as f:
                report = json.load(f)
        except OSError:
            continue
        if "_at_" in name:
            fits = len(ranks) == (1 if "_one" in name else 2) and not any(it["error"] for it in ranks)
            n_limits, n_right = n_limits + 1, n_right + (fits == (report["verdict"] == "fits"))
            continue
        kinds = ("peak_allocated_bytes", "peak_reserved_bytes", "peak_device_bytes")
        worst = [max(mark[at] for it in ranks for mark in it["marks"]) for at in (1, 2, 3)]
        off = ", ".join(f"{it // MIB} {100 * (report[kind] / it - 1):+.2f} %" for kind, it in zip(kinds, worst))
        print(f"{name}: {off}{'' if worst[2] <= report['safe_bytes'] else ', OVER THE SAFE SIZE'}")
    print(f"limits: {n_right} of {n_limits} judged right")


if __name__ == "__main__":
    what, path, out, *more = sys.argv[1:]
    os.makedirs(out, exist_ok=True)
    if what == "real":
        real(lines_of(path), out, float(more[0]))
    elif what == "predict":
        predict(lines_of(path), out, float(more[0]), more[1], int(more[2]))
    elif what == "compare":
        compare(path, out)
    else:
        edges(lines_of(path), out, int(more[0]))
