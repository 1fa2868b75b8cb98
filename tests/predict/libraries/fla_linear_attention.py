"""A layer of flash-linear-attention, whose kernels of Triton tune themselves, in a language model of a configuration."""

import torch
from fla.models import GatedDeltaNetConfig, GatedDeltaNetForCausalLM

config = GatedDeltaNetConfig(hidden_size=128, num_hidden_layers=2, num_heads=2, head_dim=64, vocab_size=1000, fuse_cross_entropy=False)
model = GatedDeltaNetForCausalLM(config).cuda().bfloat16()
optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
for _ in range(4):
    ids = torch.randint(0, 1000, (2, 128), device="cuda")
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
