"""What backward reaches from where it begins. Read only; nothing is kept of it."""

from plimsoll_agent.run.nested import tensors_in

KEY = "plimsoll_call"
"""In the metadata of a node of autograd's graph: the call whose output it made, and which outputs."""


class Reached:
    """What lies outside of the calls of models: these calls, and the parameters that are reached without one."""

    def __init__(self):
        self.calls = {}  # Of each call the numbers of its outputs that are reached.
        self.leaves = []


def from_tensors(torch, tensors):
    """Everything that a backward pass from here reaches before it enters a call of a model."""
    reached, seen = Reached(), set()
    waiting = [node_of(torch, it) for it in tensors_in(torch, tensors) if it.requires_grad]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        call, numbers = node.metadata.get(KEY, (None, ()))
        if call is not None:
            reached.calls.setdefault(call, set()).update(numbers)
        elif hasattr(node, "variable"):
            reached.leaves.append(node.variable)
        else:
            waiting += [it for it, _ in node.next_functions]
    return reached


def leaves_below(torch, tensors):
    """Every parameter that a backward pass from here gives a gradient."""
    found, seen = [], set()
    waiting = [node_of(torch, it) for it in tensors if it.requires_grad]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.append(node.variable)
        else:
            waiting += [it for it, _ in node.next_functions]
    return found


def is_one_below_another(torch, tensors):
    """Whether a backward pass from one of them goes through another."""
    roots = [node_of(torch, it) for it in tensors]
    seen, waiting = set(), [below for it in roots for below, _ in it.next_functions]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        waiting += [it for it, _ in node.next_functions]
    return any(it in seen for it in roots)


def node_of(torch, tensor):
    """The node of autograd's graph that gets this tensor's gradient."""
    return torch.autograd.graph.get_gradient_edge(tensor).node
