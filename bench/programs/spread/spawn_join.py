"""python spawn_join.py: one process per GPU through mp.spawn; ranks have unequal numbers of batches (Join)."""

import os
import sys
import torch
import torch.nn as nn
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP


def setup(rank, world_size):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ.setdefault("MASTER_PORT", "12355")
    dist.init_process_group("nccl", init_method="env://", rank=rank, world_size=world_size)
    torch.cuda.set_device(rank)


class Tagger(nn.Module):
    def __init__(self, vocab=20000, d=512):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.lstm = nn.LSTM(d, d, 2, batch_first=True, bidirectional=True, dropout=0.1)
        self.out = nn.Linear(2 * d, 64)

    def forward(self, x):
        h, _ = self.lstm(self.emb(x))
        return self.out(h)


def worker(rank, world_size, steps):
    setup(rank, world_size)
    model = DDP(Tagger().to(rank), device_ids=[rank])
    opt = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=1e-3)
    batches = [torch.randint(0, 20000, (32, 64 + 8 * i)) for i in range(steps + rank)]
    with Join([model, opt]):
        for b in batches:
            opt.zero_grad()
            out = model(b.to(rank))
            loss = nn.functional.cross_entropy(out.flatten(0, 1), torch.randint(0, 64, (b.numel(),), device=rank))
            loss.backward()
            opt.step()
    opt.consolidate_state_dict(to=0)
    if rank == 0:
        print("state", len(opt.state_dict()["state"]), "loss", loss.item())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    n = torch.cuda.device_count()
    assert n >= 2, "needs two GPUs"
    mp.spawn(worker, args=(n, 5), nprocs=n, join=True)
