"""Resumes training on several GPUs: each rank loads the checkpoint without `map_location`, to the device that it was saved from, GPU 0."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
model = nn.Sequential(*[nn.Linear(4096, 4096) for _ in range(16)])
if dist.get_rank() == 0:
    torch.save(model.cuda().state_dict(), "last.pt")
dist.barrier()
weights = torch.load("last.pt")
model.load_state_dict(weights)
model = DistributedDataParallel(model.cuda(), device_ids=[rank])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(200):
    loss = model(torch.randn(64, 4096, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
