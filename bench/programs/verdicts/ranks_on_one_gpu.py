"""expect: out_of_memory at line 15
options: --all-ranks
command: torchrun --nproc-per-node 2
why: both ranks use cuda:0, a mistake of beginners. Each asks for 13 GiB, together 26 of 23.5.
"""
import os

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank = int(os.environ["RANK"])
device = torch.device("cuda:0")
table = torch.zeros(13 << 30, dtype=torch.uint8, device=device)  # dies
dist.barrier()
model = nn.Linear(1024, 1024).to(device)
optimizer = torch.optim.Adam(model.parameters())
for step in range(20):
    loss = model(torch.randn(1024, 1024, device=device)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0 and step % 10 == 0:
        print(step, loss.item())
dist.barrier()
dist.destroy_process_group()
