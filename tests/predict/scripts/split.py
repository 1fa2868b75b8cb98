"""A small model on a mesh of --dp by --tp ranks, with --mbs samples a rank. Six heads cannot be split by four."""

import argparse
import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

parser = argparse.ArgumentParser()
for name in ("--dp", "--tp", "--mbs"):
    parser.add_argument(name, type=int, default=1)
args = parser.parse_args()
HEADS = 6
if HEADS % args.tp:
    raise ValueError(f"{HEADS} heads cannot be split by tp={args.tp}")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (args.dp, args.tp), mesh_dim_names=("dp", "tp"))
blocks = [torch.nn.Sequential(torch.nn.Linear(768, 3072), torch.nn.GELU(), torch.nn.Linear(3072, 768)) for _ in range(2)]
model = torch.nn.Sequential(*blocks).cuda()
for block in model:
    parallelize_module(block, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(block, mesh=mesh["dp"])
fully_shard(model, mesh=mesh["dp"])
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    model(torch.randn(args.mbs, 4096, 768, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
