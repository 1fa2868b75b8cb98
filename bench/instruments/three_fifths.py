"""Scripts at three fifths of the memory that they need: the plan of `plimsoll fit`, made on the phantom, run on the real GPU under that limit.

    python bench/instruments/three_fifths.py --binary target/release/plimsoll --out rows.jsonl              on a machine with a GPU
    python bench/instruments/three_fifths.py --binary ... --out rows.jsonl --phantom --only simclr,dgcnn    anywhere: what it needs is predicted
    python bench/instruments/three_fifths.py --binary ... --out again.jsonl --steps-of rows.jsonl            with a GPU: the steps of those plans, with no search beside them
    python bench/instruments/three_fifths.py --table bench/results/raw/three_fifths.jsonl            the rows as a table with its sums; of two files, before and after

For each script: as it is on the GPU (`run --measure`: what it reserves, how long a step is), `fit --limit-reserved` with three fifths of that
(on the CPU, several at once), the same script under that limit with the plan, and, if there is time, without. A line of JSON for
each part as soon as it is done. The scripts of ../programs/people come first, then loops, settings, snippets. A training is ended after some steps.
"""

import argparse
import heapq
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from sets import HERE, PROGRAMS

SETTINGS = [("frag", []), ("resnet", ["resnet50"]), ("resnet", ["resnet50", "amp"]), ("resnet", ["vgg16"]), ("segment", []), ("eager", ["gpt2"]), ("eager", ["llama"])]
NOT_TRAINING = {"rest", "profiled", "history", "search", "simple_cnn", "monitored", "replicated"}
"""Of the snippets: helpers, loops that end after a step, those that differ from another one only in what they print."""


def scripts():
    """Names with their words, those of `people` first."""
    res = {}
    for path in sorted(PROGRAMS.glob("people/*.py")) + sorted(PROGRAMS.glob("loops/*.py")):
        res[path.stem] = [path]
    for name, words in SETTINGS:
        res["-".join([name, *words])] = [PROGRAMS / "settings" / f"{name}.py", *words]
    for path in sorted(PROGRAMS.glob("snippets/*.py")):
        if path.stem not in NOT_TRAINING:
            res[f"snippet-{path.stem}"] = [path]
    return res


