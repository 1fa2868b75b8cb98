"""The true largest batch on a real GPU, by trial, and what two libraries find; one JSON line for each.

    python bench/instruments/largest.py [SECONDS]     on a machine with a GPU

Each trial is forked from a process that has done the imports, trains a few steps under a limit on what the allocator
may reserve, and either survives or runs out. The search goes on beyond the first failure: memory need not grow with
the batch.
"""

import json
import os
import runpy
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sets import PROGRAMS

sys.path[:0] = [str(PROGRAMS), *filter(None, os.environ.get("PEERS", "").split(":"))]
STEP = {"gpt2": 1, "llama": 1, "bert": 1, "vit": 1, "resnet50": 1, "unet": 1, "lstm": 8, "mlp": 256}
START = {"gpt2": 1.0, "llama": 0.8, "bert": 2.2, "vit": 7.0, "resnet50": 11.7, "unet": 8.7, "lstm": 80.0, "mlp": 900.0}
"""Roughly, of each GiB."""
BUDGETS = (8, 12, 24)
PEERED = ("gpt2", "resnet50", "mlp")
if "--help" in sys.argv:
    sys.exit(__doc__)
BEGAN, LATEST = time.time(), float(sys.argv[1]) if sys.argv[1:] else 220.0
lock = threading.Lock()


def say(**fields):
    print(json.dumps({"at": round(time.time() - BEGAN, 1), **fields}), flush=True)


def forked(work):
    """What `work()` returns in a process of its own; None if it died or took too long."""
    path = tempfile.mktemp(suffix=".json")
    with lock:
        pid = os.fork()
    if pid == 0:
        null = os.open(path + ".log", os.O_WRONLY | os.O_CREAT)
        os.dup2(null, 1)
        os.dup2(null, 2)
        try:
            told = work()
        except BaseException as error:
            told = {"error": type(error).__name__ + ": " + str(error)[:200]}
        with open(path + ".part", "w") as file:
            json.dump(told, file)
        os.replace(path + ".part", path)
        os._exit(0)
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        if time.time() - BEGAN > LATEST + 8:
            os.kill(pid, 9)
        time.sleep(0.02)
    return json.load(open(path)) if os.path.exists(path) else None


def trial(model, batch, budget):
    def work():
        out = tempfile.mktemp()
        sys.argv = ["train.py", "--model", model, "--batch-size", str(batch), "--limit", str(budget), "--steps", "6", "--out", out]
        runpy.run_path(str(PROGRAMS / "train.py"), run_name="__main__")
        return json.load(open(out))

    told = forked(work) or {"error": "died"}
    return {k: told[k] for k in ("reserved", "allocated", "retries", "error") if k in told}


def largest(model, budget):
    step = STEP[model]
    tried = {}

    def fits(batch):
        if batch not in tried and time.time() - BEGAN < LATEST:
            tried[batch] = trial(model, batch, budget)
        return batch in tried and "error" not in tried[batch]

    guess = max(step, int(START[model] * budget) // step * step)
    low, high, width = 0, None, max(step, guess // 16 // step * step)
    at = guess
    while high is None or high - low > step:
        if time.time() - BEGAN > LATEST:
            break
        if fits(at):
            low = at
            at = at + width if high is None else low + (high - low) // 2 // step * step
        else:
            high = at
            at = max(step, at - width) if low == 0 else low + (high - low) // 2 // step * step
        width = width * 2 if high is None or low == 0 else width
        if low == 0 and at >= (high or at + 1):
            break
        at = max(at, low + step)
    beyond = [low + n * step for n in (2, 3)]
    for batch in beyond:
        fits(batch)
    best = max([it for it in tried if "error" not in tried[it]], default=None)
    say(what="largest", model=model, budget=budget, found=best, tried={str(k): v for k, v in sorted(tried.items())})


def with_accelerate(model, budget):
    def work():
        import torch
        from accelerate.utils import find_executable_batch_size

        import models

        runs, began = [], time.time()
        torch.cuda.set_per_process_memory_fraction((budget * 2**30 + 1) / torch.cuda.get_device_properties(0).total_memory)

        @find_executable_batch_size(starting_batch_size=2048 if model != "mlp" else 65536)
        def train(batch_size):
            runs.append(batch_size)
            _, optimizer, batch, loss = models.made(model)
            for _ in range(6):
                optimizer.zero_grad()
                loss(batch(batch_size)).backward()
                optimizer.step()
            return batch_size

        found = train()
        return {"found": found, "runs": len(runs), "ooms": len(runs) - 1, "seconds": round(time.time() - began, 1)}

    say(what="accelerate", model=model, budget=budget, **(forked(work) or {"error": "died"}))


def with_lightning(model, budget):
    def work():
        import pytorch_lightning as pl
        import torch
        from pytorch_lightning.tuner import Tuner

        import models

        began, runs = time.time(), []
        torch.cuda.set_per_process_memory_fraction((budget * 2**30 + 1) / torch.cuda.get_device_properties(0).total_memory)
        network, optimizer, batch, loss = models.made(model)

        class Module(pl.LightningModule):
            def __init__(self):
                super().__init__()
                self.network, self.batch_size = network, 2

            def configure_optimizers(self):
                return optimizer

            def training_step(self, _, __):
                return loss(batch(self.batch_size))

            def train_dataloader(self):
                runs.append(self.batch_size)
                return torch.utils.data.DataLoader(range(1 << 22), batch_size=self.batch_size)

        module = Module()
        trainer = pl.Trainer(max_steps=6, logger=False, enable_checkpointing=False, enable_progress_bar=False, accelerator="gpu", devices=1)
        found = Tuner(trainer).scale_batch_size(module, mode="binsearch", steps_per_trial=6, max_trials=25)
        return {"found": found, "runs": len(set(runs)), "seconds": round(time.time() - began, 1)}

    say(what="lightning", model=model, budget=budget, **(forked(work) or {"error": "died"}))


def main():
    import torch  # noqa: F401
    import torchvision.models  # noqa: F401
    from transformers import (  # noqa: F401
        BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM,
    )  # fmt: skip

    jobs = [(largest, m, 12) for m in STEP] + [(peer, m, 12) for m in PEERED for peer in (with_accelerate, with_lightning)]
    jobs += [(largest, m, b) for b in (8, 24) for m in STEP]

    def safe(job):
        try:
            if time.time() - BEGAN < LATEST:
                job[0](*job[1:])
        except Exception as error:
            say(what="error", job=str(job[1:]), error=repr(error)[:300])

    with ThreadPoolExecutor(int(os.environ.get("AT_ONCE", "5"))) as pool:
        list(pool.map(safe, jobs))


if __name__ == "__main__":
    main()
