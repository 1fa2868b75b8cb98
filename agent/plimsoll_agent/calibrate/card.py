"""Measures a card for `plimsoll calibrate`: its properties, the memory of a process outside of PyTorch's allocator, and the
workspaces of libraries for operations whose algorithm depends on the card.

    python -m plimsoll_agent.calibrate.card OUT.json [context]

With `context` it measures everything, on a real card; without it only the operations, which also run on a phantom. Each measurement
has a process of its own, forked before CUDA starts. It reads no file of the user. `ranks.py` asks several cards at once.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plimsoll_agent.kinds import Function, Named, Torch

SAMPLES = 2
"""How often each process is asked; the least counts, because others may use the card, too."""

ATTRIBUTES = {
    "clock_khz": 13,
    "memory_clock_khz": 36,
    "memory_bus_bits": 37,
    "l2": 38,
    "max_threads_per_sm": 39,
    "shared_per_sm": 81,
    "registers_per_sm": 82,
    "shared_per_block_optin": 97,
    "max_blocks_per_sm": 106,
}
"""`CUdevice_attribute` of cuda.h."""


_UNKNOWN = 1 << 62
"""From here on NVML's number of bytes says that it has none."""


class _Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gi", ctypes.c_uint), ("ci", ctypes.c_uint)]


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


def _handle(torch: Torch, index: int) -> tuple[Any, Any]:
    """NVML, and a device as it knows it."""
    library = ctypes.CDLL("libnvidia-ml.so.1")
    library.nvmlInit_v2()
    handle = ctypes.c_void_p()
    uuid = "GPU-%s" % torch.cuda.get_device_properties(index).uuid
    if library.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle)):
        library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))
    return library, handle


def _processes(ask: Function, handle: Any) -> dict[int, int]:
    """The processes of one kind on a device, and the bytes that NVML counts for each."""
    n, rows = ctypes.c_uint(256), (_Process * 256)()
    if ask(handle, ctypes.byref(n), rows):
        return {}
    return {rows[i].pid: rows[i].used for i in range(n.value)}


def nvml(torch: Torch, index: int = 0) -> Any:
    """What this process holds of a device as NVML counts it, else what all hold."""
    library, handle = _handle(torch, index)

    def used() -> tuple[Any, Any]:
        memory = _Memory()
        mine = _processes(library.nvmlDeviceGetComputeRunningProcesses_v3, handle).get(os.getpid(), _UNKNOWN)
        library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
        return (mine if mine < _UNKNOWN else None), memory.used

    return used


def kept(torch: Torch) -> int | None:
    """What the driver holds of the card for no process: what is not free beside what this process holds. None where another program is on the card,
    or NVML does not tell."""
    library, handle = _handle(torch, 0)
    ask = library.nvmlDeviceGetComputeRunningProcesses_v3
    torch.cuda.synchronize()
    computing, showing = _processes(ask, handle), _processes(library.nvmlDeviceGetGraphicsRunningProcesses_v3, handle)
    free, total = torch.cuda.mem_get_info(0)
    mine = computing.get(os.getpid(), _UNKNOWN)
    alone = {*computing, *showing} <= {os.getpid()}
    return total - free - mine if alone and mine <= total - free else None


def hidden(torch: Torch) -> int:
    """What NVML calls total beyond CUDA's total, of a card: of a part of one, NVML may tell of the whole."""
    library, handle = _handle(torch, 0)
    memory = _Memory()
    library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
    total = torch.cuda.mem_get_info(0)[1]
    return memory.total - total if total <= memory.total < total + total // 8 else 0


def _driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")


def properties(torch: Torch) -> Any:
    """What the driver reports about the card."""
    it = torch.cuda.get_device_properties(0)
    torch.cuda.init()
    value = ctypes.c_int()
    res = {
        "name": it.name,
        "compute_capability": "%d.%d" % (it.major, it.minor),
        "sm_count": it.multi_processor_count,
        "total": torch.cuda.mem_get_info(0)[1],
        "kept": kept(torch),
        "hidden": hidden(torch),
        "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(),
    }
    driver = ctypes.c_int()
    _driver().cuDriverGetVersion(ctypes.byref(driver))
    res["driver"] = driver.value
    for name, code in ATTRIBUTES.items():
        if _driver().cuDeviceGetAttribute(ctypes.byref(value), code, 0) == 0:
            res[name] = value.value
    return res


