"""What a plan changes inside a training process, without a change to its script.

A plan is JSON: `{"version": 1, "remedies": [{"id": "checkpoint", ...}, ...]}`. Each remedy is one module here with one
`apply(torch, parameters, hooks, note)`; it says what it does to memory, to time and to the numbers. The order in which
they wrap each other is fixed here, not by the plan. What several of them need is in `support`.

Unlike the rest of the agent a remedy may raise: a plan that cannot be applied as it was proven must not go
on as if it had been. Nothing here needs CUDA; on the CPU the same remedies work on real numbers.
"""

import importlib
import json

from plimsoll_agent.run.refusal import CannotApply

VERSION = 1

ORDER = (
    "no-grad-evaluation",
    "empty-cache",
    "pure-bf16",
    "zero1",
    "fsdp2",
    "model-parallel",
    "smaller-model",
    "depthwise",
    "pruning",
    "lora",
    "quantization",
    "attention",
    "micro-batches",
    "channels-last",
    "inplace-activations",
    "autocast",
    "autocast-fp16",
    "offload",
    "checkpoint",
    "parameter-offload",
    "chunked-loss",
    "tf32",
    "foreach",
    "fused",
    "set-to-none",
    "bucket-view",
    "detach-losses",
    "adafactor",
    "sgd",
    "optimizer-8bit",
    "optimizer-offload",
    "optimizer-in-backward",
    "allocator",
)
"""Every remedy, from the outermost inwards where they meet at the same call."""

_OVER_DEVICES = {"zero1", "fsdp2", "model-parallel"}
_NOT_ON_SHARES = {
    "autocast-fp16",
    "adafactor",
    "optimizer-8bit",
    "optimizer-offload",
    "optimizer-in-backward",
    "parameter-offload",
}
"""What looks at gradients before those of all devices are there, or at one device's part for the whole."""


def apply(torch, plan, hooks):
    """Applies the plan, given as JSON, as far as `hooks.install()`, which is the caller's."""
    try:
        plan = json.loads(plan)
        version, asked = plan["version"], plan["remedies"]
    except (ValueError, KeyError, TypeError) as error:
        raise CannotApply("plimsoll: PLIMSOLL_PLAN is not a plan: %s" % error)
    if version != VERSION:
        raise CannotApply("plimsoll: the plan has version %r, this plimsoll knows %d" % (version, VERSION))
    unknown = [it.get("id") for it in asked if it.get("id") not in ORDER]
    if unknown:
        raise CannotApply("plimsoll: the plan names remedies that this plimsoll does not know: %s" % unknown)
    _check_together({it["id"] for it in asked})
    for remedy in sorted(asked, key=lambda it: ORDER.index(it["id"])):
        if remedy["id"] == "allocator":
            continue
        module = importlib.import_module("plimsoll_agent.remedies." + remedy["id"].replace("-", "_"))
        parameters = {name: value for name, value in remedy.items() if name != "id"}
        try:
            module.apply(torch, parameters, hooks, hooks.recording.note)
        except CannotApply:
            raise
        except Exception as error:
            raise CannotApply("plimsoll: the remedy %s cannot be applied: %r" % (remedy["id"], error)) from error
        hooks.recording.write("remedy", **remedy)


def _check_together(ids):
    over = ids & _OVER_DEVICES
    others = set() if over <= {"model-parallel"} else ids & _NOT_ON_SHARES
    if len(over) > 1 or others or over and "parameter-offload" in ids:
        named = sorted(over | others | ids & {"parameter-offload"})
        raise CannotApply("plimsoll: these remedies cannot be in one plan: %s" % ", ".join(named))
