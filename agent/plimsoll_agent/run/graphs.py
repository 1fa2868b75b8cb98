"""What autograd's graph shows of a backward pass that begins: attention that is written out, weights that are cast again in each call,
gradients of parameters that no optimizer has, dense gradients of embedding tables.

Only nodes are read: their kinds, the shapes of their results, the parameters at their ends. No saved tensor is unpacked, since that may
compute it again or copy it. The first passes are looked at, then ever fewer; each look has a limit of nodes.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from plimsoll_agent.run import beside, frames, nested
from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from plimsoll_agent.kinds import Arguments, Named, Optimizer, Tensor, Torch
    from plimsoll_agent.run.memory import Memory
    from plimsoll_agent.run.owners import Owners
    from plimsoll_agent.run.recording import Recording

MOST_NODES = 50_000
MOST_NAMES = 2000
FIRST_PASSES = 4

_FAR = 12
"""So many nodes lie between the two products of an attention at most: masks, scales, casts, dropout, views."""
_PRODUCTS = {"BmmBackward0", "BaddbmmBackward0"}
_OF_MATRICES = {"MmBackward0"}
"""The product of a layer, too: where one side is a parameter, it is no attention."""
_BETWEEN = {
    "AddBackward0", "AliasBackward0", "CloneBackward0", "DivBackward0", "DivBackward1", "ExpandBackward0", "MaskedFillBackward0", "MaskedFillBackward1", "MulBackward0",
    "NativeDropoutBackward0", "PermuteBackward0", "ReshapeAliasBackward0", "SliceBackward0", "SubBackward0", "TBackward0", "TanhBackward0", "ToCopyBackward0", "TransposeBackward0",
    "UnsafeViewBackward0", "ViewBackward0", "WhereBackward0", "SqueezeBackward1", "UnsqueezeBackward0", "CopyBackwards",
}
_LEAF = "torch::autograd::AccumulateGrad"


class Graphs:
    """Looks at graphs, and writes down what is new in them."""

    def __init__(self, torch: Torch, memory: Memory, recording: Recording, owners: Owners, optimizers: Callable[[], list[Optimizer]], steps_done: Callable[[], int]) -> None:
        self._torch, self._memory, self._recording, self._owners = torch, memory, recording, owners
        self._optimizers, self._steps_done = optimizers, steps_done
        self._passes, self._beside = 0, beside.Beside(torch)
        self._retains = self._creates = False
        self._written: dict[str, Named] = {}
        self._unowned: dict[int, tuple[Any, int, int]] = {}
        """Parameters with a gradient that no optimizer has: how often each had been changed when it was seen first, and in which step."""

    @guarded
    def backward_begins(self, args: Arguments, kwargs: Named, is_grad: bool) -> None:
        """A backward pass from the first of these arguments: of `backward`, or of `grad`, whose graph a later pass mostly goes through."""
        self._passes += 1
        n = self._passes
        asks = [bool(kwargs.get(name) or at < len(args) and args[at] is True) for at, name in ((2 + is_grad, "retain_graph"), (3 + is_grad, "create_graph"))]
        if not self._retains and not is_grad and asks == [True, False]:
            self._retains = True
            self._recording.note("graph-retained", "the script calls `backward(retain_graph=True)`: what a backward pass went through stays until its variables go")
        if not self._creates and asks[1]:
            self._creates = True
            self._recording.note("gradient-graph", "the script asks for the graph of gradients (`create_graph=True`): what they are computed from stays until `backward()` has gone through it")
        if self._memory.started and not self._memory.asleep and (n <= FIRST_PASSES or n & (n - 1) == 0):
            given = args[0] if args else kwargs.get("tensors", kwargs.get("outputs"))
            self._look(nested.tensors_in(self._torch, given, 2))

    @guarded
    def of_the_ended(self, ran_out: BaseException | None) -> None:
        """The program ran out, perhaps before its first backward pass: its functions have their tensors still."""
        if ran_out is None or not self._memory.started:
            return
        traceback, found, code = ran_out.__traceback__, [], None
        while traceback is not None:
            frame, traceback = traceback.tb_frame, traceback.tb_next
            if not frames.is_ours(frame.f_code.co_filename):
                code = frame.f_code
                for value in frames.variables(frame).values():
                    found += nested.tensors_in(self._torch, value, 1)
        self._look(found[:1000], asks_for_softmax=code is not None and "softmax" in code.co_names, is_last=True)

    def _look(self, roots: list[Tensor], asks_for_softmax: bool = False, is_last: bool = False) -> None:
        graph = _Graph(it.grad_fn for it in roots if getattr(it, "grad_fn", None) is not None)
        if not graph.nodes:
            return
        names: dict[int, str] = {}
        networks: dict[int, tuple[int, str]] = {}
        for root, model in self._owners.models():
            for name, parameter in root.named_parameters():
                names[id(parameter)] = self._owners.name_in(model, root, name)
                networks[id(parameter)] = (id(root), model.name)
        owned = {id(it) for optimizer in self._optimizers() for group in optimizer.param_groups for it in group["params"]}
        found: Named = {
            "attention": _attention(graph, asks_for_softmax),
            "casts": _casts(graph, names),
            "unowned": list(self._unowned_in(graph, names, networks, owned, is_last)) if owned else [],
            "tables": list(_tables(graph, names)),
            "unused": [] if is_last or len(graph.nodes) >= MOST_NODES else self._beside.unused(self._passes, graph.nodes) or [],
        }
        new = {kind: [it for it in entries if self._is_new(kind, it)] for kind, entries in found.items()}
        if any(new.values()):
            self._recording.write("graph", **{kind: entries for kind, entries in new.items() if entries})

    def _is_new(self, kind: str, entry: Named) -> bool:
        key = "%s %s" % (kind, entry)
        if key in self._written or 256 <= len(self._written):
            return False
        self._written[key] = entry
        return True

    def _unowned_in(self, graph: _Graph, names: dict[int, str], networks: dict[int, tuple[int, str]], owned: set[int], is_last: bool) -> Iterator[Named]:
        """Parameters whose gradients nobody uses, by model. Those that change all the same have an optimizer that is not PyTorch's."""
        leaves = {id(leaf): leaf.variable for leaf in graph.leaves()}
        # A pass that ran out may not have come to what is trained.
        if not is_last and not any(id(it) in owned for it in leaves.values()):
            return
        done, certain = self._steps_done(), []
        for leaf, parameter in leaves.items():
            if id(parameter) in owned or id(parameter) not in names:
                continue
            before = self._unowned.get(id(parameter))
            if before is None or before[0]() is not parameter:
                before = self._unowned[id(parameter)] = (weakref.ref(parameter), parameter._version, done)
            if before[1] == parameter._version and (is_last or before[2] < done):
                certain.append((leaf, parameter))
        if not certain:
            return
        # What a gradient has to go through, to a parameter that is trained or to an input that wants one.
        useless = {leaf for leaf, _ in certain}
        needed = graph.above(leaf for leaf in leaves if leaf not in useless)
        of_others = [name for key, name in names.items() if key in owned]
        trained = {root for key, (root, _) in networks.items() if key in owned}
        by_model: dict[str, list[tuple[int, Any, str]]] = {}
        for leaf, parameter in certain:
            name = names[id(parameter)]
            by_model.setdefault(name.split(".")[0], []).append((leaf, parameter, name))
        for members in by_model.values():
            ops = [op for leaf, _, _ in members for op in graph.operations(leaf)]
            part = _common([name for _, _, name in members])
            root, model = networks[id(members[0][1])]
            yield {
                "model": None if root in trained else model,
                "part": part if part and not any(it.startswith(part + ".") for it in of_others) else None,
                "names": [name for _, _, name in members][:MOST_NAMES],
                "bytes": sum(it.numel() * it.element_size() for _, it, _ in members),
                "needed": any(op in needed for op in ops),
            }


