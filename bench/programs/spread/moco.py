"""MoCo: batch shuffle over ranks, a queue, momentum encoder under no_grad, DDP ResNet-50."""

import os
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
import torchvision


@torch.no_grad()
def concat_all_gather(t):
    ts = [torch.ones_like(t) for _ in range(dist.get_world_size())]
    dist.all_gather(ts, t, async_op=False)
    return torch.cat(ts, 0)


class MoCo(nn.Module):
    def __init__(s, dim=128, K=8192, m=0.999, T=0.07):
        super().__init__()
        s.K, s.m, s.T = K, m, T
        s.q, s.k = (torchvision.models.resnet50(weights=None, num_classes=dim) for _ in range(2))
        for a, b in zip(s.q.parameters(), s.k.parameters()):
            b.data.copy_(a.data)
            b.requires_grad = False
        s.register_buffer("queue", F.normalize(torch.randn(dim, K), dim=0))
        s.register_buffer("ptr", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def enqueue(s, k):
        k = concat_all_gather(k)
        n, p = k.shape[0], int(s.ptr)
        assert s.K % n == 0
        s.queue[:, p : p + n] = k.T
        s.ptr[0] = (p + n) % s.K

    @torch.no_grad()
    def shuffle(s, x):
        n = x.shape[0]
        allx = concat_all_gather(x)
        g = allx.shape[0] // n
        idx = torch.randperm(allx.shape[0]).cuda()
        dist.broadcast(idx, src=0)
        un = torch.argsort(idx)
        return allx[idx.view(g, -1)[dist.get_rank()]], un

    @torch.no_grad()
    def unshuffle(s, x, un):
        n = x.shape[0]
        allx = concat_all_gather(x)
        return allx[un.view(allx.shape[0] // n, -1)[dist.get_rank()]]

    def forward(s, a, b):
        q = F.normalize(s.q(a), dim=1)
        with torch.no_grad():
            for x, y in zip(s.q.parameters(), s.k.parameters()):
                y.data = y.data * s.m + x.data * (1 - s.m)
            b, un = s.shuffle(b)
            k = s.unshuffle(F.normalize(s.k(b), dim=1), un)
        pos = torch.einsum("nc,nc->n", [q, k]).unsqueeze(-1)
        neg = torch.einsum("nc,ck->nk", [q, s.queue.clone().detach()])
        z = torch.cat([pos, neg], 1) / s.T
        s.enqueue(k)
        return z, torch.zeros(z.shape[0], dtype=torch.long).cuda()


dist.init_process_group("nccl")
L = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(L)
torch.manual_seed(0)
torch.backends.cudnn.benchmark = False
net = nn.parallel.DistributedDataParallel(MoCo().cuda(), device_ids=[L])
opt = torch.optim.SGD(net.parameters(), 0.03, momentum=0.9, weight_decay=1e-4)
for step in range(4):
    a, b = torch.randn(32, 3, 160, 160).cuda(L, non_blocking=True), torch.randn(32, 3, 160, 160).cuda(L, non_blocking=True)
    z, t = net(a, b)
    loss = F.cross_entropy(z, t)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if dist.get_rank() == 0:
        print(step, loss.item())
dist.destroy_process_group()
