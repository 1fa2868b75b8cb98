"""The repeated blocks of a model, found by structure and not by name.

A block is one of several children of the same class in a `ModuleList` or `Sequential`, with parts of its
own: a transformer's layers, a ResNet's bottlenecks, a Swin stage's blocks. Where the children are containers
themselves (stages), the blocks are inside them. A model without such lists (a U-Net with `down1`, `down2`) has
the children of the same class of one module, outermost first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from plimsoll_agent.kinds import Arguments, Module, Tensor, Torch

FEWEST = 2


def blocks_of(torch: Torch, root: Module) -> list[tuple[str, Module]]:
    """The blocks of `root` in the order of `named_modules`: `(name, module)`."""
    containers = (torch.nn.ModuleList, torch.nn.Sequential, torch.nn.ModuleDict)
    found = _search(root, containers, lambda parent: _kind(parent) in containers)
    return found or _search(root, containers, lambda parent: True)


def own_parameters(root: Module, blocks: list[Module]) -> list[tuple[Module, list[Tensor]]]:
    """(block, its parameters that no other block and nothing outside has)."""
    inside = {id(block): {id(it) for it in block.modules()} for block in blocks}
    anywhere = set().union(*inside.values())
    counts: dict[Any, int] = {}
    for block in blocks:
        for it in block.parameters():
            counts[id(it)] = counts.get(id(it), 0) + 1
    for module in root.modules():
        if id(module) not in anywhere:
            for it in module._parameters.values():
                counts[id(it)] = 2
    return [(block, [it for it in block.parameters() if counts[id(it)] == 1]) for block in blocks]


def _search(root: Module, containers: Arguments, may_hold: Callable[[Module], bool]) -> Any:
    found, todo, seen = [], [("", root)], set()
    while todo:
        name, parent = todo.pop(0)
        children = [(n, c) for n, c in parent.named_children() if id(c) not in seen]
        counts: dict[Any, int] = {}
        for _, child in children:
            if _is_block(child, containers):
                counts[_kind(child)] = counts.get(_kind(child), 0) + 1
        inner = []
        for child_name, child in children:
            seen.add(id(child))
            path = name + "." + child_name if name else child_name
            if may_hold(parent) and counts.get(_kind(child), 0) >= FEWEST:
                found.append((path, child))
            else:
                inner.append((path, child))
        todo = inner + todo
    return found


def _is_block(module: Module, containers: Arguments) -> bool:
    if _kind(module) in containers:
        return False
    return next(module.children(), None) is not None and next(module.parameters(), None) is not None


def _kind(module: Module) -> type[Any]:
    """Its class as it was written: `fully_shard` gives a module a class of its own."""
    kind = type(module)
    return kind.__mro__[2] if any(it.__name__ == "FSDPModule" for it in kind.__bases__) else kind
