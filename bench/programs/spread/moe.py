"""Switch-style MoE with expert parallelism: counts are exchanged, then tokens go by all_to_all_single with uneven splits."""

import os
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist


class AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, out_splits, in_splits, group):
        ctx.s = (out_splits, in_splits, group)
        y = x.new_empty(sum(out_splits), *x.shape[1:])
        dist.all_to_all_single(y, x.contiguous(), out_splits, in_splits, group=group)
        return y

    @staticmethod
    def backward(ctx, g):
        o, i, group = ctx.s
        y = g.new_empty(sum(i), *g.shape[1:])
        dist.all_to_all_single(y, g.contiguous(), i, o, group=group)
        return y, None, None, None


class MoE(nn.Module):
    def __init__(s, d, f, n_exp, k, group):
        super().__init__()
        s.group = group
        s.w = dist.get_world_size(group)
        s.n, s.k, s.local = n_exp, k, n_exp // s.w
        s.gate = nn.Linear(d, n_exp, bias=False)
        s.w1 = nn.Parameter(torch.randn(s.local, d, f) * 0.02)
        s.w2 = nn.Parameter(torch.randn(s.local, f, d) * 0.02)

    def forward(s, x):
        shape = x.shape
        x = x.view(-1, shape[-1])
        p = F.softmax(s.gate(x).float(), -1)
        top, idx = p.topk(s.k, -1)
        top = top / top.sum(-1, keepdim=True)
        flat = idx.flatten()
        order = flat.argsort(stable=True)
        counts = torch.bincount(flat, minlength=s.n)
        recv = torch.empty_like(counts)
        dist.all_to_all_single(recv, counts, group=s.group)
        ins = counts.view(s.w, -1).sum(1).tolist()
        outs = recv.view(s.w, -1).sum(1).tolist()
        tokens = AllToAll.apply(x[order // s.k], outs, ins, s.group)
        who = torch.repeat_interleave(torch.arange(s.local, device=x.device).repeat(s.w), recv)
        y = torch.zeros_like(tokens)
        for e in range(s.local):
            sel = (who == e).nonzero().squeeze(-1)
            if sel.numel():
                y = y.index_add(0, sel, F.gelu(tokens[sel] @ s.w1[e]) @ s.w2[e])
        back = AllToAll.apply(y, ins, outs, s.group)
        out = torch.zeros_like(x).index_add(0, order // s.k, back * top.flatten()[order, None].to(back.dtype))
        s.aux = s.n * (p.mean(0) * (counts.float() / counts.sum())).sum()
        return out.view(shape)


class Block(nn.Module):
    def __init__(s, d, group):
        super().__init__()
        s.n1, s.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        s.a = nn.MultiheadAttention(d, 8, batch_first=True)
        s.m = MoE(d, 2 * d, 8, 2, group)

    def forward(s, x):
        h = s.n1(x)
        x = x + s.a(h, h, h, need_weights=False)[0]
        return x + s.m(s.n2(x))


dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
r, w = dist.get_rank(), dist.get_world_size()
torch.manual_seed(r)
ep = min(w, 8)
group, _ = dist.new_subgroups(ep)
emb = nn.Embedding(8000, 512).cuda()
net = nn.Sequential(*[Block(512, group) for _ in range(4)]).cuda()
head = nn.Linear(512, 8000).cuda()
params = [*emb.parameters(), *net.parameters(), *head.parameters()]
opt = torch.optim.AdamW(params, 3e-4)
for step in range(5):
    ids = torch.randint(0, 8000, (8, 257), device="cuda")
    loss = F.cross_entropy(head(net(emb(ids[:, :-1]))).flatten(0, 1), ids[:, 1:].flatten())
    loss = loss + 0.01 * sum(b.m.aux for b in net)
    loss.backward()
    for n, q in net.named_parameters():
        if q.grad is not None and ".m.w" not in n:
            dist.all_reduce(q.grad, op=dist.ReduceOp.AVG)
    opt.step()
    opt.zero_grad()
    if r == 0:
        print(step, loss.item())
dist.destroy_process_group()
