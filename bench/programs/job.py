"""Training on several GPUs, each way as people write it; the same code on real GPUs and on the phantom.

    job.py list
    torchrun --nproc-per-node 2 job.py NAME OUTPREFIX      writes OUTPREFIX.rankN.json and .pickle
    python job.py NAME OUTPREFIX                           one process, all GPUs: data-parallel, device-map
    torchrun --nproc-per-node 2 job.py nccl-... OUTPREFIX  what NCCL itself takes on the device, step by step

"process_bytes" is what the driver counts for this process on its device (NVML), the others are of PyTorch's allocator.
"""
import json
import os
import sys

import torch
import torch.distributed as dist

from jobs import KINDS, data, nccl, one_process, pipelines, sharded, split, trainers, zero  # noqa: F401 (each adds its kinds)
from jobs.nccl import process_bytes


def main():
    if sys.argv[1:] == ["list"]:
        print("\n".join(KINDS))
        return
    name, prefix = sys.argv[1:3]
    run, group = KINDS[name]
    local = 0 if group == "none" else int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    if group == "ours":
        dist.init_process_group("nccl", device_id=torch.device("cuda", local))
    rank = int(os.environ.get("RANK", 0))
    torch.manual_seed(0)
    torch.cuda.memory._record_memory_history("all", context="alloc", stacks="python", max_entries=1_000_000)
    facts = run(local)
    torch.cuda.synchronize()
    devices = range(torch.cuda.device_count()) if group == "none" else [local]
    result = {
        "name": name,
        "rank": rank,
        "max_allocated": [torch.cuda.max_memory_allocated(it) for it in devices],
        "max_reserved": [torch.cuda.max_memory_reserved(it) for it in devices],
        "allocations": [torch.cuda.memory_stats(it)["allocation.all.allocated"] for it in devices],
        "reserved_now": [torch.cuda.memory_reserved(it) for it in devices],
        "process_bytes": [process_bytes(it) for it in devices],
        "nccl_version": ".".join(map(str, torch.cuda.nccl.version())),
        "facts": facts,
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name(),
    }
    torch.cuda.memory._dump_snapshot(f"{prefix}.rank{rank}.pickle")
    with open(f"{prefix}.rank{rank}.json", "w") as file:
        json.dump(result, file)
    if dist.is_initialized():
        dist.destroy_process_group()


main()
