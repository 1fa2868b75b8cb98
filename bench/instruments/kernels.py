"""Seconds of single operations on a real GPU, forward and backward, in float32 and bfloat16: convolutions of many shapes, and kernels whose time
their bytes do not tell. One JSON file.

    python bench/fit/operations.py h200-operations.json      on a machine with a GPU, nothing else on it

What `plan/time.rs` and the agent's meter say of narrow and grouped convolutions and of kernels that walk through numbers comes from here.
"""

import json
import sys
import time

import torch
import torch.nn.functional as F

CONVOLUTIONS = {
    # dimensions: [batch, channels in, channels out, size, kernel, stride, groups]
    1: [
        (48, 384, 1536, 1000, 9, 1, 1), (48, 512, 512, 1000, 5, 1, 1), (32, 64, 128, 16000, 8, 4, 1), (32, 256, 256, 4000, 3, 1, 1),
        (16, 512, 1024, 1000, 1, 1, 1), (64, 128, 128, 1000, 7, 1, 1), (16, 48, 96, 16000, 8, 4, 1), (16, 96, 192, 4000, 1, 1, 1),
        (8, 32, 32, 64000, 7, 1, 1), (96, 512, 512, 64, 5, 1, 1), (32, 80, 512, 800, 5, 1, 1), (16, 256, 256, 800, 31, 1, 256),
        (16, 256, 256, 800, 5, 1, 8),
    ],
    2: [
        (64, 64, 64, 56, 3, 1, 1), (32, 256, 256, 28, 3, 1, 1), (64, 256, 512, 28, 1, 1, 1), (16, 64, 64, 128, 5, 1, 1),
        (96, 3, 64, 224, 7, 2, 1), (16, 32, 32, 256, 3, 1, 1), (8, 128, 128, 128, 3, 1, 1), (64, 512, 512, 7, 3, 1, 1),
        (32, 256, 256, 28, 3, 1, 32), (32, 128, 128, 56, 3, 1, 4), (1, 1024, 1024, 64, 3, 1, 16), (1, 4096, 4096, 32, 3, 1, 16),
        (1, 4096, 4096, 16, 3, 1, 8), (1, 512, 512, 128, 3, 1, 16), (1, 1024, 48, 128, 1, 1, 16),
    ],
    3: [(2, 32, 32, 96, 3, 1, 1), (2, 64, 64, 48, 3, 1, 1), (4, 16, 16, 64, 3, 1, 1), (2, 1, 32, 96, 3, 1, 1)],
}  # fmt: skip
TRANSPOSED = {
    1: [(16, 192, 96, 4000, 8, 4, 1), (16, 96, 48, 16000, 8, 4, 1), (16, 256, 128, 1000, 16, 8, 1)],
    2: [(16, 256, 128, 32, 4, 2, 1), (16, 128, 64, 64, 2, 2, 1), (32, 512, 256, 16, 4, 2, 1)],
    3: [(2, 64, 32, 48, 2, 2, 1)],
}
CHANNELS_LAST = (*CONVOLUTIONS[2][:7], CONVOLUTIONS[2][8])


def normal(*shape):
    return torch.randn(*shape, device="cuda")


