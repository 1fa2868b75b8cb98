#!/usr/bin/env python3
"""Training on several GPUs, each way as people write it; the same code on real GPUs and on the phantom.

    distributed.py list
    torchrun --nproc-per-node 2 distributed.py NAME OUTPREFIX      writes OUTPREFIX.rankN.json and .pickle
    python distributed.py NAME OUTPREFIX                           one process, all GPUs: data-parallel, device-map
    torchrun --nproc-per-node 2 distributed.py nccl-... OUTPREFIX  what NCCL itself takes on the device, step by step

"process_bytes" is what the driver counts for this process on its device (NVML), the others are of PyTorch's allocator.
"""
import ctypes
import json
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

KINDS = {}
"""Name: function, and who makes the process group: "ours", "theirs" (a trainer), "none" (one process, all GPUs)."""


def kind(function, group="ours"):
    KINDS[function.__name__.replace("_", "-")] = (function, group)
    return function


def trainer(function):
    return kind(function, "theirs")


def single(function):
    return kind(function, "none")


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


@single
def data_parallel(_):
    model = nn.DataParallel(gpt2().cuda())
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        ids = torch.randint(0, 20000, (8, 512), device="cuda")
        loss = model(input_ids=ids, labels=ids).loss.mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@single
def device_map(_):
    """Weights from a file, laid over all GPUs; the layers that are trained move with them."""
    import transformers

    with tempfile.TemporaryDirectory() as folder:
        llama().save_pretrained(folder)
        model = transformers.LlamaForCausalLM.from_pretrained(folder, device_map="balanced", dtype=torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters())
    language(model, optimizer, batch=2)


@single
def two_devices_by_hand(_):
    first = nn.Sequential(*[nn.Sequential(nn.Linear(2048, 2048), nn.GELU()) for _ in range(6)]).to("cuda:0")
    second = nn.Sequential(*[nn.Sequential(nn.Linear(2048, 2048), nn.GELU()) for _ in range(6)]).to("cuda:1")
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()])
    for _ in range(4):
        loss = second(first(torch.randn(512, 2048, device="cuda:0")).to("cuda:1")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@kind
def ddp_unused(local):
    model = ddp(local, find_unused_parameters=True, bucket_cap_mb=5)
    language(model, torch.optim.AdamW(model.parameters()), batch=2)


@kind
def ddp_accumulate_scaler(local):
    """Two micro-batches, the first without communication; fp16 with a scaler and clipping."""
    model = ddp(local)
    optimizer, scaler = torch.optim.AdamW(model.parameters()), torch.amp.GradScaler("cuda")
    for step in range(4):
        for part in range(2):
            ids = torch.randint(0, 20000, (4, 512), device="cuda")
            model.require_backward_grad_sync = part == 1
            with torch.autocast("cuda", torch.float16):
                loss = model(input_ids=ids, labels=ids).loss / 2
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


@kind
def ddp_powersgd(local):
    from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

    model = ddp(local)
    model.register_comm_hook(PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2), powerSGD_hook)
    language(model, torch.optim.SGD(model.parameters(), 0.1), steps=6)


@kind
def ddp_fp16_hook_gpt2(local):
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

    model = ddp(local)
    model.register_comm_hook(None, fp16_compress_hook)
    language(model, torch.optim.AdamW(model.parameters()))


