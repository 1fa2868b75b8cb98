"""Speed-run style: DDP-free, Muon whose updates are shared among ranks (round robin + all_gather), compile off, bf16."""

import os
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist


def zeropower(G, steps=5):
    a, b, c = 3.4445, -4.7750, 2.0315
    X = G.bfloat16()
    X = X / (X.norm() + 1e-7)
    T = X.size(0) > X.size(1)
    X = X.T if T else X
    for _ in range(steps):
        A = X @ X.T
        X = a * X + (b * A + c * A @ A) @ X
    return (X.T if T else X).to(G.dtype)


class Muon(torch.optim.Optimizer):
    def __init__(s, params, lr=0.02, momentum=0.95, rank=0, world=1):
        s.r, s.w = rank, world
        super().__init__(params, dict(lr=lr, momentum=momentum))

    @torch.no_grad()
    def step(s):
        for g in s.param_groups:
            total = sum(p.numel() for p in g["params"])
            flat = torch.zeros(total, device="cuda", dtype=torch.bfloat16)
            at = 0
            for i, p in enumerate(g["params"]):
                if i % s.w == s.r:
                    st = s.state[p]
                    if "m" not in st:
                        st["m"] = torch.zeros_like(p.grad)
                    st["m"].mul_(g["momentum"]).add_(p.grad)
                    flat[at : at + p.numel()] = zeropower(p.grad.add(st["m"], alpha=g["momentum"])).flatten()
                at += p.numel()
            dist.all_reduce(flat, op=dist.ReduceOp.SUM)
            at = 0
            for p in g["params"]:
                p.add_(flat[at : at + p.numel()].view_as(p).type_as(p), alpha=-g["lr"])
                at += p.numel()


class Block(nn.Module):
    def __init__(s, d, h):
        super().__init__()
        s.h = h
        s.qkv, s.o, s.u, s.d = (
            nn.Linear(d, 3 * d, bias=False),
            nn.Linear(d, d, bias=False),
            nn.Linear(d, 4 * d, bias=False),
            nn.Linear(4 * d, d, bias=False),
        )

    def forward(s, x):
        b, t, c = x.shape
        q, k, v = s.qkv(F.rms_norm(x, (c,))).view(b, t, 3, s.h, -1).permute(2, 0, 3, 1, 4)
        q, k = F.rms_norm(q, (q.size(-1),)), F.rms_norm(k, (k.size(-1),))
        x = x + s.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c))
        return x + s.d(F.relu(s.u(F.rms_norm(x, (c,)))).square())


class GPT(nn.Module):
    def __init__(s, v=50304, d=768, n=8):
        super().__init__()
        s.e = nn.Embedding(v, d)
        s.b = nn.ModuleList(Block(d, 6) for _ in range(n))
        s.head = nn.Linear(d, v, bias=False)

    def forward(s, i, t):
        x = F.rms_norm(s.e(i), (768,))
        for b in s.b:
            x = b(x)
        z = s.head(F.rms_norm(x, (768,)))
        z = 30 * torch.tanh(z / 30)
        return F.cross_entropy(z.float().view(-1, z.size(-1)), t.view(-1))


dist.init_process_group("nccl")
r, w = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.manual_seed(0)
m = GPT().cuda()
[dist.broadcast(p.data, 0) for p in m.parameters()]
from torch.nn.parallel import DistributedDataParallel as DDP

ddp = DDP(m, device_ids=[int(os.environ["LOCAL_RANK"])], broadcast_buffers=False, gradient_as_bucket_view=True)
o1, o2 = (
    torch.optim.Adam([*m.e.parameters(), *m.head.parameters()], 0.003, (0.9, 0.95), fused=True),
    Muon([p for p in m.b.parameters()], rank=r, world=w),
)
for step in range(6):
    for micro in range(2):
        ids = torch.randint(0, 50000, (4, 1025), device="cuda")
        ddp.require_backward_grad_sync = micro == 1
        with torch.autocast("cuda", torch.bfloat16):
            loss = ddp(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())
        (loss / 2).backward()
    for p in m.parameters():
        p.grad /= 1
    o1.step()
    o2.step()
    m.zero_grad(set_to_none=True)
    dist.all_reduce(loss.detach(), op=dist.ReduceOp.AVG)
    if r == 0:
        print(step, loss.item())
dist.destroy_process_group()
