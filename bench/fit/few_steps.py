"""Runs a training script for a few optimizer steps and says what its allocator took: for scripts that train for hours.

    python few_steps.py OUT.json STEPS SCRIPT [ARGUMENTS ...]
"""

import json
import os
import runpy
import sys

import torch
from torch.optim import optimizer

out, most, script = sys.argv[1], int(sys.argv[2]), sys.argv[3]
sys.argv = sys.argv[3:]
sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
steps = 0


def stepped(*_):
    global steps
    steps += 1
    if steps >= most:
        raise SystemExit(0)


optimizer.register_optimizer_step_post_hook(stepped)
oom = False
try:
    runpy.run_path(script, run_name="__main__")
except torch.OutOfMemoryError:
    oom = True
    raise
finally:
    stats = torch.cuda.memory_stats()
    took = {
        "steps": steps,
        "oom": oom or bool(stats["num_ooms"]),
        "retries": stats["num_alloc_retries"],
        "allocated": torch.cuda.max_memory_allocated(),
        "reserved": torch.cuda.max_memory_reserved(),
    }
    with open(out, "w") as file:
        json.dump(took, file)
