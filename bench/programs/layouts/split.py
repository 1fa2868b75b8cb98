"""A GPT of 0.4 B on four ranks, split as the options say; what each rank took goes to $OUT_LAYOUTS.

    torchrun --nproc-per-node 4 split.py --name NAME --tp 2 --dp 2 --ac
"""

import functools
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from ranks import options, run
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

TINY = os.environ.get("TINY") == "1"
WIDTH, HEADS, WORDS, LENGTH = (64, 8, 512, 64) if TINY else (1536, 12, 32000, 2048)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (f(x).view(b, t, -1, WIDTH // HEADS).transpose(1, 2) for f in (self.q, self.k, self.v))
        return self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, -1))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        y = torch.empty_like(x)
        dist.all_to_all_single(y, x.contiguous(), group=group)
        return y

    @staticmethod
    def backward(ctx, grad):
        return Exchange.apply(grad, ctx.group), None


class Experts(nn.Module):
    """Two experts a rank; each rank sends each other one the same number of tokens."""

    def __init__(self, group):
        super().__init__()
        self.group, self.own = group, nn.ModuleList(Mlp() for _ in range(2))

    def forward(self, x):
        flat = x.reshape(-1, WIDTH)
        moved = Exchange.apply(flat, self.group)
        done = torch.cat([f(part) for f, part in zip(self.own, moved.chunk(2))])
        return Exchange.apply(done, self.group).view_as(x)


class Block(nn.Module):
    def __init__(self, experts=None):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention, self.mlp = Attention(), Experts(experts) if experts else Mlp()

    def forward(self, x):
        x = x + self.attention(self.n1(x))
        return x + self.mlp(self.n2(x))


class Gpt(nn.Module):
    def __init__(self, layers, first=True, last=True, experts=None):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH) if first else None
        self.blocks = nn.ModuleDict({str(i): Block(experts) for i in layers})
        self.norm = nn.LayerNorm(WIDTH) if last else None
        self.head = nn.Linear(WIDTH, WORDS, bias=False) if last else None

    def forward(self, x):
        if self.words is not None:
            x = self.words(x)
        for block in self.blocks.values():
            x = block(x)
        return x if self.head is None else self.head(self.norm(x))


def loss_of(logits, y):
    return F.cross_entropy(logits.flatten(0, 1).float(), y.flatten())


