import os

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
rank, world = int(os.environ["LOCAL_RANK"]), dist.get_world_size()
torch.cuda.set_device(rank)
torch.manual_seed(0)
part = torch.nn.Sequential(*[torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True) for _ in range(4 + 2 * rank)]).cuda()
optimizer = torch.optim.AdamW(part.parameters())
for step in range(6):
    x = torch.randn(8, 256, 512, device="cuda")
    if 0 < rank:
        dist.recv(x, rank - 1)
        x.requires_grad_()
    y = part(x)
    if rank < world - 1:
        dist.send(y.detach(), rank + 1)
        gradient = torch.empty_like(y)
        dist.recv(gradient, rank + 1)
        y.backward(gradient)
    else:
        y.square().mean().backward()
    if 0 < rank:
        dist.send(x.grad, rank - 1)
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
