"""Ring attention by hand: keys and values go round by batch_isend_irecv while softmax is accumulated."""

import os
import math
import torch
import torch.nn as nn
import torch.distributed as dist


def ring_pass(t, group=None):
    r, w = dist.get_rank(), dist.get_world_size()
    out = torch.empty_like(t)
    ops = [dist.P2POp(dist.isend, t.contiguous(), (r + 1) % w), dist.P2POp(dist.irecv, out, (r - 1) % w)]
    for q in dist.batch_isend_irecv(ops):
        q.wait()
    return out


class Ring(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v):
        w = dist.get_world_size()
        scale = 1 / math.sqrt(q.shape[-1])
        o = torch.zeros_like(q, dtype=torch.float32)
        m = torch.full(q.shape[:-1], -1e30, device=q.device)
        s = torch.zeros(q.shape[:-1], device=q.device)
        ctx.save_for_backward(q, k, v)
        kk, vv = k, v
        for i in range(w):
            z = (q @ kk.transpose(-1, -2)).float() * scale
            nm = torch.maximum(m, z.amax(-1))
            e = torch.exp(z - nm[..., None])
            c = torch.exp(m - nm)
            s = s * c + e.sum(-1)
            o = o * c[..., None] + e.to(v.dtype) @ vv
            m = nm
            if i + 1 < w:
                kk, vv = ring_pass(kk), ring_pass(vv)
        ctx.lse = m + s.log()
        out = (o / s[..., None]).to(q.dtype)
        ctx.out = out
        return out

    @staticmethod
    def backward(ctx, g):
        q, k, v = ctx.saved_tensors
        w = dist.get_world_size()
        scale = 1 / math.sqrt(q.shape[-1])
        d = (g.float() * ctx.out.float()).sum(-1, keepdim=True)
        dq = torch.zeros_like(q, dtype=torch.float32)
        dk, dv = torch.zeros_like(k, dtype=torch.float32), torch.zeros_like(v, dtype=torch.float32)
        kk, vv = k, v
        for i in range(w):
            p = torch.exp((q @ kk.transpose(-1, -2)).float() * scale - ctx.lse[..., None])
            dv += p.transpose(-1, -2) @ g.float()
            ds = p * ((g @ vv.transpose(-1, -2)).float() - d) * scale
            dq += ds @ kk.float()
            dk += ds.transpose(-1, -2) @ q.float()
            kk, vv, dk, dv = (ring_pass(t) for t in (kk, vv, dk, dv))
        return dq.to(q.dtype), dk.to(q.dtype), dv.to(q.dtype)


class Layer(nn.Module):
    def __init__(s, d, h):
        super().__init__()
        s.h = h
        s.n1, s.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        s.qkv, s.o = nn.Linear(d, 3 * d), nn.Linear(d, d)
        s.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(s, x):
        b, t, d = x.shape
        q, k, v = s.qkv(s.n1(x)).view(b, t, 3, s.h, d // s.h).permute(2, 0, 3, 1, 4)
        x = x + s.o(Ring.apply(q.contiguous(), k.contiguous(), v.contiguous()).transpose(1, 2).reshape(b, t, d))
        return x + s.mlp(s.n2(x))


dist.init_process_group("nccl")
r, w = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.manual_seed(3)
net = nn.ModuleList(Layer(512, 8) for _ in range(4)).cuda().bfloat16()
head = nn.Linear(512, 8000, device="cuda", dtype=torch.bfloat16)
params = [*net.parameters(), *head.parameters()]
for q in params:
    dist.broadcast(q.data, 0)
opt = torch.optim.AdamW(params, 1e-4)
T = 4096
for step in range(4):
    x = torch.randn(1, T, 512, device="cuda", dtype=torch.bfloat16).chunk(w, 1)[r].contiguous()
    y = torch.randint(0, 8000, (1, T // w), device="cuda")
    for l in net:
        x = l(x)
    loss = nn.functional.cross_entropy(head(x).flatten(0, 1).float(), y.flatten())
    loss.backward()
    flat = torch._utils._flatten_dense_tensors([q.grad for q in params])
    dist.all_reduce(flat)
    flat /= w
    for q, g in zip(params, torch._utils._unflatten_dense_tensors(flat, [q.grad for q in params])):
        q.grad.copy_(g)
    opt.step()
    opt.zero_grad(set_to_none=True)
    del flat
    if r == 0:
        print(step, loss.item())
dist.destroy_process_group()
