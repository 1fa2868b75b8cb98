#!/usr/bin/env python3
"""Runs somebody's training script as it is, and writes what PyTorch's allocator counted in it.

    measure.py OUT.json SECONDS SCRIPT ARGUMENTS...
    SNAPSHOT=it.pickle measure.py ...              with every event of the allocator

After SECONDS (0 for never) the script is interrupted, as Ctrl-C would. truth.json has what this measured on an NVIDIA H200
of the scripts that it names, with data of the right form and no meaning where they look for theirs; on a phantom the same
command is run by `plimsoll predict --gpu h200 --until-exit --`.
"""

import json
import os
import runpy
import signal
import sys
import traceback


def interrupt(*_):
    raise KeyboardInterrupt("time is up")


def ended(script):
    """Runs it in the folder where it lies, and says how it ended."""
    os.chdir(os.path.dirname(script))
    sys.path[0] = os.path.dirname(script)
    try:
        runpy.run_path(script, run_name="__main__")
    except KeyboardInterrupt:
        return "stopped"
    except SystemExit as exit_:
        return f"exit {exit_.code}"
    except Exception as error:
        traceback.print_exc()
        return f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    return "end"


def main():
    out, script = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[3])
    signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(int(sys.argv[2]))
    sys.argv, snapshot = sys.argv[3:], os.environ.get("SNAPSHOT")
    import torch

    if snapshot:
        torch.cuda.memory._record_memory_history("all", context="all", stacks="python", max_entries=400_000)
    why = ended(script)
    torch.cuda.synchronize()
    counted = {
        "ended": why,
        "max_allocated": torch.cuda.max_memory_allocated(),
        "max_reserved": torch.cuda.max_memory_reserved(),
        "allocations": torch.cuda.memory_stats()["allocation.all.allocated"],
    }
    with open(out, "w") as file:
        json.dump(counted, file)
    if snapshot:
        # While it is still being recorded: to switch that off throws the events away.
        torch.cuda.memory._dump_snapshot(snapshot)


main()