OTHERS = {
    "upsample_bilinear2d": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), normal(16, 64, 64, 64)),
    "upsample_nearest2d": (lambda x: F.interpolate(x, scale_factor=2), normal(16, 64, 64, 64)),
    "upsample_trilinear3d": (lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"), normal(2, 32, 32, 32, 32)),
    "upsample_bicubic2d": (lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"), normal(16, 64, 64, 64)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 2), normal(16, 64, 128, 128)),
    "max_pool2d": (lambda x: F.max_pool2d(x, 3, 2, 1), normal(64, 64, 112, 112)),
    "max_pool1d": (lambda x: F.max_pool1d(x, 2), normal(32, 64, 16000)),
    "softmax": (lambda x: F.softmax(x, -1), normal(16, 12, 1024, 1024)),
    "log_softmax": (lambda x: F.log_softmax(x, -1), normal(8192, 32000)),
    "layer_norm": (lambda x: F.layer_norm(x, (1024,)), normal(16384, 1024)),
    "group_norm": (lambda x: F.group_norm(x, 32), normal(32, 320, 64, 64)),
    "gelu": (F.gelu, normal(16384, 4096)),
    "glu": (lambda x: F.glu(x, 1), normal(16, 192, 16000)),
    "grid_sample": (lambda x: F.grid_sample(x, torch.zeros(16, 128, 128, 2, device="cuda", dtype=x.dtype), align_corners=False), normal(16, 64, 128, 128)),
    "cumsum": (lambda x: x.cumsum(1), normal(64, 4096, 256)),
    "cumsum of the last": (lambda x: x.cumsum(-1), normal(64, 256, 4096)),
    "sum of the last": (lambda x: x.sum(-1), normal(64, 4096, 256)),
    "sum of the first": (lambda x: x.sum(0), normal(16384, 4096)),
    "copy, turned": (lambda x: x.transpose(1, 2).contiguous(), normal(64, 1024, 1024)),
    "copy, rows kept": (lambda x: x.permute(0, 2, 1, 3).contiguous(), normal(16, 512, 12, 64)),
    "reflection_pad2d": (lambda x: F.pad(x, (3, 3, 3, 3), mode="reflect"), normal(16, 64, 128, 128)),
    "unfold": (lambda x: F.unfold(x, 3, padding=1), normal(16, 64, 64, 64)),
    "roll": (lambda x: x.roll((3, 3), (1, 2)), normal(64, 56, 56, 96)),
    "topk": (lambda x: x.topk(64, -1)[0], normal(64, 8192)),
    "topk of many rows": (lambda x: x.topk(20, -1)[0], normal(32, 1024, 1024)),
    "sort": (lambda x: x.sort(-1)[0], normal(512, 8192)),
    "rfft": (lambda x: torch.fft.rfft(x).abs(), normal(512, 16384)),
    "rfft2": (lambda x: torch.fft.rfft2(x).abs(), normal(16, 64, 128, 128)),
}
INDEXED = {
    # what is picked from, how many picks
    "rows of 256": ((170_000, 256), 1_100_000),
    "rows of 4 by 32": ((120_000, 4, 32), 1_600_000),
    "rows of 128": ((120_000, 128), 1_600_000),
    "rows of 4": ((120_000, 4), 1_600_000),
    "numbers": ((1_000_000,), 20_000_000),
}


def indexed():
    """Names, calls and inputs of what picks by an index and of what adds by one."""
    for name, (shape, picks) in INDEXED.items():
        index = torch.randint(0, shape[0], (picks,), device="cuda")
        whole = index.view(-1, *[1] * (len(shape) - 1)).expand(picks, *shape[1:])
        there = normal(picks, *shape[1:])
        yield f"index, {name}", lambda x, i=index: x[i], normal(*shape)
        yield f"index_select, {name}", lambda x, i=index: x.index_select(0, i), normal(*shape)
        yield f"gather, {name}", lambda x, i=whole: x.gather(0, i), normal(*shape)
        yield f"index_add, {name}", lambda x, i=index, n=shape: x.new_zeros(n).index_add(0, i, x), there
        yield f"scatter_add, {name}", lambda x, i=whole, n=shape: x.new_zeros(n).scatter_add(0, i, x), there


ON_HOST = {
    "rand": lambda: torch.rand(10**7),
    "randn": lambda: torch.randn(10**7),
    "randint": lambda: torch.randint(0, 1000, (10**7,)),
    "randperm": lambda: torch.randperm(10**6),
    "bernoulli": lambda: torch.empty(10**7).bernoulli_(0.5),
    "ones, and one more": lambda: torch.ones(10**7) + 1,
}


def timed(call, times=6):
    """Milliseconds of the device."""
    for _ in range(3):
        call()
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    began.record()
    for _ in range(times):
        call()
    ended.record()
    torch.cuda.synchronize()
    return began.elapsed_time(ended) / times


def both_ways(call, inputs):
    """Milliseconds forward and backward, and the result."""
    with torch.no_grad():
        forward = timed(lambda: call(*inputs))
    result = call(*inputs)
    gradient = torch.randn_like(result)
    return forward, timed(lambda: torch.autograd.grad(result, inputs, gradient, retain_graph=True)), result


def convolution(dimensions, shape, dtype, is_transposed=False, is_last=False):
    batch, inside, outside, size, kernel, stride, groups = shape
    call = getattr(F, f"conv{'_transpose' * is_transposed}{dimensions}d")
    weights = (inside, outside // groups) if is_transposed else (outside, inside // groups)
    tensors = [normal(batch, inside, *[size] * dimensions), normal(*weights, *[kernel] * dimensions)]
    lies = {"memory_format": torch.channels_last} if is_last else {}
    tensors = [it.to(dtype, **lies).requires_grad_() for it in tensors]
    named = {"stride": stride, "groups": groups} | ({} if is_transposed else {"padding": kernel // 2})
    forward, backward, result = both_ways(lambda x, w: call(x, w, **named), tensors)
    return {
        "op": f"conv{dimensions}d", "shape": shape, "transposed": is_transposed, "channels_last": is_last, "dtype": str(dtype).rpartition(".")[2],
        "forward_ms": forward, "backward_ms": backward, "flops": 2 * (tensors[0] if is_transposed else result).numel() * tensors[1][0].numel(),
        "bytes": sum(it.numel() * it.element_size() for it in (*tensors, result)),
    }  # fmt: skip


def rows():
    for dtype in (torch.float32, torch.bfloat16):
        for dimensions, shapes in CONVOLUTIONS.items():
            yield from (convolution(dimensions, it, dtype) for it in shapes)
        for dimensions, shapes in TRANSPOSED.items():
            yield from (convolution(dimensions, it, dtype, is_transposed=True) for it in shapes)
        yield from (convolution(2, it, dtype, is_last=True) for it in CHANNELS_LAST)
        for name, call, tensor in (*((name, *it) for name, it in OTHERS.items()), *indexed()):
            if dtype != torch.float32 and "fft" in name:
                continue
            tensor = tensor.to(dtype).detach().requires_grad_()
            forward, backward, result = both_ways(call, [tensor])
            yield {
                "op": name, "dtype": str(dtype).rpartition(".")[2], "forward_ms": forward, "backward_ms": backward,
                "numbers": max(tensor.numel(), result.numel()), "bytes": sum(it.numel() * it.element_size() for it in (tensor, result)),
            }  # fmt: skip
    pageable = torch.ones(60 * 10**6)
    for how, memory in (("unpinned", pageable), ("pinned", pageable.pin_memory())):
        there = memory.cuda()
        yield {"op": f"to the device, {how}", "forward_ms": timed(memory.cuda), "bytes": memory.numel() * 4}
        yield {"op": f"to the host, {how}", "forward_ms": timed(lambda: memory.copy_(there)), "bytes": memory.numel() * 4}  # noqa: B023
    for name, call in ON_HOST.items():
        call()
        began = time.perf_counter()
        for _ in range(5):
            call()
        yield {"op": f"host: {name}", "forward_ms": (time.perf_counter() - began) / 5 * 1e3}


if __name__ == "__main__":
    with open(sys.argv[1], "w") as out:
        found = list(rows())
        out.write("[\n" + ",\n".join(map(json.dumps, found)) + "\n]\n")
        print(len(found), "rows")
