"""A batch in parts: which of a call's tensors are batched, and how the parts' results belong together.

The agent tests once for each model whether it treats the samples of a batch separately: two samples, one by one and together,
must give the same results, in evaluation mode and without gradients. That finds inputs
whose first dimension is not the batch (in older code that is time), losses that compare samples with each other, and how
a loss averages.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from plimsoll_agent.remedies.support import rerun
from plimsoll_agent.remedies.support.rerun import statistics_kept
from plimsoll_agent.run import nested
from plimsoll_agent.run.host_random import HostRandom
from plimsoll_agent.run.nested import tensors_in
from plimsoll_agent.run.refusal import unsuited

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from plimsoll_agent.kinds import Arguments, Bounds, Function, Module, Named, Tensor, Torch


def batch_size(torch: Torch, args: Arguments, kwargs: Named, axis: int = 0) -> int | None:
    """The size of the first dimension, or of another one, that the inputs have in common; None if there is no such thing."""
    sizes = [t.size(axis) for t in tensors_in(torch, (args, kwargs)) if t.dim() > axis]
    return max(set(sizes), key=lambda it: (sizes.count(it), -sizes.index(it))) if sizes else None


def kind_of(torch: Torch, args: Arguments, kwargs: Named, whole: int) -> Any:
    """What kind of call it is: of each tensor how many dimensions it has, and whether it is batched."""
    return tuple((t.dim(), t.dim() >= 1 and t.size(0) == whole) for t in tensors_in(torch, (args, kwargs)))


def dimensions(torch: Torch, args: Arguments, kwargs: Named, whole: int, axis: int = 0) -> list[int | None]:
    """Along which dimension each of a call's tensors has the batch: `axis`, or the first one; None if it has none."""

    def of(tensor: Tensor) -> int | None:
        return next((it for it in (axis, 0) if tensor.dim() > it and tensor.size(it) == whole), None)

    return [of(it) for it in tensors_in(torch, (args, kwargs))]


def part_of(torch: Torch, args: Arguments, kwargs: Named, whole: int, start: int, end: int, along: Any = None) -> tuple[Arguments, Named]:
    """Samples `start..end` of every batched input; the others as they are. `along`: see `dimensions`."""
    along = iter(dimensions(torch, args, kwargs, whole) if along is None else along)

    def cut(tensor: Tensor) -> Tensor:
        dimension = next(along)
        if dimension is None:
            return tensor
        part = tensor.narrow(dimension, start, end - start)
        return part.contiguous() if dimension and tensor.is_contiguous() else part  # Recurrent layers want it so.

    return nested.rebuilt(torch, args, cut), nested.rebuilt(torch, dict(kwargs), cut)


def bounds_of(whole: int, parts: int) -> Bounds:
    """Where parts begin and end: their sizes differ by one at most, and the first ones are the larger."""
    size, more = divmod(whole, parts)
    ends = [size * i + min(i, more) for i in range(parts + 1)]
    return list(zip(ends, ends[1:]))


def loss_in(torch: Torch, output: Any) -> Any:
    """(key, loss) of an output that carries its own loss; (None, output) if it is one; None if there is none."""

    def is_loss(value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.dim() == 0 and value.is_floating_point()

    if is_loss(output):
        return None, output
    if isinstance(output, dict) or nested.is_record(output):
        named = output if isinstance(output, dict) else nested.fields_of(output)
        for key in ("loss", "losses"):
            if is_loss(named.get(key)):
                return key, named[key]
    if isinstance(output, (tuple, list)):
        losses = [i for i, it in enumerate(output) if is_loss(it)]
        if losses and (losses[0] == 0 or len(losses) == 1):
            return losses[0], output[losses[0]]
    return None


def together(torch: Torch, outputs: Any, sizes: Sequence[int], axis: int = 0) -> Any:
    """The outputs of the parts as one output of the whole batch, whose samples are along `axis` or the first dimension."""
    first = outputs[0]

    def has_samples(dimension: int) -> bool:
        return first.dim() > dimension and all(it.size(dimension) == size for it, size in zip(outputs, sizes))

    if isinstance(first, torch.Tensor):
        dimension = next((it for it in (axis, 0) if has_samples(it)), None)
        if dimension is None and _is_flat(outputs, sizes):
            if axis == 0:
                return torch.cat(outputs)
            return torch.cat([it.unflatten(0, (-1, size)) for it, size in zip(outputs, sizes)], axis).flatten(0, axis)
        if dimension is None:
            raise unsuited(
                "micro-batches",
                "this model: an output of shape %s does not have one entry for each of %d samples"
                % (tuple(first.shape), sizes[0])
            )
        return torch.cat(outputs, dimension)
    if isinstance(first, dict):
        values = {key: together(torch, [it[key] for it in outputs], sizes, axis) for key in first}
        return values if type(first) is dict else type(first)(values)
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(together(torch, list(it), sizes, axis) for it in zip(*outputs)))
    if isinstance(first, (list, tuple)):
        return type(first)(together(torch, list(it), sizes, axis) for it in zip(*outputs))
    if nested.is_record(first):
        parts = [nested.fields_of(it) for it in outputs]
        return nested.with_fields(first, {key: together(torch, [it[key] for it in parts], sizes, axis) for key in parts[0]})
    if tensors_in(torch, dict(getattr(first, "__dict__", {}))):
        raise unsuited(
            "micro-batches",
            "this model: its output is a %s, and plimsoll cannot join the parts of a batch in it"
            % type(first).__name__
        )
    return first


