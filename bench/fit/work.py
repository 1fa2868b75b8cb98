"""What the steps of steps.py compute and move, counted on the phantom by the agent's meter; one JSON line for each.

    plimsoll predict --gpu h200 --until-exit --quiet -- python bench/fit/work.py work.jsonl [MODEL,...|unseen|strangers|newcomers|fresh|fresh-more|network [fresh]]

Needs no GPU. `step_times.rs` reads it beside h200-steps.json, which has the seconds of the same steps on a real GPU.
"""

import json
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), os.environ.get("PLIMSOLL_AGENT") or os.popen("plimsoll agent").read().strip()]

import steps  # noqa: E402


class Kept:
    """Instead of a recording: what the meter writes, kept."""

    operations = None

    def write(self, kind, **fields):
        if kind == "work":
            self.operations = fields["ops"]

    def note(self, code, text):
        pass


def count(model, batch, plan):
    import models
    import torch
    from plimsoll_agent import remedies
    from plimsoll_agent.ranks import imagined as ranks
    from plimsoll_agent.remedies.support.hooks import Hooks
    from plimsoll_agent.run.meter import Meter

    if plan:
        hooks = Hooks(torch, Kept())
        remedies.apply(torch, json.dumps({"version": 1, "remedies": plan}), hooks)
        hooks.install()
        if os.environ.get(ranks.WORLD):
            ranks._imagine()  # What starting with such a plan does.
    network, optimizer, samples, loss_of = models.made(model)
    kept = Kept()
    meter = Meter(torch, kept)
    for step in (1, 2):
        loss = loss_of(samples(batch))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        meter.step_ended(step)
    return kept.operations


def over_devices(is_fresh):
    """The steps of network.py, as the first of two ranks has them."""
    import network

    for model, batch in (network.FRESH if is_fresh else network.BATCH).items():
        yield model, batch, "plain", [], False
        yield model, batch // 2, "plain", [], False
        for name in ("zero1", "fsdp2"):
            yield model, batch, name, network.remedy(name), False


def main():
    import torch  # noqa: F401
    import torchvision.models  # noqa: F401
    from transformers import BertConfig, GPT2Config, LlamaConfig, T5Config, ViTConfig, WhisperConfig  # noqa: F401

    models = tuple(sys.argv[2].split(",")) if sys.argv[2:] else steps.FIRST
    cases = over_devices("fresh" in sys.argv) if models[0] == "network" else steps.cases(models)
    there = set()
    with open(sys.argv[1], "a") as out:
        for model, batch, name, plan, _ in cases:
            if (model, batch, name) in there:
                continue
            there.add((model, batch, name))
            out.flush()
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    told = {"model": model, "batch": batch, "plan": name, "work": count(model, batch, plan)}
                    out.write(json.dumps(told) + "\n")
                    out.flush()
                    code = 0
                except Exception as error:
                    print(model, batch, name, repr(error)[:300], file=sys.stderr)
                os._exit(code)
            os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
