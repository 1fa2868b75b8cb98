"""Runs one of the programs, in a room of its own, and says what it saw of its memory without plimsoll.

    python program.py leaks outputs_16k --mib 384 --seed 0 --most-seconds 60 --alarms alarms.jsonl --out seen.json
"""

import argparse
import importlib
import json
import os
import random
import time

import torch

parser = argparse.ArgumentParser()
parser.add_argument("module")
parser.add_argument("name")
parser.add_argument("--mib", type=int)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--most-seconds", type=float, default=60.0)
parser.add_argument("--most-steps", type=int, default=1 << 62)
parser.add_argument("--alarms")
parser.add_argument("--out")
it = parser.parse_args()

random.seed(it.seed)
torch.manual_seed(it.seed)
total = torch.cuda.mem_get_info()[1]
room = it.mib << 20
torch.cuda.set_per_process_memory_fraction(room / total)
program = importlib.import_module(it.module).PROGRAMS[it.name][0]()
began, half, base, why = time.monotonic(), None, None, "steps"


def until_memory_runs_out(program):
    global half, why
    try:
        yield from program
    except torch.OutOfMemoryError:
        half, why = step, "out of memory"


step = 0
for step, _ in enumerate(until_memory_runs_out(program), start=1):
    lives = torch.cuda.memory_allocated()
    if step == 3:
        # What lives at the end of the third step, and the most that a step needed by then.
        base = (lives, torch.cuda.max_memory_allocated())
    if step > 3 and it.module.startswith("leaks") and lives - base[0] >= (room - base[1]) / 2:
        half, why = step, "half of the room is gone"
        break
    if step % 64 == 0:
        if time.monotonic() - began > it.most_seconds:
            why = "time"
            break
        if it.alarms and it.module.startswith("leaks") and os.path.exists(it.alarms) and os.path.getsize(it.alarms):
            why = "alarm"
            break
    if step >= it.most_steps:
        break
seen = {
    "steps": step, "seconds": round(time.monotonic() - began, 2), "ended": why, "half_gone_at": half, "base": base,
    "allocated": torch.cuda.memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved(), "room": room,
}
if it.out:
    with open(it.out, "w") as file:
        json.dump(seen, file)
print(json.dumps(seen))
