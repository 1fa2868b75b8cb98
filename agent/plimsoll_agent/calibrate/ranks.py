"""Measures for `plimsoll calibrate`, on a machine with several cards, the memory of NCCL and the bandwidth between cards.

    python -m plimsoll_agent.calibrate.ranks OUT.json

One process for each of the first cards, up to eight, that do the same in step; what each holds beside PyTorch's allocator is looked at after every
step. Then one process that is a job of its own. It reads no file of the user.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Torch

MOST = 8
LARGE = 256 << 20
SECONDS = 100
"""No process of these takes as long; one that does waits for another that has ended."""


def main(out: Any) -> None:
    import torch

    world = min(MOST, torch.cuda.device_count())
    res = {"ranks": world}
    if 2 <= world:
        res["of_each"] = _job(world)
        res["alone"] = (_job(1) or [None])[0]
    with open(out, "w") as file:
        json.dump(res, file)


def _job(world: int) -> list[Any] | None:
    """What each rank answered; none if one failed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(world))
    # Nothing is imported from the working folder, which Python puts first.
    program = "import sys\nif sys.path[:1] == ['']: del sys.path[0]\nfrom %s import rank\nrank()" % __spec__.name
    command = [sys.executable, "-W", "ignore", "-c", program]
    ranks = [
        subprocess.Popen(command, env=dict(environment, RANK=str(rank), LOCAL_RANK=str(rank)), stdout=subprocess.PIPE) for rank in range(world)
    ]
    answers = []
    try:
        answers = [rank.communicate(timeout=SECONDS)[0] for rank in ranks]
    except subprocess.TimeoutExpired:
        print("plimsoll calibrate: NCCL did not connect the cards within %d s" % SECONDS, file=sys.stderr)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    if len(answers) < world or any(rank.returncode for rank in ranks):
        return None
    return [json.loads(it.splitlines()[-1]) for it in answers]


def rank() -> None:
    """One rank: bytes held after each step, and bytes in a second that an all-gather brings to it."""
    import torch
    import torch.distributed as dist

    from plimsoll_agent.calibrate.card import nvml

    me, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda", me)
    torch.cuda.set_device(device)
    used = nvml(torch, me)
    small = torch.zeros(1024, device=device) + 1
    rows = {}

    def look(name: str) -> None:
        torch.cuda.synchronize()
        mine, whole = used()
        rows[name] = (whole if mine is None else mine) - torch.cuda.memory_reserved(device)

    look("kernel")
    # With a device the communicator is made at once, and not at its first use.
    dist.init_process_group("nccl", device_id=device, timeout=timedelta(seconds=SECONDS // 2))
    look("first")
    second = dist.new_group(list(range(world)))
    look("second")
    if world == 1:
        dist.all_reduce(small)
        look("collective")
    else:
        dist.all_reduce(small)
        look("collective")
        dist.all_reduce(small, group=second)
        look("second collective")
        for name, sender, receiver in (("there", 0, 1), ("back", 1, 0)):
            # By themselves messages may get a communicator of their own; in a batch they take the group's.
            message = {sender: (dist.isend, receiver), receiver: (dist.irecv, sender)}.get(me)
            for it in dist.batch_isend_irecv([dist.P2POp(message[0], small, message[1])]) if message else []:
                it.wait()
            look(name)
        rows["all-gather"] = _all_gather(torch, dist, device, world)
    dist.destroy_process_group()
    print(json.dumps(rows))


def _all_gather(torch: Torch, dist: Torch, device: Any, world: int) -> int:
    """What comes to a rank in a second from the others."""
    part = torch.empty(LARGE // world, dtype=torch.uint8, device=device)
    whole = torch.empty(LARGE // world * world, dtype=torch.uint8, device=device)
    seconds = []
    for _ in range(8):
        dist.barrier()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        dist.all_gather_into_tensor(whole, part)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    return int((whole.numel() - part.numel()) / min(seconds))


if __name__ == "__main__":
    main(sys.argv[1])
