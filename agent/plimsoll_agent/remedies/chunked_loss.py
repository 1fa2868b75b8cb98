"""Cross-entropy in chunks of rows: no copy of all log-probabilities is saved for backward.

Of logits with many classes (a language model's vocabulary, a segmentation's pixels) the ordinary loss keeps one copy
and makes another in backward. Here backward computes the gradient from the logits, rows at a time. The numbers are the
same up to rounding. Classes and class probabilities as targets, weights, smoothing, ignored classes, any reduction and
any number of dimensions; logits that are small or no plain tensor go the ordinary way. An evaluation is computed so, too: in the
ordinary way it could take more than the steps around it do now.

Within `torch.compile` it is one operator of the graph: traced, a hundred chunks would be thousands of operators, and Inductor
compares them in pairs, which takes minutes.

Parameters: `smallest`, in bytes of logits (16 MiB unless given).
"""

from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Function, Named, Note, Tensor, Torch
    from plimsoll_agent.remedies.support.hooks import Hooks

ROWS_BYTES = 32 << 20
"""About how large the temporaries of one chunk are."""
SMALLEST = 16 << 20
"""Of logits, unless the plan says otherwise."""


def apply(torch: Torch, parameters: Named, hooks: Hooks, note: Note) -> None:
    functional = torch.nn.functional
    patch.replace(functional, "cross_entropy", functools.partial(in_chunks, torch, smallest=parameters.get("smallest", SMALLEST)))


def in_chunks(torch: Torch, original: Function, smallest: int = SMALLEST) -> Function:
    """PyTorch's `cross_entropy`, which computes logits of more than `smallest` bytes some rows at a time."""
    chunked, of_a_graph = _function(torch), _operator(torch)

    @functools.wraps(original)
    def cross_entropy(
        input: Tensor, target: Any, weight: Tensor | None = None, size_average: Any = None, ignore_index: int = -100, reduce: Any = None, reduction: str = "mean", label_smoothing: float = 0.0
    ) -> Any:
        if (
            size_average is not None
            or reduce is not None
            or reduction not in ("mean", "sum", "none")
            or not _suits(torch, input, target, weight, ignore_index)
            or input.numel() * input.element_size() < smallest
        ):
            return original(input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing)
        # Under autocast the ordinary loss is float32.
        result = torch.float32 if torch.is_autocast_enabled(input.device.type) else input.dtype
        asked = (input, target, weight, ignore_index, reduction, label_smoothing, result)
        if of_a_graph is not None and torch.compiler.is_compiling():
            return of_a_graph(*asked)[0]
        with torch.autocast(input.device.type, enabled=False):
            return chunked.apply(*asked)

    return cross_entropy


def is_large(torch: Torch, input: Tensor) -> bool:
    """Whether logits may be worth chunks."""
    is_plain = type(input) is torch.Tensor and input.dim() > 1 and input.requires_grad
    return is_plain and input.numel() * input.element_size() >= SMALLEST


def _suits(torch: Torch, input: Tensor, target: Any, weight: Tensor | None, ignore_index: int) -> bool:
    """Whether these are what the chunks understand; the ordinary loss says what is wrong with all else."""
    if type(input) is not torch.Tensor or not isinstance(target, torch.Tensor) or input.dim() < 2:
        return False
    if not input.is_floating_point() or target.requires_grad:
        return False
    if weight is not None and (weight.requires_grad or weight.shape != input.shape[1:2]):
        return False
    if target.is_floating_point():
        return target.shape == input.shape and ignore_index < 0
    return target.dtype in (torch.int64, torch.uint8) and target.shape == input.shape[:1] + input.shape[2:]


