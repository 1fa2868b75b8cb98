"""DDP in all its settings:  torchrun --nproc-per-node 2 hooks.py powersgd|fp16|batched|local|static|unused|noddp|compile|delay"""

import os
import sys
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
import torchvision
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks as D, powerSGD_hook as P

how = sys.argv[1]
dist.init_process_group("nccl")
L = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(L)
torch.manual_seed(0)


class Net(nn.Module):
    def __init__(s):
        super().__init__()
        s.v = torchvision.models.vit_b_16(weights=None, num_classes=100)
        s.v.encoder.layers = s.v.encoder.layers[:6]
        s.spare = nn.Linear(768, 768)

    def forward(s, x, use=False):
        o = s.v(x)
        return o + s.spare(torch.zeros(1, 768, device=x.device)).sum() if use else o


kw = {
    "static": dict(static_graph=True),
    "unused": dict(find_unused_parameters=True),
    "compile": dict(find_unused_parameters=True),
    "local": dict(find_unused_parameters=True),
    "delay": dict(delay_all_reduce_named_params=None),
}.get(how, dict(find_unused_parameters=True))
kw.pop("delay_all_reduce_named_params", None)
net = DDP(Net().cuda(), device_ids=[L], bucket_cap_mb=10, **kw)
net_ = net
if how == "powersgd":
    net.register_comm_hook(
        P.PowerSGDState(
            None, matrix_approximation_rank=4, start_powerSGD_iter=3, min_compression_rate=0.5, orthogonalization_epsilon=1e-6
        ),
        P.powerSGD_hook,
    )
if how == "batched":
    net.register_comm_hook(P.PowerSGDState(None, 1, start_powerSGD_iter=3), P.batched_powerSGD_hook)
if how == "fp16":
    net.register_comm_hook(None, D.fp16_compress_wrapper(D.allreduce_hook))
if how == "compile":
    net_ = torch.compile(net)
opt = torch.optim.LBFGS(net.parameters(), max_iter=2) if how == "lbfgs" else torch.optim.AdamW(net.parameters(), 1e-4)
for step in range(6):
    x, y = torch.randn(16, 3, 224, 224, device="cuda"), torch.randint(0, 100, (16,), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        loss = F.cross_entropy(net_(x, how == "static"), y)
    loss.backward()
    opt.step()
    opt.zero_grad()
    if dist.get_rank() == 0:
        print(step, loss.item())
dist.destroy_process_group()
