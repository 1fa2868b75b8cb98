"""Single layers, sequences or experts in parts: tensor, context and expert parallelism."""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

from jobs import kind, language, llama, mesh


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
def fsdp2_tensor_halves(local):
    """Layers in two parts, and each part sharded over the other half of the ranks."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    half = max(dist.get_world_size() // 2, 1)
    both = mesh(dist.get_world_size() // half, half, names=("data", "tensor"))
    model = llama(num_key_value_heads=16).cuda()
    split = {f"self_attn.{it}_proj": ColwiseParallel() for it in "qkv"} | {"self_attn.o_proj": RowwiseParallel()}
    split |= {"mlp.gate_proj": ColwiseParallel(), "mlp.up_proj": ColwiseParallel(), "mlp.down_proj": RowwiseParallel()}
    for layer in model.model.layers:
        parallelize_module(layer, both["tensor"], split)
        fully_shard(layer, mesh=both["data"])
    fully_shard(model, mesh=both["data"])
    language(model, torch.optim.AdamW(model.parameters(), foreach=False), batch=2)


@kind
def tensor_sequence_loss(local):
    """Norms in parts of the sequence, the head in parts of the vocabulary, and a loss that never sees it whole."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, loss_parallel, parallelize_module,
    )

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(1024), nn.Linear(1024, 4096, bias=False), nn.Linear(4096, 1024, bias=False)

        def forward(self, x):
            return x + self.down(F.gelu(self.up(self.norm(x))))

    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.blocks = nn.Embedding(32000, 1024), nn.ModuleList(Block() for _ in range(6))
            self.norm, self.head = nn.LayerNorm(1024), nn.Linear(1024, 32000, bias=False)

        def forward(self, ids):
            x = self.words(ids)
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    everyone = mesh(dist.get_world_size(), names=("tensor",))
    model = Words().cuda()
    parallelize_module(model, everyone, {
        "words": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
    })
    for block in model.blocks:
        parallelize_module(block, everyone, {
            "norm": SequenceParallel(),
            "up": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
        })
        parallelize_module(block, everyone, {"up": ColwiseParallel(), "down": RowwiseParallel(output_layouts=Shard(1))})
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(4):
        ids = torch.randint(0, 32000, (4, 512), device="cuda")
        with loss_parallel():
            F.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()


@kind
def expert_parallel_uneven(local):
    """A router picks the expert of each token: counts cross first, then as many tokens as they say."""
    from torch.distributed.nn.functional import all_to_all_single

    rank, world = dist.get_rank(), dist.get_world_size()

    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(1024, world)
            self.expert = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024))

        def forward(self, x):
            weight, chosen = self.gate(x).softmax(-1).max(-1)
            order = chosen.argsort(stable=True)
            counts = torch.bincount(chosen, minlength=world)
            theirs = torch.empty_like(counts)
            dist.all_to_all_single(theirs, counts)
            to, from_ = counts.tolist(), theirs.tolist()
            mine = all_to_all_single(x.new_empty(sum(from_), x.shape[1]), x[order], from_, to)
            back = all_to_all_single(torch.empty_like(x), self.expert(mine), to, from_)
            return x + torch.zeros_like(x).index_copy(0, order, back) * weight[:, None]

    torch.manual_seed(rank)
    model = nn.Sequential(*[Experts() for _ in range(4)]).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(4):
        model(torch.randn(4096, 1024, device="cuda")).square().mean().backward()
        for name, p in model.named_parameters():
            if "gate" in name:
                dist.all_reduce(p.grad)
        optimizer.step()
        optimizer.zero_grad()
