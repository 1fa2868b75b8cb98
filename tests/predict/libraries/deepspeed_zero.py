"""DeepSpeed's engine with ZeRO of the stage that is named, in bf16."""

import sys

import deepspeed
import torch
from torch import nn

stage = int(sys.argv[1])
model = nn.Sequential(*(nn.Sequential(nn.Linear(512, 512), nn.GELU()) for _ in range(6)), nn.Linear(512, 10))
config = {
    "train_micro_batch_size_per_gpu": 8,
    "gradient_accumulation_steps": 1,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}},
    "bf16": {"enabled": True},
    "gradient_clipping": 1.0,
    "zero_optimization": {"stage": stage},
}
deepspeed.init_distributed("nccl")
engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
for _ in range(4):
    x = torch.randn(8, 512, device=engine.device, dtype=torch.bfloat16)
    y = torch.randint(0, 10, (8,), device=engine.device)
    engine.backward(nn.functional.cross_entropy(engine(x).float(), y))
    engine.step()
