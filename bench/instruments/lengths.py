"""Scripts whose batches differ in size, at three fifths of what they need: what `plimsoll fit` finds, asked again in other ways, and run on the real GPU.

    python bench/instruments/lengths.py --binary BINARY --out rows.jsonl                    on a machine with one H100 or H200 and 16 cores
    python bench/instruments/lengths.py --binary BINARY --out rows.jsonl --phantom          anywhere: without the real runs
    python bench/instruments/lengths.py --table bench/results/raw/lengths.jsonl             the rows as a table with its sums

The limit of a script is that of its row in `../results/raw/lengths.jsonl`, so that it stays the same when plimsoll changes. Without a row it is three fifths
of what `predict` says with `expandable_segments`. For each script:

    fit       `fit --memory LIMIT`; after --fit-seconds it is interrupted and keeps its best
    check     `predict --memory LIMIT --plan`, the command that the report of `fit` prints: has to fit, with the same number
    again     `fit` once more (--again): has to find the same first plan
    largest   `fit --find-max` of the batch (--largest): `predict` of what it finds has to fit with the same number, and the next value must not fit
    real      `run --plan`, 60 steps with the real order of lengths, PyTorch's allocator held to the limit less the CUDA context
    edited    the script with the diff of `fit` applied, on the GPU: under the limit if the plan is no more than the diff and the allocator's settings
    alone     where `fit` says that the evaluation does not fit by itself: the script with expandable segments; from its first `eval()` on the allocator may
              have as much more as the whole limit, so that nothing of training counts: has to run out
"""

import argparse
import concurrent.futures
import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from sets import HERE, PROGRAMS, RAW
from three_fifths import this_card

ROWS = RAW / "lengths.jsonl"
STEPS, EVERY = 60, {"diffusion_aspect_buckets": 15}
EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
MIB = 1 << 20


def command(path):
    """The script with its words: those that ask for 60 steps and an evaluation every 20, if it has them."""
    text = path.read_text()
    asks = "--steps" in text or '"steps"' in text
    return [path, "--steps", str(STEPS), "--eval-every", str(EVERY.get(path.stem, 20))] if asks else [path]


