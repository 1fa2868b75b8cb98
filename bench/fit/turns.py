"""Seconds of a step with each remedy beside those without, measured in turns on a real GPU; one JSON line for each case.

    python bench/fit/turns.py SECONDS MODEL,...|strangers|newcomers|fresh      on a machine with a GPU, nothing else on it

A host is not as fast at one moment as at the next: twice the same step, a minute apart, took 13 % more or less on virtual
machines. So the processes of one model (a plan each) all live at the same time and take turns of a few steps, while the others
wait; a ratio is that of a turn to the turns without a plan in the same round, and the median of the rounds is told. Each case has
also its seconds, those of its kernels by name where they are looked at, and how fast the host started small kernels meanwhile.
"""

import json
import os
import statistics
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), os.environ.get("PLIMSOLL_AGENT") or os.popen("plimsoll agent").read().strip()]
import fresh  # noqa: E402
import newcomers  # noqa: E402
import steps  # noqa: E402
import strangers  # noqa: E402

PROFILED = ("plain", "autocast")
ROUNDS = 6
AT_LEAST = 0.05
"""Seconds of a turn."""


class Case:
    """A process that makes steps of one model under one plan when it is told to."""

    def __init__(self, model, batch, name):
        self.name = name
        self.turns, self.host, self.probes, self.kernels, self.error = [], [], [], [], None
        to_child, self._write = os.pipe()
        self._read, from_child = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._write), os.close(self._read)
            work(model, batch, steps.PLANS[name], os.fdopen(to_child), os.fdopen(from_child, "w"))
        os.close(to_child), os.close(from_child)
        self._from, self._to = os.fdopen(self._read), os.fdopen(self._write, "w")

    def answer(self):
        line = self._from.readline()
        told = json.loads(line) if line else {"error": "ended"}
        self.error = self.error or told.get("error")
        return told

    def ask(self, *words):
        if self.error:
            return {}
        try:
            print(*words, file=self._to, flush=True)
        except BrokenPipeError:
            self.error = "ended"
        return self.answer()

    def turn(self, n):
        told = self.ask("steps", n)
        if not self.error:
            self.turns.append(statistics.median(told["seconds"]))
            self.host.append(statistics.median(told["host"]))
            self.probes.append(told["probe"])

    def end(self):
        """Closing its input would not do: processes that were forked later have it open, too."""
        try:
            print("end", file=self._to, flush=True)
        except BrokenPipeError:
            pass
        os.waitpid(self.pid, 0)


def work(model, batch, plan, asked, answers):
    """The child."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1), os.dup2(null, 2)
    try:
        import models
        import torch

        if plan:
            from plimsoll_agent import remedies
            from plimsoll_agent.remedies.support.hooks import Hooks

            hooks = Hooks(torch, steps.Silent())
            remedies.apply(torch, json.dumps({"version": 1, "remedies": plan}), hooks)
            hooks.install()
        torch.manual_seed(0)
        network, optimizer, samples, loss_of = models.made(model)

        def step():
            loss = loss_of(samples(batch))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        def timed():
            torch.cuda.synchronize()
            began = time.perf_counter()
            step()
            started = time.perf_counter()
            torch.cuda.synchronize()
            return time.perf_counter() - began, started - began

        for _ in range(4):
            timed()
        small = torch.zeros(16, device="cuda")

        def probe():
            """Seconds of the host for one small kernel."""
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(400):
                small.add_(1.0)
            lasted = time.perf_counter() - began
            torch.cuda.synchronize()
            return lasted / 400

        say = lambda it: print(json.dumps(it), file=answers, flush=True)  # noqa: E731
        say({"reserved": torch.cuda.max_memory_reserved()})
        for words in map(str.split, asked):
            if words[0] == "end":
                break
            if words[0] == "profile":
                say({"kernels": profiled(torch, step)})
                continue
            timed()  # What others have put into the caches is not this one's.
            of_each = [timed() for _ in range(int(words[1]))]
            say({"seconds": [it for it, _ in of_each], "host": [it for _, it in of_each], "probe": probe()})
    except BaseException as error:
        print(json.dumps({"error": repr(error)[-400:]}), file=answers, flush=True)
    os._exit(0)


def profiled(torch, step):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        step()
        torch.cuda.synchronize()
    rows = [it for it in profiler.key_averages() if "cuda" in str(it.device_type).lower()]
    return [[it.key[:120], it.count, round(it.self_device_time_total, 1)] for it in rows]


def in_turns(model, batch, names, until, is_profiled):
    cases = [Case(model, batch, name) for name in names]
    reserved = [it.answer().get("reserved") for it in cases]
    plain, others = cases[0], cases[1:]
    first = {it: it.ask("steps", 1).get("seconds", [1.0])[0] for it in cases}
    long = {it: max(3, min(8, int(AT_LEAST / first[it]) + 1)) for it in cases}
    for n in range(ROUNDS):
        if time.time() > until and n >= 3:
            break
        half = (len(others) + 1) // 2
        others = others[1:] + others[:1]
        for it in [plain, *others[:half], plain, *others[half:]]:
            it.turn(long[it])
    for it in cases if is_profiled else ():
        if it.name in PROFILED and time.time() < until:
            it.kernels = it.ask("profile").get("kernels", [])
    for it, memory in zip(cases, reserved):
        rounds = []
        if it is not plain and not it.error and not plain.error:
            pairs = [statistics.mean(plain.turns[2 * n : 2 * n + 2]) for n in range(len(it.turns))]
            rounds = [round(mine / its, 4) for mine, its in zip(it.turns, pairs)]
        told = {"model": model, "batch": batch, "plan": it.name, "reserved": memory}
        if it.error:
            told["error"] = it.error
        elif it.turns:
            told |= {"seconds": statistics.median(it.turns), "host": statistics.median(it.host), "probe": statistics.median(it.probes)}
            told |= {"ratio": statistics.median(rounds) if rounds else 1.0, "rounds": rounds}
            told |= {"turns": [round(s, 6) for s in it.turns], "kernels": it.kernels}
        print(json.dumps(told), flush=True)
        it.end()


def main():
    steps.imports()
    began, most = time.time(), float(sys.argv[1])
    models = {"strangers": strangers.NAMES, "newcomers": newcomers.NAMES, "fresh": fresh.NAMES}.get(sys.argv[2]) or sys.argv[2].split(",")
    each = [(steps.BATCH, steps.IN_TURNS, True)] + [(steps.SMALL, steps.SMALL_IN_TURNS, False)] * (sys.argv[3:] != ["large"])
    groups = [(model, batches[model], names, profiled) for batches, names, profiled in each for model in models]
    for n, (model, batch, names, is_profiled) in enumerate(groups):
        left = began + most - time.time()
        if left < 6:
            break
        in_turns(model, batch, names, time.time() + left / (len(groups) - n), is_profiled)


if __name__ == "__main__":
    main()
