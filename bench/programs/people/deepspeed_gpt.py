"""DeepSpeed with ZeRO stage 1 on one device, its own optimizer and accumulation from the configuration."""

import os

import deepspeed
import torch
from transformers import GPT2Config, GPT2LMHeadModel

# What its launcher says of one process.
for name, value in {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "localhost", "MASTER_PORT": 29511}.items():
    os.environ.setdefault(name, str(value))

config = {
    "train_micro_batch_size_per_gpu": 8,
    "gradient_accumulation_steps": 1,
    "bf16": {"enabled": True},
    "gradient_clipping": 1.0,
    "zero_optimization": {"stage": 1},
}
model = GPT2LMHeadModel(GPT2Config(n_embd=1024, n_layer=16, n_head=16))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
engine, optimizer, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
for step in range(10):
    ids = torch.randint(50257, (8, 1024), device=engine.device)
    loss = engine(input_ids=ids, labels=ids).loss
    engine.backward(loss)
    engine.step()
    print(step, loss.item())