class _Graph:
    """The nodes that are reached from some, each with those that use it."""

    def __init__(self, roots: Iterable[Any]) -> None:
        self.nodes: dict[int, Any] = {}
        self.users: dict[int, list[int]] = {}
        self.kinds: dict[int, str] = {}
        todo = list(roots)
        while todo and len(self.nodes) < MOST_NODES:
            node = todo.pop()
            key = id(node)
            if key in self.nodes:
                continue
            self.nodes[key], self.kinds[key] = node, node.name()
            for further, _ in node.next_functions:
                if further is not None:
                    self.users.setdefault(id(further), []).append(key)
                    todo.append(further)
        # Those that were not visited may go, and their ids be used again.
        self.users = {key: users for key, users in self.users.items() if key in self.nodes}

    def below(self, key: int) -> list[int]:
        return [id(it) for it, _ in self.nodes[key].next_functions if it is not None and id(it) in self.nodes]

    def leaves(self) -> list[Any]:
        """The ends at which gradients are added to parameters."""
        return [self.nodes[key] for key, kind in self.kinds.items() if kind == _LEAF]

    def of_kind(self, kind: str) -> list[int]:
        return [key for key, it in self.kinds.items() if it == kind]

    def above(self, keys: Iterable[int]) -> set[int]:
        """All nodes that lead to one of these."""
        found, todo = set(), list(keys)
        while todo:
            key = todo.pop()
            if key not in found:
                found.add(key)
                todo += self.users.get(key, [])
        return found

    def operations(self, leaf: int) -> list[int]:
        """The nodes that compute with a parameter and with something else: views and casts of it do not count."""
        found, todo = [], list(self.users.get(leaf, []))
        while todo:
            key = todo.pop()
            if len(self.below(key)) == 1 and self.kinds[key] in ("TBackward0", "ToCopyBackward0", "TransposeBackward0", "ViewBackward0", "PermuteBackward0"):
                todo += self.users.get(key, [])
            else:
                found.append(key)
        return found

    def reaches(self, key: int, further: Callable[[int], list[int]]) -> list[int] | None:
        """The nodes on the way to a product, through what an attention has between its products; None if there is none."""
        todo: list[tuple[int, list[int]]] = [(it, []) for it in further(key)]
        seen = set()
        while todo:
            key, way = todo.pop(0)
            if key in seen or _FAR < len(way):
                continue
            seen.add(key)
            kind = self.kinds[key]
            if kind in _PRODUCTS or kind in _OF_MATRICES and self.multiplies_results(key):
                return way
            if self.kinds[key] in _BETWEEN:
                todo += [(it, way + [key]) for it in further(key)]
        return None

    def multiplies_results(self, key: int) -> bool:
        """Whether a product is of two results, none of which is a parameter."""
        for further, _ in self.nodes[key].next_functions:
            while further is not None and further.name() in ("TBackward0", "TransposeBackward0", "ToCopyBackward0"):
                further = further.next_functions[0][0]
            if further is None or further.name() == _LEAF:
                return False
        return True

    def result(self, key: int) -> tuple[list[int], int] | None:
        """The shape of a node's result and the bytes of an element; None where PyTorch does not say."""
        metadata = getattr(self.nodes[key], "_input_metadata", None)
        # The rows of a nested tensor have lengths of their own, and no number stands for them.
        if not metadata or not all(isinstance(it, int) for it in metadata[0].shape):
            return None
        return list(metadata[0].shape), metadata[0].dtype.itemsize


