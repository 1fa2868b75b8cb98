"""DLRM: embedding tables spread over ranks (model parallel), dense parts DDP, all_to_all between; sparse gradients."""

import os
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class A2A(torch.autograd.Function):
    @staticmethod
    def forward(c, x, w):
        c.w = w
        y = torch.empty_like(x)
        dist.all_to_all_single(y, x.contiguous())
        return y

    @staticmethod
    def backward(c, g):
        y = torch.empty_like(g)
        dist.all_to_all_single(y, g.contiguous())
        return y, None


def mlp(*s):
    return nn.Sequential(*[m for a, b in zip(s, s[1:]) for m in (nn.Linear(a, b), nn.ReLU())])


dist.init_process_group("nccl")
r, w = dist.get_rank(), dist.get_world_size()
L = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(L)
torch.manual_seed(r)
T, E, B = 8, 64, 2048
local = T // min(w, T)
tables = nn.ModuleList(nn.EmbeddingBag(200_000 + 10_000 * i, E, mode="sum", sparse=True) for i in range(local)).cuda()
bot, top = (
    DDP(mlp(13, 512, 256, E).cuda(), device_ids=[L]),
    DDP(nn.Sequential(mlp(E + (T + 1) * T // 2, 1024, 1024, 512), nn.Linear(512, 1)).cuda(), device_ids=[L]),
)
so, do = (
    torch.optim.SparseAdam(list(tables.parameters()), 1e-3),
    torch.optim.Adagrad([*bot.parameters(), *top.parameters()], 1e-2),
)
tri = torch.tril_indices(T + 1, T + 1, -1, device="cuda")
for step in range(5):
    dense, y = torch.randn(B // w, 13, device="cuda"), torch.randint(0, 2, (B // w, 1), device="cuda").float()
    idx, off = torch.randint(0, 200_000, (B * 4,), device="cuda"), torch.arange(0, B * 4, 4, device="cuda")
    e = torch.stack([t(idx, off) for t in tables], 0).view(local, w, B // w, E).transpose(0, 1)
    e = A2A.apply(e.contiguous(), w).reshape(w * local, B // w, E)[:T]
    x = bot(dense)
    z = torch.cat([x[:, None], e.transpose(0, 1)], 1)
    inter = (z @ z.transpose(1, 2))[:, tri[0], tri[1]]
    loss = nn.functional.binary_cross_entropy_with_logits(top(torch.cat([x, inter], 1)), y)
    so.zero_grad()
    do.zero_grad()
    loss.backward()
    so.step()
    do.step()
    a = loss.detach().clone()
    dist.all_reduce(a)
    if r == 0:
        print(step, a.item() / w)
dist.destroy_process_group()
