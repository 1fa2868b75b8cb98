"""Train a Llama of any size, sharded with FSDP2 over every GPU there is.

    torchrun --nproc-per-node 8 fsdp2_llama.py --size 8b
    plimsoll predict --gpu h100-80g --world-size 64 -- python fsdp2_llama.py --size 70b

The weights are random: what it shows is how such a model is built, sharded and trained.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import LlamaConfig, LlamaForCausalLM

# Layers, hidden size, intermediate size, attention heads, key-value heads, words.
SIZES = {
    "tiny": (4, 256, 688, 8, 4, 32_000),
    "1b": (16, 2048, 8192, 32, 8, 128_256),
    "8b": (32, 4096, 14_336, 32, 8, 128_256),
    "70b": (80, 8192, 28_672, 64, 8, 128_256),
}


def config(size):
    layers, hidden, intermediate, heads, key_value_heads, words = SIZES[size]
    return LlamaConfig(
        num_hidden_layers=layers,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_attention_heads=heads,
        num_key_value_heads=key_value_heads,
        vocab_size=words,
        max_position_embeddings=8192,
        use_cache=False,
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=SIZES, default="8b")
    parser.add_argument("--batch-size", type=int, default=1)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=10)
    args = parser.parse_args()

    local = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))

    model = LlamaForCausalLM(config(args.size))
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)

    words = model.config.vocab_size
    for step in range(args.steps):
        tokens = torch.randint(words, (args.batch_size, args.length), device=device)
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
