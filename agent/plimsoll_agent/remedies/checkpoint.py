"""Activation checkpointing: a block saves only its input for backward, and runs again when backward reaches it.

Saves the activations inside the blocks, costs their forward pass once more. The numbers are the same: the
random state is kept for dropout, and batch-norm counts its running statistics once. Non-reentrant, so hooks,
keyword arguments and frozen inputs work as before.

Parameters: `blocks`, the numbers of the blocks to checkpoint in the order of the model; all of them without it.
`segments` is for models without repeated blocks: their longest `Sequential` is run in so many pieces. `measure` is
for the search of a plan: what each block keeps and computes is written down, see `block_costs`.
"""

from __future__ import annotations

import functools
import threading
import weakref
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.remedies.support.block_costs import BlockCosts
from plimsoll_agent.remedies.support.blocks import blocks_of
from plimsoll_agent.remedies.support.rerun import as_before, has_other_weights, is_cache, watch_other_weights, without_cache
from plimsoll_agent.run.nested import rebuilt, tensors_in
from plimsoll_agent.run.refusal import unsuited

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plimsoll_agent.kinds import Arguments, Bounds, Function, Module, Named, Note, Tensor, Torch
    from plimsoll_agent.remedies.support.hooks import Hooks


def apply(torch: Torch, parameters: Named, hooks: Hooks, note: Note) -> None:
    chosen: weakref.WeakSet[Module] = weakref.WeakSet()
    prepared: weakref.WeakSet[Module] = weakref.WeakSet()
    wanted = parameters.get("blocks")
    wanted = None if wanted is None else frozenset(wanted)
    checkpointed = Checkpointed(torch, chosen)
    watch_other_weights(torch)
    costs = BlockCosts(torch, hooks.recording) if parameters.get("measure") else None

    def around(module: Module, call: Function, args: Arguments, kwargs: Named) -> Any:
        if not hooks.is_training(module, (args, kwargs)):
            return call(*args, **kwargs)
        if module not in prepared:
            prepared.add(module)
            blocks = blocks_of(torch, module)
            hooks.recording.write("blocks", names=[name for name, _ in blocks])
            for number, (_, block) in enumerate(blocks):
                if wanted is None or number in wanted:
                    checkpointed.add(block)
            if costs is not None:
                costs.watch(blocks)
            if not blocks:
                _pieces_of(torch, module, parameters.get("segments"), checkpointed, note)
        with without_cache(module, kwargs):
            return call(*args, **kwargs)

    hooks.around_call(around)


class Checkpointed:
    """The modules whose `forward` is checkpointed. The class is changed, not the object, so that a copy of a
    model (an average of its weights) or a pickle of it holds nothing of the agent."""

    def __init__(self, torch: Torch, chosen: weakref.WeakSet[Module]) -> None:
        self._torch = torch
        self._chosen = chosen
        self._classes: set[type[Any]] = set()
        self._thread = threading.local()

    def add(self, module: Module) -> None:
        self._chosen.add(module)
        kind = type(module)
        if kind in self._classes:
            return
        self._classes.add(kind)
        torch, chosen, thread, original = self._torch, self._chosen, self._thread, kind.forward

        def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
            if self not in chosen or not torch.is_grad_enabled() or getattr(thread, "inside", None) is self:
                return original(self, *args, **kwargs)
            if any(is_cache(it) for it in args) or any(is_cache(it) for it in kwargs.values()):
                return original(self, *args, **kwargs)  # Running again would write into it again.
            if has_other_weights(torch, self):
                return original(self, *args, **kwargs)
            inputs = _versions(torch, (args, kwargs))
            run, args, kwargs = _each_once(torch, functools.partial(original, self), args, kwargs)
            result = torch.utils.checkpoint.checkpoint(
                run,
                *args,
                use_reentrant=False,
                context_fn=functools.partial(as_before, torch, self),
                **kwargs
            )
            if any(it._version != version for it, version in inputs):
                # Backward does not always notice.
                raise unsuited(
                    "checkpoint",
                    "%s: it writes into its input, and would run again from the changed input" % kind.__name__
                )
            return result

        patch.put(kind, "forward", forward)


def _each_once(torch: Torch, run: Function, args: Arguments, kwargs: Named) -> tuple[Any, ...]:
    """`run` and what to give it, so that what is one tensor stays one when it runs again: attention asks whether query, key
    and value are the same, and a checkpoint would give it three."""
    tensors = tensors_in(torch, (args, kwargs))
    once = list({id(it): it for it in tensors}.values())
    if len(once) == len(tensors):
        return run, args, kwargs
    place = {id(it): i for i, it in enumerate(once)}
    stands_for = [torch.empty(0, device="meta") for _ in once]
    shape = rebuilt(torch, (args, dict(kwargs)), lambda it: stands_for[place[id(it)]])
    place = {id(it): i for i, it in enumerate(stands_for)}

    def run_with(*given: Any) -> Any:
        args, kwargs = rebuilt(torch, shape, lambda it: given[place[id(it)]])
        return run(*args, **kwargs)

    return run_with, once, {}


def _versions(torch: Torch, inputs: Any) -> list[Any]:
    return [(it, it._version) for it in tensors_in(torch, inputs) if not it.is_inference()]


def _pieces_of(torch: Torch, module: Module, segments: int | None, checkpointed: Checkpointed, note: Note) -> None:
    """The longest chain of layers of a model without blocks, in pieces."""
    chains = [it for it in module.modules() if type(it) is torch.nn.Sequential]
    chain = max(chains, key=len, default=None)
    if chain is None or len(chain) < 2:
        note("checkpoint-nothing", "plimsoll found no repeated blocks in %s to checkpoint" % type(module).__name__)
        return
    segments = max(1, min(segments or round(len(chain) ** 0.5), len(chain)))
    run = _run_in_pieces(torch, chain, segments)
    # One object only: other chains of the program stay as they are.
    original = torch.nn.Sequential.forward
    reference = weakref.ref(chain)

    def forward(self: Any, input: Tensor) -> Any:
        if self is not reference() or not torch.is_grad_enabled() or has_other_weights(torch, self):
            return original(self, input)
        return run(self, input)

    patch.put(torch.nn.Sequential, "forward", forward)


def _run_in_pieces(torch: Torch, chain: Any, segments: int) -> Function:
    def run(chain: Any, value: Any) -> Any:
        layers = list(chain)
        for start, end in _bounds(layers, segments):
            piece = layers[start:end]

            def through(value: Any, piece: Any = piece) -> Any:
                for layer in piece:
                    value = layer(value)
                return value

            holder = torch.nn.ModuleList()
            holder.__dict__["_modules"] = {str(i): it for i, it in enumerate(piece)}
            value = torch.utils.checkpoint.checkpoint(
                through,
                value,
                use_reentrant=False,
                context_fn=functools.partial(as_before, torch, holder),
            )
        return value

    return run


def _bounds(layers: Sequence[Module], segments: int) -> Bounds:
    """Where pieces begin and end: none begins with a layer that writes into its input, from which it would run again."""
    size = -(-len(layers) // segments)
    starts = list(range(size, len(layers), size))
    for i, start in enumerate(starts):
        while start < len(layers) and _writes(layers[start]):
            start += 1
        starts[i] = start
    starts = sorted({0, *starts} - {len(layers)})
    return list(zip(starts, starts[1:] + [len(layers)]))


def _writes(layer: Module) -> bool:
    """Whether the first of its layers says so."""
    while type(layer).__name__ == "Sequential":
        layer = next(iter(layer), None)
    return bool(getattr(layer, "inplace", False))
