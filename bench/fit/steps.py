"""Seconds of a step with each remedy, on a real GPU; one JSON line for each.

    python bench/fit/steps.py [SECONDS [MODEL,...|unseen]]      on a machine with a GPU, nothing else on it

Every case is forked from a process that has done the imports, and has the GPU to itself when it counts. The remedies are the
agent's own, so nothing of plimsoll but its agent is needed.
"""

import json
import os
import runpy
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), os.environ.get("PLIMSOLL_AGENT") or os.popen("plimsoll agent").read().strip()]
import fresh  # noqa: E402
import newcomers  # noqa: E402
import strangers  # noqa: E402
import unseen  # noqa: E402

BATCH = {"gpt2": 8, "llama": 8, "bert": 16, "vit": 64, "resnet50": 96, "mlp": 8192, "unet": 32, "lstm": 256}
SMALL = {"gpt2": 1, "llama": 1, "bert": 1, "vit": 4, "resnet50": 8, "mlp": 256, "unet": 2, "lstm": 16}
BATCH |= {"t5": 16, "swin": 64, "speech": 64, "recommender": 65536, "segmenter": 32}
SMALL |= {"t5": 1, "swin": 4, "speech": 4, "recommender": 512, "segmenter": 2}
BATCH |= {"convnext": 48, "deeplab": 12, "tasnet": 8, "lstm-lm": 128, "vit384": 16, "gqa": 4, "efficientnet": 96, "ddpm": 24}
SMALL |= {"convnext": 2, "deeplab": 4, "tasnet": 2, "lstm-lm": 16, "vit384": 2, "gqa": 2, "efficientnet": 4, "ddpm": 2}
BATCH |= {"mixer": 48, "whisper": 8}
SMALL |= {"mixer": 2, "whisper": 2}
BATCH |= {"conformer": 24, "vit-large": 8, "t5-gated": 8, "tagger": 64, "unet-bn": 8, "gmlp": 24, "dlrm": 8192, "gnn": 48, "regnet": 48}
SMALL |= {"conformer": 4, "vit-large": 4, "t5-gated": 4, "tagger": 8, "unet-bn": 4, "gmlp": 4, "dlrm": 256, "gnn": 4, "regnet": 4}
BATCH |= {"detr": 12, "opt": 8, "mobilenet": 96, "densenet": 32, "pointer": 128}
SMALL |= {"detr": 2, "opt": 1, "mobilenet": 8, "densenet": 4, "pointer": 16}
BATCH |= newcomers.BATCH
SMALL |= newcomers.SMALL
FIRST = ("gpt2", "llama", "bert", "vit", "resnet50", "mlp", "unet", "lstm")
HALF = {"gpt2": 6, "llama": 6, "bert": 6, "vit": 6, "resnet50": 8, "unet": 3}
LANGUAGE = ("gpt2", "llama", "bert", "t5")


def remedy(name, **parameters):
    return dict(parameters, id=name)


PLANS = {
    "plain": [],
    "autocast": [remedy("autocast")],
    "micro-batches 2": [remedy("micro-batches", parts=2)],
    "checkpoint": [remedy("checkpoint")],
    "micro-batches 4": [remedy("micro-batches", parts=4)],
    "autocast + checkpoint": [remedy("autocast"), remedy("checkpoint")],
    "offload": [remedy("offload")],
    "fused": [remedy("fused")],
    "autocast-fp16": [remedy("autocast-fp16")],
    "pure-bf16": [remedy("pure-bf16")],
    "tf32": [remedy("tf32")],
    "optimizer-in-backward": [remedy("optimizer-in-backward")],
    "checkpoint half": [remedy("checkpoint")],
    "chunked-loss": [remedy("chunked-loss")],
    "foreach": [remedy("foreach")],
    "autocast + micro-batches 2": [remedy("autocast"), remedy("micro-batches", parts=2)],
    "autocast + micro-batches 4 + checkpoint": [remedy("autocast"), remedy("micro-batches", parts=4), remedy("checkpoint")],
}
SMALL_PLANS = ("plain", "autocast", "checkpoint", "fused")
PROFILED = ("plain", "autocast", "autocast-fp16", "checkpoint", "micro-batches 4")


AT_ONCE = int(os.environ.get("AT_ONCE", 5))
UNSEEN_PLANS = (
    "plain", "small plain", "autocast", "small autocast", "checkpoint", "small checkpoint", "micro-batches 2",
    "small micro-batches 2", "micro-batches 4", "fused", "small fused", "offload", "optimizer-offload", "checkpoint every-2",
    "channels-last", "chunked-loss", "tf32", "autocast + checkpoint", "foreach", "small foreach",
    "autocast + micro-batches 4 + checkpoint", "autocast + channels-last", "optimizer-in-backward",
    "plain, profiled", "autocast, profiled",
)  # fmt: skip
FRESH_PLANS = (
    "plain", "autocast", "micro-batches 4", "checkpoint", "foreach", "autocast + checkpoint", "small plain", "small autocast",
    "small foreach", "tf32", "plain", "autocast", "micro-batches 4", "autocast + checkpoint",
)  # fmt: skip
FRESH_MORE = (
    "plain", "small plain", "micro-batches 2", "small checkpoint", "small micro-batches 4", "fused", "offload",
    "autocast + micro-batches 4 + checkpoint", "optimizer-in-backward", "optimizer-offload", "checkpoint every-2", "channels-last",
    "autocast + channels-last", "autocast, profiled", "micro-batches 4, profiled",
)  # fmt: skip
"""In two halves, each of them short enough for one run."""
IN_TURNS = ("plain", "autocast", "checkpoint", "autocast + checkpoint", "micro-batches 4", "foreach", "fused")
SMALL_IN_TURNS = ("plain", "autocast", "checkpoint", "foreach", "micro-batches 2")
"""What turns.py measures."""
CONVOLVING = ("convnext", "deeplab", "efficientnet", "ddpm", "unet-bn", "regnet")
ONLY = {"channels-last": CONVOLVING, "autocast + channels-last": CONVOLVING, "chunked-loss": ("lstm-lm", "gqa", "whisper")}
ONLY |= {"tf32": ("lstm-lm", "vit384", "gqa", "mixer", "whisper", "convnext", "conformer", "vit-large", "t5-gated", "gmlp", "dlrm", "gnn")}
NOT = {("efficientnet", "fused")}


