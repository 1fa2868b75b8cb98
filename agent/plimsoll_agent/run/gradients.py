"""Whether a call of a module is training. One answer for the phases of a recording and for the remedies."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from plimsoll_agent.run import nested

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Module, Nested, Tensor, Torch


class Gradients:
    """Remembers of each module one parameter that is trained."""

    def __init__(self, torch: Torch) -> None:
        self._torch = torch
        self._trained: weakref.WeakKeyDictionary[Module, weakref.ref[Tensor]] = weakref.WeakKeyDictionary()

    def are_wanted(self, module: Module, inputs: Nested = ()) -> bool:
        """Whether gradients of this call's module, or of what goes through it to `inputs`, may be wanted.

        Its mode does not say so: people forget `model.train()`, and train in evaluation mode on purpose. An evaluation
        without `no_grad` therefore counts as training, whose backward never comes.
        """
        if not self._torch.is_grad_enabled():
            return False
        return self.is_trainable(module) or any(it.requires_grad for it in nested.tensors_in(self._torch, inputs))

    def is_trainable(self, module: Module) -> bool:
        """Whether it has a parameter that wants a gradient."""
        # Parameters may be frozen and unfrozen: only one that is trained is remembered.
        parameter = self._trained.get(module, _nothing)()
        if parameter is None or not parameter.requires_grad:
            parameter = next((it for it in module.parameters() if it.requires_grad), None)
            if parameter is not None:
                self._trained[module] = weakref.ref(parameter)
        return parameter is not None


def _nothing() -> None:
    return None
