"""What the model would need with half of its blocks.

Another model than the script's, so it is never part of a plan: on the phantom only, for the advice of `plimsoll fit`. Every
second one of the repeated blocks goes, where a neighbour of the same shape shows that the others fit together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plimsoll_agent.remedies.support.blocks import blocks_of
from plimsoll_agent.remedies.support.optimizers import made_optimizers
from plimsoll_agent.run.refusal import CannotApply

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Module, Named, Note, Torch
    from plimsoll_agent.remedies.support.hooks import Hooks


def apply(torch: Torch, parameters: Named, hooks: Hooks, note: Note) -> None:
    optimizers = made_optimizers(torch)

    def prepare(module: Module) -> None:
        gone = _halve(torch, module)
        if not gone:
            raise CannotApply(
                "plimsoll: the advice smaller-model does not suit %s: it has no list of blocks that are alike"
                % type(module).__name__
            )
        for it in optimizers:
            for group in it.param_groups:
                group["params"] = [p for p in group["params"] if id(p) not in gone]

    hooks.before_training(prepare)


def _halve(torch: Torch, model: Module) -> set[int]:
    """The ids of the parameters that went."""
    lists: dict[Any, Any] = {}
    for name, block in blocks_of(torch, model):
        parent, _, number = name.rpartition(".")
        container = model.get_submodule(parent)
        if isinstance(container, (torch.nn.ModuleList, torch.nn.Sequential)) and number.isdigit():
            lists.setdefault(parent, []).append((int(number), block))
    gone: set[int] = set()
    for parent, blocks in lists.items():
        shapes = {n: [tuple(p.shape) for p in block.parameters()] for n, block in blocks}
        chosen = [n for n, _ in blocks[1::2] if shapes[n] in (shapes.get(n - 1), shapes.get(n + 1))]
        for n in reversed(chosen):
            gone.update(id(p) for p in dict(blocks)[n].parameters())
            del model.get_submodule(parent)[n]
    kept = {id(p) for p in model.parameters()}
    return gone - kept
