"""Activations and dropout write into their input: one tensor less for each of them.

Only modules whose input is not read afterwards: at the first call one sample goes through the model, in evaluation mode
and without gradients, and every operation is looked at. What backward needs of an input PyTorch itself watches over. The
numbers are the same.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from plimsoll_agent.remedies.support import split
from plimsoll_agent.run import below, nested
from plimsoll_agent.run.refusal import trying, unsuited

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from plimsoll_agent.kinds import Arguments, Function, Module, Named, Note, Operator, Tensor, Torch
    from plimsoll_agent.remedies.support.hooks import Hooks

_NAMES = ("ReLU", "ReLU6", "LeakyReLU", "ELU", "SELU", "CELU", "Hardtanh", "Threshold", "RReLU")
"""Their backward needs the result only. (SiLU and GELU need the input, and would keep a copy of it.)"""


def suits(torch: Torch, model: Module) -> bool:
    """Whether there is anything to gain."""
    return any(_could(torch, it) for it in model.modules())


def apply(torch: Torch, parameters: Named, hooks: Hooks, note: Note) -> None:
    prepared: weakref.WeakSet[Module] = weakref.WeakSet()

    def around(module: Module, call: Function, args: Arguments, kwargs: Named) -> Any:
        if module not in prepared and hooks.is_training(module):
            prepared.add(module)
            chosen = _safe(torch, module, call, args, kwargs)
            if not chosen:
                raise unsuited(
                    "inplace-activations",
                    "%s: it has no activation module whose input is unused afterwards" % type(module).__name__
                )
            for it in chosen:
                it.inplace = True
        return call(*args, **kwargs)

    hooks.around_call(around)


def _could(torch: Torch, module: Module) -> bool:
    nn = torch.nn
    kinds = tuple(getattr(nn, name) for name in _NAMES)
    dropout = isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0
    return (type(module) in kinds or dropout) and getattr(module, "inplace", None) is False


def _safe(torch: Torch, module: Module, call: Function, args: Arguments, kwargs: Named) -> list[Any]:
    """The modules whose input no operation reads after they ran, for one sample."""
    whole = split.batch_size(torch, args, kwargs)
    if whole is None:
        return []
    look = _Look(torch)
    candidates = [it for it in module.modules() if _could(torch, it)]
    hooks = [it.register_forward_pre_hook(look.before) for it in candidates]
    hooks += [it.register_forward_hook(look.after) for it in candidates]
    part_args, part_kwargs = split.part_of(torch, args, kwargs, whole, 0, 1)
    # What the script gave and what it gets is the script's: it may look at it.
    one = trying(torch, "inplace-activations", "%s: it does not run with one sample of its batch" % type(module).__name__)
    try:
        with one, split.undisturbed(torch, module), torch.enable_grad(), below.uncompiled(torch), look.saved(), look.operations():
            result = call(*part_args, **part_kwargs)
    finally:
        for it in hooks:
            it.remove()
    for tensor in nested.tensors_in(torch, (part_args, part_kwargs, result)):
        look.reads(tensor)
    return [it for it in candidates if it in look.ran and it not in look.unsafe]


class _Look:
    """Modules whose input was read again, or saved for backward by the operation that made it."""

    def __init__(self, torch: Torch) -> None:
        self._torch = torch
        self._of_input: dict[Any, Any] = {}
        self._kept_for_backward: set[Any] = set()
        self._is_running = False
        self._alive: list[Any] = []
        self.unsafe: set[Module]
        self.ran: set[Module]
        self.ran, self.unsafe = set(), set()

    def operations(self) -> AbstractContextManager[Any]:
        """A mode under which every operation's tensors count as read."""
        from torch.utils._python_dispatch import TorchDispatchMode
        from torch.utils._pytree import tree_leaves

        look, tensor_class = self, self._torch.Tensor

        class Looking(TorchDispatchMode):
            is_plimsolls = True

            def __torch_dispatch__(self, function: Operator, types: Any, args: Arguments = (), kwargs: Named | None = None) -> Any:
                if not look._is_running:
                    for it in tree_leaves((args, kwargs or {})):
                        if isinstance(it, tensor_class):
                            look.reads(it)
                return below.goes_on(look._torch, function, args, kwargs or {})

        below.entered(self._torch)
        return Looking()

    def saved(self) -> AbstractContextManager[None]:
        """A context in which the agent sees what is saved for backward."""

        def pack(tensor: Tensor) -> Any:
            self._alive.append(tensor)
            self._kept_for_backward.add(_storage(tensor))
            return tensor

        return self._torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)

    def reads(self, tensor: Tensor) -> None:
        self.unsafe |= self._of_input.get(_storage(tensor), set())

    def before(self, part: Module, given: Any) -> None:
        for tensor in given:
            if isinstance(tensor, self._torch.Tensor):
                self.reads(tensor)
                if _storage(tensor) in self._kept_for_backward or tensor.is_leaf and tensor.requires_grad:
                    self.unsafe.add(part)
        self._is_running = True

    def after(self, part: Module, given: Any, result: Any) -> Any:
        if any(_storage(it) == _storage(result) for it in given if isinstance(it, self._torch.Tensor)):
            result = result.clone()  # Dropout, which in evaluation hands its input on.
        self._is_running = False
        self.ran.add(part)
        # Written in place it would keep its result for backward, which the next one must not write into.
        self._kept_for_backward.add(_storage(result))
        self._alive.append(result)  # So that no other takes its place in memory.
        for tensor in given:
            if isinstance(tensor, self._torch.Tensor):
                self._alive.append(tensor)
                self._of_input.setdefault(_storage(tensor), set()).add(part)
        return result


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata
