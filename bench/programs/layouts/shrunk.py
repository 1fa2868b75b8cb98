"""Layouts of some GPUs with few layers, real and predicted. Each line of LAYOUTS is a name and the options of `large.py`, or of `split.py`, `mega.py`,
`slow.py`, `plain.py`, `hugging.py` and `zero.py` (which needs deepspeed) where the name begins with that and `_`: of two ranks where it ends with `_on2`, else of $RANKS, 4
if that is not set.

    python shrunk.py real LAYOUTS OUT SECONDS    every rank of each, one layout after the other; then those of OUT/edges.txt, as they come; with
                                                  ONLY_LIMITS=1 in the environment only these
    python shrunk.py predict LAYOUTS OUT SECONDS PLIMSOLL CORES   a report of each; then of each the limits nearest to its edge
    python shrunk.py compare REAL OUT            the lines of REAL (a rank each) against the reports

The edge of a layout is found on the phantom: replays of its recordings with limits on what PyTorch may reserve say between which it lies, and runs with a
limit below and above it what `predict` says of them. The nearest limits with a verdict are written to OUT/edges.txt, those that depend to OUT/depends.txt, and run on
the GPUs. While a layout has the GPUs, the processes of the next one start.
"""

import collections
import fcntl
import importlib
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
EACH = 45
LANES = 2
# How far from the edge that the replays found, in thousandths.
BELOW, ABOVE, ABOVE_IF_IT_DEPENDS = (-2, -8, -25), (2, 8, 25), (2, 30, 55, 75)
MIB = 1 << 20
OTHER_RANKS = int(os.environ.get("RANKS", "4"))
KINDS = ("allocated", "reserved", "device")


def lines_of(path):
    if not os.path.exists(path):
        return []
    with open(path) as f:
        return [it.split() for it in f if it.endswith("\n") and it.strip()]


def program_of(name):
    return next((it for it in ("split", "mega", "slow", "hugging", "zero", "plain") if name.startswith(it + "_")), "large")


def option(words, name, default):
    return words[words.index(name) + 1] if name in words else default


def ranks_of(name, words):
    """What the splits multiply to."""
    if program_of(name) != "large":
        return 2 if name.endswith("_on2") else OTHER_RANKS
    return math.prod(int(option(words, it, 1)) for it in ("--tp", "--pp", "--cp", "--dp"))


def differ(words):
    """Whether ranks need different memory."""
    return "pp" in words or any(option(words, it, "1") != "1" for it in ("--pp", "--cp"))


def next_of(path, out):
    """The first layout that nobody took."""
    with open(os.path.join(out, "taken.txt"), "a+") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        f.seek(0)
        taken = f.read().split()
        for each in ("" if os.environ.get("ONLY_LIMITS") else path, os.path.join(out, "edges.txt"), os.path.join(out, "depends.txt")):
            for line in lines_of(each):
                if line[0] not in taken:
                    f.write(line[0] + "\n")
                    return line, len(taken)
    return None, 0


def run_ranks(name, words, number, out):
    """All ranks of one layout, which wait for their turn after they have started."""
    program, n = importlib.import_module(program_of(name)), ranks_of(name, words)
    turn, start = os.pipe()
    pids = []
    for rank in range(n):
        pid = os.fork()
        if pid == 0:
            os.environ.update({
                "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(n), "LOCAL_WORLD_SIZE": str(n),
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(29600 + number), "TURN_LAYOUTS": str(turn),
            })
            try:
                program.main(["--name", name, *words])
            finally:
                sys.stdout.flush()
                os._exit(0)
        pids.append(pid)
    with open(os.path.join(out, "turn.txt"), "a") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        then = time.time()
        os.write(start, b"1" * n)
        end, alive = then + EACH, list(pids)
        while alive and time.time() < end:
            left = [it for it in alive if os.waitpid(it, os.WNOHANG)[0] == 0]
            if len(left) < len(alive):
                end = min(end, time.time() + 2)  # If one has failed, the others wait for it.
            alive = left
            time.sleep(0.02)
        for pid in alive:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        print(f"RAN {name} {'killed ' if alive else ''}{time.time() - then:.1f} s", flush=True)
    os.close(turn)
    os.close(start)


def real(path, out, seconds):
    sys.path.insert(0, HERE)
    import torch.distributed.pipelining  # noqa: F401 - So that no rank imports it.

    for it in {"large", *(program_of(name) for name, *_ in lines_of(path))}:
        importlib.import_module(it)
    if any(name.startswith("slow_") for name, *_ in lines_of(path)):
        import torchvision  # noqa: F401

    os.environ["OUT_LAYOUTS"] = out
    began = time.time()
    pids = []
    for _ in range(LANES):
        pid = os.fork()
        if pid == 0:
            lane(path, out, began + seconds)
            os._exit(0)
        pids.append(pid)
    for pid in pids:
        os.waitpid(pid, 0)
    print("DONE", flush=True)


