"""del model and empty_cache() give nothing back; the second stage has no room (gpytorch#550, Megatron-LM#662)."""
import torch
from torch import nn


def stack(depth, width=8192):
    parts = []
    for _ in range(depth):
        parts += [nn.Linear(width, width), nn.GELU()]
    return nn.Sequential(*parts)


def batches(n, rows=64, width=8192):
    for _ in range(n):
        yield torch.randn(rows, width, device="cuda")


# First stage: learns to restore its input.
model = stack(4).cuda()
optimizer = torch.optim.Adam(model.parameters(), 1e-4)
for x in batches(50):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x + 0.1 * torch.randn_like(x)), x)
    loss.backward()
    optimizer.step()
print("first stage", loss.item(), torch.cuda.memory_allocated() >> 20, "MiB")

del model, optimizer, loss
torch.cuda.empty_cache()
print("after del", torch.cuda.memory_allocated() >> 20, "MiB")

# Second stage: another model altogether.
second = stack(5).cuda()
second_optimizer = torch.optim.Adam(second.parameters(), 1e-4)
for x in batches(50):
    second_optimizer.zero_grad()
    loss = second(x).pow(2).mean()
    loss.backward()
    second_optimizer.step()
print("second stage", loss.item())
