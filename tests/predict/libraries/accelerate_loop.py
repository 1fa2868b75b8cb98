"""accelerate's loop in half precision, with gradients added up over two batches and clipped."""

import torch
from accelerate import Accelerator
from torch import nn

accelerator = Accelerator(mixed_precision="fp16", gradient_accumulation_steps=2)
model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 10))
data = torch.utils.data.TensorDataset(torch.randn(64, 3, 32, 32), torch.randint(0, 10, (64,)))
loader = torch.utils.data.DataLoader(data, batch_size=8)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for x, y in loader:
    with accelerator.accumulate(model):
        loss = nn.functional.cross_entropy(model(x), y)
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
print(accelerator.gather(loss).mean().item())
accelerator.save_state("state")
