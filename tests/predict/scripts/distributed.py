"""One small model, trained in every way that PyTorch spreads over GPUs: distributed.py KIND."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel as DDP

WIDTH, DEPTH, BATCH = 512, 4, 16


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


def model():
    return nn.Sequential(*[Block() for _ in range(DEPTH)])


def ddp(device, **options):
    return DDP(model().to(device), device_ids=[device.index], **options)


def fsdp2(device, mesh, **options):
    from torch.distributed.fsdp import fully_shard

    sharded = model()
    for block in sharded:
        fully_shard(block, mesh=mesh, **options)
    return fully_shard(sharded, mesh=mesh, **options)


def fsdp1(device, **options):
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    policy = ModuleWrapPolicy({Block})
    return FullyShardedDataParallel(model(), auto_wrap_policy=policy, device_id=device, **options)


def tensor_parallel(device, mesh):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    split = model().to(device)
    for block in split:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return split


def wrapped(kind, device, world):
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy

    everyone = lambda: init_device_mesh("cuda", (world,))
    if kind == "ddp":
        return ddp(device)
    if kind == "ddp-gradient-view":
        return ddp(device, gradient_as_bucket_view=True)
    if kind == "ddp-static":
        return ddp(device, static_graph=True)
    if kind == "ddp-unused":
        return ddp(device, find_unused_parameters=True)
    if kind == "zero1":
        return ddp(device)
    if kind == "fsdp1":
        return fsdp1(device)
    if kind == "fsdp1-original":
        return fsdp1(device, use_orig_params=True)
    if kind == "fsdp2":
        return fsdp2(device, everyone())
    if kind == "fsdp2-mixed":
        return fsdp2(device, everyone(), mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    if kind == "fsdp2-keep":
        return fsdp2(device, everyone(), reshard_after_forward=False)
    if kind == "fsdp2-offload":
        return fsdp2(device, everyone(), offload_policy=CPUOffloadPolicy())
    if kind == "hsdp":
        return fsdp2(device, init_device_mesh("cuda", (2, world // 2), mesh_dim_names=("replicate", "shard")))
    if kind == "tensor":
        return tensor_parallel(device, everyone())
    if kind == "tensor-fsdp2":
        mesh = init_device_mesh("cuda", (world // 2, 2), mesh_dim_names=("data", "tensor"))
        from torch.distributed.fsdp import fully_shard

        split = tensor_parallel(device, mesh["tensor"])
        return fully_shard(split, mesh=mesh["data"])
    raise SystemExit(f"unknown kind {kind}")


def train(kind, device, world):
    net = wrapped(kind, device, world)
    if kind == "zero1":
        from torch.distributed.optim import ZeroRedundancyOptimizer

        optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.AdamW)
    else:
        # A mixture of tensors that are split and tensors that are not.
        optimizer = torch.optim.AdamW(net.parameters(), foreach=None if kind != "tensor" else False)
    for _ in range(6):
        loss = net(torch.randn(BATCH, WIDTH, device=device)).square().mean()
        loss.backward()
        if not kind.startswith("tensor"):  # PyTorch has no norm of gradients on different meshes.
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def pipeline(device, rank, world):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    stage = PipelineStage(model().to(device), rank, world, device)
    schedule = Schedule1F1B(stage, n_microbatches=world, loss_fn=lambda y, t: (y - t).square().mean())
    optimizer = torch.optim.AdamW(stage.submod.parameters())
    for _ in range(6):
        x = torch.randn(BATCH, WIDTH, device=device)
        if rank == 0:
            schedule.step(x)
        elif rank == world - 1:
            schedule.step(target=x, losses=[])
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()


def main():
    kind = sys.argv[1]
    local = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local)
    torch.cuda.set_device(device)
    backend = "cpu:gloo,cuda:nccl" if kind == "fsdp2-offload" else "nccl"
    dist.init_process_group(backend, device_id=device if "bound" in sys.argv else None)
    rank, world = dist.get_rank(), dist.get_world_size()
    if kind == "pipeline":
        pipeline(device, rank, world)
    else:
        train(kind, device, world)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