def _attention(graph: _Graph, asks_for_softmax: bool) -> list[Named]:
    """Softmax between two products of batches of matrices, by shape: how many, and what each saves."""
    by_shape: dict[tuple[int, ...], Named] = {}

    def count(shape: list[int], saved: list[int]) -> None:
        # A batch of matrices is written in three numbers or in four.
        key = (int(_product(shape[:-2])), *shape[-2:])
        entry = by_shape.setdefault(key, {"shape": list(key), "count": 0, "saved": []})
        entry["count"] += 1
        entry["saved"] = max(entry["saved"], saved, key=sum)

    for key in graph.of_kind("SoftmaxBackward0"):
        result = graph.result(key)
        if result is None or len(result[0]) < 2:
            continue
        above = graph.reaches(key, lambda it: graph.users.get(it, []))
        if above is None or graph.reaches(key, graph.below) is None:
            continue
        size = _product(result[0])
        saved = [size * result[1]]
        for it in above:
            further = graph.result(it)
            if further is not None and graph.kinds[it] == "ToCopyBackward0":
                saved.append(size * further[1])
            elif further is not None and graph.kinds[it] in ("NativeDropoutBackward0", "MulBackward0"):
                saved += [size, size * further[1]]  # The mask and what comes out.
        count(result[0], saved)
    if asks_for_softmax and not by_shape:
        for key, kind in graph.kinds.items():
            is_one = kind in _PRODUCTS or kind in _OF_MATRICES and graph.multiplies_results(key)
            result = graph.result(key) if is_one else None
            if result is not None:
                count(result[0], [_product(result[0]) * result[1]])
    return list(by_shape.values())


