"""Finds, in the first two steps, the remedies that would change nothing: what the script does already, and what it has no use
for. `plimsoll fit` leaves them out and saves their runs.

Nothing is read from the script's text. A remedy that is not named here may still do nothing, and its run shows it; one
that is named would have done nothing. Where the calls of models are not seen (`torch.compile`), little is said.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.remedies import channels_last, chunked_loss, module_of, optimizer_8bit
from plimsoll_agent.remedies.support import split
from plimsoll_agent.remedies.support.blocks import blocks_of
from plimsoll_agent.remedies.support.optimizers import bears_fused
from plimsoll_agent.remedies.table import REMEDIES
from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Arguments, Function, Module, Named, Optimizer, Tensor, Torch

SOME_MODELS = {id: module_of(id) for id, kind in REMEDIES.items() if kind.of == "SomeModels"}
"""Remedies that not every model has a use for, and what says which have."""


class Idle:
    """What is seen of the first steps."""

    def __init__(self, torch: Torch) -> None:
        self._torch = torch
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._functions: list[patch.Replacement] = []
        self._n_calls = self._n_in_float32 = self._n_batches = 0
        self._is_autocast_entered = self._is_compiled = False
        self._is_float32_called = False
        self._is_zeroed = self._is_clipped = self._is_scaled = self._is_chunkable = False
        self._reruns = Reruns(torch)
        self._watch_blocks = guarded(self._reruns.watch)

    def install(self) -> None:
        """Looks at what goes through some of PyTorch's functions; nothing else becomes of it."""
        torch = self._torch
        functional, utils = torch.nn.functional, torch.nn.utils
        self._watch(functional, "cross_entropy", self._loss)
        self._watch(torch.nn.Module, "zero_grad", self._zeroed)
        self._watch(torch.optim.Optimizer, "zero_grad", self._zeroed)
        self._watch(torch.amp.GradScaler, "__init__", self._scaled)
        self._watch(torch.autocast, "__enter__", self._entered)
        for name in ("clip_grad_norm_", "clip_grad_value_"):
            self._watch(utils, name, self._clipped)
            self._watch(utils.clip_grad, name, self._clipped)

    def leave(self, stay: Any = ()) -> None:
        """Restores PyTorch's own functions, where the replacements are still in place; except those of the classes `stay`."""
        for it in self._functions:
            if it.owner not in stay:
                it.undo()
        self._functions = [it for it in self._functions if it.owner in stay]
        self._reruns.leave()

    def compiled(self) -> None:
        """What torch.compile traces through has to be PyTorch's own; what is called is then not seen. An autocast around it is."""
        self._is_compiled = True
        self.leave(stay=(self._torch.autocast,))

    @guarded
    def made(self, optimizer: Optimizer) -> None:
        """An optimizer was made."""
        self._optimizers.add(optimizer)

    def called(self, module: Module, call: Function, args: Arguments, kwargs: Named) -> Any:
        """An outermost call of a model in training: looks at its parts, and runs it."""
        torch = self._torch
        self._n_batches += (split.batch_size(torch, args, kwargs) or 0) > 1
        self._watch_blocks(module)
        kind = next(module.parameters()).device.type
        if torch.is_autocast_enabled(kind):
            self._n_calls += 1
            return call(*args, **kwargs)

        @guarded
        def before(part: Module, given: Any) -> None:
            own = [it for it in part._parameters.values() if it is not None and not torch.nn.parameter.is_lazy(it)]
            weights = [it for it in own if it.dim() > 1 and it.is_floating_point()]
            if weights and torch.is_grad_enabled():
                self._n_calls += 1
                is_float32 = any(it.dtype in (torch.float32, torch.float64) for it in weights)
                self._n_in_float32 += is_float32 and not torch.is_autocast_enabled(kind)

        handle = torch.nn.modules.module.register_module_forward_pre_hook(before)
        try:
            return call(*args, **kwargs)
        finally:
            handle.remove()

    def called_without_training(self, module: Module) -> None:
        """An outermost call of a model that keeps nothing for backward."""
        self._is_float32_called |= any(it.dtype in (self._torch.float32, self._torch.float64) for it in module.parameters())

    def found_without_training(self, keeps_graphs: bool) -> Any:
        """The same of a program that came to its end without a backward pass. `keeps_graphs`: its calls of models were not under
        `no_grad`."""
        found = {id: None for id, it in REMEDIES.items() if it.untrained == "Nothing"}
        found.update({id: "nothing is trained" for id, it in REMEDIES.items() if it.untrained == "NothingSaid"})
        if not keeps_graphs:
            found["no-grad-evaluation"] = None
        if self._is_autocast_entered or not (self._is_float32_called or keeps_graphs and self._n_in_float32):
            found.update({"autocast": None, "autocast-fp16": None})
        return found

    def found(self, root: Module) -> Any:
        """Each remedy that would change nothing, with the reason that a report shows; None where a report shows none."""
        found = self._of_precision()
        found.update(self._of_optimizers())
        found.update(self._of_model(root))
        if not self._is_zeroed:
            found["set-to-none"] = None
        if not self._is_chunkable and not self._is_compiled:
            found["chunked-loss"] = None
        return found

    def _of_precision(self) -> Any:
        found = {}
        if self._is_scaled:
            found["autocast-fp16"] = "the script scales its loss already"
        is_low = self._n_calls and not self._n_in_float32
        if is_low or self._is_compiled and self._is_autocast_entered:
            reason = "the script's forward pass is in lower precision already"
            found.update({"autocast": reason, "autocast-fp16": reason})
        return found

    def _of_optimizers(self) -> Any:
        torch = self._torch
        found = {}
        left_open = [it for it in self._optimizers if not it.defaults.get("foreach") and not it.defaults.get("fused")]
        open_ones = [it.defaults for it in left_open]
        if not any(bears_fused(torch, it) for it in left_open):
            is_fused = any(it.defaults.get("fused") for it in self._optimizers)
            found["fused"] = "the optimizer is fused already" if is_fused else None
        if not any("foreach" in it and it["foreach"] is None for it in open_ones):
            found["foreach"] = None
        adam = (torch.optim.Adam, torch.optim.AdamW)
        if not optimizer_8bit.installed() or not any(type(it) in adam for it in self._optimizers):
            found["optimizer-8bit"] = None
        if not any(_keeps_on_device(torch, it) for it in self._optimizers):
            found["optimizer-offload"] = None
        is_whole = any(isinstance(it, torch.optim.LBFGS) for it in self._optimizers)
        if self._is_clipped or self._is_scaled or is_whole:
            found["optimizer-in-backward"] = None
        return found

    def _of_model(self, root: Module) -> Any:
        if root is None:
            return dict.fromkeys(SOME_MODELS)
        torch = self._torch
        found: dict[str, str | None] = {name: None for name, it in SOME_MODELS.items() if not it.suits(torch, root)}
        if "channels-last" not in found and channels_last.is_done(torch, root):
            found["channels-last"] = "the convolutions have their channels last already"
        if not self._n_batches:
            found["micro-batches"] = "no batch has more than one sample"
        if self._reruns.are_none():
            found["checkpoint"] = None
        if self._reruns.are_all():
            found["checkpoint"] = "every block runs again in backward already"
        return found

    def _watch(self, owner: Module, name: str, look: Function) -> None:
        original, look = getattr(owner, name), guarded(look)

        def watched(*args: Any, **kwargs: Any) -> Any:
            look(*args, **kwargs)
            return original(*args, **kwargs)

        self._functions.append(patch.put(owner, name, watched))

    def _loss(
        self, input: Tensor | None = None, target: Any = None, weight: Tensor | None = None, *args: Any, **kwargs: Any
    ) -> None:
        self._is_chunkable |= chunked_loss.is_large(self._torch, input) and self._torch.is_grad_enabled()

    def _zeroed(self, owner: Module, set_to_none: bool = True) -> None:
        self._is_zeroed |= not set_to_none

    def _clipped(self, *args: Any, **kwargs: Any) -> None:
        self._is_clipped = True

    def _scaled(self, *args: Any, **kwargs: Any) -> None:
        self._is_scaled |= bool(kwargs.get("enabled", True))

    def _entered(self, context: Any) -> None:
        self._is_autocast_entered |= context._enabled and self._torch.is_grad_enabled()


