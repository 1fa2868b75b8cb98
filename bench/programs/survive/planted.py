"""What is planted in each program: one step that takes more than the others, or a neighbour that takes what was free.

`LIMIT` bytes are what the process may reserve. `NEIGHBOUR` bytes are taken in step 3 and kept, and that step's batch is as
the others are.
"""

import json
import os

import torch

STEPS, PLANTED = 6, 3

limit = int(os.environ.get("LIMIT") or 0)
neighbour = int(os.environ.get("NEIGHBOUR") or 0)
kept = []

torch.manual_seed(0)
if limit:
    torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.get_device_properties(0).total_memory)


def size(step, usual, large):
    """How large the batch of a step is."""
    return large if step == PLANTED and not neighbour else usual


def ended(step, loss, model):
    """To be called at the end of each step."""
    weights = sum(float(it.detach().double().abs().sum()) for it in model.parameters())
    line = {"step": step, "loss": float(loss), "weights": weights, "reserved": torch.cuda.max_memory_reserved()}
    print("STEP " + json.dumps(line), flush=True)
    torch.cuda.reset_peak_memory_stats()
    if neighbour and step == PLANTED - 1:
        torch.cuda.empty_cache()
        kept.append(torch.empty(neighbour, dtype=torch.uint8, device="cuda"))
