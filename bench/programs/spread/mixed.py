"""Every collective, as a test program of a cluster has them, between training steps; gloo beside nccl; objects; monitored barrier."""

import datetime
import os
import torch
import torch.nn as nn
import torch.distributed as dist
import torch.distributed.nn.functional as dnn

dist.init_process_group("nccl", timeout=datetime.timedelta(minutes=5))
r, w = dist.get_rank(), dist.get_world_size()
d = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(d)
gloo = dist.new_group(backend="gloo")
even = dist.new_group([i for i in range(w) if i % 2 == 0])
half, groups = dist.new_subgroups(max(1, w // 2))
dist.monitored_barrier(group=gloo, timeout=datetime.timedelta(seconds=60), wait_all_ranks=True)
cfg = [{"lr": 1e-3, "seed": 1234, "name": "run"}] if r == 0 else [None]
dist.broadcast_object_list(cfg, src=0, device=d)
torch.manual_seed(cfg[0]["seed"])
got = [None]
dist.scatter_object_list(got, [{"rank": i} for i in range(w)] if r == 0 else None, src=0)
assert got[0]["rank"] == r, got
model = nn.Sequential(
    nn.Conv2d(3, 64, 7, 2, 3),
    nn.GroupNorm(8, 64),
    nn.ReLU(),
    nn.Conv2d(64, 128, 3, 2, 1),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(128, 256),
).to(d)
for p in model.parameters():
    dist.broadcast(p.detach(), src=0)
opt = torch.optim.RMSprop(model.parameters(), cfg[0]["lr"])
scale = nn.Parameter(torch.tensor(2.0, device=d))
for step in range(6):
    x = torch.randn(64, 3, 128, 128, device=d)
    z = nn.functional.normalize(model(x), dim=-1)
    allz = torch.cat(dnn.all_gather(z))
    logits = scale.exp() * z @ allz.t()
    loss = nn.functional.cross_entropy(logits, torch.arange(64, device=d) + 64 * r)
    loss.backward()
    hs = [dist.all_reduce(p.grad, async_op=True) for p in model.parameters()]
    [h.wait() for h in hs]
    for p in model.parameters():
        p.grad.div_(w)
    opt.step()
    opt.zero_grad()
    stats = torch.tensor([loss.item(), 1.0], dtype=torch.float64)
    dist.all_reduce(stats, group=gloo)
    outs = [torch.empty_like(z) for _ in range(w)] if r == 0 else None
    dist.gather(z.detach(), outs, dst=0)
    red = loss.detach().clone()
    dist.reduce(red, 0, op=dist.ReduceOp.MAX)
    piece = torch.empty(1000, device=d)
    dist.scatter(piece, [torch.ones(1000, device=d) * i for i in range(w)] if r == 0 else None, src=0)
    ins = [torch.randn(10 + i, device=d) for i in range(w)]
    outl = [torch.empty(10 + r, device=d) for _ in range(w)]
    dist.all_to_all(outl, ins)
    if r % 2 == 0:
        if r + 1 < w:
            dist.send(z.detach().contiguous(), r + 1)
        dist.all_reduce(red, group=even)
    else:
        t = torch.empty_like(z)
        dist.recv(t, r - 1)
    dist.all_reduce(piece, group=half)
    sizes = [torch.empty(1, dtype=torch.long, device=d) for _ in range(w)]
    dist.all_gather(sizes, torch.tensor([5 + r], device=d))
    m = int(torch.stack(sizes).max())
    pad = torch.zeros(m, 64, device=d)
    bigs = [torch.empty_like(pad) for _ in range(w)]
    dist.all_gather(bigs, pad)
    with dist._coalescing_manager(device=d):
        [dist.all_reduce(t) for t in (red, piece)]
infos = [None] * w
dist.all_gather_object(infos, {"host": os.uname().nodename, "rank": r, "mem": torch.cuda.memory_allocated()}, group=gloo)
gathered = [None] * w if r == 0 else None
dist.gather_object("x" * (r + 1), gathered, dst=0)
if r == 0:
    print(len(infos), gathered[0], stats.tolist())
dist.barrier(group=gloo)
dist.destroy_process_group()