def clusters(torch: Torch) -> Any:
    """The multiprocessors of each cluster as cuDNN has them in a handle; none if they are not found there."""
    sm_count = torch.cuda.get_device_properties(0).multi_processor_count
    torch.nn.functional.conv2d(torch.zeros(1, 1, 8, 8, device="cuda"), torch.zeros(1, 1, 3, 3, device="cuda"))
    handle = ctypes.c_void_p()
    ctypes.CDLL("libcudnn.so.9", mode=ctypes.RTLD_GLOBAL)
    if ctypes.CDLL(None).cudnnCreate(ctypes.byref(handle)):
        return None
    words = list((ctypes.c_int * 0x90).from_address(handle.value or 0))
    # 24 numbers, the ones in use first; each version of cuDNN has them elsewhere.
    for at in range(0x10, len(words) - 24):
        used = [it for it in words[at : at + 24] if it]
        is_list = words[at : at + len(used)] == used and all(0 < it <= 32 for it in used)
        if is_list and 2 <= len(used) and sum(used) == sm_count:
            return used
    return None


def _random(torch: Torch, *shape: Any, dtype: Any = None) -> Any:
    return torch.randn(*shape, dtype=dtype or torch.float32, device="cuda")


def context_steps(torch: Torch) -> Named:
    """What takes memory beside the allocator: a name and what brings it, in the order of one process."""
    f = torch.nn.functional
    return {
        "kernel": [lambda: _random(torch, 1000) + 1],
        "blas": [
            lambda: _random(torch, 1000) + 1,
            lambda: _random(torch, 512, 512) @ _random(torch, 512, 512),
            lambda: (_random(torch, 512, 512).requires_grad_() @ _random(torch, 512, 512)).sum().backward(),
        ],
        "dnn": [
            lambda: _random(torch, 1000) + 1,
            lambda: f.conv2d(_random(torch, 8, 64, 56, 56), _random(torch, 64, 64, 3, 3), padding=1),
            lambda: f.conv2d(_random(torch, 8, 64, 56, 56).requires_grad_(), _random(torch, 64, 64, 3, 3).requires_grad_(), padding=1).sum().backward(),
        ],
        "training": [lambda: _training(torch)],
        "training-half": [lambda: _training(torch, torch.bfloat16)],
    }


def _training(torch: Torch, dtype: Any = None) -> None:
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 3, padding=1), torch.nn.BatchNorm2d(32), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(32 * 64, 256), torch.nn.LayerNorm(256), torch.nn.GELU(), torch.nn.Linear(256, 10)
    ).cuda()
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(3):
        with torch.autocast("cuda", dtype or torch.bfloat16, enabled=dtype is not None):
            loss = torch.nn.functional.cross_entropy(net(_random(torch, 16, 3, 8, 8)), torch.randint(0, 10, (16,), device="cuda"))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def context(torch: Torch, name: str) -> Any:
    """What the process holds beside the allocator after each step."""
    torch.cuda.init()
    used = nvml(torch)
    torch.empty(1, device="cuda")
    rows = []
    for step in context_steps(torch)[name]:
        step()
        torch.cuda.synchronize()
        mine, whole = used()
        rows.append([mine and mine - torch.cuda.memory_reserved(), whole - torch.cuda.memory_reserved()])
    return rows


LINK_BYTES = 256 << 20


def link(torch: Torch) -> Any:
    """Bytes in a second between pinned memory of the host and the device, to it and from it: the best of some."""
    here, there = torch.empty(LINK_BYTES, dtype=torch.uint8).pin_memory(), torch.empty(LINK_BYTES, dtype=torch.uint8, device="cuda")
    rows = []
    for to, what in ((there, here), (here, there)):
        to.copy_(what)
        torch.cuda.synchronize()
        seconds = []
        for _ in range(6):
            begin = time.perf_counter()
            to.copy_(what, non_blocking=True)
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - begin)
        rows.append(int(LINK_BYTES / min(seconds)))
    return rows


def host_step(torch: Torch) -> Any:
    """Seconds of a training step in which the host is all that takes time: the least of some rounds."""
    nn = torch.nn
    torch.manual_seed(0)
    net = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU(), nn.Dropout(0.1)) for _ in range(8)], nn.Linear(64, 10)).cuda()
    optimizer = torch.optim.AdamW(net.parameters())
    x, y = _random(torch, 32, 64), torch.randint(0, 10, (32,), device="cuda")

    def step() -> None:
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()

    rounds = []
    for n in (20, 50, 50, 50, 50):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(n):
            step()
        torch.cuda.synchronize()
        rounds.append((time.perf_counter() - begin) / n)
    return min(rounds[1:])


