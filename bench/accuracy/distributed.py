#!/usr/bin/env python3
"""Training on several GPUs, each way as people write it; the same code on real GPUs and on the phantom.

    distributed.py list
    torchrun --nproc-per-node 2 distributed.py NAME OUTPREFIX      writes OUTPREFIX.rankN.json and .pickle
    python distributed.py data-parallel OUTPREFIX                  one process, all GPUs
    torchrun --nproc-per-node 2 distributed.py nccl OUTPREFIX      what NCCL itself takes on the device, step by step

"free" numbers are of the whole device (`cudaMemGetInfo`), the others are of PyTorch's allocator.
"""
import json
import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

KINDS = {}


def kind(function):
    KINDS[function.__name__.replace("_", "-")] = function
    return function


def gpt2(**changes):
    import transformers

    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**({"n_layer": 6} | changes)))


def llama(**changes):
    import transformers

    config = dict(hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=4, vocab_size=32000)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**(config | changes)))


def language(model, optimizer, batch=4, length=512, steps=4, autocast=False):
    model.train()
    for _ in range(steps):
        ids = torch.randint(0, 20000, (batch, length), device="cuda")
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()


def ddp(local, model=None, **settings):
    return nn.parallel.DistributedDataParallel((model or gpt2()).cuda(), device_ids=[local], **settings)


@kind
def ddp_plain(local):
    model = ddp(local)
    language(model, torch.optim.AdamW(model.parameters()))


@kind
def ddp_bucket_view_amp(local):
    model = ddp(local, gradient_as_bucket_view=True, bucket_cap_mb=50)
    language(model, torch.optim.AdamW(model.parameters(), fused=True), autocast=True)


@kind
def ddp_static_unused(local):
    model = ddp(local, static_graph=True, find_unused_parameters=True)
    language(model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9))


@kind
def ddp_bf16_hook_resnet(local):
    import torchvision
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

    model = ddp(local, nn.SyncBatchNorm.convert_sync_batchnorm(torchvision.models.resnet18(weights=None)))
    model.register_comm_hook(None, bf16_compress_hook)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(4):
        x, y = torch.randn(16, 3, 224, 224).cuda(), torch.randint(0, 1000, (16,)).cuda()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()


@kind
def zero1(local):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = ddp(local)
    language(model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-4))


@kind
def fsdp1(local):
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy
    from transformers.models.gpt2.modeling_gpt2 import GPT2Block

    precision = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = FullyShardedDataParallel(gpt2(), auto_wrap_policy=ModuleWrapPolicy({GPT2Block}), device_id=local, use_orig_params=True, mixed_precision=precision)
    language(model, torch.optim.AdamW(model.parameters()))


def fsdp2(policy=None, **settings):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    if policy is None:
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    with torch.device("meta"):
        model = llama()
    for layer in model.model.layers:
        fully_shard(layer, mp_policy=policy, **settings)
    fully_shard(model, mp_policy=policy, **settings)
    model.to_empty(device="cpu" if "offload_policy" in settings else "cuda")
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    return model


@kind
def fsdp2_keep(local):
    model = fsdp2(reshard_after_forward=False)
    language(model, torch.optim.AdamW(model.parameters()))


@kind
def fsdp2_fp32(local):
    from torch.distributed.fsdp import MixedPrecisionPolicy

    model = fsdp2(MixedPrecisionPolicy())
    language(model, torch.optim.AdamW(model.parameters()), batch=2)


@kind
def fsdp2_checkpointed(local):
    model = fsdp2()
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    language(model, torch.optim.AdamW(model.parameters(), fused=True), batch=8, length=1024)


@kind
def fsdp2_cpu_offload(local):
    from torch.distributed.fsdp import CPUOffloadPolicy

    model = fsdp2(offload_policy=CPUOffloadPolicy())
    language(model, torch.optim.AdamW(model.parameters()))


@kind
def tensor_parallel(local):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(1024), nn.Linear(1024, 4096), nn.Linear(4096, 1024)

        def forward(self, x):
            return x + self.down(F.gelu(self.up(self.norm(x))))

    model = nn.Sequential(*[Block() for _ in range(8)]).cuda()
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    for block in model:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    # The norms stay plain tensors, which foreach refuses to mix with distributed ones.
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    for _ in range(4):
        model(torch.randn(8, 512, 1024).cuda()).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


