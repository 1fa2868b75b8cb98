"""Bytes in a second of kernels that only move, by their size, and of softmax along another dimension than the last; one JSON line for each.

    python bench/fit/moving.py h100-moving.jsonl      on a machine with a GPU, nothing else on it

What `plan/time.rs` and the agent's meter say of them comes from here.
"""

import json
import sys

import torch
import torch.nn.functional as F
from operations import normal, timed

SIZES = (1 << 20, 1 << 23, 1 << 25, 1 << 28)
"""Numbers of a tensor."""
ALONG = [
    # [outside, along, inside]
    (12, 32000, 1024), (8, 50257, 512), (64, 32000, 48), (4, 5000, 4096), (16, 19, 512 * 512), (16, 150, 128 * 128), (32, 1000, 49),
    (8, 256, 1024), (64, 29, 400), (2, 100000, 16), (1, 32000, 8192),
]  # fmt: skip


def simple(n):
    """Names, calls, and how many tensors of `n` numbers each reads and writes."""
    x, y = normal(n // 1024, 1024), normal(n // 1024, 1024)
    for dtype in (torch.float32, torch.bfloat16):
        a, b = x.to(dtype), y.to(dtype)
        weight = torch.ones(1024, device="cuda", dtype=dtype)
        normed, mean, deviation = torch.native_layer_norm(a, [1024], weight, weight, 1e-5)
        kept = torch.native_dropout(a, 0.1, True)[1]
        shares = torch.softmax(a, -1)
        calls = {
            "add": (lambda: a + b, 3), "add_": (lambda: a.add_(b), 3), "mul by a number": (lambda: a * 2, 2), "fill_": (lambda: a.zero_(), 1),
            "copy_": (lambda: b.copy_(a), 2), "gelu": (lambda: F.gelu(a), 2), "silu": (lambda: F.silu(a), 2), "where": (lambda: torch.where(kept, a, b), 3.25),
            "gelu backward": (lambda: torch.ops.aten.gelu_backward(a, b), 3), "threshold backward": (lambda: torch.ops.aten.threshold_backward(a, b, 0), 3),
            "dropout": (lambda: torch.native_dropout(a, 0.1, True), 2.25), "cat": (lambda: torch.cat([a, b], 1), 4),
            "layer norm": (lambda: torch.native_layer_norm(a, [1024], weight, weight, 1e-5), 2),
            "layer norm backward": (lambda: torch.ops.aten.native_layer_norm_backward(b, a, [1024], mean, deviation, weight, weight, [True] * 3), 3),
            "softmax": (lambda: torch.softmax(a, -1), 2), "softmax backward": (lambda: torch.ops.aten._softmax_backward_data(b, shares, -1, dtype), 3),
            "sum of the last": (lambda: a.sum(-1), 1), "sum of the first": (lambda: a.sum(0), 1), "sum of all": (lambda: a.sum(), 1),
            "bias": (lambda: a + weight, 2), "cast": (lambda: a.to(torch.bfloat16 if dtype == torch.float32 else torch.float32), 1.5 if dtype == torch.float32 else 3),
            "foreach add": (lambda: torch._foreach_add_([a], [b]), 3), "foreach addcdiv": (lambda: torch._foreach_addcdiv_([a], [b], [normed]), 4),
            "copy, halves of rows": (lambda: a[:, :512].contiguous(), 1), "mean of squares": (lambda: a.pow(2).mean(-1), 3),
        }  # fmt: skip
        for name, (call, tensors) in calls.items():
            yield {"op": name, "dtype": str(dtype)[6:], "numbers": n, "ms": timed(call, 20), "bytes": tensors * n * a.element_size()}
    c = torch.view_as_complex(normal(n // 1024, 512, 2))
    for name, call, tensors in (("add", lambda: c + c, 2), ("clone", lambda: c.clone(), 2), ("mul", lambda: c * c, 2)):
        yield {"op": name, "dtype": "complex64", "numbers": n // 2, "ms": timed(call, 20), "bytes": tensors * n * 4}
    pictures = normal(n // 16384, 128, 128)
    spectra = torch.fft.rfft2(pictures)
    for name, call, bytes in (
        ("rfft2", lambda: torch.fft.rfft2(pictures), 4 * n + 8 * spectra.numel()),
        ("irfft2", lambda: torch.fft.irfft2(spectra, s=(128, 128)), 4 * n + 8 * spectra.numel()),
    ):
        yield {"op": name, "dtype": "float32", "numbers": n, "ms": timed(call, 20), "bytes": bytes}


def along(shape):
    for dtype in (torch.float32, torch.bfloat16):
        x = normal(*shape).to(dtype)
        for name in ("softmax", "log_softmax"):
            result = getattr(torch, name)(x, 1)
            back = getattr(torch.ops.aten, f"_{name}_backward_data")
            row = {"dtype": str(dtype)[6:], "shape": shape}
            yield {"op": f"{name} along", **row, "ms": timed(lambda: getattr(torch, name)(x, 1)), "bytes": 2 * x.nbytes}  # noqa: B023
            yield {"op": f"{name} along, backward", **row, "ms": timed(lambda: back(x, result, 1, dtype)), "bytes": 3 * x.nbytes}  # noqa: B023


if __name__ == "__main__":
    with open(sys.argv[1], "w") as out:
        for rows in (*map(simple, SIZES), *map(along, ALONG)):
            for row in rows:
                out.write(json.dumps(row) + "\n")
            torch.cuda.empty_cache()
