"""What the kinds of work take that a training step is made of, on this machine's GPU and on its host: `fit` tells step times from them.

    python bench/instruments/step_times.py step_times.jsonl [KIND ...]      on a machine with a GPU, nothing else on it; of two GPUs also what they send each other
    python bench/instruments/step_times.py --table bench/results/raw/step_times.jsonl

A row is an operation of a kind, forward and backward, in float32, TF32 and bfloat16, with its arithmetic, its bytes and its numbers:

product      matrices, also such whose rows begin at odd multiples of 4 bytes
convolution  of one to three dimensions, grouped, transposed, few and many channels, channels last
attention    PyTorch's own, fused
recurrent    LSTM and GRU: a kernel for each time step
elementwise  what is done to each number by itself, and copies
rows         norms, softmax and sums: along the last dimension, and along another
walking      kernels whose time their bytes do not tell: resampling, pooling, sorting, transforms, copies into another order
indexed      rows and numbers that an index picks, or adds to
link         to the device and from it, of pinned memory and not
host         what the host takes to start an operation, to draw numbers, and for a convolution or attention whose shape is new
collective   all-reduce and its like between two GPUs
segment      memory that is asked of the driver, and given back
"""

import json
import statistics
import sys
import time
from collections import defaultdict

HALF, SINGLE = "bfloat16", "float32"
PRODUCTS = [(4096, 4096, 4096), (16384, 1024, 4096), (4096, 768, 50257), (4096, 768, 50304), (512, 512, 512), (8192, 64, 8192)]
CONVOLUTIONS = [
    # dimensions, batch, channels in and out, size, kernel, stride, groups, transposed
    (1, 48, 384, 1536, 1000, 9, 1, 1, False), (1, 16, 48, 96, 16000, 8, 4, 1, False), (1, 16, 256, 256, 800, 31, 1, 256, False),
    (2, 64, 64, 64, 56, 3, 1, 1, False), (2, 32, 256, 256, 28, 3, 1, 1, False), (2, 64, 256, 512, 28, 1, 1, 1, False), (2, 96, 3, 64, 224, 7, 2, 1, False),
    (2, 16, 32, 32, 256, 3, 1, 1, False), (2, 64, 512, 512, 7, 3, 1, 1, False), (2, 32, 256, 256, 28, 3, 1, 32, False), (2, 64, 128, 128, 56, 7, 1, 128, False),
    (2, 16, 256, 128, 32, 4, 2, 1, True), (3, 2, 32, 32, 96, 3, 1, 1, False), (3, 2, 64, 32, 48, 2, 2, 1, True),
]  # fmt: skip
ATTENTION = [(16, 12, 512, 64), (4, 16, 2048, 64), (2, 32, 4096, 128)]
RECURRENT = [("LSTM", 64, 128, 512, 1024), ("GRU", 64, 128, 512, 512)]
ALONG = [(12, 32000, 1024), (16, 19, 512 * 512), (16, 150, 128 * 128), (32, 1000, 49), (2, 100000, 16)]
INDEXED = {"rows of 256": ((170_000, 256), 1_100_000), "rows of 4 by 32": ((120_000, 4, 32), 1_600_000), "rows of 4": ((120_000, 4), 1_600_000), "numbers": ((1_000_000,), 20_000_000)}
NEW_SHAPES = {
    # of a size and a type: what is made, what is done with it, sizes
    "conv1d of 9": (lambda n: [(16, 384, n), (1536, 384, 9)], lambda F, x, w: F.conv1d(x, w, padding=4), range(301, 321)),
    "conv2d of 3": (lambda n: [(8, 64, n, n), (64, 64, 3, 3)], lambda F, x, w: F.conv2d(x, w, padding=1), range(60, 80)),
    "product": (lambda n: [(16 * n, 512), (512, 512)], lambda F, x, w: x @ w, range(301, 321)),
    "attention": (lambda n: [(8, 8, n, 64), (8, 8, n, 64)], lambda F, x, w: F.scaled_dot_product_attention(x, w, w), range(301, 321)),
}


def normal(dtype, *shape):
    import torch

    return torch.randn(*shape, device="cuda", dtype=getattr(torch, dtype)).requires_grad_()


def timed(call, times=6):
    """Milliseconds of the device."""
    import torch

    for _ in range(3):
        call()
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    began.record()
    for _ in range(times):
        call()
    ended.record()
    torch.cuda.synchronize()
    return round(began.elapsed_time(ended) / times, 5)