class Bench:
    def __init__(self, args):
        self.args, self.until = args, time.monotonic() + args.budget_seconds
        self.folder = Path(tempfile.mkdtemp())
        self.lock = self.folder / "lock"
        self.lock.touch()
        self.guard, self.changed, self.n = threading.Lock(), threading.Condition(), itertools.count()
        self.queues, self.left = {"gpu": [], "cpu": []}, 0
        args.out.parent.mkdir(parents=True, exist_ok=True)

    def say(self, **row):
        with self.guard, self.args.out.open("a") as file:
            file.write(json.dumps(row) + "\n")
        shown = ("code", "seconds", "outcome", "runs", "predicted", "peak_reserved_bytes", "oom", "error")
        passed = round(self.args.budget_seconds - (self.until - time.monotonic()))
        print(passed, row["script"], row["part"], *(f"{it}={row[it]}" for it in shown if it in row), flush=True)

    def put(self, queue, urgency, job, *words):
        with self.changed:
            heapq.heappush(self.queues[queue], (urgency, next(self.n), job, words))
            self.left += 1
            self.changed.notify_all()

    def work(self, queue):
        while True:
            with self.changed:
                while not self.queues[queue]:
                    if not self.left or time.monotonic() > self.until:
                        return
                    self.changed.wait(1)
                _, _, job, words = heapq.heappop(self.queues[queue])
            try:
                if time.monotonic() < self.until:
                    job(*words)
            except Exception as error:
                self.say(script=words[0], part="error", error=repr(error))
            with self.changed:
                self.left -= 1
                self.changed.notify_all()

    def call(self, words, seconds, threads, **env):
        """Exit code (None if it had to be ended), its output and its seconds. Ends gently: an interrupted search keeps its best."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        env = {**os.environ, "OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(HERE / "meter"), **env}
        env["PLIMSOLL_CACHE"] = str(self.folder / "cache")
        began = time.monotonic()
        out = folder / "output.txt"
        with out.open("w") as file:
            process = subprocess.Popen([str(it) for it in words], cwd=folder, env=env, stdout=file, stderr=subprocess.STDOUT)
            ended = False
            for wait, how in ((min(seconds, self.until - time.monotonic()), signal.SIGINT), (10, signal.SIGTERM), (5, signal.SIGKILL)):
                try:
                    process.wait(max(wait, 1))
                    break
                except subprocess.TimeoutExpired:
                    ended = True
                    process.send_signal(how)
            process.wait()
        return None if ended else process.returncode, out.read_text(errors="replace"), round(time.monotonic() - began, 1), folder

    def run(self, words, *options, limit=None):
        """What `plimsoll run` saw."""
        env = {"METER_STEPS": str(self.args.steps), "METER_SECONDS": "6", "METER_LOCK": str(self.lock)}
        if limit:
            env["PLIMSOLL_LIMIT_RESERVED"] = str(limit)
        options = [*options, "--measure", "--json", "run.json", "--stacks", "none", "--events", "1000"]
        code, text, seconds, folder = self.call([self.args.binary, "run", *options, "--", self.args.python, *words], 100, 2, **env)
        res = {"code": code, "seconds": seconds}
        if (folder / "run.json").exists():
            told = json.loads((folder / "run.json").read_text())
            devices = [it for process in told["processes"] for it in process["devices"]]
            res |= {"oom": told["out_of_memory"] or "OutOfMemoryError" in text, "steps": max((it["steps"] or 0 for it in told["processes"]), default=0)}
            for key in ("peak_reserved_bytes", "peak_allocated_bytes", "retries", "ooms"):
                res[key] = max((it[key] for it in devices), default=None)
            times = [it["step_seconds"] or it["step_seconds_host"] for it in told["processes"] if it["step_seconds"] or it["step_seconds_host"]]
            res["step"] = times[0] if times else None
        if code != 0:
            res["text"] = text[-900:]
        return res

    def bare(self, name, words):
        if self.args.phantom:
            code, text, seconds, folder = self.call([self.args.binary, "predict", "--gpu", self.args.card, "--json", "it.json", "-q", "--", self.args.python, *words], 300, 1)
            told = json.loads((folder / "it.json").read_text()) if (folder / "it.json").exists() else {}
            res = {"code": code, "seconds": seconds, "peak_reserved_bytes": told.get("peak_reserved_bytes"), "steps": 1}
            res |= {"text": text[-900:]} if not told else {}
        else:
            res = self.run(words)
        self.say(script=name, part="bare", **res)
        if res.get("peak_reserved_bytes") and not res.get("oom"):
            limit = int(res["peak_reserved_bytes"] * self.args.share)
            self.put("cpu", 0, self.fit, name, words, limit)

    def fit(self, name, words, limit):
        plan = self.folder / f"{name}.toml"
        options = ["--gpu", self.args.card, "--limit-reserved", f"{limit}B", "--plan", plan, "--json", "it.json"]
        code, text, seconds, folder = self.call([self.args.binary, "fit", *options, "--", self.args.python, *words], self.args.fit_seconds, 1)
        res = {"code": code, "seconds": seconds, "limit": limit, "text": text[-3000:]}
        if (folder / "it.json").exists():
            told = json.loads((folder / "it.json").read_text())
            res |= {key: told[key] for key in ("outcome", "runs", "interrupted", "seen", "closest", "advice")}
            res |= {"as_it_is": told["as_it_is"], "plans": told["plans"]}
        if plan.exists():
            text = plan.read_text()
            res["plan"] = text
            res["predicted"] = int((re.search(r"predicted_reserved_bytes = (\d+)", text) or [0, 0])[1])
        self.say(script=name, part="fit", **res)
        if plan.exists() and not self.args.phantom:
            self.put("gpu", 1, self.with_plan, name, words, limit, plan)
        if not self.args.phantom:
            self.put("gpu", 3, self.without, name, words, limit)

    def steps_of(self, path):
        """Puts those with a plan in `path` into the queue again, as they are and with it. The row of the search comes along, so
        that `--table` has all."""
        chosen = scripts()
        for n, (name, parts) in enumerate(rows_of(path).items()):
            fit = parts.get("fit", {})
            if fit.get("plan") and name in chosen:
                self.say(script=name, part="fit", **{key: it for key, it in fit.items() if key not in ("script", "part")})
                plan = self.folder / f"{name}.toml"
                plan.write_text(fit["plan"])
                self.put("gpu", n, self.bare_again, name, chosen[name])
                self.put("gpu", n, self.with_plan, name, chosen[name], fit["limit"], plan)

    def bare_again(self, name, words):
        self.say(script=name, part="bare", **self.run(words))

    def with_plan(self, name, words, limit, plan):
        self.say(script=name, part="plan", limit=limit, **self.run(words, "--plan", plan, limit=limit))

    def without(self, name, words, limit):
        self.say(script=name, part="bare-limited", limit=limit, **self.run(words, limit=limit))

    def searches(self):
        chosen = scripts()
        only = self.args.only.split(",") if self.args.only else list(chosen)
        for n, name in enumerate(it for it in only if it in chosen):
            # What the searches wait for comes first, then plans, then the rest of the scripts as they are.
            self.put("gpu", 0 if n < self.args.jobs + 4 else 2, self.bare, name, chosen[name])

    def all(self):
        threads = [threading.Thread(target=self.work, args=["gpu"]) for _ in range(self.args.lanes)]
        threads += [threading.Thread(target=self.work, args=["cpu"]) for _ in range(self.args.jobs)]
        for it in threads:
            it.start()
        for it in threads:
            it.join()


def this_card():
    try:
        name = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True).stdout
    except OSError:
        name = ""
    return "h200" if "H200" in name else "h100-80g"


def table(paths):
    """A table of one run, or of one before and one after."""
    all = [rows_of(it) for it in paths]
    heads = ["script", "need, MB", "limit"]
    for when in [""] if len(all) == 1 else ["before: ", "after: "]:
        heads += [when + "plan", "predicted", "measured", "step: told, measured", "`fit`"]
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
    for name in all[-1]:
        parts = [it.get(name, {}) for it in all]
        cells = [name, mb(parts[-1].get("bare", {}).get("peak_reserved_bytes")), mb(parts[-1].get("fit", {}).get("limit"))]
        for it in parts:
            cells += cells_of(it)
        print("| " + " | ".join(cells) + " |")
    sums(list(all[-1].values()))


def sums(scripts):
    """What the table comes to. Steps that were made while searches ran beside them are no measure."""
    fits = [it["fit"] for it in scripts if "fit" in it]
    # A run that was cut off before its first step has not reached its peak.
    ran = [it for it in scripts if "plan" in it and (it["plan"]["steps"] or it["plan"]["code"] is not None)]
    off = [it["plan"]["peak_reserved_bytes"] / it["fit"]["predicted"] - 1 for it in ran if it["fit"].get("predicted")]
    ratios = []
    for it in ran:
        told = (it["fit"].get("plans") or [{}])[0]
        if told.get("time_factor") and it["plan"].get("step") and it["bare"].get("step") and not it["plan"].get("beside_searches"):
            low, high = told["time_factor_range"]
            took = it["plan"]["step"]["median"] / it["bare"]["step"]["median"]
            ratios.append((abs(told["time_factor"] / took - 1), low <= took <= high))
    print(f"\n{len(fits)} scripts: a plan for {sum(bool(it.get('plans')) for it in fits)}, fit as they are {sum(it.get('outcome') == 'fits' for it in fits)}, {sum(bool(it.get('interrupted')) for it in fits)} searches interrupted")
    plans = [it["plan"] for it in scripts if "plan" in it]
    print(f"{len(plans)} plans ran on the card: {sum(bool(it.get('oom')) for it in plans)} out of memory, {len(plans) - len(ran)} cut off before their first step")
    print(f"reserved as predicted, to the byte: {sum(not it for it in off)} of {len(off)}; within 1 %: {sum(abs(it) <= 0.01 for it in off)}; more than predicted: {sum(0 < it for it in off)}, {max(off):.1%} at most")
    errors = sorted(it for it, _ in ratios)
    print(f"step times told and measured with nothing beside them: {len(errors)}, {errors[len(errors) // 2]:.1%} off at the median, within 25 %: {sum(it <= 0.25 for it in errors)}, in the range: {sum(it for _, it in ratios)}")


def rows_of(path):
    rows = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        # What is kept has a line for each script, with all its parts.
        rows.setdefault(row["script"], {}).update({row["part"]: row} if "part" in row else row)
    return rows


def cells_of(parts):
    bare, fit, plan = (parts.get(it, {}) for it in ("bare", "fit", "plan"))
    best = (fit.get("plans") or [{}])[0]
    remedies = ", ".join(best.get("remedies") or []) or (fit.get("outcome") or ("not done" if "fit" not in parts else "failed")).replace("_", " ")
    size = mb(plan.get("peak_reserved_bytes"))
    ran = "" if not plan else "**runs out**" if plan.get("oom") else f"{size}, ends as without" if plan.get("code") and bare.get("code") else "**fails**" if plan.get("code") else size
    steps = [it["step"]["median"] for it in (plan, bare) if it.get("step")]
    ratio = f"{steps[0] / steps[1]:.2f}" if len(steps) == 2 else "-"
    told = f"{best['time_factor']:.2f}" if best.get("time_factor") else "-"
    took = f"{fit['runs']} runs, {fit['seconds']:.0f} s" if "runs" in fit else ""
    return [remedies, mb(fit.get("predicted")), ran, f"{told}, {ratio}" if plan else "", took]


def mb(size):
    return "" if not size else f"{size / 1e6:,.0f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--card", help="what the searches imitate: h200 on one, else h100-80g")
    parser.add_argument("--jobs", type=int, default=12, help="searches at once")
    parser.add_argument("--lanes", type=int, default=3, help="processes on the GPU at once; their steps are made one after the other")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--share", type=float, default=0.6)
    parser.add_argument("--budget-seconds", type=float, default=540)
    parser.add_argument("--fit-seconds", type=float, default=200, help="then a search is interrupted; it keeps its best")
    parser.add_argument("--only", help="these scripts, in this order")
    parser.add_argument("--phantom", action="store_true", help="no GPU: what a script needs is predicted, plans are not run")
    parser.add_argument("--steps-of", type=Path, metavar="ROWS", help="no searches: the plans of these rows are run again")
    parser.add_argument("--table", type=Path, nargs="+", metavar="ROWS")
    args = parser.parse_args()
    if args.table:
        return table(args.table)
    args.card = args.card or this_card()
    args.binary, args.out = args.binary.resolve(), args.out.resolve()
    bench = Bench(args)
    bench.steps_of(args.steps_of) if args.steps_of else bench.searches()
    bench.all()


if __name__ == "__main__":
    main()