class Bench:
    def __init__(self, args):
        self.args, self.began, self.until = args, time.monotonic(), time.monotonic() + args.budget_seconds
        self.folder = Path(tempfile.mkdtemp())
        # Cores for a search, and the GPU for a real run: whoever takes one gives it back.
        self.places, self.lanes, self.mine = queue.Queue(), queue.Queue(), threading.local()
        for at in range(args.jobs):
            self.places.put(",".join(str(at * args.pin + it) for it in range(args.pin)))
        for at in range(args.lanes):
            self.lanes.put(str(at % args.gpus))
        self.guard = threading.Lock()
        self.limits = {row["script"]: row["limit"] for row in rows_of(args.limits)} if args.limits.exists() else {}

    @contextlib.contextmanager
    def taking(self, places, name):
        place = places.get()
        setattr(self.mine, name, place)
        try:
            yield
        finally:
            setattr(self.mine, name, "")
            places.put(place)

    @property
    def cores(self):
        return self.taking(self.places, "cores")

    @property
    def gpu(self):
        return self.taking(self.lanes, "gpu")

    def call(self, words, seconds, folder, **env):
        """Exit code (none if it had to be ended), output, seconds, processor seconds of it and its children."""
        env = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PLIMSOLL_CACHE": str(self.folder / "cache"), **env}
        if getattr(self.mine, "cores", ""):
            words = ["taskset", "-c", self.mine.cores, *words]
        if getattr(self.mine, "gpu", ""):
            env["CUDA_VISIBLE_DEVICES"] = self.mine.gpu
        began, ended = time.monotonic(), False
        with tempfile.TemporaryFile("w+", errors="replace") as out:
            process = subprocess.Popen([str(it) for it in words], cwd=folder, env=env, stdout=out, stderr=subprocess.STDOUT)
            ends = [(min(seconds, self.until - began), signal.SIGINT), (20, signal.SIGTERM), (5, signal.SIGKILL)]
            deadline = began + max(ends[0][0], 1)
            while True:
                pid, status, usage = os.wait4(process.pid, os.WNOHANG)
                if pid:
                    break
                if deadline < time.monotonic() and ends:
                    ended = True
                    process.send_signal(ends.pop(0)[1])
                    deadline = time.monotonic() + (ends[0][0] if ends else 60)
                time.sleep(0.05)
            process.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0)
            text = out.read()
        return None if ended else process.returncode, text, round(time.monotonic() - began, 1), round(usage.ru_utime + usage.ru_stime, 1)

    def script(self, path):
        row = {"script": path.stem}
        try:
            self.parts(path, row)
        except Exception as error:
            row["error"] = repr(error)
        with self.guard, self.args.out.open("a") as file:
            file.write(self.without_places(json.dumps(row)) + "\n")
        print(round(time.monotonic() - self.began), *cells(row), row.get("error", ""), flush=True)

    def without_places(self, text):
        """A row says nothing of the machine's folders."""
        for place, instead in ((f"{PROGRAMS.parents[1]}/", ""), (f"{self.folder}/", ""), (str(self.args.python), "python")):
            text = text.replace(place, instead)
        return text

    def parts(self, path, row):
        folder, words = self.folder / path.stem, [self.args.python, *command(path)]
        folder.mkdir()
        card, limit = self.args.card, self.limits.get(path.stem)
        row["card"] = card
        if limit is None:
            with self.cores:
                code, text, seconds, _ = self.call([self.args.binary, "predict", "--gpu", card, "--json", "need.json", "-q", "--", *words], 240, folder, **EXPANDABLE)
            row["need"] = json.loads((folder / "need.json").read_text())["peak_device_bytes"]
            limit = int(row["need"] * 0.6) // MIB * MIB
        row["limit"] = limit
        asks = ["--gpu", card, "--memory", f"{limit // MIB}MiB"]
        with self.cores:
            row["fit"] = self.fit(asks, words, folder, "plan")
        told = row["fit"]
        context = told.pop("context", None)
        limited = {"PLIMSOLL_LIMIT_RESERVED": str(limit - context)} if context else {}
        parts = []
        if told["plan"]:
            parts = [("check", self.check, asks, words, folder)]
            if self.args.again:
                parts += [("again", self.again, asks, words, folder)]
            if self.args.largest and "--batch-size" in path.read_text():
                parts += [("largest", self.largest, asks, words, folder)]
            if not self.args.phantom:
                parts += [("real", self.real, ["--plan", folder / "plan.toml"], words, folder / "real", limited)]
                if told["diff"]:
                    settings = re.search(r'^settings = "(.*)"', told["plan"], re.M)
                    given = {"PYTORCH_CUDA_ALLOC_CONF": settings[1]} if settings else {}
                    is_whole = set(told["by_hand"]) <= {"allocator"}
                    parts += [("edited", self.edited, path, words, folder / "edited", {**given, **(limited if is_whole else {})})]
        elif told["alone"] and not self.args.phantom:
            limit_alone = {"METER_EVALUATION_LIMIT": str(limit - context), **EXPANDABLE}
            parts = [("alone", self.real, [], words, folder / "alone", limit_alone)]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            running = [(name, pool.submit(part, *its)) for name, part, *its in parts]
            for name, it in running:
                row[name] = it.result()

    def fit(self, asks, words, folder, name):
        options = [*asks, "--plan", f"{name}.toml", "--json", f"{name}.json", *self.args.fit_options]
        code, text, seconds, processor = self.call([self.args.binary, "fit", *options, "--", *words], self.args.fit_seconds, folder)
        res = {"code": code, "seconds": seconds, "processor": processor, "plan": None, "diff": None, "alone": None, "text": text[-4000:]}
        if (folder / f"{name}.json").exists():
            told = json.loads((folder / f"{name}.json").read_text())
            change = told["change"] or {}
            res |= {key: told[key] for key in ("outcome", "runs", "interrupted", "seen")}
            res |= {"alone": told["evaluation_alone"], "plans": [[it["remedies"], it["needs_bytes"], it["peak_reserved_bytes"]] for it in told["plans"]]}
            res |= {"diff": change.get("diff"), "by_hand": change.get("by_hand")}
            res |= {"closest": (told["closest"] or {}).get("needs_bytes"), "context": told["as_it_is"]["at_peak_bytes"].get("CUDA context")}
        if (folder / f"{name}.toml").exists():
            res["plan"] = (folder / f"{name}.toml").read_text()
        return res

    def check(self, asks, words, folder):
        with self.cores:
            code, text, seconds, processor = self.call([self.args.binary, "predict", *asks, "--plan", "plan.toml", "--json", "check.json", "-q", "--", *words], 200, folder)
        told = json.loads((folder / "check.json").read_text()) if (folder / "check.json").exists() else {}
        res = {key: told.get(key) for key in ("verdict", "safe_bytes", "peak_device_bytes", "peak_reserved_bytes")}
        return {"code": code, "seconds": seconds, "processor": processor, **res, "text": "" if told else text[-900:]}

    def again(self, asks, words, folder):
        with self.cores:
            res = self.fit(asks, words, folder, "again")
        return {key: res.get(key) for key in ("code", "seconds", "plans", "outcome")}

    def largest(self, asks, words, folder):
        words = [*words, "--batch-size", "{batch}"]
        options = [*asks, "--find-max", "batch=1..64", "--json", "largest.json"]
        with self.cores:
            code, text, seconds, processor = self.call([self.args.binary, "fit", *options, "--", *words], self.args.fit_seconds, folder)
        res = {"code": code, "seconds": seconds, "processor": processor, "text": text[-1500:]}
        told = json.loads((folder / "largest.json").read_text()) if (folder / "largest.json").exists() else {}
        value = (told.get("found") or {}).get("batch")
        res |= {"value": value, "tried": [[it["value"], it["outcome"], it["peak_device_bytes"]] for it in told.get("tried", ())]}
        for name, batch in (("is", value), ("next", value and value + 1)) if code is not None else ():
            if not batch:
                continue
            with self.cores:
                at = [it.replace("{batch}", str(batch)) if isinstance(it, str) else it for it in words]
                self.call([self.args.binary, "predict", *asks, "--json", f"{name}.json", "-q", "--", *at], 200, folder)
            told = json.loads((folder / f"{name}.json").read_text()) if (folder / f"{name}.json").exists() else {}
            res[name] = [batch, told.get("verdict"), told.get("safe_bytes"), told.get("peak_device_bytes")]
        return res

    def real(self, options, words, folder, env):
        """What `plimsoll run` saw of 60 steps."""
        folder.mkdir()
        env = {"PYTHONPATH": str(HERE / "meter"), **env}
        if "--steps" not in words:
            env |= {"METER_STEPS": str(STEPS), "METER_SECONDS": "1e9", "METER_LOCK": str(folder / "lock")}
        options = [*options, "--json", "run.json", "--stacks", "none", "--events", "1000"]
        with self.gpu:
            code, text, seconds, _ = self.call([self.args.binary, "run", *options, "--", *words], self.args.real_seconds, folder, **env)
        res = {"code": code, "seconds": seconds, "oom": "OutOfMemoryError" in text, "limited": "evaluation limited" in text}
        if (folder / "run.json").exists():
            told = json.loads((folder / "run.json").read_text())
            devices = [it for process in told["processes"] for it in process["devices"]]
            res |= {"oom": res["oom"] or bool(told["out_of_memory"]), "steps": max((it["steps"] or 0 for it in told["processes"]), default=0)}
            for key in ("peak_reserved_bytes", "peak_allocated_bytes", "retries", "ooms"):
                res[key] = max((it[key] or 0 for it in devices), default=None)
        ended = "MEASURED" in text or "METER_STEPS" in env and code == 0
        return {**res, "ended": ended, "text": "" if ended and not res["oom"] else text[-1500:]}

    def edited(self, path, words, folder, env):
        """The script with the diff applied."""
        copy = folder.with_name("copy")
        copy.mkdir()
        (copy / path.name).write_text(path.read_text())
        diff = (folder.parent / "plan.diff").read_text().replace(str(path), path.name)
        told = subprocess.run(["patch", "-p0"], input=diff, cwd=copy, capture_output=True, text=True)
        if told.returncode:
            return {"code": told.returncode, "text": told.stdout + told.stderr}
        words = [copy / path.name if it == path else it for it in words]
        return {"limited_to": env.get("PLIMSOLL_LIMIT_RESERVED"), **self.real([], words, folder, env)}

    def all(self):
        paths = sorted((PROGRAMS / "lengths").glob("*.py"))
        first = self.args.first.split(",")
        paths.sort(key=lambda it: first.index(it.stem) if it.stem in first else len(first))
        paths = [it for it in paths if not self.args.only or it.stem in self.args.only.split(",")]
        with concurrent.futures.ThreadPoolExecutor(len(paths)) as pool:
            list(pool.map(self.script, paths))