def both_ways(op, dtype, tensors, call, flops=0, **more):
    """A row: forward and backward."""
    import torch

    with torch.no_grad():
        forward = timed(lambda: call(*tensors))
    result = call(*tensors)
    gradient = torch.randn_like(result)
    backward = timed(lambda: torch.autograd.grad(result, tensors, gradient, retain_graph=True))
    all_of_it = (*tensors, result)
    row = {"op": op, "dtype": dtype, "forward_ms": forward, "backward_ms": backward, "bytes": sum(it.nbytes for it in all_of_it)}
    return row | {"numbers": max(it.numel() for it in all_of_it)} | ({"flops": flops} if flops else {}) | more


def types(torch):
    """Names with what makes float32 products TF32."""
    for name, tf32 in ((SINGLE, False), ("tf32", True), (HALF, False)):
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
        yield name, HALF if name == HALF else SINGLE


def product(torch, F):
    for name, dtype in types(torch):
        for m, k, n in PRODUCTS:
            yield both_ways(f"{m} x {k} x {n}", name, [normal(dtype, m, k), normal(dtype, k, n)], torch.matmul, 2 * m * k * n)


def convolution(torch, F):
    for name, dtype in types(torch):
        for dimensions, batch, inside, outside, size, kernel, stride, groups, is_transposed in CONVOLUTIONS:
            call = getattr(F, f"conv{'_transpose' * is_transposed}{dimensions}d")
            weights = (inside, outside // groups) if is_transposed else (outside, inside // groups)
            named = {"stride": stride, "groups": groups} | ({} if is_transposed else {"padding": kernel // 2})
            for is_last in (False, True) if dimensions == 2 else (False,):
                lies = {"memory_format": torch.channels_last} if is_last else {}
                tensors = [normal(dtype, *it).detach().to(**lies).requires_grad_() for it in ((batch, inside, *[size] * dimensions), (*weights, *[kernel] * dimensions))]
                numbers = tensors[0].numel() if is_transposed else call(*tensors, **named).numel()
                flops = 2 * numbers * tensors[1][0].numel()
                shape = [batch, inside, outside, size, kernel, stride, groups]
                yield both_ways(f"conv{dimensions}d", name, tensors, lambda x, w: call(x, w, **named), flops, shape=shape, transposed=is_transposed, channels_last=is_last)  # noqa: B023


def attention(torch, F):
    for name, dtype in types(torch):
        for batch, heads, length, width in ATTENTION:
            tensors = [normal(dtype, batch, heads, length, width) for _ in range(3)]
            yield both_ways(f"{batch} x {heads} x {length} x {width}", name, tensors, F.scaled_dot_product_attention, 4 * batch * heads * length * length * width)


def recurrent(torch, F):
    for name, dtype in types(torch):
        for kind, batch, length, inside, width in RECURRENT:
            net = getattr(torch.nn, kind)(inside, width, batch_first=True).to("cuda", getattr(torch, dtype))
            gates = 4 if kind == "LSTM" else 3
            yield both_ways(f"{kind} of {length} steps", name, [normal(dtype, batch, length, inside)], lambda x: net(x)[0], 2 * batch * length * gates * width * (inside + width))  # noqa: B023


def elementwise(torch, F):
    for dtype in (SINGLE, HALF):
        for n in (1 << 20, 1 << 25, 1 << 28):
            a, b = (normal(dtype, n // 1024, 1024).detach() for _ in range(2))
            kept, weight = a > 0, b[0].clone()
            calls = {
                "add": (lambda: a + b, 3), "mul by a number": (lambda: a * 2, 2), "fill": (lambda: a.zero_(), 1), "copy": (lambda: b.copy_(a), 2),
                "gelu": (lambda: F.gelu(a), 2), "gelu backward": (lambda: torch.ops.aten.gelu_backward(a, b), 3), "where": (lambda: torch.where(kept, a, b), 3),
                "dropout": (lambda: torch.native_dropout(a, 0.1, True), 2), "cat": (lambda: torch.cat([a, b], 1), 4), "bias": (lambda: a + weight, 2),
                "foreach add": (lambda: torch._foreach_add_([a], [b]), 3),
            }  # fmt: skip
            for op, (call, tensors) in calls.items():
                yield {"op": op, "dtype": dtype, "numbers": n, "forward_ms": timed(call, 20), "bytes": tensors * n * a.element_size()}


def rows(torch, F):
    for dtype in (SINGLE, HALF):
        for op, call, shape in (
            ("layer norm", lambda x: F.layer_norm(x, (1024,)), (32768, 1024)), ("softmax", lambda x: F.softmax(x, -1), (16, 12, 1024, 1024)),
            ("log softmax", lambda x: F.log_softmax(x, -1), (8192, 32000)), ("group norm", lambda x: F.group_norm(x, 32), (32, 320, 64, 64)),
            ("batch norm", lambda x: F.batch_norm(x, None, None, training=True), (64, 256, 28, 28)),
            ("sum of the last", lambda x: x.sum(-1), (64, 4096, 256)), ("sum of the first", lambda x: x.sum(0), (16384, 4096)),
            *((f"softmax along {shape[1]}", lambda x: F.softmax(x, 1), shape) for shape in ALONG),
        ):  # fmt: skip
            yield both_ways(op, dtype, [normal(dtype, *shape)], call)


def walking(torch, F):
    for dtype in (SINGLE, HALF):
        for op, call, shape in (
            ("bilinear", lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (16, 64, 64, 64)), ("nearest", lambda x: F.interpolate(x, scale_factor=2), (16, 64, 64, 64)),
            ("avg_pool2d", lambda x: F.avg_pool2d(x, 2), (16, 64, 128, 128)), ("max_pool2d", lambda x: F.max_pool2d(x, 3, 2, 1), (64, 64, 112, 112)),
            ("grid_sample", lambda x: F.grid_sample(x, torch.zeros(16, 128, 128, 2, device="cuda", dtype=x.dtype), align_corners=False), (16, 64, 128, 128)),
            ("cumsum", lambda x: x.cumsum(1), (64, 4096, 256)), ("topk", lambda x: x.topk(64, -1)[0], (64, 8192)), ("sort", lambda x: x.sort(-1)[0], (512, 8192)),
            ("copy, turned", lambda x: x.transpose(1, 2).contiguous(), (64, 1024, 1024)), ("copy, rows kept", lambda x: x.permute(0, 2, 1, 3).contiguous(), (16, 512, 12, 64)),
            ("unfold", lambda x: F.unfold(x, 3, padding=1), (16, 64, 64, 64)), ("rfft2", lambda x: torch.fft.rfft2(x.float()).abs(), (16, 64, 128, 128)),
        ):  # fmt: skip
            yield both_ways(op, dtype, [normal(dtype, *shape)], call)


def indexed(torch, F):
    for dtype in (SINGLE, HALF):
        for name, (shape, picks) in INDEXED.items():
            index = torch.randint(0, shape[0], (picks,), device="cuda")
            whole = index.view(-1, *[1] * (len(shape) - 1)).expand(picks, *shape[1:])
            yield both_ways(f"index, {name}", dtype, [normal(dtype, *shape)], lambda x: x[index], picks=picks)  # noqa: B023
            yield both_ways(f"gather, {name}", dtype, [normal(dtype, *shape)], lambda x: x.gather(0, whole), picks=picks)  # noqa: B023
            yield both_ways(f"index_add, {name}", dtype, [normal(dtype, picks, *shape[1:])], lambda x: x.new_zeros(shape).index_add(0, index, x), picks=picks)  # noqa: B023


def link(torch, F):
    pageable = torch.ones(60 * 10**6)
    for how, memory in (("unpinned", pageable), ("pinned", pageable.pin_memory())):
        there = memory.cuda()
        yield {"op": f"to the device, {how}", "forward_ms": timed(memory.cuda), "bytes": memory.nbytes}
        yield {"op": f"to the host, {how}", "forward_ms": timed(lambda: memory.copy_(there)), "bytes": memory.nbytes}  # noqa: B023


def host(torch, F):
    def started(call, times):
        """Milliseconds until the host has started one, which the device is never behind."""
        for _ in range(3):
            call()
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(times):
            call()
        return round((time.perf_counter() - began) / times * 1e3, 6)

    small, matrix, layer = torch.zeros(16, device="cuda"), torch.zeros(8, 8, device="cuda"), torch.nn.Linear(8, 8, device="cuda")
    picture, kernel = torch.zeros(1, 4, 8, 8, device="cuda"), torch.zeros(4, 4, 3, 3, device="cuda")
    many = [torch.zeros(16, device="cuda") for _ in range(100)]
    for op, call in (
        ("an operation", lambda: small.add_(1)), ("a view", lambda: small.view(4, 4)), ("a product", lambda: matrix @ matrix), ("a convolution", lambda: F.conv2d(picture, kernel)),
        ("a module", lambda: layer(matrix)), ("a list of 100", lambda: torch._foreach_add_(many, 1)),
    ):  # fmt: skip
        yield {"op": op, "host_ms": started(call, 400)}
    for op, call in (("rand of 1e7", lambda: torch.rand(10**7)), ("randint of 1e7", lambda: torch.randint(0, 1000, (10**7,))), ("ones of 1e7", lambda: torch.ones(10**7))):
        yield {"op": op, "host_ms": started(call, 5)}
    for op, (shapes, call, sizes) in NEW_SHAPES.items():
        for dtype in (SINGLE, HALF):
            row = {"op": f"new shape: {op}", "dtype": dtype}
            for which in ("first", "again"):
                taken = []
                for n in sizes:
                    tensors = [normal(dtype, *it) for it in shapes(n)]
                    torch.cuda.synchronize()
                    began = time.perf_counter()
                    result = call(F, *tensors)
                    forward = time.perf_counter()
                    result.backward(torch.ones_like(result))
                    taken.append((1e3 * (forward - began), 1e3 * (time.perf_counter() - forward)))
                # The very first one loads what all of them use.
                row[f"{which}_forward_ms"], row[f"{which}_backward_ms"] = (round(statistics.median(it), 3) for it in zip(*taken[1:], strict=True))
            yield row


def collective(torch, F):
    """Rows of the first of two processes."""
    if torch.cuda.device_count() < 2:
        return
    results = torch.multiprocessing.get_context("spawn").SimpleQueue()
    torch.multiprocessing.spawn(sending, (results,), nprocs=2)
    while not results.empty():
        yield results.get()


def sending(rank, results):
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method="tcp://127.0.0.1:29510", rank=rank, world_size=2)
    for exponent in range(12, 31, 2):
        whole, part = (torch.zeros((1 << exponent) // it, device="cuda") for it in (4, 8))
        for op, call in (
            ("allreduce", lambda: dist.all_reduce(whole)), ("allgather", lambda: dist.all_gather_into_tensor(whole, part)),  # noqa: B023
            ("reduce_scatter", lambda: dist.reduce_scatter_tensor(part, whole)), ("broadcast", lambda: dist.broadcast(whole, 0)),  # noqa: B023
        ):  # fmt: skip
            row = {"op": op, "bytes": 1 << exponent, "forward_ms": timed(call, 5 if exponent >= 28 else 20)}
            if rank == 0:
                results.put(row)
    dist.destroy_process_group()


def segment(torch, F):
    for mib in (2, 20, 100, 500, 2000):
        for _ in range(3):
            torch.cuda.empty_cache()
            began = time.perf_counter()
            held = [torch.empty(mib << 20, dtype=torch.uint8, device="cuda") for _ in range(4)]
            taken = time.perf_counter() - began
            del held
            torch.cuda.synchronize()
            began = time.perf_counter()
            torch.cuda.empty_cache()
            yield {"mib": mib, "malloc_us": round(taken / 4 * 1e6, 1), "free_us": round((time.perf_counter() - began) / 4 * 1e6, 1)}


KINDS = (product, convolution, attention, recurrent, elementwise, rows, walking, indexed, link, host, collective, segment)


def table(path):
    """What is done in a second, by kind and type: the median and the range of what was measured, forward."""
    found = defaultdict(list)
    for line in open(path):
        it = json.loads(line)
        if it.get("forward_ms") and it["forward_ms"] > 0.02:  # Below that it is the start of the kernel.
            found[it["work"], it.get("dtype", "-")].append(it)
    print("| kind | type | operations | 1e12 of arithmetic a second | GB a second | 1e9 numbers a second |\n|---|---|---|---|---|---|")
    for (work, dtype), rows in found.items():
        cells = []
        for key, unit in (("flops", 1e9), ("bytes", 1e6), ("numbers", 1e6)):
            rates = sorted(it[key] / it["forward_ms"] / unit for it in rows if it.get(key))
            cells.append(f"{statistics.median(rates):,.0f} ({rates[0]:,.0f} to {rates[-1]:,.0f})" if rates else "")
        print(f"| {work} | {dtype} | {len(rows)} | " + " | ".join(cells) + " |")


def main():
    if sys.argv[1:] in ([], ["--help"]):
        sys.exit(__doc__)
    if sys.argv[1] == "--table":
        return table(sys.argv[2])
    import torch
    import torch.nn.functional as F

    with open(sys.argv[1], "w") as out:
        for kind in KINDS:
            if kind.__name__ in sys.argv[2:] or not sys.argv[2:]:
                for row in kind(torch, F):
                    out.write(json.dumps({"work": kind.__name__, "gpu": torch.cuda.get_device_name()} | row) + "\n")
                    out.flush()
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
