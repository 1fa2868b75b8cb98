"""Context parallel of PyTorch: the sequence of each SDPA goes round a ring."""

import os
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel
from torch.nn.attention import sdpa_kernel, SDPBackend

dist.init_process_group("nccl")
w = dist.get_world_size()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
mesh = init_device_mesh("cuda", (w,), mesh_dim_names=("cp",))
torch.manual_seed(0)


class B(nn.Module):
    def __init__(s, d, h):
        super().__init__()
        s.h = h
        s.n1, s.n2 = nn.RMSNorm(d), nn.RMSNorm(d)
        s.qkv, s.o = nn.Linear(d, 3 * d), nn.Linear(d, d)
        s.m = nn.Sequential(nn.Linear(d, 4 * d), nn.SiLU(), nn.Linear(4 * d, d))

    def forward(s, x):
        b, t, d = x.shape
        q, k, v = s.qkv(s.n1(x)).view(b, t, 3, s.h, -1).permute(2, 0, 3, 1, 4)
        x = x + s.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
        return x + s.m(s.n2(x))


net = nn.Sequential(*[B(768, 12) for _ in range(4)]).cuda().bfloat16()
opt = torch.optim.AdamW(net.parameters())
for step in range(4):
    x, y = (
        torch.randn(1, 8192, 768, device="cuda", dtype=torch.bfloat16),
        torch.randn(1, 8192, 768, device="cuda", dtype=torch.bfloat16),
    )
    with (
        sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION]),
        context_parallel(mesh, buffers=[x, y], buffer_seq_dims=[1, 1]),
    ):
        loss = F.mse_loss(net(x), y)
        loss.backward()
    for p in net.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
    opt.step()
    opt.zero_grad()
    if dist.get_rank() == 0:
        print(step, loss.item())
dist.destroy_process_group()