@kind
def pipeline_two_stages(local):
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    rank, world = dist.get_rank(), dist.get_world_size()
    stage = nn.Sequential(*[nn.Sequential(nn.Linear(2048, 2048), nn.ReLU()) for _ in range(6)]).cuda()
    schedule = ScheduleGPipe(PipelineStage(stage, rank, world, torch.device("cuda", local)), n_microbatches=4, loss_fn=F.mse_loss)
    optimizer = torch.optim.Adam(stage.parameters())
    for _ in range(4):
        x = torch.randn(256, 2048).cuda()
        if rank == 0:
            schedule.step(x)
        elif rank == world - 1:
            schedule.step(target=x)
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()


def data_parallel(_):
    model = nn.DataParallel(gpt2().cuda())
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        ids = torch.randint(0, 20000, (8, 512), device="cuda")
        loss = model(input_ids=ids, labels=ids).loss.mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def nccl(local):
    """What is left on the device after each of these, less what PyTorch's allocator holds."""
    facts = []

    def note(what):
        torch.cuda.synchronize()
        dist.barrier(cpu) if dist.is_initialized() else None
        free, total = torch.cuda.mem_get_info()
        facts.append([what, total - free - torch.cuda.memory_reserved()])

    cpu = dist.new_group(backend="gloo")
    x = torch.zeros(1 << 22, device="cuda")
    note("context and one tensor")
    dist.all_reduce(x)
    note("first all_reduce")
    dist.all_reduce(x)
    dist.all_gather_into_tensor(torch.empty(x.numel() * dist.get_world_size(), device="cuda"), x)
    note("all_gather")
    dist.reduce_scatter_tensor(x[: x.numel() // dist.get_world_size()], x)
    note("reduce_scatter")
    dist.broadcast(x, 0)
    note("broadcast")
    dist.all_to_all_single(torch.empty_like(x), x)
    note("all_to_all")
    if dist.get_rank() == 0:
        dist.send(x, 1)
    elif dist.get_rank() == 1:
        dist.recv(x, 0)
    note("send and recv")
    for number in (2, 3, 4):
        group = dist.new_group()
        dist.all_reduce(x, group=group)
        note(f"communicator {number}")
        dist.all_gather_into_tensor(torch.empty(x.numel() * dist.get_world_size(), device="cuda"), x, group=group)
        note(f"communicator {number}, all_gather")
    return facts


def main():
    if sys.argv[1:] == ["list"]:
        print("\n".join(KINDS))
        return
    name, prefix = sys.argv[1:3]
    single = name == "data-parallel"
    local = 0 if single else int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    before = None
    if not single:
        free, total = torch.cuda.mem_get_info()
        before = total - free
        dist.init_process_group("nccl", device_id=torch.device("cuda", local))
    rank = 0 if single else dist.get_rank()
    torch.manual_seed(0)
    torch.cuda.memory._record_memory_history("all", context="all", stacks="python", max_entries=1_000_000)
    run = {"data-parallel": data_parallel, "nccl": nccl}.get(name) or KINDS[name]
    facts = run(local)
    torch.cuda.synchronize()
    devices = range(torch.cuda.device_count()) if single else [local]
    free, total = torch.cuda.mem_get_info()
    result = {
        "name": name,
        "rank": rank,
        "max_allocated": [torch.cuda.max_memory_allocated(it) for it in devices],
        "max_reserved": [torch.cuda.max_memory_reserved(it) for it in devices],
        "allocations": [torch.cuda.memory_stats(it)["allocation.all.allocated"] for it in devices],
        "device_used_before": before,
        "device_used": total - free,
        "nccl_version": ".".join(map(str, torch.cuda.nccl.version())),
        "facts": facts,
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name(),
    }
    torch.cuda.memory._dump_snapshot(f"{prefix}.rank{rank}.pickle")
    with open(f"{prefix}.rank{rank}.json", "w") as file:
        json.dump(result, file)
    if not single:
        dist.barrier()
        dist.destroy_process_group()


main()