def lane(path, out, end):
    while time.time() < end - 8:
        line, number = next_of(path, out)
        if line is None:
            time.sleep(0.2)
        else:
            run_ranks(line[0], line[1:], number, out)


def parts_of(recording):
    """A recording of one process for each process that used a GPU."""
    with zipfile.ZipFile(recording) as whole:
        names = whole.namelist()
        for process in sorted({it.split("/")[0] for it in names if it.endswith("/snapshot.pickle")}):
            part = f"{recording}.{process}.zip"
            with zipfile.ZipFile(part, "w") as out:
                for it in names:
                    if "/" not in it or it.startswith(process + "/"):
                        out.writestr(it, whole.read(it))
            yield part
            os.remove(part)
    os.remove(recording)


class Predicting:
    def __init__(self, out, seconds, plimsoll, n):
        self.out, self.end, self.plimsoll = out, time.time() + seconds, plimsoll
        self.places, self.taking, self.writing = threading.Semaphore(n), threading.Lock(), threading.Lock()

    def report(self, name, words, recording=None):
        """None if the time is over."""
        processes = 3 if differ(words) else 1
        with self.taking:
            for _ in range(processes):
                self.places.acquire()
        try:
            return self.report_now(name, words, recording)
        finally:
            self.places.release(processes)

    def report_now(self, name, words, recording):
        path, then = os.path.join(self.out, name + ".json"), time.time()
        if self.end < then + 10:
            return None
        n = ranks_of(name, words)
        launched = [sys.executable]
        options = ["--gpu", "h200", "--until-exit", "--json", path]
        if recording is not None:
            options += ["--record", recording]
        if recording is None or not differ(words):
            options += ["--world-size", str(n)]
        else:
            options += ["--all-ranks"]
            launched += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n)]
        try:
            ran = subprocess.run(
                [self.plimsoll, "predict", *options, "--", *launched, os.path.join(HERE, program_of(name) + ".py"), *words],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=self.end - then, check=False,
            )
        except subprocess.TimeoutExpired:
            print(f"LATE {name}", flush=True)
            return None
        said = ran.stderr.decode(errors="replace")[-300:] if ran.returncode > 1 else ""
        try:
            with open(path) as f:
                report = json.load(f)
        except (OSError, ValueError):
            report = None
        print(f"SAID {name} {report and report['verdict']} {time.time() - then:.1f} s, {self.end - time.time():.0f} s to go {said}", flush=True)
        return report

    def fits_in(self, recording, limit):
        """Whether the allocator's model comes to the end of this recording; None if it could not be read."""
        command = [self.plimsoll, "replay", recording, "--capacity", f"{limit}MiB"]
        code = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode
        return {0: True, 1: False}.get(code)

    def edge(self, recording, report):
        """The smallest limit with which each process of a recording can be replayed."""
        edge = 0
        for part in parts_of(recording):
            low, high = edge, report["peak_reserved_bytes"] // MIB + 1
            if low and self.fits_in(part, low):
                continue
            while high - low > max(16, high // 1000):
                middle = (low + high) // 2
                fits = self.fits_in(part, middle)
                if fits is None:
                    return None
                low, high = (low, middle) if fits else (middle, high)
            edge = high
        return edge

    def layout(self, line):
        name, *words = line
        recording = os.path.join(self.out, name + ".zip")
        report = self.report(name, words, recording)
        if report is None or report["verdict"] not in ("fits", "depends"):
            return
        edge = self.edge(recording, report)
        ends = [report[it]["reserved_bytes"] for it in ("early", "late", "one_expert") if report.get(it)]
        top = max([report["peak_reserved_bytes"], *ends]) // MIB + 1
        if edge is None:
            return
        print(f"EDGE {name} {edge} of {top}", flush=True)
        above = [edge] if edge == top or not ends else [edge, top]
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda it: self.side(line, *it), [("does_not_fit", [edge], BELOW), ("fits", above, ABOVE_IF_IT_DEPENDS if ends else ABOVE)]))

    def side(self, line, wanted, edges, away):
        """The limit nearest to the first edge of which that is said."""
        name, *words = line
        tried = set()
        for at in edges:
            for it in away:
                limit = at * (1000 + it) // 1000
                if limit in tried:
                    continue
                tried.add(limit)
                full = [f"{name}_at_{limit}", *words, "--limit", str(limit)]
                report = self.report(full[0], full[1:])
                if report is None:
                    return
                said = report["verdict"]
                if said == wanted or at == edges[0] and it == away[0]:
                    with self.writing, open(os.path.join(self.out, "edges.txt" if said in ("fits", "does_not_fit") else "depends.txt"), "a") as f:
                        f.write(" ".join(full) + "\n")
                if said == wanted:
                    return


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
        if os.environ.get("MORE_CORES"):  # As in `280:32`, where others need them until then.
            after, n = os.environ["MORE_CORES"].split(":")
            threading.Timer(int(after), predicting.places.release, [int(n)]).start()
        with ThreadPoolExecutor(max(2, int(more[2]) // 2)) as pool:
            list(pool.map(predicting.layout, lines_of(path)))
