"""Layouts of some GPUs with few layers, real and predicted. Each line of LAYOUTS is a name and the options of `large.py`, or of `split.py`,
`mega.py`, `hugging.py` and `zero.py` (which needs deepspeed) where the name begins with that and `_`: of $RANKS ranks, 4 if that is not set.

    python shrunk.py real LAYOUTS OUT SECONDS    every rank of each, one layout after the other; then those of OUT/edges.txt, as they come
    python shrunk.py predict LAYOUTS OUT SECONDS PLIMSOLL CORES   a report of each; then of each of `large.py` the limits nearest to its edge
    python shrunk.py compare REAL OUT            the lines of REAL (a rank each) against the reports

The edge of a layout is found by the phantom: between two limits on what PyTorch may reserve, the largest known to be too small (or to depend) and
the smallest known to be enough, three limits at once, until they are a hundredth apart. Both are written to OUT/edges.txt, and run on the GPUs.
"""

import collections
import importlib
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
EACH = 45
APART = 0.01
AT_ONCE = 3
MIB = 1 << 20
OTHER_RANKS = int(os.environ.get("RANKS", "4"))
KINDS = ("allocated", "reserved", "device")


def lines_of(path):
    if not os.path.exists(path):
        return []
    with open(path) as f:
        return [it.split() for it in f if it.endswith("\n") and it.strip()]


def program_of(name):
    return next((it for it in ("split", "mega", "hugging", "zero") if name.startswith(it + "_")), "large")


def ranks_of(name, words):
    """What the splits multiply to."""
    if program_of(name) != "large":
        return OTHER_RANKS
    sizes = [int(words[words.index(it) + 1]) for it in ("--tp", "--pp", "--cp", "--dp") if it in words]
    return math.prod(sizes)


def real(path, out, seconds):
    sys.path.insert(0, HERE)
    import torch.distributed.pipelining  # noqa: F401 - So that no rank imports it.

    programs = {it: importlib.import_module(it) for it in {program_of(name) for name, *_ in lines_of(path)}}

    os.environ["OUT_LAYOUTS"] = out
    began, number = time.time(), 0
    todo, n_edges = lines_of(path), 0
    while time.time() - began < seconds - 8:
        if not todo:
            todo = lines_of(os.path.join(out, "edges.txt"))[n_edges:]
            n_edges += len(todo)
            time.sleep(0.0 if todo else 0.2)
            continue
        name, *words = todo.pop(0)
        number += 1
        then, pids, n = time.time(), [], ranks_of(name, words)
        for rank in range(n):
            pid = os.fork()
            if pid == 0:
                os.environ.update({
                    "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(n), "LOCAL_WORLD_SIZE": str(n),
                    "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(29600 + number),
                })
                try:
                    programs[program_of(name)].main(["--name", name, *words])
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
        print(f"RAN {name} {'killed ' if alive else ''}{time.time() - then:.1f} s, at {time.time() - began:.0f} s", flush=True)
    print(f"DONE {number}, {len(todo)} left", flush=True)


