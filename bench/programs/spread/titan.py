"""A small torchtitan: Llama by hand, tensor parallel (sequence parallel, loss parallel) x FSDP2 on one mesh, activation checkpointing, compile optional."""

import argparse
import os
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard, MixedPrecisionPolicy
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    PrepareModuleInput,
    parallelize_module,
    loss_parallel,
)
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper


class Attention(nn.Module):
    def __init__(s, d, h, kv):
        super().__init__()
        s.hd = d // h
        s.wq, s.wk, s.wv, s.wo = (
            nn.Linear(d, d, bias=False),
            nn.Linear(d, kv * s.hd, bias=False),
            nn.Linear(d, kv * s.hd, bias=False),
            nn.Linear(d, d, bias=False),
        )

    def forward(s, x, rope):
        b, t, _ = x.shape
        q, k, v = (w(x).view(b, t, -1, s.hd) for w in (s.wq, s.wk, s.wv))
        q, k = rotate(q, rope), rotate(k, rope)
        o = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True, enable_gqa=True
        )
        return s.wo(o.transpose(1, 2).reshape(b, t, -1))


def rotate(x, rope):
    x_ = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(x_ * rope[None, : x.shape[1], None]).flatten(3).type_as(x)


class FeedForward(nn.Module):
    def __init__(s, d, f):
        super().__init__()
        s.w1, s.w2, s.w3 = nn.Linear(d, f, bias=False), nn.Linear(f, d, bias=False), nn.Linear(d, f, bias=False)

    def forward(s, x):
        return s.w2(F.silu(s.w1(x)) * s.w3(x))


class Block(nn.Module):
    def __init__(s, d, h, kv, f):
        super().__init__()
        s.attention, s.feed_forward = Attention(d, h, kv), FeedForward(d, f)
        s.attention_norm, s.ffn_norm = nn.RMSNorm(d), nn.RMSNorm(d)

    def forward(s, x, rope):
        h = x + s.attention(s.attention_norm(x), rope)
        return h + s.feed_forward(s.ffn_norm(h))


class Transformer(nn.Module):
    def __init__(s, vocab=32000, d=1024, n=8, h=16, kv=8, f=2816, seq=1024):
        super().__init__()
        s.tok_embeddings = nn.Embedding(vocab, d)
        s.layers = nn.ModuleList(Block(d, h, kv, f) for _ in range(n))
        s.norm = nn.RMSNorm(d)
        s.output = nn.Linear(d, vocab, bias=False)
        freq = 1.0 / 10000 ** (torch.arange(0, d // h, 2).float() / (d // h))
        s.register_buffer(
            "rope", torch.polar(torch.ones(seq, d // h // 2), torch.outer(torch.arange(seq).float(), freq)), persistent=False
        )

    def forward(s, t):
        h = s.tok_embeddings(t)
        for l in s.layers:
            h = l(h, s.rope)
        return s.output(s.norm(h))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--tp", type=int, default=2)
    p.add_argument("--compile", action="store_true")
    p.add_argument("--steps", type=int, default=4)
    a = p.parse_args()
    world, local = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    mesh = init_device_mesh("cuda", (world // a.tp, a.tp), mesh_dim_names=("dp", "tp"))
    tp = mesh["tp"]
    torch.manual_seed(1)
    with torch.device("meta"):
        model = Transformer()
    model.to_empty(device="cuda")
    [torch.nn.init.normal_(q, std=0.02) for q in model.parameters()]
    with torch.device("cuda"):
        model.rope = Transformer(n=0, vocab=8).rope
    parallelize_module(
        model,
        tp,
        {
            "tok_embeddings": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
            "norm": SequenceParallel(),
            "output": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
        },
    )
    for l in model.layers:
        parallelize_module(
            l,
            tp,
            {
                "attention_norm": SequenceParallel(),
                "attention": PrepareModuleInput(input_layouts=(Shard(1), None), desired_input_layouts=(Replicate(), None)),
                "attention.wq": ColwiseParallel(),
                "attention.wk": ColwiseParallel(),
                "attention.wv": ColwiseParallel(),
                "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
                "ffn_norm": SequenceParallel(),
                "feed_forward": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
                "feed_forward.w1": ColwiseParallel(),
                "feed_forward.w2": RowwiseParallel(output_layouts=Shard(1)),
                "feed_forward.w3": ColwiseParallel(),
            },
        )
    for i, l in model.layers.named_children():
        l = checkpoint_wrapper(l, preserve_rng_state=False)
        if a.compile:
            l = torch.compile(l)
        model.layers.register_module(i, l)
    mp = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for l in model.layers:
        fully_shard(l, mesh=mesh["dp"], mp_policy=mp)
    fully_shard(model, mesh=mesh["dp"], mp_policy=mp)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), foreach=True)
    for step in range(a.steps):
        ids = torch.randint(0, 32000, (4, 1025), device="cuda")
        x, y = ids[:, :-1], ids[:, 1:]
        with loss_parallel():
            loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten(0, 1))
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        opt.step()
        opt.zero_grad()
        if dist.get_rank() == 0:
            print(step, loss.item(), torch.cuda.memory_reserved() >> 20, "MiB")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