@kind
def ddp_short_steps(local):
    """Steps of a few milliseconds: PyTorch's watchdog looks once in many of them."""
    model = ddp(local, nn.Sequential(*[nn.Linear(2048, 2048) for _ in range(12)]))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(60):
        model(torch.randn(64, 2048, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


@kind
def ddp_resnet_bf16(local):
    import torchvision

    model = ddp(local, torchvision.models.resnet50(weights=None).to(memory_format=torch.channels_last))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for _ in range(4):
        x = torch.randn(32, 3, 224, 224).cuda().to(memory_format=torch.channels_last)
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(model(x), torch.randint(0, 1000, (32,)).cuda())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def fsdp1_of(local, **settings):
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy
    from transformers.models.gpt2.modeling_gpt2 import GPT2Block

    policy = ModuleWrapPolicy({GPT2Block})
    return FullyShardedDataParallel(gpt2(), auto_wrap_policy=policy, device_id=local, **settings)


@kind
def fsdp1_grad_op(local):
    from torch.distributed.fsdp import ShardingStrategy

    model = fsdp1_of(local, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)
    language(model, torch.optim.AdamW(model.parameters()))
    model.clip_grad_norm_(1.0)


@kind
def fsdp1_offload(local):
    from torch.distributed.fsdp import CPUOffload

    model = fsdp1_of(local, cpu_offload=CPUOffload(offload_params=True))
    language(model, torch.optim.AdamW(model.parameters()), batch=2)


def mesh(*shape, names=("replicate", "shard")):
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cuda", shape, mesh_dim_names=names[: len(shape)])


@kind
def hsdp_one_by_all(local):
    model = fsdp2(mesh=mesh(1, dist.get_world_size()))
    language(model, torch.optim.AdamW(model.parameters()), batch=2)


@kind
def hsdp_all_by_one(local):
    model = fsdp2(mesh=mesh(dist.get_world_size(), 1))
    language(model, torch.optim.AdamW(model.parameters()), batch=2)


@kind
def fsdp2_offload_checkpointed_clip(local):
    from torch.distributed.fsdp import CPUOffloadPolicy

    model = fsdp2(offload_policy=CPUOffloadPolicy(pin_memory=False))
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    language(model, torch.optim.AdamW(model.parameters()), batch=4, length=1024)


@kind
def fsdp2_clip_accumulate(local):
    """Gradients stay whole between the two micro-batches."""
    model = fsdp2()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(4):
        for part in range(2):
            model.set_requires_gradient_sync(part == 1)
            ids = torch.randint(0, 20000, (2, 512), device="cuda")
            (model(input_ids=ids, labels=ids).loss / 2).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


@kind
def fsdp2_save(local):
    """Two steps, then a checkpoint of shards, and one gathered on rank 0's host."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_state_dict

    model = fsdp2()
    optimizer = torch.optim.AdamW(model.parameters())
    language(model, optimizer, batch=2, steps=2)
    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder, 0)
    weights, states = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": states}, checkpoint_id=folder[0])
    get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    language(model, optimizer, batch=2, steps=1)


@kind
def fsdp2_tensor_parallel(local):
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    both = mesh(1, dist.get_world_size(), names=("data", "tensor"))
    model = llama(num_key_value_heads=16).cuda()
    split = {f"self_attn.{it}_proj": ColwiseParallel() for it in "qkv"} | {"self_attn.o_proj": RowwiseParallel()}
    split |= {"mlp.gate_proj": ColwiseParallel(), "mlp.up_proj": ColwiseParallel(), "mlp.down_proj": RowwiseParallel()}
    for layer in model.model.layers:
        parallelize_module(layer, both["tensor"], split)
        fully_shard(layer, mesh=both["data"])
    fully_shard(model, mesh=both["data"])
    language(model, torch.optim.AdamW(model.parameters(), foreach=False), batch=2)


@kind
def sequence_parallel(local):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module
    from torch.distributed.tensor import DTensor, Shard

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(1024), nn.Linear(1024, 4096), nn.Linear(4096, 1024)

        def forward(self, x):
            return x + self.down(F.gelu(self.up(self.norm(x))))

    model = nn.Sequential(*[Block() for _ in range(6)]).cuda()
    everyone = mesh(dist.get_world_size(), names=("tensor",))
    for block in model:
        plan = {"norm": SequenceParallel(), "up": ColwiseParallel(input_layouts=Shard(1)), "down": RowwiseParallel(output_layouts=Shard(1), use_local_output=False)}
        parallelize_module(block, everyone, plan)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    for _ in range(4):
        x = DTensor.from_local(torch.randn(4, 256, 1024, device="cuda"), everyone, [Shard(1)])
        model(x).to_local().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


@kind
def context_parallel(local):
    """Ring attention: each rank has its part of every sequence."""
    from torch.distributed.tensor.experimental import context_parallel as ring
    from torch.nn.attention import SDPBackend, sdpa_kernel

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(1024, 3072), nn.Linear(1024, 1024)

        def forward(self, x):
            q, k, v = (it.unflatten(-1, (16, 64)).transpose(1, 2) for it in self.qkv(x).chunk(3, -1))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return x + self.out(y.transpose(1, 2).flatten(2))

    model = nn.Sequential(*[Attention() for _ in range(4)]).cuda().bfloat16()
    everyone = mesh(dist.get_world_size(), names=("context",))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(4):
        x = torch.randn(2, 4096, 1024, device="cuda", dtype=torch.bfloat16)
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION), ring(everyone, buffers=[x], buffer_seq_dims=[1]):
            model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


@kind
def expert_parallel(local):
    """One expert a rank; every token goes to a rank and comes back."""
    from torch.distributed.nn.functional import all_to_all_single

    world = dist.get_world_size()

    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(1024, world)
            self.expert = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024))

        def forward(self, x):
            weight, order = self.gate(x).softmax(-1).max(-1)
            x_sorted = x[torch.arange(len(x), device=x.device)]
            sent = all_to_all_single(torch.empty_like(x_sorted), x_sorted)
            back = all_to_all_single(torch.empty_like(x_sorted), self.expert(sent))
            return x + back * weight[:, None]

    model = nn.Sequential(*[Experts() for _ in range(4)]).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(4):
        model(torch.randn(4096, 1024, device="cuda")).square().mean().backward()
        for name, p in model.named_parameters():
            if "gate" in name:
                dist.all_reduce(p.grad)
        optimizer.step()
        optimizer.zero_grad()


@kind
def pipeline_1f1b(local):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    rank, world = dist.get_rank(), dist.get_world_size()
    stage = nn.Sequential(*[nn.Sequential(nn.Linear(2048, 2048), nn.ReLU()) for _ in range(6)]).cuda()
    schedule = Schedule1F1B(PipelineStage(stage, rank, world, torch.device("cuda", local)), n_microbatches=8, loss_fn=F.mse_loss)
    optimizer = torch.optim.Adam(stage.parameters())
    for _ in range(4):
        x = torch.randn(1024, 2048).cuda()
        if rank == 0:
            schedule.step(x)
        elif rank == world - 1:
            schedule.step(target=x, losses=[])
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()


@kind
def mixed_groups_objects(local):
    """Sizes and words over gloo and as objects over NCCL, between steps of plain data parallelism by hand."""
    host = dist.new_group(backend="gloo")
    model = nn.Sequential(*[nn.Linear(2048, 2048) for _ in range(8)]).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(4):
        model(torch.randn(128, 2048, device="cuda")).square().mean().backward()
        for p in model.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
        optimizer.step()
        optimizer.zero_grad()
        told = [None] * dist.get_world_size()
        dist.all_gather_object(told, {"step": step, "text": "x" * 1000})
        dist.all_reduce(torch.tensor([1.0]), group=host)
        dist.barrier()


def text_rows(n):
    return [{"input_ids": torch.randint(0, 20000, (256,)), "labels": torch.randint(0, 20000, (256,))} for _ in range(n)]


def transformers_trainer(**settings):
    import transformers

    arguments = transformers.TrainingArguments(
        output_dir=tempfile.mkdtemp(), per_device_train_batch_size=4, max_steps=4, save_strategy="no", report_to=[],
        logging_steps=1, disable_tqdm=True, **settings,
    )
    transformers.Trainer(model=gpt2(), args=arguments, train_dataset=text_rows(64)).train()


@trainer
def trainer_ddp(local):
    transformers_trainer(bf16=True, ddp_find_unused_parameters=False)


@trainer
def trainer_fsdp(local):
    transformers_trainer(bf16=True, fsdp="full_shard auto_wrap", fsdp_config={"transformer_layer_cls_to_wrap": ["GPT2Block"]})


def accelerated(**settings):
    from accelerate import Accelerator

    accelerator = Accelerator(mixed_precision="bf16", **settings)
    model = gpt2()
    loader = torch.utils.data.DataLoader(text_rows(64), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters()), loader)
    for number, batch in enumerate(loader):
        if number == 4:
            break
        accelerator.backward(model(**batch).loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


@trainer
def accelerate_ddp(local):
    accelerated()


@trainer
def accelerate_fsdp2(local):
    from accelerate import FullyShardedDataParallelPlugin

    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="transformer_based_wrap", transformer_cls_names_to_wrap=["GPT2Block"])
    accelerated(fsdp_plugin=plugin)


def lightning_fit(strategy):
    try:
        import lightning.pytorch as lightning
    except ImportError:
        import pytorch_lightning as lightning

    class Net(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(*[nn.Sequential(nn.Linear(2048, 2048), nn.GELU()) for _ in range(12)])

        def training_step(self, batch, _):
            return self.layers(batch[0]).square().mean()

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

    if strategy == "fsdp":
        strategy = lightning.strategies.FSDPStrategy(auto_wrap_policy={nn.Linear})
    rows = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(1024, 2048)), batch_size=64)
    fit = lightning.Trainer(
        accelerator="gpu", devices=int(os.environ["LOCAL_WORLD_SIZE"]), strategy=strategy, precision="bf16-mixed", max_steps=4,
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )
    fit.fit(Net(), rows)


@trainer
def lightning_ddp(local):
    lightning_fit("ddp")


@trainer
def lightning_fsdp(local):
    lightning_fit("fsdp")


# --- What NCCL takes ---------------------------------------------------------------------------------


class Notes:
    """What the driver counts for this process, less what PyTorch's allocator holds, after each of these."""

    def __init__(self):
        self.facts = []
        self.cpu = dist.new_group(backend="gloo")

    def __call__(self, what):
        torch.cuda.synchronize()
        dist.barrier(self.cpu)
        free, total = torch.cuda.mem_get_info()
        own = process_bytes(torch.cuda.current_device())
        self.facts.append([what, total - free - torch.cuda.memory_reserved(), own and own - torch.cuda.memory_reserved()])
        dist.barrier(self.cpu)


def first_and_again(note, what, run):
    run()
    note(what)
    run()
    note(what + " again")


@kind
def nccl(local):
    note, world, rank = Notes(), dist.get_world_size(), dist.get_rank()
    x = torch.zeros(1 << 22, device="cuda")
    note("context and one tensor")
    first_and_again(note, "all_reduce", lambda: dist.all_reduce(x))
    dist.all_gather_into_tensor(torch.empty(x.numel() * world, device="cuda"), x)
    note("all_gather")
    dist.reduce_scatter_tensor(x[: x.numel() // world], x)
    note("reduce_scatter")
    dist.broadcast(x, 0)
    note("broadcast")
    dist.all_to_all_single(torch.empty_like(x), x)
    note("all_to_all")
    send_or_receive(x, rank, world)
    note("send and recv")
    for number in (2, 3, 4):
        group = dist.new_group()
        dist.all_reduce(x, group=group)
        note(f"communicator {number}")
        dist.all_gather_into_tensor(torch.empty(x.numel() * world, device="cuda"), x, group=group)
        note(f"communicator {number}, all_gather")
    return note.facts


def send_or_receive(x, rank, world):
    if rank == 0:
        dist.send(x, 1)
    elif rank == 1:
        dist.recv(x, 0)


def nccl_alone(run):
    def only(local):
        note = Notes()
        x = torch.zeros(1 << 22, device="cuda")
        note("context and one tensor")
        first_and_again(note, "first", lambda: run(x))
        group = dist.new_group()
        note("a group, not used")
        dist.all_reduce(x, group=group)
        note("all_reduce in the group")
        run(x, group=group)
        note("the same in the group")
        return note.facts

    return only


ALONE = {
    "all-reduce": dist.all_reduce,
    "all-to-all": lambda x, **group: dist.all_to_all_single(torch.empty_like(x), x, **group),
    "send": lambda x, **group: dist.send(x, 1, **group) if dist.get_rank() == 0 else dist.recv(x, 0, **group),
    "exchange": lambda x, **group: [it.wait() for it in dist.batch_isend_irecv([
        dist.P2POp(dist.isend, x, 1 - dist.get_rank(), **group), dist.P2POp(dist.irecv, torch.empty_like(x), 1 - dist.get_rank(), **group)])],
    "broadcast": lambda x, **group: dist.broadcast(x, 0, **group),
    "all-gather": lambda x, **group: dist.all_gather_into_tensor(torch.empty(2 * x.numel(), device="cuda"), x, **group),
    "reduce-scatter": lambda x, **group: dist.reduce_scatter_tensor(x[: x.numel() // 2], x, **group),
    "tiny": lambda x, **group: dist.all_reduce(x[:1], **group),
}
KINDS |= {f"nccl-{name}": (nccl_alone(run), "ours") for name, run in ALONE.items()}


class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gpu", ctypes.c_uint), ("compute", ctypes.c_uint)]


def process_bytes(device):
    """What NVML says that this process has on the device; `None` where it does not say."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        nvml.nvmlInit_v2()
        handle, count, rows = ctypes.c_void_p(), ctypes.c_uint(64), (Process * 64)()
        nvml.nvmlDeviceGetHandleByIndex_v2(device, ctypes.byref(handle))
        if nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(count), rows):
            return None
        return next((it.used for it in rows[: count.value] if it.pid == os.getpid()), None)
    except (OSError, AttributeError):
        return None


def main():
    if sys.argv[1:] == ["list"]:
        print("\n".join(KINDS))
        return
    name, prefix = sys.argv[1:3]
    run, group = KINDS[name]
    local = 0 if group == "none" else int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    if group == "ours":
        dist.init_process_group("nccl", device_id=torch.device("cuda", local))
    rank = int(os.environ.get("RANK", 0))
    torch.manual_seed(0)
    torch.cuda.memory._record_memory_history("all", context="all", stacks="python", max_entries=1_000_000)
    facts = run(local)
    torch.cuda.synchronize()
    devices = range(torch.cuda.device_count()) if group == "none" else [local]
    result = {
        "name": name,
        "rank": rank,
        "max_allocated": [torch.cuda.max_memory_allocated(it) for it in devices],
        "max_reserved": [torch.cuda.max_memory_reserved(it) for it in devices],
        "allocations": [torch.cuda.memory_stats(it)["allocation.all.allocated"] for it in devices],
        "reserved_now": [torch.cuda.memory_reserved(it) for it in devices],
        "process_bytes": [process_bytes(it) for it in devices],
        "nccl_version": ".".join(map(str, torch.cuda.nccl.version())),
        "facts": facts,
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name(),
    }
    torch.cuda.memory._dump_snapshot(f"{prefix}.rank{rank}.pickle")
    with open(f"{prefix}.rank{rank}.json", "w") as file:
        json.dump(result, file)
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


main()
