"""Cross-entropy in chunks of rows: no copy of all log-probabilities is kept for backward.

Of logits with many classes (a language model's vocabulary) the ordinary loss keeps one copy and makes another
in backward. Here backward computes the gradient from the logits, rows at a time. The numbers are the same up to
rounding. Class weights, smoothing, soft targets and small logits go the ordinary way.

Parameters: `smallest`, in bytes of logits (16 MiB unless given).
"""

import functools

ROWS_BYTES = 32 << 20
"""About how large the temporaries of one chunk are."""


def apply(torch, parameters, places, note):
    functional = torch.nn.functional
    original = functional.cross_entropy
    smallest = parameters.get("smallest", 16 << 20)
    chunked = _function(torch)

    @functools.wraps(original)
    def cross_entropy(
        input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean", label_smoothing=0.0
    ):
        if (
            type(input) is not torch.Tensor
            or input.dim() != 2
            or weight is not None
            or size_average is not None
            or reduce is not None
            or label_smoothing
            or reduction not in ("mean", "sum")
            or target.dim() != 1
            or target.is_floating_point()
            or input.numel() * input.element_size() < smallest
            or not (torch.is_grad_enabled() and input.requires_grad)
        ):
            return original(input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing)
        # Under autocast the ordinary loss is computed in float32; so is this one, a chunk at a time.
        wide = torch.float32 if torch.is_autocast_enabled(input.device.type) else input.dtype
        with torch.autocast(input.device.type, enabled=False):
            return chunked.apply(input, target, ignore_index, reduction, wide)

    functional.cross_entropy = cross_entropy


def _function(torch):
    class ChunkedCrossEntropy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, logits, target, ignore_index, reduction, wide):
            rows = max(1, ROWS_BYTES // (logits.size(1) * 4))
            counted = target != ignore_index
            safe = torch.where(counted, target, 0)
            sums = logits.new_zeros((), dtype=wide)
            normalizers = logits.new_empty(logits.size(0), dtype=wide)
            for start in range(0, logits.size(0), rows):
                part = slice(start, start + rows)
                chunk = logits[part].to(wide)
                normalizer = torch.logsumexp(chunk, 1)
                normalizers[part] = normalizer
                loss = normalizer - chunk.gather(1, safe[part].unsqueeze(1)).squeeze(1)
                sums += torch.where(counted[part], loss, 0).sum()
            count = counted.sum().to(wide) if reduction == "mean" else torch.ones_like(sums)
            ctx.save_for_backward(logits, safe, counted, normalizers, count)
            ctx.rows, ctx.wide = rows, wide
            return sums / count

        @staticmethod
        def backward(ctx, grad):
            logits, safe, counted, normalizers, count = ctx.saved_tensors
            result = torch.empty_like(logits)
            scale = grad / count
            for start in range(0, logits.size(0), ctx.rows):
                part = slice(start, start + ctx.rows)
                chunk = torch.exp(logits[part].to(ctx.wide) - normalizers[part].unsqueeze(1))
                index = safe[part].unsqueeze(1)
                chunk.scatter_add_(1, index, torch.full_like(index, -1, dtype=chunk.dtype))
                chunk *= (counted[part].to(chunk.dtype) * scale).unsqueeze(1)
                result[part] = chunk.to(logits.dtype)
            return result, None, None, None, None

    return ChunkedCrossEntropy