def _pieces(shape: Any) -> list[Any]:
    """Slices of the first and of the third dimension, of about ROWS_BYTES in float32 each."""
    sample = 4
    for size in shape[1:]:
        sample *= size
    if len(shape) == 2 or sample <= ROWS_BYTES:
        rows = max(1, ROWS_BYTES // max(1, sample))
        return [(slice(i, i + rows), slice(None)) for i in range(0, shape[0], rows)]
    rows = max(1, ROWS_BYTES * shape[2] // sample)
    return [(slice(i, i + 1), slice(j, j + rows)) for i in range(shape[0]) for j in range(0, shape[2], rows)]


def _both_ways(torch: Torch) -> tuple[Function, Function]:
    """The loss, and the gradient of the logits. Both read `wide`, `ignore_index`, `reduction` and `smoothing` of their first argument."""

    def of_logits(tensor: Tensor, piece: Any) -> Tensor:
        return tensor[piece[0]] if tensor.dim() == 2 else tensor[piece[0], :, piece[1]]

    def of_rows(tensor: Tensor, piece: Any) -> Tensor:
        return tensor[piece[0]] if tensor.dim() == 1 else tensor[piece]

    class Chunk:
        """One piece of the loss: `-sum(q * log_softmax(logits))`, `q` being what the targets ask of each class."""

        def __init__(self, ctx: Any, logits: Tensor, target: Any, weight: Tensor | None, piece: Any) -> None:
            given = of_logits(logits, piece)
            self.logits = given.to(ctx.wide)
            self.is_copy = self.logits is not given
            self.shape = [1, -1] + [1] * (logits.dim() - 2)
            self.weight: Any
            self.weight = None if weight is None else weight.to(ctx.wide).view(self.shape)
            self.smoothing = ctx.smoothing / logits.size(1)
            self.asked = 1 - ctx.smoothing
            self.counted: Any
            self.counted = self.index = self.soft = None
            if target.is_floating_point():
                self.soft = of_logits(target, piece).to(ctx.wide) * self.asked + self.smoothing
                if self.weight is not None:
                    self.soft = self.soft * self.weight
                self.whole = self.soft.sum(1)
                return
            target = of_rows(target, piece).long()
            self.counted = target != ctx.ignore_index
            safe = torch.where(self.counted, target, 0)
            self.index = safe.unsqueeze(1)
            of_class = self.counted.to(ctx.wide)
            if weight is not None:
                of_class = of_class * weight.to(ctx.wide)[safe]
            self.of_class = of_class
            everywhere = self.smoothing * (logits.size(1) if weight is None else self.weight.sum())
            self.whole = self.asked * of_class + everywhere * self.counted.to(ctx.wide)

        def loss(self, normalizer: Tensor) -> Tensor:
            if self.soft is not None:
                return normalizer * self.whole - (self.soft * self.logits).sum(1)
            asked = self.asked * self.of_class * self.logits.gather(1, self.index).squeeze(1)
            loss = normalizer * self.whole - asked
            if self.smoothing:
                logits = self.logits if self.weight is None else self.logits * self.weight
                loss = loss - self.smoothing * logits.sum(1) * self.counted
            return torch.where(self.counted, loss, 0)

        def gradient(self, normalizer: Tensor, scale: Tensor) -> Tensor:
            normalizer = normalizer.unsqueeze(1)
            found = self.logits.sub_(normalizer) if self.is_copy else self.logits - normalizer
            found = found.exp_().mul_(self.whole.unsqueeze(1))
            if self.soft is not None:
                return found.sub_(self.soft).mul_(scale.unsqueeze(1))
            if self.smoothing:
                found.sub_(self.smoothing if self.weight is None else self.smoothing * self.weight)
            found.scatter_add_(1, self.index, -self.asked * self.of_class.unsqueeze(1))
            # Where nothing counts there may be anything, infinity too.
            return torch.where(self.counted.unsqueeze(1), found.mul_(scale.unsqueeze(1)), 0)

    def forward(ctx: Any, logits: Tensor, target: Any, weight: Tensor, result: Any) -> tuple[Any, Any, Any]:
        """The loss, and what backward needs beside the arguments: a normalizer of each row, and by how much is divided."""
        rows = logits.shape[:1] + logits.shape[2:]
        normalizers = logits.new_empty(rows, dtype=ctx.wide)
        losses = logits.new_empty(rows, dtype=ctx.wide) if ctx.reduction == "none" else None
        total, count = logits.new_zeros((), dtype=ctx.wide), logits.new_zeros((), dtype=ctx.wide)
        for piece in _pieces(logits.shape):
            chunk = Chunk(ctx, logits, target, weight, piece)
            normalizer = torch.logsumexp(chunk.logits, 1)
            of_rows(normalizers, piece).copy_(normalizer)
            loss = chunk.loss(normalizer)
            if losses is not None:
                of_rows(losses, piece).copy_(loss)
                continue
            total += loss.sum()
            if chunk.soft is None:
                count += chunk.of_class.sum()
        if ctx.reduction == "sum":
            count = torch.ones_like(total)
        elif ctx.reduction == "mean" and target.is_floating_point():
            count = torch.full_like(total, normalizers.numel())
        return (total / count if losses is None else losses).to(result), normalizers, count

    def backward(ctx: Any, grad: Any, logits: Tensor, target: Any, weight: Tensor, normalizers: Tensor, count: Tensor) -> Any:
        found = torch.empty_like(logits)
        grad = grad.to(ctx.wide)
        scale = grad if ctx.reduction == "none" else (grad / count).expand(normalizers.shape)
        for piece in _pieces(logits.shape):
            chunk = Chunk(ctx, logits, target, weight, piece)
            gradient = chunk.gradient(of_rows(normalizers, piece), of_rows(scale, piece))
            of_logits(found, piece).copy_(gradient)
        return found

    return forward, backward


def _wide(torch: Torch, dtype: Any) -> Any:
    """What is summed is float32 at least, as inside of the ordinary loss."""
    return torch.float64 if dtype is torch.float64 else torch.float32


def _function(torch: Torch) -> type[Any]:
    forward, backward = _both_ways(torch)

    class ChunkedCrossEntropy(torch.autograd.Function):
        @staticmethod
        def forward(
            ctx: Any, logits: Tensor, target: Any, weight: Tensor, ignore_index: int, reduction: str, smoothing: float, result: Any
        ) -> Any:
            ctx.wide, ctx.ignore_index, ctx.reduction, ctx.smoothing = _wide(torch, logits.dtype), ignore_index, reduction, smoothing
            loss, normalizers, count = forward(ctx, logits, target, weight, result)
            ctx.save_for_backward(logits, target, weight, normalizers, count)
            return loss

        @staticmethod
        @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
        def backward(ctx: Any, grad: Any) -> tuple[Any, Any, Any, Any, Any, Any, Any]:
            return backward(ctx, grad, *ctx.saved_tensors), None, None, None, None, None, None

    return ChunkedCrossEntropy


_ASKED = "int ignore_index, str reduction, float smoothing"
"""What both operators are asked, beside tensors."""


@functools.cache
def _operator(torch: Torch) -> Function | None:
    """The same as an operator that graphs have as one node; None where PyTorch has no way to make one. It gives the loss, the
    normalizers and the count."""
    if not hasattr(torch.library, "custom_op"):
        return None
    forward, backward = _both_ways(torch)

    def settings(logits: Tensor, ignore_index: int, reduction: str, smoothing: float) -> Any:
        wide = _wide(torch, logits.dtype)
        return types.SimpleNamespace(wide=wide, ignore_index=ignore_index, reduction=reduction, smoothing=smoothing)

    @torch.library.custom_op(  # type: ignore[untyped-decorator]
        "plimsoll::chunked_cross_entropy",
        mutates_args=(),
        schema=f"(Tensor logits, Tensor target, Tensor? weight, {_ASKED}, ScalarType result) -> (Tensor, Tensor, Tensor)",
    )
    def operator(
        logits: Tensor, target: Any, weight: Tensor, ignore_index: int, reduction: str, smoothing: float, result: Any
    ) -> Any:
        with torch.autocast(logits.device.type, enabled=False):
            return forward(settings(logits, ignore_index, reduction, smoothing), logits, target, weight, result)

    @operator.register_fake  # type: ignore[untyped-decorator]
    def _(
        logits: Tensor, target: Any, weight: Tensor, ignore_index: int, reduction: str, smoothing: float, result: Any
    ) -> tuple[Any, Any, Any]:
        rows, wide = logits.shape[:1] + logits.shape[2:], _wide(torch, logits.dtype)
        loss = logits.new_empty(rows if reduction == "none" else (), dtype=result)
        return loss, logits.new_empty(rows, dtype=wide), logits.new_empty((), dtype=wide)

    @torch.library.custom_op(  # type: ignore[untyped-decorator]
        "plimsoll::chunked_cross_entropy_backward",
        mutates_args=(),
        schema=f"(Tensor grad, Tensor logits, Tensor target, Tensor? weight, Tensor normalizers, Tensor count, {_ASKED}) -> Tensor",
    )
    def gradient(
        grad: Any, logits: Tensor, target: Any, weight: Tensor, normalizers: Tensor, count: Tensor, ignore_index: int, reduction: str, smoothing: float
    ) -> Any:
        with torch.autocast(logits.device.type, enabled=False):
            asked = settings(logits, ignore_index, reduction, smoothing)
            return backward(asked, grad, logits, target, weight, normalizers, count)

    @gradient.register_fake  # type: ignore[untyped-decorator]
    def _(grad: Any, logits: Tensor, *_: Any) -> Any:
        return torch.empty_like(logits)

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        logits, target, weight, *ctx.asked, _ = inputs
        _, normalizers, count = output
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(logits, target, weight, normalizers, count)

    def of_graph(ctx: Any, grad: Any, *_: Any) -> tuple[Any, Any, Any, Any, Any, Any, Any]:
        found = None if grad is None else gradient(grad, *ctx.saved_tensors, *ctx.asked)
        return found, None, None, None, None, None, None

    operator.register_autograd(of_graph, setup_context=keep)
    return operator