def split_layers(model, mesh, sequence):
    if sequence:
        parallelize_module(model, mesh, {
            "words": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
            "norm": SequenceParallel(),
            "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
        })
    else:
        parallelize_module(model, mesh, {"head": ColwiseParallel(output_layouts=Replicate())})
    for block in model.blocks.values():
        plan = {name: ColwiseParallel() for name in ("attention.q", "attention.k", "attention.v", "mlp.up")}
        out = RowwiseParallel(output_layouts=Shard(1)) if sequence else RowwiseParallel()
        plan |= {"attention.o": out, "mlp.down": out}
        if sequence:
            gather = functools.partial(PrepareModuleInput, input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
            plan |= {"n1": SequenceParallel(), "n2": SequenceParallel(), "attention": gather(), "mlp": gather()}
        parallelize_module(block, mesh, plan)


def shard(model, mesh, args):
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if not args.fp32 else MixedPrecisionPolicy()
    options = {"mesh": mesh, "mp_policy": policy, "reshard_after_forward": not args.keep}
    if args.offload:
        options["offload_policy"] = CPUOffloadPolicy()
    for block in model.blocks.values():
        fully_shard(block, **options)
    fully_shard(model, **options)


def recompute(model):
    for name, block in model.blocks.items():
        model.blocks[name] = checkpoint_wrapper(block)


def tokens(args, step, rank):
    g = torch.Generator().manual_seed(1000 * step + rank)
    n = args.bs + (rank if args.uneven else 0)
    t = torch.randint(WORDS, (n, args.length + 1), generator=g)
    return t[:, :-1].contiguous().cuda(), t[:, 1:].contiguous().cuda()


def pipeline(args, seen, mesh):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B

    group = mesh["pp"].get_group() if mesh.ndim > 1 else None
    rank, each = mesh["pp"].get_local_rank() if mesh.ndim > 1 else seen.rank, 2 if args.schedule == "interleaved" else 1
    count = args.pp * each
    borders = [args.layers * i // count for i in range(count + 1)]
    if args.uneven_stages:
        borders = [0, args.layers // 2, args.layers // 2 + 1, args.layers - 2, args.layers]
    stages, models = [], []
    for i in range(each):
        index = rank + i * args.pp
        with torch.device("cuda"):
            model = Gpt(range(borders[index], borders[index + 1]), index == 0, index == count - 1).bfloat16()
        if args.ac:
            recompute(model)
        if args.tp > 1:
            for block in model.blocks.values():
                plan = {name: ColwiseParallel() for name in ("attention.q", "attention.k", "attention.v", "mlp.up")}
                parallelize_module(block, mesh["tp"], plan | {"attention.o": RowwiseParallel(), "mlp.down": RowwiseParallel()})
        if args.dp > 1:
            shard(model, mesh["dp"], args)
        models.append(model)
        stages.append(PipelineStage(model, index, count, torch.device("cuda"), group=group))
    parameters = [p for m in models for p in m.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, foreach=args.tp == 1)
    kind = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe, "interleaved": ScheduleInterleaved1F1B}[args.schedule]
    schedule = kind(stages if each == 2 else stages[0], args.micro, loss_fn=loss_of)
    for step in range(args.steps):
        x, y = tokens(args, step, 0)
        first, last = rank == 0, rank == args.pp - 1
        schedule.step(*([x] if first else []), **({"target": y} if last else {}))
        optimizer.step()
        optimizer.zero_grad()
        seen.look(f"step{step + 1}")


def train(args, seen):
    world = dist.get_world_size()
    sizes = {name: n for name, n in (("pp", args.pp), ("dp", args.dp), ("cp", args.cp), ("tp", args.tp)) if n > 1} or {"dp": world}
    names = tuple(sizes)
    if args.hybrid:
        mesh = init_device_mesh("cuda", (2, world // 2), mesh_dim_names=("replicate", "dp"))
    else:
        mesh = init_device_mesh("cuda", tuple(sizes.values()), mesh_dim_names=names)
    if args.pp > 1:
        return pipeline(args, seen, mesh)
    experts = None
    if args.ep > 1:
        experts = init_device_mesh("cuda", (world // args.ep, args.ep), mesh_dim_names=("rest", "ep"))["ep"].get_group()
    if args.ddp or args.ep > 1:
        with torch.device("cuda"):
            model = Gpt(range(args.layers), experts=experts)
        if args.ep > 1:
            model = model.bfloat16()
            own = [n for n, _ in model.named_parameters() if ".own." in n]
            nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, own)
        if args.frozen:
            for block in list(model.blocks.values())[: args.layers // 2]:
                block.requires_grad_(False)
        if args.ac:
            recompute(model)
        options = {"gradient_as_bucket_view": args.view, "static_graph": args.static}
        model = nn.parallel.DistributedDataParallel(model, device_ids=[seen.local], **options)
    else:
        with torch.device("meta"):
            model = Gpt(range(args.layers))
        if args.tp > 1:
            split_layers(model, mesh["tp"] if mesh.ndim > 1 else mesh, args.sequence)
        if args.ac:
            recompute(model)
        if args.tp < world:
            inner = mesh if mesh.ndim == 1 or args.hybrid else mesh["cp"] if args.cp > 1 and args.dp == 1 else mesh["dp"]
            shard(model, inner, args)
        model.to_empty(device="cpu" if args.offload else "cuda")
        with torch.no_grad():
            for p in model.parameters():
                p.normal_(0, 0.02)
    parameters = [p for p in model.parameters() if p.requires_grad]
    if args.zero:
        from torch.distributed.optim import ZeroRedundancyOptimizer

        optimizer = ZeroRedundancyOptimizer(parameters, torch.optim.AdamW, lr=1e-4)
    else:
        optimizer = torch.optim.AdamW(parameters, lr=1e-4)
    average = [p.detach().clone() for p in parameters] if args.average and seen.rank == 0 else []
    for step in range(args.steps):
        for micro in range(args.accumulate):
            x, y = tokens(args, step * 10 + micro, seen.rank)
            with torch.autocast("cuda", torch.bfloat16, enabled=args.ddp and not args.fp32):
                if args.cp > 1:
                    from torch.distributed.tensor.experimental import context_parallel
                    from torch.nn.attention import SDPBackend, sdpa_kernel

                    ring = mesh["cp"] if mesh.ndim > 1 else mesh
                    with sdpa_kernel([SDPBackend.FLASH_ATTENTION]), context_parallel(
                        ring, buffers=[x, y], buffer_seq_dims=[1, 1], no_restore_buffers={x, y}
                    ):
                        loss_of(model(x), y).backward()
                else:
                    loss = loss_of(model(x), y)
            if args.cp == 1:
                loss.backward()
        if args.clip:
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        for a, p in zip(average, parameters):
            a.lerp_(p.detach(), 0.1)
        seen.look(f"step{step + 1}")
    if args.save:
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_state_dict

        folder = os.path.join(os.environ.get("CKPT", "/tmp"), f"split-{args.name}")
        if args.save == "full":
            whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
            seen.look("gathered")
            del whole
        elif args.save == "async":
            weights, states = get_state_dict(model, optimizer)
            dcp.async_save({"model": weights, "optimizer": states}, checkpoint_id=folder).result()
            seen.look("saved")
        else:
            weights, states = get_state_dict(model, optimizer)
            dcp.save({"model": weights, "optimizer": states}, checkpoint_id=folder)
            seen.look("saved")
            dcp.load({"model": weights, "optimizer": states}, checkpoint_id=folder)
            seen.look("loaded")


def main(words=None):
    parser = options("split", tp=1, pp=1, cp=1, dp=1, ep=1, layers=10, bs=3, length=LENGTH, micro=8, accumulate=1, steps=4)
    for name in ("ac", "keep", "offload", "clip", "fp32", "hybrid", "sequence", "ddp", "view", "static", "zero", "frozen", "uneven", "uneven-stages", "average"):
        parser.add_argument("--" + name, action="store_true")
    parser.add_argument("--schedule", default="1f1b")
    parser.add_argument("--save", default="")
    args = parser.parse_args(words)
    if TINY:
        args.length = LENGTH
    run(args, train, "cpu:gloo,cuda:nccl" if args.save == "async" or args.offload else "nccl")


if __name__ == "__main__":
    main()
