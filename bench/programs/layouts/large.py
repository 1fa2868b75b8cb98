"""A dense model of 70 B or a mixture of experts of 235 B, split over many GPUs as the options say; what each rank took goes to $OUT_LAYOUTS.

    torchrun --nnodes 128 --nproc-per-node 8 large.py --model 70b --tp 8 --pp 4 --cp 1 --dp 32 --mbs 1 --ac full
"""

import functools
from contextlib import ExitStack
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.nn as nn
import torch.nn.functional as F
from ranks import options, run
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts


@dataclass
class Sizes:
    width: int
    layers: int
    heads: int
    kv_heads: int
    head: int
    hidden: int
    words: int
    experts: int = 0
    chosen: int = 0


MODELS = {
    "70b": Sizes(8192, 80, 64, 8, 128, 28672, 128256),
    "235b": Sizes(4096, 94, 64, 4, 128, 1536, 151936, experts=128, chosen=8),
    # The kinds of layers of both, to try the program.
    "dense": Sizes(256, 4, 8, 4, 32, 512, 1024),
    "mixture": Sizes(256, 4, 8, 4, 32, 128, 1024, experts=8, chosen=2),
}


def turns(head, length, theta=500000.0):
    """The angle of every position, as complex numbers."""
    speeds = 1.0 / (theta ** (torch.arange(0, head, 2)[: head // 2].float() / head))
    angles = torch.outer(torch.arange(length, device=speeds.device), speeds).float()
    return torch.polar(torch.ones_like(angles), angles)


def turned(x, by):
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * by[: x.shape[1]].view(1, x.shape[1], 1, -1)).flatten(3).type_as(x)


class Attention(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.head, self.repeats = s.head, s.heads // s.kv_heads
        self.wq = nn.Linear(s.width, s.heads * s.head, bias=False)
        self.wk = nn.Linear(s.width, s.kv_heads * s.head, bias=False)
        self.wv = nn.Linear(s.width, s.kv_heads * s.head, bias=False)
        self.wo = nn.Linear(s.heads * s.head, s.width, bias=False)

    def forward(self, x, by):
        b, t, _ = x.shape
        q, k, v = (f(x).view(b, t, -1, self.head) for f in (self.wq, self.wk, self.wv))
        q, k = turned(q, by), turned(k, by)
        k, v = (it[:, :, :, None, :].expand(-1, -1, -1, self.repeats, -1).reshape(b, t, -1, self.head) for it in (k, v))
        q, k, v = (it.transpose(1, 2) for it in (q, k, v))
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION]):
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(out.transpose(1, 2).reshape(b, t, -1))


class Mlp(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.w1, self.w3 = nn.Linear(s.width, s.hidden, bias=False), nn.Linear(s.width, s.hidden, bias=False)
        self.w2 = nn.Linear(s.hidden, s.width, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Experts(nn.Module):
    """The experts of this rank; tokens come from, and go back to, the other ranks of its group."""

    def __init__(self, s):
        super().__init__()
        self.all, self.group = s.experts, None
        self.w1 = nn.Parameter(torch.empty(s.experts, s.hidden, s.width))
        self.w3 = nn.Parameter(torch.empty(s.experts, s.hidden, s.width))
        self.w2 = nn.Parameter(torch.empty(s.experts, s.width, s.hidden))

    def keep_own(self, group):
        self.group = group
        n, at = self.all // dist.get_world_size(group), dist.get_rank(group)
        for name, p in list(self.named_parameters(recurse=False)):
            setattr(self, name, nn.Parameter(p[at * n : (at + 1) * n].detach().clone()))

    def forward(self, x, counts):
        n = self.w1.shape[0]
        if self.group is not None:
            size = dist.get_world_size(self.group)
            with torch.no_grad():
                there = funcol.all_to_all_single(counts, None, None, self.group)
                there = torch.ops._c10d_functional.wait_tensor(there)
                sent = counts.view(size, -1).sum(1).to("cpu", non_blocking=True)
                got = there.view(size, -1).sum(1).to("cpu", non_blocking=False)
                sent, got = sent.tolist(), got.tolist()
            x = funcol.all_to_all_single_autograd(x, got, sent, self.group)
            # They come by rank and then by expert; the experts want them by expert.
            expert = torch.arange(n, device=x.device).repeat(size)
            order = torch.argsort(torch.repeat_interleave(expert, there.view(-1), output_size=sum(got)), stable=True)
            x, counts = x[order], there.view(size, n).sum(0)
        ends = torch.cumsum(counts, 0, dtype=torch.int32)
        w1, w2, w3 = (it.to_local() if isinstance(it, DTensor) else it for it in (self.w1, self.w2, self.w3))
        h = F.silu(torch._grouped_mm(x.bfloat16(), w1.bfloat16().transpose(-2, -1), offs=ends))
        h = h * torch._grouped_mm(x.bfloat16(), w3.bfloat16().transpose(-2, -1), offs=ends)
        x = torch._grouped_mm(h, w2.bfloat16().transpose(-2, -1), offs=ends).type_as(x)
        if self.group is not None:
            back = torch.empty_like(x)
            back[order] = x
            x = funcol.all_to_all_single_autograd(back, sent, got, self.group)
        return x


class Mixture(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.chosen, self.all = s.chosen, s.experts
        self.router = nn.Linear(s.width, s.experts, bias=False)
        self.experts = Experts(s)

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        scores = F.softmax(self.router(flat).float(), dim=-1)
        share, which = torch.topk(scores, self.chosen, dim=-1)
        counts = torch.histc(which.view(-1).float(), bins=self.all, min=0, max=self.all).long()
        order = torch.argsort(which.view(-1), stable=True)
        rows = order // self.chosen
        done = self.experts(flat[rows], counts)
        done = (done.float() * share.view(-1)[order].unsqueeze(-1)).to(x.dtype)
        return torch.zeros_like(flat).index_add(0, rows, done).view_as(x)


class Block(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(s.width), nn.RMSNorm(s.width)
        self.attention = Attention(s)
        self.mlp = Mixture(s) if s.experts else Mlp(s)

    def forward(self, x, by):
        x = x + self.attention(self.norm1(x), by)
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    def __init__(self, s, length, layers, first=True, last=True):
        super().__init__()
        self.s, self.length = s, length
        self.words = nn.Embedding(s.words, s.width) if first else None
        self.register_buffer("by", turns(s.head, length), persistent=False)
        self.blocks = nn.ModuleDict({str(i): Block(s) for i in layers})
        self.norm = nn.RMSNorm(s.width) if last else None
        self.head = nn.Linear(s.width, s.words, bias=False) if last else None

    def fill(self):
        with torch.device("cuda"):
            self.by = turns(self.s.head, self.length)
        with torch.no_grad():
            for p in self.parameters():
                nn.init.trunc_normal_(p, std=0.02) if 1 < p.ndim else nn.init.ones_(p)

    def forward(self, x):
        if self.words is not None:
            x = self.words(x)
        for block in self.blocks.values():
            x = block(x, self.by)
        return x if self.head is None else self.head(self.norm(x))


def split_layers(model, mesh):
    """Tensor and sequence parallel."""
    plan = {
        "words": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
    }
    parallelize_module(model, mesh, {name: it for name, it in plan.items() if getattr(model, name) is not None})
    for block in model.blocks.values():
        gather = functools.partial(PrepareModuleInput, desired_input_layouts=(Replicate(), None))
        plan = {
            "norm1": SequenceParallel(),
            "norm2": SequenceParallel(),
            "attention": gather(input_layouts=(Shard(1), None)),
            "attention.wq": ColwiseParallel(),
            "attention.wk": ColwiseParallel(),
            "attention.wv": ColwiseParallel(),
            "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
        }
        if isinstance(block.mlp, Mixture):
            plan["mlp"] = PrepareModuleInputOutput(
                input_layouts=(Shard(1),),
                desired_input_layouts=(Shard(1),),
                use_local_input=True,
                output_layouts=(Shard(1),),
                desired_output_layouts=(Shard(1),),
            )
        else:
            plan |= {
                "mlp": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
                "mlp.w1": ColwiseParallel(),
                "mlp.w3": ColwiseParallel(),
                "mlp.w2": RowwiseParallel(output_layouts=Shard(1)),
            }
        parallelize_module(block, mesh, plan)


KEPT = {
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops._c10d_functional.reduce_scatter_tensor.default,
    torch.ops._c10d_functional.all_to_all_single.default,
}


def policy_of_a_block():
    """Every second multiplication, attention and what was communicated are kept."""
    seen = {"forward": 0, "again": 0}

    def policy(ctx, func, *args, **kwargs):
        if func == torch.ops.aten.mm.default:
            mode = "again" if ctx.is_recompute else "forward"
            seen[mode] += 1
            return CheckpointPolicy.MUST_SAVE if seen[mode] % 2 else CheckpointPolicy.PREFER_RECOMPUTE
        return CheckpointPolicy.MUST_SAVE if func in KEPT else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def recompute(model, how):
    options = {"context_fn": policy_of_a_block} if how == "selective" else {}
    for name, block in model.blocks.items():
        model.blocks[name] = checkpoint_wrapper(block, preserve_rng_state=False, **options)


def shard(model, meshes, keep):
    options = {
        "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
        "reshard_after_forward": not keep,
    }
    for block in model.blocks.values():
        inner = getattr(block, "_checkpoint_wrapped_module", block)
        if isinstance(inner.mlp, Mixture):
            fully_shard(inner.mlp.experts, mesh=meshes["experts"], **options)
        fully_shard(block, mesh=meshes["data"], **options)
    fully_shard(model, mesh=meshes["data"], **options)


def loss_of(logits, y):
    return F.cross_entropy(logits.flatten(0, 1).float(), y.flatten(0, 1))


def made(args, s, layers, first, last, meshes):
    """One part of the model, split, on the GPU."""
    with torch.device("meta"):
        model = Model(s, args.seq, layers, first, last)
    if args.tp > 1:
        split_layers(model, meshes["tp"])
    if args.ep > 1:
        for block in model.blocks.values():
            block.mlp.experts.keep_own(meshes["ep"].get_group())
    if args.ac != "none":
        recompute(model, args.ac)
    shard(model, meshes, keep=args.pp > 1)
    model.to_empty(device="cuda")
    model.fill()
    return model


def groups_of(models):
    """A group of parameters for each mesh: an optimizer's loops want one mesh at a time."""
    groups = {}
    for p in (p for model in models for p in model.parameters()):
        groups.setdefault(p.device_mesh, []).append(p)
    return [{"params": it} for it in groups.values()]


def train(args, seen):
    s, world = MODELS[args.model], dist.get_world_size()
    if args.layers:
        s.layers = args.layers
    n = args.pp * args.dp * args.cp * args.tp
    if n != world:
        raise ValueError(f"pp {args.pp} x dp {args.dp} x cp {args.cp} x tp {args.tp} is {n}, not {world} ranks")
    if s.kv_heads % args.tp:
        raise ValueError(f"{s.kv_heads} heads of keys cannot be split by tp={args.tp}")
    if args.ep > 1 and (not s.experts or s.experts % args.ep or (world // args.pp) % args.ep):
        raise ValueError(f"{s.experts} experts of {world // args.pp} ranks cannot be split by ep={args.ep}")
    dense = init_device_mesh("cuda", (args.pp, args.dp, args.cp, args.tp), mesh_dim_names=("pp", "dp", "cp", "tp"))
    rest = world // args.pp // args.ep
    sparse = init_device_mesh("cuda", (args.pp, rest, args.ep), mesh_dim_names=("pp", "rest", "ep"))
    data = dense["dp", "cp"]._flatten("data")
    meshes = {"tp": dense["tp"], "data": data, "experts": sparse["rest"], "ep": sparse["ep"]}
    each = 1 if args.schedule == "1f1b" else 2
    count = args.pp * each
    stage = dense["pp"].get_local_rank()
    if s.layers < count:
        raise ValueError(f"{s.layers} layers cannot be split into {count} stages")
    borders = [s.layers * i // count for i in range(count + 1)]
    mine = [stage + i * args.pp for i in range(each if args.pp > 1 else 1)]
    if args.pp == 1:
        borders, count = [0, s.layers], 1
    models = [made(args, s, range(borders[i], borders[i + 1]), i == 0, i == count - 1, meshes) for i in mine]
    optimizer = torch.optim.AdamW(groups_of(models), lr=1e-4, foreach=True)
    parameters = [p for model in models for p in model.parameters()]
    micro = args.micro or (2 * args.pp if args.pp > 1 else 1)
    if args.pp > 1:
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B, ScheduleInterleavedZeroBubble

        kind = {"1f1b": Schedule1F1B, "interleaved": ScheduleInterleaved1F1B, "zb": ScheduleInterleavedZeroBubble}[args.schedule]
        group = dense["pp"].get_group()
        stages = [PipelineStage(model, i, count, torch.device("cuda"), group=group) for model, i in zip(models, mine)]
        schedule = kind(stages[0] if args.schedule == "1f1b" else stages, micro, loss_fn=loss_of)
    for step in range(args.steps):
        g = torch.Generator().manual_seed(1000 * step + data.get_local_rank() // args.cp)
        rows = args.mbs * (micro if args.pp > 1 else 1)
        for _ in range(1 if args.pp > 1 else micro):
            t = torch.randint(s.words, (rows, args.seq + 1), generator=g)
            x, y = t[:, :-1].contiguous().cuda(), t[:, 1:].contiguous().cuda()
            with ExitStack() as stack:
                if args.cp > 1:
                    angles = [model.by for model in models]
                    stack.enter_context(context_parallel(
                        dense["cp"], buffers=[x, y, *angles], buffer_seq_dims=[1, 1, *[0 for _ in angles]], no_restore_buffers={x, y}
                    ))
                if args.tp > 1:
                    stack.enter_context(loss_parallel())
                if args.pp > 1:
                    first, last = 0 in mine, count - 1 in mine
                    schedule.step(*([x] if first else []), **({"target": y} if last else {}))
                else:
                    loss = loss_of(models[0](x), y) / micro
                    loss.backward()
                    del loss
        norms = [torch.nn.utils.get_total_norm([p.grad for p in group["params"] if p.grad is not None]) for group in optimizer.param_groups]
        norms = [it.full_tensor() if isinstance(it, DTensor) else it for it in norms]
        total = torch.linalg.vector_norm(torch.stack(norms))
        if args.pp > 1:
            dist.all_reduce(total, group=dense["pp"].get_group())
        for group in optimizer.param_groups:
            torch.nn.utils.clip_grads_with_norm_([p for p in group["params"]], 1.0, total)
        optimizer.step()
        optimizer.zero_grad()
        seen.look(f"step{step + 1}")
    return parameters


def main(words=None):
    parser = options("large", tp=1, pp=1, cp=1, ep=1, dp=1, mbs=1, seq=8192, layers=0, micro=0, steps=3)
    parser.add_argument("--model", choices=list(MODELS), default="70b")
    parser.add_argument("--ac", choices=["none", "selective", "full"], default="none")
    parser.add_argument("--schedule", choices=["1f1b", "interleaved", "zb"], default="1f1b")
    run(parser.parse_args(words), train)


if __name__ == "__main__":
    main()