def cases(models=FIRST):
    """(model, batch, name, remedies, whether kernels are looked at); what matters most comes first."""
    half = FRESH_MORE if models == ("fresh-more",) else FRESH_PLANS
    models = {("unseen",): unseen.NAMES, ("strangers",): strangers.NAMES, ("newcomers",): newcomers.NAMES, ("fresh",): fresh.NAMES, ("fresh-more",): fresh.NAMES}.get(models, models)
    in_turns = (*IN_TURNS, *("small " + it for it in SMALL_IN_TURNS))
    for its, plans in ((unseen, UNSEEN_PLANS), (fresh, half), (strangers, in_turns), (newcomers, in_turns)):
        if set(models) <= set(its.NAMES):
            yield from unseen_cases(models, plans)
            return
    for name, plan in PLANS.items():
        for model in models:
            batch = BATCH[model]
            if name == "checkpoint half":
                if model not in HALF:
                    continue
                plan = [remedy("checkpoint", blocks=list(range(HALF[model])))]
            if name == "chunked-loss" and model not in LANGUAGE:
                continue
            yield model, batch, name, plan, name in PROFILED
        if name in SMALL_PLANS:
            for model in models:
                yield model, SMALL[model], name, plan, False


def unseen_cases(models, names):
    plans = dict(PLANS, **{it: [remedy(it)] for it in ("channels-last", "optimizer-offload")})
    plans["checkpoint every-2"] = [remedy("checkpoint", blocks=list(range(0, 200, 2)))]
    plans["autocast + channels-last"] = [remedy("autocast"), remedy("channels-last")]
    for name in names:
        is_profiled, batches = name.endswith(", profiled"), SMALL if name.startswith("small ") else BATCH
        name = name.removeprefix("small ").removesuffix(", profiled")
        for model in models:
            if model in ONLY.get(name, models) and (model, name) not in NOT:
                yield model, batches[model], name, plans[name], is_profiled


def run(model, batch, name, plan, is_profiled, lock):
    out = tempfile.mktemp(suffix=".json")
    pid = os.fork()
    if pid == 0:
        os.environ["TIMING_LOCK"] = lock
        null = os.open(out + ".log", os.O_WRONLY | os.O_CREAT)
        os.dup2(null, 1)
        os.dup2(null, 2)
        code = 1
        try:
            if plan:
                import torch
                from plimsoll_agent import remedies
                from plimsoll_agent.remedies.support.hooks import Hooks

                hooks = Hooks(torch, Silent())
                remedies.apply(torch, json.dumps({"version": 1, "remedies": plan}), hooks)
                hooks.install()
            sys.argv = ["train.py", "--model", model, "--batch-size", str(batch), "--out", out, "--steps"]
            # Before it has the GPU to itself it runs a few samples: so its libraries are there.
            sys.argv += ["4" if is_profiled else "14", "--most", "3", "--warm", str(min(SMALL[model], 4))]
            if is_profiled:
                sys.argv.append("--profile")
            runpy.run_path(str(HERE / "train.py"), run_name="__main__")
            code = 0
        except BaseException as error:
            os.write(2, repr(error)[-600:].encode())
        os._exit(code)
    return pid, out


class Silent:
    """A recording that nobody reads."""

    def write(self, kind, **fields):
        pass

    def note(self, code, text):
        pass


def imports():
    import torch  # noqa: F401
    import torchvision.models  # noqa: F401
    from torchvision.models.segmentation import deeplabv3_resnet50  # noqa: F401
    from transformers import (  # noqa: F401
        BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, OPTConfig,
        OPTForCausalLM, T5Config, T5ForConditionalGeneration, ViTConfig, ViTForImageClassification, WhisperConfig, WhisperForConditionalGeneration,
    )  # fmt: skip


def main():
    imports()
    began, most = time.time(), float(sys.argv[1]) if sys.argv[1:] else 220.0
    lock = tempfile.mktemp()
    open(lock, "w").close()
    waiting, running = list(cases(tuple(sys.argv[2].split(",")) if sys.argv[2:] else FIRST)), {}
    while waiting or running:
        # While one has the GPU the others get ready.
        while waiting and len(running) < AT_ONCE and time.time() - began < most:
            case = waiting.pop(0)
            pid, out = run(*case, lock)
            running[pid] = (case, out)
        if not running:
            break
        pid, status = os.wait()
        (model, batch, name, plan, _), out = running.pop(pid)
        told = {"model": model, "batch": batch, "plan": name, "remedies": plan, "at": round(time.time() - began, 1)}
        if os.path.exists(out):
            told.update(json.load(open(out)))
        else:
            told["error"] = open(out + ".log", errors="replace").read()[-300:]
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