def rows_of(path):
    """The last row of each script."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return list({row["script"]: row for row in rows}.values())


def gib(size):
    return "-" if not size else f"{size / (1 << 30):.2f}"


def answer(row):
    fit = row.get("fit", {})
    if fit.get("plans"):
        return ", ".join(fit["plans"][0][0]) + (", by Ctrl-C" if fit["code"] is None else "")
    if fit.get("alone"):
        return "no plan: the evaluation alone"
    return (fit.get("outcome") or "no answer").replace("_", " ") + (f", nearest {gib(fit['closest'])}" if fit.get("closest") else "")


def real_of(run, predicted=None):
    if not run:
        return ""
    if run.get("oom"):
        return f"**ran out** in step {run.get('steps')}, {gib(run.get('peak_reserved_bytes'))}"
    how = "ended" if run.get("ended") else "cut off" if run.get("code") is None else f"**code {run['code']}**"
    reserved = run.get("peak_reserved_bytes")
    off = f" ({reserved / predicted - 1:+.1%})" if reserved and predicted else ""
    return f"{how}, {run.get('steps')} steps, {gib(reserved)}{off}, {run.get('retries')} retries"


def cells(row):
    fit, check = row.get("fit", {}), row.get("check", {})
    plans = fit.get("plans") or []
    needs, predicted = (plans[0][1], plans[0][2]) if plans else (None, None)
    agrees = "" if not check else gib(check.get("safe_bytes")) if check.get("verdict") == "fits" else f"**{check.get('verdict')}**"
    if row.get("again"):
        both = fit["code"] is None and row["again"]["code"] is None
        agrees += ", same" if (row["again"].get("plans") or [None])[0] == plans[0] else ", other plan (both by Ctrl-C)" if both else ", **other plan**"
    real = real_of(row.get("real"), predicted) or (f"alone: {real_of(row['alone'])}" if row.get("alone") else "")
    seconds, processor = (f"{it:.0f}" if it is not None else "-" for it in (fit.get("seconds"), fit.get("processor") and fit["processor"] / 2))
    name = f"`{row['script']}`" + (f" ({row['call']})" if row.get("call") else "")
    return [name, gib(row.get("limit")), seconds, processor, answer(row), gib(needs), agrees, gib(predicted), real, real_of(row.get("edited"))]


def table(path):
    rows = rows_of(path)
    print("| program | limit | s | two cores | plan | request | `predict` | reserved, predicted | reserved, real | edited |\n|" + "---|" * 10)
    for row in rows:
        print("| " + " | ".join(cells(row)) + " |")
    real = [row["real"] for row in rows if row.get("real")]
    checks = [row for row in rows if row.get("check")]
    off = [row["check"]["safe_bytes"] / row["fit"]["plans"][0][1] - 1 for row in checks if row["check"].get("safe_bytes") and row["fit"].get("plans")]
    edited = [row["edited"] for row in rows if row.get("edited")]
    alone = [row["alone"] for row in rows if row.get("alone")]
    print(f"\n{len(rows)} scripts: {sum(bool(it['fit'].get('plan')) for it in rows if 'fit' in it)} plans, {len(real)} run on the card: {sum(bool(it['oom']) for it in real)} out of memory, {sum(bool(it['ended']) for it in real)} ended")
    print(f"`predict` of {len(checks)} plans: {sum(row['check'].get('verdict') == 'fits' for row in checks)} fit, {sum(abs(it) < 0.005 for it in off)} within 0.5 % of the request, at most {max(map(abs, off), default=0):.1%} off")
    print(f"diffs: {len(edited)} applied and run, {sum(bool(it.get('ended')) and not it.get('oom') for it in edited)} to the end; evaluations alone: {sum(bool(it.get('oom')) and bool(it.get('limited')) for it in alone)} of {len(alone)} ran out")
    found = [row["largest"] for row in rows if row.get("largest", {}).get("value")]
    print(f"the largest batch: {len(found)} found, predict: {sum((it.get('is') or [0, 0])[1] == 'fits' for it in found)} fit, of the next {sum((it.get('next') or [0, 'fits'])[1] != 'fits' for it in found)} do not")
    print(f"searches: {sum((it['fit'].get('seconds') or 999) <= 90 for it in rows if 'fit' in it)} of {len(rows)} within 90 s beside the others")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--limits", type=Path, default=ROWS)
    parser.add_argument("--card", help="what the searches imitate: h200 on one, else h100-80g")
    parser.add_argument("--jobs", type=int, default=14, help="searches at once")
    parser.add_argument("--pin", type=int, default=0, metavar="N", help="each search has N cores of its own")
    parser.add_argument("--lanes", type=int, default=8, help="processes on the GPUs at once")
    parser.add_argument("--gpus", type=int, default=1, help="the GPUs that they take turns on; each sees one")
    parser.add_argument("--fit-seconds", type=float, default=150)
    parser.add_argument("--real-seconds", type=float, default=120)
    parser.add_argument("--fit-options", nargs="*", default=[])
    parser.add_argument("--budget-seconds", type=float, default=540)
    parser.add_argument("--only", help="these scripts")
    parser.add_argument("--first", default="", help="these scripts before the others, in this order")
    parser.add_argument("--again", action="store_true", help="each search twice")
    parser.add_argument("--largest", action="store_true", help="also the largest batch, and what predict reports of it and of the next one")
    parser.add_argument("--phantom", action="store_true", help="no GPU: plans are not run")
    parser.add_argument("--table", type=Path, metavar="ROWS")
    args = parser.parse_args()
    if args.table:
        return table(args.table)
    args.card = args.card or this_card()
    args.binary, args.out = args.binary.resolve(), args.out.resolve()
    Bench(args).all()


if __name__ == "__main__":
    main()
