"""Milliseconds of an operation whose shapes are new, and of the same once more; one JSON line for each.

    python bench/fit/new_shapes.py > new-shapes.json           on a machine with a GPU, nothing else on it

cuDNN plans each shape of a convolution, and of attention in halves, when it meets it first: the host takes a while for that.
"""

import json
import time

import torch
import torch.nn.functional as F


def normal(dtype, *shape):
    return torch.randn(*shape, device="cuda", dtype=dtype).requires_grad_()


OPERATIONS = {
    # name: (tensors of a size and a type, what is done with them, sizes)
    "conv1d of 9": (lambda n, d: (normal(d, 16, 384, n), normal(d, 1536, 384, 9)), lambda x, w: F.conv1d(x, w, padding=4), range(301, 321)),
    "conv1d of 1": (lambda n, d: (normal(d, 16, 512, n), normal(d, 384, 512, 1)), F.conv1d, range(301, 321)),
    "conv2d of 3": (lambda n, d: (normal(d, 8, 64, n, n), normal(d, 64, 64, 3, 3)), lambda x, w: F.conv2d(x, w, padding=1), range(60, 80)),
    "conv2d, depthwise": (lambda n, d: (normal(d, 8, 64, n, n), normal(d, 64, 1, 3, 3)), lambda x, w: F.conv2d(x, w, padding=1, groups=64), range(60, 80)),
    "conv2d, transposed": (lambda n, d: (normal(d, 8, 64, n, n), normal(d, 64, 64, 4, 4)), lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1), range(60, 80)),
    "conv3d of 3": (lambda n, d: (normal(d, 2, 32, n, n, n), normal(d, 32, 32, 3, 3, 3)), lambda x, w: F.conv3d(x, w, padding=1), range(20, 40)),
    "product": (lambda n, d: (normal(d, 16 * n, 512), normal(d, 512, 512)), torch.matmul, range(301, 321)),
    "products": (lambda n, d: (normal(d, 32, n, 64), normal(d, 32, 64, n)), torch.matmul, range(301, 321)),
    "attention": (lambda n, d: (normal(d, 8, 8, n, 64), normal(d, 8, 8, n, 64)), lambda x, w: F.scaled_dot_product_attention(x, w, w), range(301, 321)),
}  # fmt: skip


def milliseconds(tensors, call):
    """(forward, backward), until the host has started them."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    result = call(*tensors)
    forward = time.perf_counter()
    result.backward(torch.ones_like(result))
    backward = time.perf_counter()
    torch.cuda.synchronize()
    return 1e3 * (forward - began), 1e3 * (backward - forward)


def main():
    print(json.dumps({"source": f"bench/fit/new_shapes.py on one {torch.cuda.get_device_name()}, torch {torch.__version__}, nothing else on it; medians"}))
    for name, (made, call, sizes) in OPERATIONS.items():
        for dtype in (torch.float32, torch.bfloat16):
            row = {"op": name, "dtype": str(dtype).rpartition(".")[2]}
            for which in ("first", "again"):
                # The very first one loads what all of them use.
                taken = [milliseconds(made(n, dtype), call) for n in sizes][1:]
                row[f"{which}_forward_ms"], row[f"{which}_backward_ms"] = (round(sorted(it)[len(taken) // 2], 3) for it in zip(*taken))
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
