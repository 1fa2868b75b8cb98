"""expect: fits
why: one process with DDP and a deep copy of the network beside it, as diffusion trainings have. DDP compares the shapes of its own
    process and finds them equal.
"""
import copy
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517", "RANK": "0", "WORLD_SIZE": "1"}
dist.init_process_group("nccl")
blocks = [nn.Sequential(nn.LayerNorm(768), nn.Linear(768, 3072), nn.GELU(), nn.Linear(3072, 768)) for _ in range(12)]
model = nn.Sequential(nn.Embedding(4608, 768), *blocks).cuda()
average = copy.deepcopy(model).requires_grad_(False)
model = DistributedDataParallel(model, device_ids=[0])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(30):
    words = torch.randint(0, 4608, (16, 256), device="cuda")
    loss = model(words).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for mean, weight in zip(average.parameters(), model.module.parameters()):
            mean.lerp_(weight, 0.001)
dist.destroy_process_group()
