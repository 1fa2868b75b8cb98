"""Finds the nodes that backward reaches from its roots. Reads the graph and holds no reference to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plimsoll_agent.run.nested import tensors_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from plimsoll_agent.kinds import Tensor, Torch

KEY = "plimsoll_call"
"""In the metadata of a node of autograd's graph: the call that made its outputs, and which number each of them has."""


class Reached:
    """What lies outside of the calls of models: these calls, and the rest that is reached without one."""

    def __init__(self) -> None:
        self.calls: dict[Any, dict[int, Any]] = {}  # Of each call the edges to its outputs that are reached, by their number.
        self.leaves: list[Tensor] = []
        self.is_past_outputs = False  # Something that a call made is reached, and it did not return that.
        self.uses: dict[Any, Any] = {}  # Nodes that use a leaf, and which of their outputs are reached.
        self.of_the_script: list[str] = []  # Names of functions of the script's own.


def outside_of_calls(torch: Torch, tensors: Iterable[Any]) -> Reached:
    """Everything that a backward pass from here comes to, but for what lies inside of calls of models."""
    reached = Reached()
    _walk(torch, tensors, reached, lambda call: True, goes_on=True)
    return reached


def before_calls(torch: Torch, tensors: Iterable[Any], calls: Collection[Any]) -> Reached:
    """Everything that a backward pass from here comes to before it enters one of these calls."""
    reached = Reached()
    _walk(torch, tensors, reached, calls.__contains__, goes_on=False)
    return reached


def edges_of(torch: Torch, tensors: Iterable[Any]) -> list[Any]:
    """Of each tensor with a gradient the edge of autograd's graph that it is; of edges themselves."""
    edge = torch.autograd.graph.GradientEdge
    if isinstance(tensors, (list, tuple)) and tensors and all(isinstance(it, edge) for it in tensors):
        return list(tensors)
    return [torch.autograd.graph.get_gradient_edge(it) for it in tensors_in(torch, tensors) if it.requires_grad]


def _walk(torch: Torch, tensors: Any, reached: Any, stops: Any, goes_on: bool) -> None:
    edge, seen = torch.autograd.graph.GradientEdge, set()
    waiting = edges_of(torch, tensors)
    while waiting:
        at = waiting.pop()
        call, numbers = at.node.metadata.get(KEY, (None, {}))
        if call is not None and stops(call):
            if goes_on and call not in reached.calls:
                waiting += call.inputs_with_gradients().values()
            edges = reached.calls.setdefault(call, {})
            if at.output_nr in numbers:
                edges[numbers[at.output_nr]] = at
            else:
                reached.is_past_outputs = True
            continue
        if at.node in reached.uses:
            reached.uses[at.node].add(at.output_nr)
        if at.node not in seen:
            seen.add(at.node)
            if any(hasattr(it, "variable") for it, _ in at.node.next_functions):
                reached.uses[at.node] = {at.output_nr}
            if hasattr(at.node, "variable"):
                reached.leaves.append(at.node.variable)
            if is_of_the_script(torch, at.node):
                reached.of_the_script.append(type(at.node)._forward_cls.__name__)
            waiting += [edge(node, number) for node, number in at.node.next_functions if node is not None]


def below(nodes: Iterable[Any]) -> set[Any]:
    """Every node that a backward pass from these comes to, and these."""
    seen, waiting = set(), list(nodes)
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [it for it, _ in node.next_functions]
    return seen


def is_of_the_script(torch: Torch, node: Any) -> bool:
    """Whether a function of the script's own made this node, or one of a library: `torch.autograd.Function`."""
    if not isinstance(node, torch.autograd.function.BackwardCFunction):
        return False
    return not (type(node)._forward_cls.__module__ or "").startswith("torch.")


def is_an_older_checkpoint(torch: Torch, node: Any) -> bool:
    """Whether this node runs a part of a model again, with a backward pass of its own."""
    return isinstance(node, torch.autograd.function.BackwardCFunction) and "Checkpoint" in type(node).__name__
