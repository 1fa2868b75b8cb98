#!/usr/bin/env python3
"""Runs one of the training scripts of scripts/; the same code on a real GPU and on the phantom.

    kinds.py list
    kinds.py NAME OUT.json [SNAPSHOT.pickle]

OUT.json gets what PyTorch's allocator counted.
"""

import contextlib
import json
import os
import sys

import torch
from scripts import KINDS, fields, habits, halves, mixtures, packages, published, rarities, solvers, techniques  # noqa: F401: each module adds its kinds


def main():
    if sys.argv[1:] == ["list"]:
        print("\n".join(KINDS))
        return
    name, out = sys.argv[1:3]
    snapshot = sys.argv[3] if len(sys.argv) > 3 else None
    torch.manual_seed(0)
    if snapshot:
        torch.cuda.memory._record_memory_history("all", context="all", stacks="python", max_entries=1_000_000)
    KINDS[name]()
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
    result = {
        "max_allocated": torch.cuda.max_memory_allocated(),
        "max_reserved": torch.cuda.max_memory_reserved(),
        "allocations": stats["allocation.all.allocated"],
        "num_alloc_retries": stats["num_alloc_retries"],
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name(),
    }
    with contextlib.suppress(Exception):
        import pynvml

        pynvml.nvmlInit()
        processes = pynvml.nvmlDeviceGetComputeRunningProcesses(pynvml.nvmlDeviceGetHandleByIndex(0))
        result["nvml_process_bytes"] = next(it.usedGpuMemory for it in processes if it.pid == os.getpid())
    if snapshot:
        torch.cuda.memory._dump_snapshot(snapshot)
    with open(out, "w") as file:
        json.dump(result, file)


main()
