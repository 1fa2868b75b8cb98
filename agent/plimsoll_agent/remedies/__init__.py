"""Remedies: changes that a plan makes inside a training process, without a change to its script.

A plan is JSON: `{"version": 1, "remedies": [{"id": "checkpoint", ...}, ...]}`. Each remedy is one module here with one
`apply(torch, parameters, hooks, note)`; its docstring has the effect on memory, time and results. `table` has the order in which
remedies wrap each other, which of them exclude each other, and their parameters. The build of the binary makes `table`:
`plimsoll agent` prints the folder of an agent that has it. `support` has what several remedies need.

Unlike the rest of the agent a remedy may raise: a plan that cannot be applied as it was proven must not go
on as if it had been. Nothing here needs CUDA; on the CPU the same remedies work on real numbers.
"""

from __future__ import annotations

import importlib
import json
from typing import TYPE_CHECKING, Any

from plimsoll_agent.remedies.support import functions, parameters
from plimsoll_agent.remedies.table import REMEDIES
from plimsoll_agent.run.refusal import CannotApply

if TYPE_CHECKING:
    from types import ModuleType

    from plimsoll_agent.kinds import Named, Torch
    from plimsoll_agent.remedies.support.hooks import Hooks

VERSION = 1


def apply(torch: Torch, plan: Any, hooks: Hooks) -> None:
    """Applies the plan, given as JSON, as far as `hooks.install()`, which is the caller's."""
    try:
        plan = json.loads(plan)
        version, asked = plan["version"], plan["remedies"]
        ids = [it["id"] for it in asked]
    except (ValueError, KeyError, TypeError) as error:
        raise CannotApply("plimsoll: PLIMSOLL_PLAN is not a plan: %s" % error) from error
    if version != VERSION:
        raise CannotApply("plimsoll: the plan has version %r; this plimsoll reads version %d" % (version, VERSION))
    unknown = [it for it in ids if it not in REMEDIES]
    if unknown:
        raise CannotApply("plimsoll: the plan names remedies that this plimsoll does not know: %s" % unknown)
    twice = sorted({it for it in ids if ids.count(it) > 1})
    if twice:
        raise CannotApply("plimsoll: the plan has a remedy more than once: %s" % ", ".join(twice))
    _check_together(set(ids))
    for remedy in asked:
        parameters.check(remedy["id"], _given(remedy), REMEDIES[remedy["id"]].takes)
    inwards = list(REMEDIES)
    for remedy in sorted(asked, key=lambda it: inwards.index(it["id"])):
        if not REMEDIES[remedy["id"]].is_applied:
            continue  # PyTorch's allocator reads its settings from the environment.
        module = module_of(remedy["id"])
        try:
            module.apply(torch, _given(remedy), hooks, hooks.recording.note)
        except CannotApply:
            raise
        except Exception as error:
            raise CannotApply("plimsoll: the remedy %s cannot be applied: %r" % (remedy["id"], error)) from error
        hooks.recording.write("remedy", **remedy)
    if hooks.take_calls:
        functions.reach_into(torch, hooks)


def _given(remedy: Named) -> Named:
    return {name: value for name, value in remedy.items() if name != "id"}


def module_of(id: str) -> ModuleType:
    """The module that applies the remedy."""
    return importlib.import_module("plimsoll_agent.remedies." + id.replace("-", "_"))


def _check_together(ids: set[str]) -> None:
    over = {it for it in ids if REMEDIES[it].devices != "One"}
    if not over:
        return
    on_shares = any(REMEDIES[it].devices == "Shares" for it in over)
    unfit = ("OneDevice", "NoShares") if on_shares else ("OneDevice",)
    others = {it for it in ids if REMEDIES[it].bears in unfit}
    if len(over) > 1 or others:
        raise CannotApply("plimsoll: these remedies cannot be in one plan: %s" % ", ".join(sorted(over | others)))