class Whole:
    """The output of a whole batch, filled part by part: no part waits for the last one."""

    def __init__(self, torch: Torch, n_samples: int, axis: int) -> None:
        self._torch, self._n, self._axis = torch, n_samples, axis
        self._places: Any
        self._first: Any
        self._first, self._places = None, None

    def take(self, output: Any, start: int, end: int, weight: float | None) -> bool:
        """Takes in the output of samples `start..end`; false if it is none that can be put together. `weight` is that of its
        loss; none if it has none."""
        torch, n = self._torch, end - start
        tensors = tensors_in(torch, output)
        if self._places is None:
            self._first = output
            self._places = [self._place(it, n, weight) for it in tensors]
        n_losses = sum(it.dim() == 0 for it in tensors)
        if not tensors or n_losses > 1 or None in self._places or len(tensors) != len(self._places) or not _is_plain(torch, output):
            return False
        if any(_beside(self._place(it, n, weight)) != _beside(place) for it, place in zip(tensors, self._places)):
            return False  # A model may crop what it returns to the longest sample of a part.
        for it, (whole, dimension, rows) in zip(tensors, self._places):
            if dimension is None:
                whole.add_(it * weight)
            else:
                whole.narrow(dimension, start * rows, n * rows).copy_(it.unflatten(0, (-1, n)) if it.dim() < whole.dim() else it)
        return True

    def output(self) -> Any:
        """All of it."""
        wholes = iter(it.flatten(0, 1) if it.dim() > dims else it for (it, _, _), dims in zip(self._places, self._dims()))
        return nested.rebuilt(self._torch, self._first, lambda _: next(wholes))

    def _dims(self) -> list[Any]:
        return [it.dim() for it in tensors_in(self._torch, self._first)]

    def _place(self, it: Any, n: int, weight: Tensor) -> Any:
        """A tensor for all samples, along which dimension they are, and how many rows each has there."""
        shape = list(it.shape)
        if not shape:
            return None if weight is None else (it.new_zeros(()), None, 0)
        for dimension in (self._axis, 0):
            if it.dim() > dimension and shape[dimension] == n:
                shape[dimension] = self._n
                return it.new_empty(shape), dimension, 1
        if shape[0] == 0 or shape[0] % n:
            return None
        rows = shape[0] // n
        if self._axis == 0:
            return it.new_empty([self._n * rows, *shape[1:]]), 0, rows
        return it.new_empty([rows, self._n, *shape[1:]]), 1, 1


def _beside(place: Any) -> Any:
    """What all parts of a tensor have in common."""
    return place and (place[0].shape, *place[1:])


def _is_plain(torch: Torch, output: Any) -> bool:
    """Nothing in it hides tensors, as a cache does, and no number is of a part only."""
    if output is None or isinstance(output, (torch.Tensor, str, bool)):
        return True
    if isinstance(output, dict):
        return all(_is_plain(torch, it) for it in output.values())
    if isinstance(output, (list, tuple)):
        return all(_is_plain(torch, it) for it in output)
    return nested.is_record(output) and all(_is_plain(torch, it) for it in nested.fields_of(output).values())


