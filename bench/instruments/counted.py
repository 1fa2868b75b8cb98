"""Runs somebody's training script as it is, and writes what PyTorch's allocator counted in it; on a real GPU and on the phantom alike.

    counted.py [--steps N] [--seconds S] [--snapshot it.pickle] [--there] OUT.json SCRIPT [ARGUMENTS ...]

It is ended after N optimizer steps (of several optimizers the one with fewest counts), or after S seconds as Ctrl-C would end it. `--there`
runs it in the folder where it lies. A script that fails has its numbers written, too, and fails.
"""

import argparse
import contextlib
import json
import os
import runpy
import signal
import sys
import time
import traceback


class Stopped(BaseException):
    """Nothing that a script catches."""


def ended(script, most):
    """Runs it and says how it ended."""
    from torch.optim import optimizer

    steps = {}

    def stepped(it, *_):
        steps[id(it)] = steps.get(id(it), 0) + 1
        if most and min(steps.values()) >= most:
            raise Stopped

    if most:
        optimizer.register_optimizer_step_post_hook(stepped)
    how = "end"
    try:
        runpy.run_path(script, run_name="__main__")
    except (Stopped, KeyboardInterrupt):
        how = "stopped"
    except SystemExit as left:
        how = f"exit {left.code}" if left.code else "end"
    except BaseException as error:
        traceback.print_exc()
        how = f"{type(error).__name__}: {error}"[:300]
    signal.alarm(0)
    return {"ended": how} | ({"steps": min(steps.values(), default=0)} if most else {})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--seconds", type=int, default=0)
    parser.add_argument("--snapshot", type=os.path.abspath, help="every event of the allocator goes there")
    parser.add_argument("--there", action="store_true")
    parser.add_argument("out", type=os.path.abspath)
    parser.add_argument("script", type=os.path.abspath)
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    import torch

    def interrupt(*_):
        raise KeyboardInterrupt("time is up")

    signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(args.seconds)
    sys.argv, sys.path[0] = [args.script, *args.arguments], os.path.dirname(args.script)
    if args.there:
        os.chdir(sys.path[0])
    if args.snapshot:
        torch.cuda.memory._record_memory_history("all", context="all", stacks="python", max_entries=1_000_000)
    began = time.time()
    how = ended(args.script, args.steps)
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
    result = how | {
        "max_allocated": torch.cuda.max_memory_allocated(),
        "max_reserved": torch.cuda.max_memory_reserved(),
        "allocations": stats.get("allocation.all.allocated", 0),
        "num_alloc_retries": stats.get("num_alloc_retries", 0),
        "seconds": round(time.time() - began, 2),
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name(),
    }
    with contextlib.suppress(Exception):
        import pynvml

        pynvml.nvmlInit()
        processes = pynvml.nvmlDeviceGetComputeRunningProcesses(pynvml.nvmlDeviceGetHandleByIndex(0))
        result["nvml_process_bytes"] = next(it.usedGpuMemory for it in processes if it.pid == os.getpid())
    if args.snapshot:
        # While it is still being recorded: to switch that off throws the events away.
        torch.cuda.memory._dump_snapshot(args.snapshot)
    with open(args.out, "w") as file:
        json.dump(result, file)
    if how["ended"] not in ("end", "stopped"):
        raise SystemExit(how["ended"])


if __name__ == "__main__":
    main()
