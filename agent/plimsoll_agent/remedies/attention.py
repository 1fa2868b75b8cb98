"""Switches transformers models to PyTorch's fused attention, which never stores the matrix of all pairs of tokens.

For models with `attn_implementation="eager"` that also support "sdpa" and can switch after they are built. The remedy switches
the model's configuration at its first call. The results are the same up to rounding; with dropout in attention the random
numbers differ.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from plimsoll_agent.remedies.support.ways import is_exact
from plimsoll_agent.run.refusal import unsuited

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Arguments, Function, Module, Named, Note, Torch
    from plimsoll_agent.remedies.support.hooks import Hooks


def suits(torch: Torch, model: Module) -> bool:
    """Whether there is attention to switch."""
    return bool(_eager(model))


def apply(torch: Torch, parameters: Named, hooks: Hooks, note: Note) -> None:
    seen: weakref.WeakSet[Module] = weakref.WeakSet()
    switched = []

    def around(module: Module, call: Function, args: Arguments, kwargs: Named) -> Any:
        if module not in seen:
            seen.add(module)
            eager = _eager(module)
            for part in eager:
                _switch(part)
            if eager:
                switched.append(True)
                hooks.recording.write("exact", remedy="attention", exact=is_exact(torch, module))
            if not switched and hooks.is_training(module):
                raise unsuited(
                    "attention",
                    '%s: it contains no transformers model with attn_implementation="eager" that can switch to "sdpa"; '
                    "in your own code, call torch.nn.functional.scaled_dot_product_attention" % type(module).__name__
                )
        if kwargs.get("output_attentions"):
            raise unsuited(
                "attention",
                "this script: it asks for attention weights (output_attentions), which only eager attention returns"
            )
        return call(*args, **kwargs)

    hooks.around_call(around)


def _eager(model: Module) -> list[Module]:
    """The models of transformers in it whose attention is written out and could be the fused one."""
    found = []
    for part in model.modules():
        config = getattr(part, "config", None)
        if getattr(config, "_attn_implementation", None) != "eager" or not getattr(part, "_supports_sdpa", False):
            continue
        if hasattr(part, "set_attn_implementation") and not getattr(config, "output_attentions", False):
            # Where the choice is made once for all (BERT of transformers 4), asking for another changes nothing.
            can = getattr(part, "_can_set_attn_implementation", None)
            if can is None or can():
                found.append(part)
    return found


def _switch(model: Module) -> None:
    if model.config._attn_implementation == "eager":  # A part may have been switched with the whole.
        model.set_attn_implementation("sdpa")
