"""Parameter server over torch.distributed.rpc"""

import os
import torch
import torch.nn as nn
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp


def run(rank, world):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "29501"
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=world)
    if rank == 0:
        x = rpc.rpc_sync("worker1", torch.add, args=(torch.ones(2), 1))
        print(x)
        m = nn.Linear(1024, 1024).cuda()
        m(torch.randn(64, 1024).cuda()).sum().backward()
        print(torch.cuda.memory_allocated())
    rpc.shutdown()


if __name__ == "__main__":
    mp.spawn(run, args=(2,), nprocs=2)
