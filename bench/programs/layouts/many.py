"""python many.py LAYOUTS SECONDS: every layout of the file on four GPUs, one after the other. PyTorch is imported once and forked."""

import os
import signal
import sys
import time

import split
import torch.distributed.pipelining  # noqa: F401 - So that no rank imports it.

WORLD, EACH = 4, 40


def ranks(number, words):
    pids = []
    for rank in range(WORLD):
        pid = os.fork()
        if pid == 0:
            os.environ.update({
                "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(WORLD), "LOCAL_WORLD_SIZE": str(WORLD),
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(29600 + number), "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
            })
            try:
                split.main(words)
            finally:
                sys.stdout.flush()
                os._exit(0)
        pids.append(pid)
    end = time.time() + EACH
    while pids and time.time() < end:
        pids = [it for it in pids if os.waitpid(it, os.WNOHANG)[0] == 0]
        time.sleep(0.02)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return not pids


began = time.time()
with open(sys.argv[1]) as f:
    lines = [it.split() for it in f if it.strip()]
for number, (name, *words) in enumerate(lines):
    if float(sys.argv[2]) < time.time() - began + 8:
        print(f"DONE {number} of {len(lines)}", flush=True)
        break
    then = time.time()
    ended = ranks(number, ["--name", name, *words])
    print(f"RAN {name} {'' if ended else 'killed '}{time.time() - then:.1f} s", flush=True)
