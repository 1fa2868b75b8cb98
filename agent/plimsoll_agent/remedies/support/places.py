"""Whether a call of a model takes samples by their number: the edges of a graph, an order, places in a packed batch.

Such numbers are of the whole batch. In a part of it they name samples of other parts: nothing there on a real GPU, after
which no call of CUDA works any more, and nothing that a phantom notices. So the call is looked at before each of its operations.

A number comes from outside if no operation of the call made it: an input, a buffer, what the model remembers. What
follows from it by looking, copying or elementwise arithmetic still is; what is sorted, counted or found in the call
(`nonzero`, `argsort`) is of the part. Operations take samples by numbers from outside where they index the batch's dimension of something
that follows from the batch, or where numbers that are not cut with it go into an operation of which nothing is known
(attention over packed sequences, CTC over joined targets).
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

from plimsoll_agent.run import below
from plimsoll_agent.run.nested import tensors_in
from plimsoll_agent.run.refusal import unsuited

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from plimsoll_agent.kinds import Arguments, Module, Named, Operator, Tensor, Torch

_READS = {"index_select", "gather", "take_along_dim"}
_WRITES = {"scatter", "scatter_", "scatter_add", "scatter_add_", "scatter_reduce", "scatter_reduce_", "index_add", "index_add_", "index_copy",
           "index_copy_", "index_reduce", "index_reduce_", "index_fill", "index_fill_"}
_BY_LIST = {"index", "index_put", "index_put_", "_unsafe_index", "_unsafe_index_put", "_index_put_impl_"}
_KEEPS = {"cat", "stack", "index", "index_select", "gather", "repeat", "clone", "_to_copy", "flip", "roll", "masked_select", "copy_", "contiguous", "narrow_copy",
          "_unsafe_view", "_reshape_copy"}
_HARMLESS = {"bucketize", "searchsorted", "isin", "equal", "lift_fresh", "embedding", "embedding_renorm_"}


@contextlib.contextmanager
def looked_at(torch: Torch, remedy: str, module: Module, given: Any, along: Any, axis: int = 0) -> Iterator[None]:
    """While a call of `module` runs inside of it, refuses `remedy` before the first operation that takes samples by their number.
    `given`: what the call is given, of a part; `along`: of each of its tensors where the batch is, or None; `axis`: the batch's dimension."""
    below.entered(torch)
    with below.uncompiled(torch), _mode_of(torch)(remedy, type(module).__name__, tensors_in(torch, given), along, axis):
        yield


@functools.lru_cache(maxsize=1)
def _mode_of(torch: Torch) -> type[Any]:
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.weak import WeakIdKeyDictionary

    class Looking(TorchDispatchMode):
        is_plimsolls = True

        def __init__(self, remedy: str, name: str, tensors: Any, along: Any, axis: int) -> None:
            super().__init__()
            self._remedy, self._name, self._axis = remedy, name, axis
            self._made = WeakIdKeyDictionary()
            self._of_batch = WeakIdKeyDictionary()
            for tensor, dimension in zip(tensors, along):
                if dimension is not None:
                    self._of_batch[tensor] = True

        def __torch_dispatch__(self, function: Operator, types: Any, args: Arguments = (), kwargs: Named | None = None) -> Any:
            kwargs = kwargs or {}
            given = [it for it in _tensors(torch, args, kwargs)]
            from_outside = [it for it in given if self._is_from_outside(it)]
            of_batch = any(it in self._of_batch for it in given)
            if from_outside and of_batch:
                self._look(function, args, kwargs, from_outside)
            output = below.goes_on(torch, function, args, kwargs)
            keeps = from_outside and _keeps(torch, function)
            for it in tensors_in(torch, output):
                if of_batch:
                    self._of_batch[it] = True
                if not (keeps and _is_number(torch, it)) and not any(it is other for other in given):
                    self._made[it] = True
            if function.namespace == "aten" and _name(function) == "lift_fresh":
                self._made[output] = True
            return output

        def _is_from_outside(self, it: Any) -> bool:
            return _is_number(torch, it) and it not in self._made

        def _look(self, function: Operator, args: Arguments, kwargs: Named, from_outside: Any) -> None:
            name = _name(function) if function.namespace == "aten" else None
            named: Named = {it.name: kwargs.get(it.name, args[i] if i < len(args) else None) for i, it in enumerate(function._schema.arguments)}
            if name in _BY_LIST:
                changed = [named["self"], named.get("values")]
                for dimension, index in enumerate(named["indices"]):
                    if isinstance(index, torch.Tensor) and self._is_from_outside(index):
                        self._refuse_if(dimension, named["self"], changed)
            elif name in _READS or name in _WRITES:
                index = named.get("index", named.get("indices"))
                if isinstance(index, torch.Tensor) and self._is_from_outside(index):
                    self._refuse_if(named["dim"] % max(1, named["self"].dim()), named["self"], [named["self"], named.get("src"), named.get("source")])
            elif not _keeps(torch, function) and name not in _HARMLESS and any(it not in self._of_batch and it.dim() for it in from_outside):
                self._refuse()

        def _refuse_if(self, dimension: int, tensor: Tensor, changed: Sequence[Any]) -> None:
            if dimension in (0, self._axis) and any(isinstance(it, torch.Tensor) and it in self._of_batch for it in changed):
                self._refuse()

        def _refuse(self) -> None:
            raise unsuited(
                self._remedy,
                "%s: it picks samples by their index in the whole batch, as the edges of a graph do, and a part of the batch "
                "lacks some of them" % self._name
            )

    return Looking


def _tensors(torch: Torch, args: Arguments, kwargs: Named) -> Any:
    return tensors_in(torch, (args, kwargs))


def _is_number(torch: Torch, it: Any) -> bool:
    """Whole numbers that could be places. Single bytes are masks."""
    return it.dtype in (torch.int16, torch.int32, torch.int64)


def _name(function: Operator) -> str:
    return function._schema.name.removeprefix("aten::")


def _keeps(torch: Torch, function: Operator) -> bool:
    """Whether the numbers that come out are those that went in, or follow from each of them alone."""
    if function.namespace not in ("aten", "prims"):
        return False
    return torch.Tag.pointwise in function.tags or _is_view(function) or _name(function) in _KEEPS


@functools.cache
def _is_view(function: Operator) -> bool:
    """Whether what comes out is a view of what goes in."""
    return any(it.alias_info is not None and not it.alias_info.is_write for it in function._schema.returns)