def _is_flat(outputs: Any, sizes: Sequence[int]) -> bool:
    """Whether each has equally many rows for each sample: time and batch in one dimension, as a loss wants them."""
    rows = [it.size(0) if it.dim() else 0 for it in outputs]
    return rows[0] > 0 and all(n % size == 0 and n // size == rows[0] // sizes[0] for n, size in zip(rows, sizes))


@contextlib.contextmanager
def undisturbed(torch: Torch, module: Module) -> Iterator[None]:
    """Nothing of what runs inside is seen afterwards: no gradient, no statistics, no random number used."""
    training, choices = [it for it in module.modules() if it.training], HostRandom()
    devices = sorted({p.device.index for p in module.parameters() if p.is_cuda})
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=devices), _exact(torch):
            for it in training:
                it.training = False
            yield
    finally:
        for it in training:
            it.training = True
        choices.again()


def is_cut_elsewhere(torch: Torch, module: Module, size: int, run: Function) -> bool:
    """Whether layers that know which of their dimensions is the batch (recurrent ones, attention) see, while `run` calls
    the module with so many samples, another number of them, and that size where time should be."""
    found = []

    def look(layer: Module, given: Any) -> None:
        x = given[0] if given else None
        if isinstance(x, torch.Tensor) and x.dim() == 3:
            batch, time = (0, 1) if layer.batch_first else (1, 0)
            found.append(x.size(batch) != size and x.size(time) == size)

    layers = [it for it in module.modules() if isinstance(it, (torch.nn.RNNBase, torch.nn.MultiheadAttention))]
    hooks = [it.register_forward_pre_hook(look) for it in layers]
    try:
        run()
    finally:
        for it in hooks:
            it.remove()
    return any(found)


def written_by(torch: Torch, module: Module, run: Function) -> str | None:
    """The name of the first of a module's own tensors that `run`, a call of it in the mode that it is in, writes into;
    None if there is none. Batch-norm's statistics and the vectors of spectral norms are not meant. Buffers are put back."""
    before = [(name, it, it._version, it.detach().clone()) for name, it in _buffers(torch, module)]
    before += [(name, it, it._version, None) for name, it in module.named_parameters()]
    devices, choices = sorted({it.device.index for _, it, _, _ in before if it.is_cuda}), HostRandom()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=devices), statistics_kept(torch, module):
            run()
    finally:
        choices.again()
    found = [it for it in before if it[1]._version != it[2]]
    with torch.no_grad():
        for _, it, _, value in found:
            if value is not None:
                it.copy_(value)
    return found[0][0] if found else None


def _buffers(torch: Torch, module: Module) -> Iterator[Any]:
    norm = torch.nn.modules.batchnorm._NormBase
    for prefix, part in module.named_modules():
        for name, it in () if isinstance(part, norm) or rerun.is_spectral(torch, part) else part._buffers.items():
            if it is not None and not it.is_inference():
                yield (prefix + "." if prefix else "") + name, it


@contextlib.contextmanager
def _exact(torch: Torch) -> Iterator[None]:
    """Without TF32, whose rounding differs with the size of the batch by more than what is looked for."""
    before = []
    for place in (torch.backends.cudnn, torch.backends.cuda.matmul):
        try:
            before.append((place, "allow_tf32", place.allow_tf32))
        except RuntimeError:  # The script has said it in the newer way; PyTorch wants it said in one way only.
            for newer in (getattr(place, "conv", place), getattr(place, "rnn", None)):
                if newer is not None:
                    before.append((newer, "fp32_precision", newer.fp32_precision))
    try:
        for place, name, _ in before:
            setattr(place, name, False if name == "allow_tf32" else "ieee")
        yield
    finally:
        for place, name, value in before:
            setattr(place, name, value)


def close(torch: Torch, a: Any, b: Any) -> bool:
    """Equal up to what the number format can tell. NaN is equal to nothing."""
    low = torch.is_autocast_enabled(a.device.type) or a.dtype in (torch.bfloat16, torch.float16)
    tolerance = 3e-2 if low else 1e-3
    least = max(1e-6, torch.finfo(a.dtype).tiny)  # Below it numbers have few digits: half precision, and a phantom's.
    scale = max(float(a.abs().max()), float(b.abs().max()), least) if a.numel() else 1.0
    return a.shape == b.shape and (not a.numel() or float((a - b).abs().max()) <= tolerance * scale)