class Predicting:
    def __init__(self, out, seconds, plimsoll, n):
        self.out, self.end, self.plimsoll = out, time.time() + seconds, plimsoll
        self.places, self.writing = threading.Semaphore(n), threading.Lock()

    def report(self, name, words):
        """None if the time is over."""
        with self.places:
            return self.report_now(name, words)

    def report_now(self, name, words):
        path, then = os.path.join(self.out, name + ".json"), time.time()
        if self.end < then + 10:
            return None
        program = os.path.join(HERE, program_of(name) + ".py")
        command = [self.plimsoll, "predict", "--gpu", "h200", "--until-exit", "--world-size", str(ranks_of(name, words)), "--json", path]
        try:
            ran = subprocess.run(
                [*command, "--", sys.executable, program, *words],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=self.end - then, check=False,
            )
        except subprocess.TimeoutExpired:
            print(f"LATE {name}", flush=True)
            return None
        said = ran.stderr.decode(errors="replace")[-300:] if ran.returncode > 1 else ""
        print(f"SAID {name} {ran.returncode} {time.time() - then:.1f} s {said}", flush=True)
        try:
            with open(path) as f:
                return json.load(f)
        except (OSError, ValueError):
            return None

    def layout(self, line):
        name, *words = line
        report = self.report(name, words)
        if report is None or report["verdict"] != "fits" or program_of(name) != "large":
            return
        low, high = report["peak_allocated_bytes"] // MIB, report["peak_reserved_bytes"] // MIB + 1
        fits = {low: False}
        while high - low > APART * high:
            limits = [low + (high - low) * (i + 1) // (AT_ONCE + 1) for i in range(AT_ONCE)]
            with ThreadPoolExecutor(AT_ONCE) as pool:
                said = list(pool.map(lambda it: self.report(f"{name}_at_{it}", [*words, "--limit", str(it)]), limits))
            if None in said:
                return
            fits |= {limit: it["verdict"] == "fits" for limit, it in zip(limits, said)}
            high = min([it for it in limits if fits[it]], default=high)
            low = max(it for it in fits if it < high and not fits[it])
        for limit in (low, high):
            full = [f"{name}_at_{limit}", *words, "--limit", str(limit)]
            if not os.path.exists(os.path.join(self.out, full[0] + ".json")) and self.report(full[0], full[1:]) is None:
                continue
            with self.writing, open(os.path.join(self.out, "edges.txt"), "a") as f:
                f.write(" ".join(full) + "\n")


def of_rank(report, rank, kind):
    """What the report says of this rank; all need the same where it names none, and those of a stage where it names their first."""
    rows = {it["rank"]: it[kind + "_bytes"] for it in report["ranks"] if it["rank"] is not None}
    if any("of each stage" in it["text"] for it in report["notes"]):
        rank = max(it for it in rows if it <= rank)
    return rows.get(rank, report[f"peak_{kind}_bytes"])


def compare(path, out):
    real = collections.defaultdict(dict)
    with open(path) as f:
        for it in map(json.loads, f):
            real[it["name"]][it["rank"]] = it
    errors, unsafe, limits = collections.defaultdict(list), [], []
    for name, ranks in real.items():
        try:
            with open(os.path.join(out, name + ".json")) as f:
                report = json.load(f)
        except OSError:
            continue
        if "_at_" in name:  # A rank that waited for one that ran out was ended, and has no line.
            fits = len(ranks) == report["world_size"] and not any(it["error"] for it in ranks.values())
            limits.append((name, fits, report["verdict"]))
            continue
        failed = [it["error"] for it in ranks.values() if it["error"]]
        if failed or report["verdict"] not in ("fits", "depends"):
            print(f"{name}: {report['verdict']}; real {failed[:1]}")
            continue
        taken = {rank: [max(mark[at] for mark in it["marks"]) for at in (1, 2, 3)] for rank, it in ranks.items()}
        cells = []
        for at, kind in enumerate(KINDS):
            off = {rank: 100 * (of_rank(report, rank, kind) / it[at] - 1) for rank, it in taken.items()}
            errors[kind] += off.values()
            cells.append("equal" if max(map(abs, off.values())) < 0.0005 else f"{min(off.values()):+.2f} to {max(off.values()):+.2f} %")
        worst = max(it[2] for it in taken.values())
        safe = report["safe_bytes"]  # None where it depends.
        if safe is not None and safe < worst:
            unsafe.append(name)
        said = f"{report['peak_device_bytes'] // MIB}, {safe // MIB if safe else 'depends'}"
        print(f"| {name} | {len(ranks)} | {' | '.join(cells)} | {worst // MIB}, {said} |")
    for kind, all_ in errors.items():
        print(f"{kind}: of {len(all_)} ranks equal {sum(abs(it) < 0.0005 for it in all_)}, within 1 % {sum(abs(it) <= 1 for it in all_)}")
    print("over the safe size:", ", ".join(unsafe) or "none")
    told = [it for it in limits if it[2] in ("fits", "does_not_fit")]
    right = [it for it in told if it[1] == (it[2] == "fits")]
    print(f"limits: {len(right)} of {len(told)} judged right; {sum(it[1] for it in told)} fitted")
    for it in limits:
        if it not in right:
            print("wrong:" if it in told else "open:", *it)


if __name__ == "__main__":
    what, path, out, *more = sys.argv[1:]
    os.makedirs(out, exist_ok=True)
    if what == "real":
        real(path, out, float(more[0]))
    elif what == "compare":
        compare(path, out)
    else:
        predicting = Predicting(out, float(more[0]), more[1], int(more[2]))
        with ThreadPoolExecutor(2 * int(more[2])) as pool:
            list(pool.map(predicting.layout, lines_of(path)))