class Reruns:
    """Whether each block of a model runs again in backward, one after the other, as checkpointing has it."""

    def __init__(self, torch: Torch) -> None:
        self._torch = torch
        self._models: list[Any] = []
        self._handles: list[Any] = []

    def watch(self, module: Module) -> None:
        """Looks at this model's blocks from now on."""
        if any(it is module for it, _, _, _ in self._models):
            return
        blocks = [block for _, block in blocks_of(self._torch, module)]
        again: dict[int, Any]
        order: list[int]
        order, again = [], {}
        self._models.append((module, blocks, order, again))
        graph_task = self._torch._C._current_graph_task_id

        def before(block: Module, given: Any) -> None:
            task = graph_task()
            if task == -1:
                order.append(id(block))
            else:
                again.setdefault(task, []).append(id(block))

        self._handles += [it.register_forward_pre_hook(before) for it in blocks]

    def leave(self) -> None:
        for it in self._handles:
            it.remove()
        self._handles.clear()

    def are_none(self) -> bool:
        """No model has blocks, or a chain that could be run in pieces."""
        chain = self._torch.nn.Sequential
        parts = [part for module, _, _, _ in self._models for part in module.modules()]
        has_chain = any(type(it) is chain and len(it) > 1 for it in parts)
        return not has_chain and not any(blocks for _, blocks, _, _ in self._models)

    def are_all(self) -> bool:
        """Of every model that has blocks, and of one at least."""
        return any(blocks for _, blocks, _, _ in self._models) and all(
            _one_by_one(blocks, order, again) for _, blocks, order, again in self._models
        )


def _one_by_one(blocks: Any, order: Any, again: Any) -> bool:
    """A block that runs again after a later one runs alone; several in a row are a piece of the model, of which there
    may be smaller ones."""
    place = {block: i for i, block in enumerate(dict.fromkeys(order))}
    if {it for task in again.values() for it in task} != {id(it) for it in blocks}:
        return False
    places = [[place.get(it, -1) for it in task] for task in again.values()]
    return all(a > b for task in places for a, b in zip(task, task[1:]))


def _keeps_on_device(torch: Torch, optimizer: Optimizer) -> bool:
    """Whether there is state to take away; of L-BFGS nothing can be."""
    if isinstance(optimizer, torch.optim.LBFGS):
        return False
    values = [(p, it) for p, state in optimizer.state.items() for it in state.values() if isinstance(it, torch.Tensor)]
    return any(it.dim() > 0 and it.device == p.device for p, it in values)