def operations(torch: Torch) -> Any:
    """Convolutions and products that tell engines apart, in the sizes of known networks and beside them."""
    f, half, single = torch.nn.functional, torch.bfloat16, torch.float32
    res = {}

    def convolution(
        name: str, n: int, c: Any, size: int, k: Any, kernel: Any, stride: int = 1, groups: int = 1, dtype: Any = single, last: bool = False
    ) -> None:
        def run() -> Iterator[Any]:
            layout = torch.channels_last if last else torch.contiguous_format
            x = _random(torch, n, c, size, size, dtype=dtype).to(memory_format=layout).requires_grad_()
            w = _random(torch, k, c // groups, kernel, kernel, dtype=dtype).to(memory_format=layout).requires_grad_()
            yield lambda: f.conv2d(x, w, stride=stride, padding=kernel // 2, groups=groups)

        res[name] = run

    for dtype, last, kind in ((single, False, "fp32"), (half, False, "bf16"), (half, True, "bf16 last")):
        convolution("conv 3x3 64 " + kind, 32, 64, 56, 64, 3, dtype=dtype, last=last)
        convolution("conv 3x3 256 stride " + kind, 16, 256, 28, 512, 3, 2, dtype=dtype, last=last)
        convolution("conv 1x1 512 " + kind, 32, 512, 14, 2048, 1, dtype=dtype, last=last)
        convolution("conv 7x7 " + kind, 32, 3, 224, 64, 7, 2, dtype=dtype, last=last)
        convolution("conv 5x5 odd " + kind, 7, 48, 37, 65, 5, dtype=dtype, last=last)
        convolution("conv groups " + kind, 16, 128, 28, 128, 3, groups=32, dtype=dtype, last=last)
        convolution("conv deep " + kind, 64, 512, 7, 512, 3, dtype=dtype, last=last)
        convolution("conv wide " + kind, 4, 64, 128, 128, 3, dtype=dtype, last=last)

    def product(name: str, rows: Any, inner: Any, columns: Any, dtype: Any) -> None:
        def run() -> Iterator[Any]:
            x, w, b = _random(torch, rows, inner, dtype=dtype).requires_grad_(), _random(torch, columns, inner, dtype=dtype).requires_grad_(), _random(torch, columns, dtype=dtype)
            yield lambda: f.linear(x, w, b)

        res[name] = run

    for dtype, kind in ((single, "fp32"), (half, "bf16")):
        product("linear " + kind, 4096, 1024, 4096, dtype)
        product("linear odd " + kind, 1001, 333, 517, dtype)
    return res


def scratch(torch: Torch, run: Function) -> Any:
    """What the forward and the backward pass of one operation take at most of the allocator, beside what was there."""
    (forward,) = run()
    rows = []
    for step in (forward, None):
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        if step is not None:
            result = step()
        else:
            result.backward(torch.ones_like(result))
        torch.cuda.synchronize()
        rows.append(torch.cuda.max_memory_allocated() - before)
    return rows


def all_operations(torch: Torch) -> Any:
    """Each twice, as libraries make their handles the first time; the second counts."""
    res = {}
    for name, run in operations(torch).items():
        try:
            scratch(torch, run)
            res[name] = scratch(torch, run)
        except RuntimeError as error:
            res[name] = str(error)[:200]
    return res


def _apart(torch: Torch, question: Any) -> Any:
    """The answer of a process of its own, in which CUDA has not been touched; None if it had none."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            os.close(reads)
            with os.fdopen(writes, "w") as out:
                json.dump(question(torch), out)
            status = 0
        except BaseException as error:
            print("plimsoll calibrate: %s: %s" % (type(error).__name__, error), file=sys.stderr)
        finally:
            os._exit(status)
    os.close(writes)
    with os.fdopen(reads) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else None


def main(out: Any, everything: Any) -> None:
    import torch

    res: dict[str, Any] = {"format": 1}
    if everything:
        res["before"] = _nvml_whole()
        res["properties"] = _apart(torch, properties)
        res["clusters"] = _apart(torch, clusters)
        names = ("kernel", "blas", "dnn", "training", "training-half")
        res["context"] = {
            name: [_apart(torch, lambda torch, name=name: context(torch, name)) for _ in range(SAMPLES)] for name in names
        }
        res["operations"] = _apart(torch, all_operations)
        res["link"] = _apart(torch, link)
        res["host_step"] = _apart(torch, host_step)
    else:
        res["operations"] = all_operations(torch)
    with open(out, "w") as file:
        json.dump(res, file)


def _nvml_whole() -> Any:
    library, handle, memory = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p(), _Memory()
    library.nvmlInit_v2()
    library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle))
    library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
    return memory.used


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:] == ["context"])
