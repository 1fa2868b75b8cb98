"""Pipeline parallel, by hand-cut stages:  torchrun --nproc-per-node 2 pipe.py --schedule 1F1B"""

import argparse
import os
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe, Schedule1F1B, ScheduleInterleaved1F1B, ScheduleLoopedBFS


class Part(nn.Module):
    def __init__(s, first, last, n, d=768, vocab=16000):
        super().__init__()
        s.emb = nn.Embedding(vocab, d) if first else None
        s.pos = nn.Parameter(torch.zeros(1, 256, d)) if first else None
        s.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(d, 12, 4 * d, dropout=0.0, batch_first=True, norm_first=True, activation="gelu")
            for _ in range(n)
        )
        s.head = nn.Linear(d, vocab) if last else None

    def forward(s, x):
        if s.emb is not None:
            x = s.emb(x) + s.pos
        for b in s.blocks:
            x = b(x)
        return s.head(x) if s.head is not None else x


p = argparse.ArgumentParser()
p.add_argument("--schedule", default="1F1B")
p.add_argument("--micro", type=int, default=4)
a = p.parse_args()
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
dev = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(dev)
torch.manual_seed(0)
loss_fn = lambda o, t: nn.functional.cross_entropy(o.flatten(0, 1), t.flatten())
many = a.schedule in ("Interleaved1F1B", "LoopedBFS")
v = 2 if many else 1
total = world * v
layers = max(1, 8 // total)
parts = [Part(i == 0, i == total - 1, layers).to(dev) for i in range(rank, total, world)]
stages = [PipelineStage(m, i, total, dev) for m, i in zip(parts, range(rank, total, world))]
sched = {
    "GPipe": ScheduleGPipe,
    "1F1B": Schedule1F1B,
    "Interleaved1F1B": ScheduleInterleaved1F1B,
    "LoopedBFS": ScheduleLoopedBFS,
}[a.schedule](stages if many else stages[0], n_microbatches=a.micro, loss_fn=loss_fn)
opt = torch.optim.AdamW([q for m in parts for q in m.parameters()], lr=1e-4)
for step in range(4):
    x = torch.randint(0, 16000, (16, 256), device=dev)
    y = torch.randint(0, 16000, (16, 256), device=dev)
    opt.zero_grad()
    losses = []
    if rank == 0 and not (total - 1) % world == rank:
        sched.step(x)
    elif (total - 1) % world == rank:
        sched.step(*([x] if rank == 0 else []), target=y, losses=losses)
        print(step, torch.stack(losses).mean().item(), flush=True)
    else:
        sched.step()
    opt.step()
print("rank", rank, torch.cuda.max_memory_allocated() >> 20, "MiB")
dist.barrier()
dist.destroy_process_group()
