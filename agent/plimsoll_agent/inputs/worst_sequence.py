"""Makes every batch as long as the longest one that may come, so that a prediction covers the worst batch, not only those of the run.

`PLIMSOLL_BATCH_LENGTH` says how long: a number, or `longest` for the longest that the data loader shows. (`half` is for advice:
half as long as the longest of the first batches.) Batches are made
longer where they come from, in the `DataLoader`, so that labels and masks come along; the last entry is repeated. Along
which dimension is found by looking: the one whose size differs between batches, and where none does the length of
two-dimensional whole numbers (tokens). A script without a `DataLoader` gets its tokens longer at the call of the model, and
targets at the loss. On a phantom only: what comes of such a batch is of no use for training.
"""

from __future__ import annotations

import itertools
import time
import weakref
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.run.refusal import CannotApply

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Arguments, Function, Module, Named, Optimizer, Tensor, Torch
    from plimsoll_agent.remedies.support.hooks import Hooks
    from plimsoll_agent.run.recording import Recording

LOOK_BATCHES, LOOK_SECONDS = 12, 2.0
"""So many batches are looked at to find the dimension."""
SCAN_SECONDS = 60.0
"""And for so long `longest` goes through the data."""
_DEEPEST = 6


def apply(torch: Torch, wanted: Any, hooks: Hooks, recording: Recording) -> None:
    """Takes its places; `wanted` is a number as text, or `longest`."""
    worst = WorstSequence(torch, wanted, recording)
    worst.hold_loaders()
    hooks.around_call(worst.around_call)
    worst.hold_losses()
    from torch.optim import optimizer

    optimizer.register_optimizer_step_pre_hook(worst.before_step)


