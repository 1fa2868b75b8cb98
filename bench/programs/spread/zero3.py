"""ZeRO by hand, deepspeed in a page: flat fp16 weights, fp32 shards with Adam, reduce_scatter of gradients, dynamic loss scale."""

import os
import torch
import torch.nn as nn
import torch.distributed as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


class Zero:
    def __init__(s, model, lr):
        s.p = [q for q in model.parameters()]
        s.w, s.r = dist.get_world_size(), dist.get_rank()
        flat = _flatten_dense_tensors([q.data for q in s.p])
        pad = -flat.numel() % (s.w * 128)
        s.flat = torch.cat([flat, flat.new_zeros(pad)])
        del flat
        s.n = s.flat.numel() // s.w
        for q, v in zip(s.p, _unflatten_dense_tensors(s.flat, s.p)):
            q.data = v
        s.master = nn.Parameter(s.flat.narrow(0, s.r * s.n, s.n).clone().float())
        s.opt = torch.optim.AdamW([s.master], lr)
        s.scale, s.good = 2.0**12, 0
        s.grad = torch.zeros_like(s.flat)
        s.stream = torch.cuda.Stream()
        o = 0
        for q in s.p:
            q.register_post_accumulate_grad_hook(s.hook(o))
            o += q.numel()

    def hook(s, o):
        def f(q):
            s.grad.narrow(0, o, q.numel()).copy_(q.grad.view(-1))
            q.grad = None

        return f

    def step(s):
        shard = torch.empty(s.n, dtype=s.grad.dtype, device="cuda")
        s.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(s.stream):
            h = dist.reduce_scatter_tensor(shard, s.grad, op=dist.ReduceOp.SUM, async_op=True)
        h.wait()
        torch.cuda.current_stream().wait_stream(s.stream)
        bad = (~torch.isfinite(shard)).any().float()
        dist.all_reduce(bad, op=dist.ReduceOp.MAX)
        if bad.item():
            s.scale /= 2
            s.good = 0
            return False
        s.master.grad = shard.float() / (s.scale * s.w)
        n = s.master.grad.norm() ** 2
        dist.all_reduce(n)
        s.master.grad.mul_((1.0 / (n.sqrt() + 1e-6)).clamp(max=1))
        s.opt.step()
        s.master.grad = None
        s.good += 1
        dist.all_gather_into_tensor(s.flat, s.master.data.to(s.flat.dtype))
        s.grad.zero_()
        return True


class GPT(nn.Module):
    def __init__(s, d=1024, n=8, v=32000):
        super().__init__()
        s.e = nn.Embedding(v, d)
        s.l = nn.ModuleList(
            nn.TransformerEncoderLayer(d, 16, 4 * d, 0.0, "gelu", batch_first=True, norm_first=True) for _ in range(n)
        )
        s.h = nn.Linear(d, v, bias=False)

    def forward(s, t):
        x = s.e(t)
        m = nn.Transformer.generate_square_subsequent_mask(t.shape[1], device=t.device, dtype=x.dtype)
        for l in s.l:
            x = torch.utils.checkpoint.checkpoint(l, x, m, None, True, use_reentrant=False)
        return s.h(x)


import torch.utils.checkpoint

dist.init_process_group("nccl", device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"])))
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.manual_seed(0)
model = GPT().half().cuda()
z = Zero(model, 1e-4)
for i in range(5):
    ids = torch.randint(0, 32000, (4, 513)).cuda(non_blocking=True)
    loss = nn.functional.cross_entropy(model(ids[:, :-1]).float().flatten(0, 1), ids[:, 1:].flatten())
    (loss * z.scale).backward()
    ok = z.step()
    if dist.get_rank() == 0:
        print(i, float(loss), "ok" if ok else "skipped")
torch.cuda.synchronize()
dist.destroy_process_group()