def _casts(graph: _Graph, names: dict[int, str]) -> list[Named]:
    """Parameters that were cast to another type more than once."""
    by_parameter: dict[int, Named] = {}
    for key in graph.of_kind("ToCopyBackward0"):
        below = graph.below(key)
        result = graph.result(key)
        if len(below) == 1 and graph.kinds[below[0]] == _LEAF and result is not None:
            parameter = graph.nodes[below[0]].variable
            entry = by_parameter.setdefault(id(parameter), {"name": _named(names, parameter), "bytes": _product(result[0]) * result[1], "copies": 0})
            entry["copies"] += 1
    return [it for it in by_parameter.values() if 1 < it["copies"]][:MOST_NAMES]


def _tables(graph: _Graph, names: dict[int, str]) -> Iterator[Named]:
    """Embedding tables that only embeddings use, whose gradients are dense."""
    for leaf in graph.leaves():
        users = graph.users.get(id(leaf), [])
        if not users or any(graph.kinds[it] not in ("EmbeddingBackward0", "EmbeddingBagBackward0") for it in users):
            continue
        nodes = [graph.nodes[it] for it in users]
        results = [graph.result(it) for it in users]
        table = leaf.variable
        if any(getattr(it, "_saved_sparse", True) for it in nodes) or any(it is None for it in results) or table.dim() != 2:
            continue
        used = sum(_product(it[0][:-1]) for it in results if it is not None)
        if used < table.shape[0]:
            entry: Named = {"name": _named(names, table), "bytes": table.numel() * table.element_size(), "rows": int(table.shape[0]), "used": used}
            # How many rows a bag joins is in a saved tensor only.
            if any(graph.kinds[it] == "EmbeddingBagBackward0" for it in users):
                entry["bags"] = True
            yield entry


def _named(names: dict[int, str], parameter: Tensor) -> str:
    """Its name; one that is in no model has a shape."""
    return names.get(id(parameter)) or "weight of %s" % " x ".join(str(it) for it in parameter.shape)


def _product(numbers: Iterable[int]) -> int:
    result = 1
    for it in numbers:
        result *= int(it)
    return result


def _common(names: list[str]) -> str:
    """The module that all of these are in."""
    parts = [it.split(".")[:-1] for it in names]
    common = parts[0]
    for it in parts[1:]:
        n = next((n for n, (a, b) in enumerate(zip(common, it)) if a != b), min(len(common), len(it)))
        common = common[:n]
    return ".".join(common)
