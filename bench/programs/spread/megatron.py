"""Tensor parallel by autograd functions, as Megatron: column and row linear, vocab-parallel embedding and cross entropy."""

import os
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
import torch.utils.checkpoint


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(c, x):
        return x.view_as(x)

    @staticmethod
    def backward(c, g):
        g = g.contiguous()
        dist.all_reduce(g, group=TP)
        return g


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(c, x):
        x = x.clone()
        dist.all_reduce(x, group=TP)
        return x

    @staticmethod
    def backward(c, g):
        return g


class VocabCE(torch.autograd.Function):
    @staticmethod
    def forward(c, z, t, lo):
        m = z.max(-1)[0]
        dist.all_reduce(m, op=dist.ReduceOp.MAX, group=TP)
        z = z - m[:, None]
        mask = (t < lo) | (t >= lo + z.shape[1])
        tt = (t - lo).clone()
        tt[mask] = 0
        pred = z[torch.arange(len(t), device=z.device), tt].clone()
        pred[mask] = 0
        dist.all_reduce(pred, group=TP)
        e = z.exp()
        s = e.sum(-1)
        dist.all_reduce(s, group=TP)
        e.div_(s[:, None])
        c.save_for_backward(e, mask, tt)
        return s.log() - pred

    @staticmethod
    def backward(c, g):
        e, mask, t = c.saved_tensors
        e[torch.arange(len(t), device=e.device), t] -= 1.0 - mask.float()
        return e * g[:, None], None, None


class Layer(nn.Module):
    def __init__(s, d, h):
        super().__init__()
        s.h = h // TW
        s.n1, s.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        s.qkv, s.o = nn.Linear(d, 3 * d // TW), nn.Linear(d // TW, d)
        s.a, s.b = nn.Linear(d, 4 * d // TW), nn.Linear(4 * d // TW, d)

    def forward(s, x):
        b, t, d = x.shape
        q, k, v = s.qkv(Copy.apply(s.n1(x))).view(b, t, s.h, 3, -1).permute(3, 0, 2, 1, 4)
        x = x + Reduce.apply(s.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, -1)))
        return x + Reduce.apply(s.b(F.gelu(s.a(Copy.apply(s.n2(x))))))


dist.init_process_group("nccl")
w, r = dist.get_world_size(), dist.get_rank()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
TW = 2
torch.manual_seed(r)
for i in range(w // TW):
    g = dist.new_group(list(range(i * TW, i * TW + TW)))
    if r // TW == i:
        TP = g
for i in range(TW):
    g = dist.new_group(list(range(i, w, TW)))
    if r % TW == i:
        DP = g
V, D = 32000, 1024
lo = (r % TW) * V // TW
emb = nn.Embedding(V // TW, D).cuda()
layers = nn.ModuleList(Layer(D, 16) for _ in range(6)).cuda()
params = [*emb.parameters(), *layers.parameters()]
opt = torch.optim.AdamW(params, 1e-4, foreach=True)
for step in range(5):
    ids = torch.randint(0, V, (4, 513), device="cuda")
    dist.broadcast(ids, (r // TW) * TW, group=TP)
    i, t = ids[:, :-1], ids[:, 1:]
    with torch.autocast("cuda", torch.bfloat16):
        mask = (i < lo) | (i >= lo + V // TW)
        j = (i - lo).masked_fill(mask, 0)
        x = emb(j)
        x = x.masked_fill(mask[..., None], 0.0)
        x = Reduce.apply(x)
        for l in layers:
            x = torch.utils.checkpoint.checkpoint(l, x, use_reentrant=True)
        z = Copy.apply(x) @ emb.weight.t().to(x.dtype)
    loss = VocabCE.apply(z.float().flatten(0, 1), t.flatten(), lo).mean()
    loss.backward()
    for p in params:
        dist.all_reduce(p.grad, group=DP)
        p.grad /= w // TW
    n = torch.stack([p.grad.norm() for p in params]).norm() ** 2
    dist.all_reduce(n, group=TP)
    c = (1 / (n.sqrt() + 1e-6)).clamp(max=1.0)
    torch._foreach_mul_([p.grad for p in params], c)
    opt.step()
    opt.zero_grad()
    if r == 0:
        print(step, loss.item())
dist.destroy_process_group()
