"""What a person would have written around models.py: trains one of them for some steps."""

import argparse
import fcntl
import json
import os
import time

import models
import torch

p = argparse.ArgumentParser()
p.add_argument("--model", required=True, choices=models.NAMES)
p.add_argument("--batch-size", type=int, required=True)
p.add_argument("--steps", type=int, default=8)
p.add_argument("--most", type=float, default=1e9, help="seconds after which no more steps begin, but for six")
p.add_argument("--warm", type=int, default=0, help="a step of so many samples before the GPU is ours alone")
p.add_argument("--limit", type=float, default=0, help="GiB that the allocator may reserve")
p.add_argument("--profile", action="store_true", help="one step more, its kernels by name")
p.add_argument("--out", default="")
a = p.parse_args()
torch.manual_seed(0)
lock = open(os.environ.get("TIMING_LOCK", "/dev/null"))
if not a.warm:
    fcntl.flock(lock, fcntl.LOCK_EX)  # one at a time on the GPU, where that is asked for
if a.limit:
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((a.limit * 2**30 + 1) / total)
model, optimizer, batch, loss_of = models.made(a.model)


def step(size=a.batch_size):
    loss = loss_of(batch(size))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


if a.warm:
    step(a.warm)
    torch.cuda.synchronize()
    fcntl.flock(lock, fcntl.LOCK_EX)
seconds, host, at_first = [], [], time.perf_counter()
for n in range(a.steps):
    if n >= 6 and time.perf_counter() - at_first > a.most:
        break
    torch.cuda.synchronize()
    began = time.perf_counter()
    step()
    host.append(time.perf_counter() - began)
    torch.cuda.synchronize()
    seconds.append(time.perf_counter() - began)
if a.out:
    told = {
        "reserved": torch.cuda.max_memory_reserved(),
        "allocated": torch.cuda.max_memory_allocated(),
        "retries": torch.cuda.memory_stats()["num_alloc_retries"],
        "all_seconds": [round(it, 6) for it in seconds],
        "host_seconds": [round(it, 6) for it in host],
        "seconds": sorted(seconds[3:])[len(seconds[3:]) // 2] if len(seconds) > 3 else None,
    }
    if a.profile:
        activities = [torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=activities) as profiler:
            step()
            torch.cuda.synchronize()
        rows = [it for it in profiler.key_averages() if "cuda" in str(it.device_type).lower()]
        told["kernels"] = [[it.key[:160], it.count, it.self_device_time_total] for it in rows]
    with open(a.out, "w") as file:
        json.dump(told, file)
