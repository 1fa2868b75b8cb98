"""Every rank has the whole model, and its own part of the data."""

import contextlib

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

from jobs import gpt2, kind, language


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
def ddp_fp16_hook_gpt2(local):
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

    model = ddp(local)
    model.register_comm_hook(None, fp16_compress_hook)
    language(model, torch.optim.AdamW(model.parameters()))


@kind
def ddp_powersgd(local):
    from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

    model = ddp(local)
    model.register_comm_hook(PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2), powerSGD_hook)
    language(model, torch.optim.SGD(model.parameters(), 0.1), steps=6)


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


@kind
def zero1(local):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = ddp(local)
    language(model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-4))


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


@kind
def ddp_no_sync_views(local):
    """Four micro-batches, three without communication, into gradients that are views of the buckets."""
    model = ddp(local, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    for _ in range(3):
        for part in range(4):
            ids = torch.randint(0, 20000, (2, 512), device="cuda")
            with contextlib.nullcontext() if part == 3 else model.no_sync():
                (model(input_ids=ids, labels=ids).loss / 4).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)


@kind
def ddp_static_checkpointed(local):
    """Checkpointing that enters the graph again, which DDP allows for a static graph only."""
    whole = gpt2()
    whole.config.use_cache = False
    whole.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
    model = ddp(local, whole, static_graph=True)
    language(model, torch.optim.AdamW(model.parameters()), batch=8, autocast=True)


@kind
def ddp_two_models(local):
    """A generator and a discriminator, each with buckets of its own."""

    def network(*sizes):
        return nn.Sequential(*[nn.Sequential(nn.Linear(a, b), nn.LeakyReLU(0.2)) for a, b in zip(sizes, sizes[1:])])

    maker = ddp(local, network(256, 2048, 4096, 4096))
    judge = ddp(local, network(4096, 4096, 1024, 1), broadcast_buffers=False)
    of_maker, of_judge = (torch.optim.Adam(it.parameters(), betas=(0.5, 0.999)) for it in (maker, judge))
    for _ in range(6):
        fake = maker(torch.randn(512, 256, device="cuda"))
        of_judge.zero_grad()
        (judge(fake.detach()).mean() - judge(torch.randn(512, 4096, device="cuda")).mean()).backward()
        of_judge.step()
        of_maker.zero_grad()
        (-judge(fake).mean()).backward()
        of_maker.step()


@kind
def ddp_compiled(local):
    """DDP's optimizer cuts the graph at its buckets."""
    model = torch.compile(ddp(local, nn.Sequential(*[nn.Sequential(nn.Linear(2048, 2048), nn.GELU()) for _ in range(12)])))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(5):
        model(torch.randn(256, 2048, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


@kind
def ddp_local_sgd(local):
    """Gradients are averaged for two steps; then weights are, each third one."""
    from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import PostLocalSGDOptimizer

    model = ddp(local)
    group = dist.new_group([dist.get_rank()], use_local_synchronization=True)
    model.register_comm_hook(PostLocalSGDState(None, group, start_localSGD_iter=2), post_localSGD_hook)
    averager = PeriodicModelAverager(period=3, warmup_steps=2)
    language(model, PostLocalSGDOptimizer(torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), averager), steps=8)


@kind
def zero1_overlapped(local):
    """Each bucket's part of the step begins when its gradients are there."""
    from torch.distributed.algorithms.ddp_comm_hooks.ddp_zero_hook import hook_with_zero_step
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = ddp(local, gradient_as_bucket_view=True, static_graph=True)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, overlap_with_ddp=True, lr=1e-4)
    model.register_comm_hook(None, hook_with_zero_step(allreduce_hook, model, optimizer))
    language(model, optimizer, steps=6)