class WorstSequence:
    """See the top of this file."""

    def __init__(self, torch: Torch, wanted: Any, recording: Recording) -> None:
        self._torch = torch
        self._length: Any = int(wanted) if wanted.isdigit() else None
        self._share = 2 if wanted == "half" else 1
        self._recording = recording
        self._how: str | None = None
        self._shown: list[Any] = []
        self._loaders: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._known: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    # In the loader.

    def hold_loaders(self) -> None:
        from torch.utils.data import DataLoader, dataloader

        worst, loaders = self, self._loaders
        original_iter, iterator_class = DataLoader.__iter__, dataloader._BaseDataLoaderIter
        original_next = iterator_class.__next__

        def __iter__(self: Any) -> Any:
            iterator = original_iter(self)
            loaders[iterator] = self, []  # A loop keeps the iterator only.
            return iterator

        def __next__(self: Any) -> Any:
            loader, waiting = loaders.get(self, (None, []))
            if loader is None:
                return original_next(self)
            if loader not in worst._known:
                worst._known[loader] = None  # While it is looked at.
                waiting += _some(original_next, self)
                worst._known[loader] = worst._dimensions(loader, waiting, original_iter, original_next)
            batch = waiting.pop(0) if waiting else original_next(self)
            return worst._longer(batch, worst._known[loader], "loader")

        patch.put(DataLoader, "__iter__", __iter__)
        patch.put(iterator_class, "__next__", __next__)

    def _dimensions(self, loader: Any, batches: Any, begin: Any, after: Any) -> Any:
        """{path: {dimension: what it is longer than the longest}} of this loader's tensors."""
        rows = getattr(loader, "batch_size", None) or getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
        shapes = [_shapes(self._torch, it) for it in batches]
        if self._length is None and self._share == 1:
            began = time.monotonic()
            scan = begin(loader)
            try:
                while time.monotonic() - began < SCAN_SECONDS:
                    shapes.append(_shapes(self._torch, after(scan)))
            except StopIteration:
                pass
        return self._found(shapes, rows)

    def _found(self, shapes: Any, rows: Any) -> Any:
        seen: dict[Any, Any] = {}
        for batch in shapes:
            for path, (shape, _) in batch.items():
                for dimension, size in enumerate(shape):
                    seen.setdefault((path, dimension), []).append(size)
        kinds = {path: (len(shape), tokens) for batch in shapes for path, (shape, tokens) in batch.items()}

        def is_batch(path: tuple[Any, ...], dimension: int) -> bool:
            sizes, other = seen[path, 0], seen.get((path, 1), [])
            # Time may come first, and then the batch.
            is_second = rows is not None and max(sizes) != rows and other and max(other) == rows
            return dimension == (1 if is_second else 0)

        chosen = [key for key, sizes in seen.items() if not is_batch(*key) and len(set(sizes)) > 1]
        if not chosen:
            tokens = [(path, d) for path, d in seen if kinds[path] == (2, True) and not is_batch(path, d)]
            lengths = {seen[key][0] for key in tokens if seen[key][0] > 1}
            chosen = [key for key in seen if not is_batch(*key) and seen[key][0] in lengths and key[1] < 4]
        if not chosen:
            return {}
        reference = max(chosen, key=lambda key: (max(seen[key]), len(seen[key])))
        found: dict[Any, Any] = {}
        for path, dimension in chosen:
            offsets = {a - b for a, b in zip(seen[path, dimension], seen[reference])}
            # One less than another in every batch, as targets often are, stays one less.
            found.setdefault(path, {})[dimension] = offsets.pop() if len(offsets) == 1 else 0
        if self._length is None:
            self._length = max(1, max(seen[reference]) // self._share)
        return found

    # At the model's call and the loss.

    def around_call(self, module: Module, call: Function, args: Arguments, kwargs: Named) -> Any:
        """The outermost call of a model."""
        if self._length is not None:
            self._refuse_beyond_positions(module)
        if self._how != "loader" and (module.training or self._torch.is_grad_enabled()):
            given = (tuple(args), dict(kwargs))
            dimensions = self._found([_shapes(self._torch, given)], None)
            args, kwargs = self._longer(given, dimensions, "call")
        return call(*args, **kwargs)

    def hold_losses(self) -> None:
        functional, worst = self._torch.nn.functional, self
        for name in ("cross_entropy", "nll_loss"):
            original = getattr(functional, name)

            def loss(input: Tensor, target: Any, *args: Any, _original: Any = original, **kwargs: Any) -> Any:
                return _original(input, worst._target(input, target), *args, **kwargs)

            patch.put(functional, name, loss)

    def _target(self, input: Tensor, target: Any) -> Any:
        """As many targets as there are rows, if the rows became more at the call of the model."""
        if self._how != "call" or target.is_floating_point() or target.dim() != max(1, input.dim() - 1):
            return target
        wanted = input.shape[:1] + input.shape[2:]
        for dimension, size in enumerate(wanted):
            target = _extended(self._torch, target, dimension, size)
        return target

    def before_step(self, optimizer: Optimizer, args: Arguments, kwargs: Named) -> None:
        """The first step is about to end: if nothing is longer by now, nothing will be."""
        if self._how is None:
            self._how = "nothing"
            raise CannotApply(
                "plimsoll: --worst-seq found nothing to make longer: no size differs between the batches of a DataLoader%s, and "
                "neither these batches nor the inputs of the model have tokens (two-dimensional integers); set the length with the "
                "script's own arguments" % (" (%s)" % ", ".join(self._shown[:4]) if self._shown else "")
            )

    # Both.

    def _longer(self, batch: Any, dimensions: Any, how: Any) -> Any:
        if not dimensions:
            for path, (shape, _) in _shapes(self._torch, batch).items():
                text = "%s %s" % (_name(path), "x".join(map(str, shape)))
                if len(self._shown) < 4 and text not in self._shown:
                    self._shown.append(text)
            return batch
        changed: list[Any] = []

        def longer(path: tuple[Any, ...], tensor: Tensor) -> Any:
            for dimension, offset in dimensions.get(path, {}).items():
                if dimension < tensor.dim() and self._is_other(tensor.size(dimension), self._length + offset):
                    if not changed or path != changed[-1][0]:
                        changed.append((path, tuple(tensor.shape)))
                    tensor = _extended(self._torch, tensor, dimension, self._length + offset)
            return tensor

        batch = _rebuilt(self._torch, batch, (), longer)
        if self._how is None:
            self._how = how
            self._say(how, changed, dimensions)
        return batch

    def _is_other(self, size: int, wanted: Any) -> bool:
        return 0 < size < wanted or self._share > 1 and 0 < wanted < size

    def _say(self, how: Any, changed: Any, dimensions: Any) -> None:
        what = "batch of the DataLoader" if how == "loader" else "input of the model"
        shown = []
        for path, shape in changed:
            after = [self._length + dimensions[path][d] if d in dimensions[path] else n for d, n in enumerate(shape)]
            sizes = ("x".join(map(str, after)), "x".join(map(str, shape)))
            shown.append("%s %s instead of %s" % ((_name(path),) + sizes))
        text = "--worst-seq made every %s %d long: %s" % (what, self._length, ", ".join(shown[:6]))
        if not shown:
            text = "every %s is at least %d long already: --worst-seq made none longer" % (what, self._length)
        self._recording.note("worst-seq", text)
        self._recording.write("worst", length=self._length, how=how, tensors=shown, text=text)

    def _refuse_beyond_positions(self, module: Module) -> None:
        """A phantom does not notice that a table of positions is too short."""
        config = getattr(module, "config", None)
        for name in ("max_position_embeddings", "n_positions"):
            most = getattr(config, name, None)
            if not isinstance(most, int) or most >= self._length:
                continue
            tables = (it.num_embeddings for it in module.modules() if isinstance(it, self._torch.nn.Embedding))
            if any(most <= n <= most + 2 for n in tables):
                raise CannotApply(
                    "plimsoll: --worst-seq %d is more than the %d positions of %s (%s)"
                    % (self._length, most, type(module).__name__, name)
                )


def _some(after: Any, iterator: Any) -> Any:
    """The first batches of an iterator."""
    found: list[Any]
    began, found = time.monotonic(), []
    while len(found) < LOOK_BATCHES and time.monotonic() - began < LOOK_SECONDS:
        try:
            found.append(after(iterator))
        except StopIteration:
            break
    return found


def _extended(torch: Torch, tensor: Tensor, dimension: int, size: int) -> Any:
    missing = size - tensor.size(dimension)
    if missing <= 0:
        return tensor.narrow(dimension, 0, size) if missing else tensor
    if not tensor.size(dimension):
        return tensor
    shape = list(tensor.shape)
    shape[dimension] = missing
    return torch.cat([tensor, tensor.narrow(dimension, -1, 1).expand(shape)], dimension)


def _shapes(torch: Torch, batch: Any) -> Any:
    """{path: (shape, whether it holds whole numbers)}"""
    found = {}

    def look(path: tuple[Any, ...], tensor: Tensor) -> Any:
        whole = not tensor.is_floating_point() and tensor.dtype is not torch.bool and not tensor.is_complex()
        found[path] = tuple(tensor.shape), whole
        return tensor

    _rebuilt(torch, batch, (), look)
    return found


def _rebuilt(torch: Torch, value: Any, path: tuple[Any, ...], function: Function) -> Any:
    """`value` with `function(path, tensor)` in the place of each tensor."""
    if isinstance(value, torch.Tensor):
        return function(path, value)
    if len(path) >= _DEEPEST:
        return value
    if type(value) is dict:
        return {key: _rebuilt(torch, it, path + (key,), function) for key, it in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_rebuilt(torch, it, path + (i,), function) for i, it in enumerate(value)))
    if type(value) in (list, tuple):
        return type(value)(_rebuilt(torch, it, path + (i,), function) for i, it in enumerate(value))
    if hasattr(value, "keys") and hasattr(value, "__setitem__"):
        for key in list(value.keys()):  # A mapping of its own kind, as transformers' tokenizers give.
            value[key] = _rebuilt(torch, value[key], path + (key,), function)
    return value


def _name(path: tuple[Any, ...]) -> str:
    parts = itertools.chain(path[:1], ("[%r]" % it for it in path[1:])) if path else ["batch"]
    return "".join(it if isinstance(it, str) else "[%d]" % it for it in parts)
