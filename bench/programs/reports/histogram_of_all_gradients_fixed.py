"""Trains in 16 bits and logs a histogram of the gradients: all of them are joined and cast to 32 bits on the GPU."""
import torch
from torch import nn

model = nn.Sequential(*[nn.Sequential(nn.Linear(6144, 6144), nn.GELU()) for _ in range(40)]).bfloat16().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(1000):
    loss = model(torch.randn(16, 6144, device="cuda", dtype=torch.bfloat16)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    if step % 10 == 5:
        print(step, [torch.histc(p.grad.float(), 64).tolist()[:3] for p in model.parameters()][:2])
    optimizer.step()
