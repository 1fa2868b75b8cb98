"""What every program of this folder does as one rank: its options, its limit, its turn where several jobs share the GPUs, and what it took, which goes to
$OUT_LAYOUTS."""

import argparse
import json
import os
import time
import traceback

import torch
import torch.distributed as dist


class Seen:
    def __init__(self, name):
        self.name, self.rank, self.local = name, int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
        self.out, self.marks, self.began = os.environ.get("OUT_LAYOUTS"), [], time.time()

    def look(self, what):
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info() if self.out else (0, 0)
        self.marks.append([what, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), total - free])

    def leave(self, error):
        line = {"name": self.name, "rank": self.rank, "error": error, "marks": self.marks, "seconds": round(time.time() - self.began, 1)}
        if self.out:
            with open(os.path.join(self.out, f"{self.name}.rank{self.rank}.json"), "w") as f:
                json.dump(line, f)
            print("LAYOUT " + json.dumps(line), flush=True)


def options(name, **numbers):
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", default=name)
    parser.add_argument("--limit", type=int, default=0, help="the MiB that PyTorch may reserve")
    for option, value in numbers.items():
        parser.add_argument("--" + option, type=int, default=value)
    return parser


def run(args, train, backend="nccl"):
    """Trains as one rank; `train` makes the process group itself where there is no backend."""
    seen, error = Seen(args.name), None
    torch.cuda.set_device(seen.local)
    if args.limit:
        torch.cuda.set_per_process_memory_fraction((args.limit << 20) / torch.cuda.get_device_properties(seen.local).total_memory)
    if backend:
        dist.init_process_group(backend)
    torch.manual_seed(1)
    if os.environ.get("TURN_LAYOUTS"):
        os.read(int(os.environ["TURN_LAYOUTS"]), 1)
    try:
        train(args, seen)
        dist.barrier()
        seen.look("end")
    except Exception as e:
        error = f"{type(e).__name__}: {str(e)[:300]}"
        if not seen.out:
            raise
        traceback.print_exc()
    seen.leave(error)
    if error:
        os._exit(1)
    dist.destroy_process_group()
