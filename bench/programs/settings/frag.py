import torch
from torch import nn
from tail import timed, done
model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(8))).cuda()
optimizer = torch.optim.Adam(model.parameters())
for batch in [20_000, 26_000, 34_000, 44_000, 57_000] * 2:
    with timed():
        optimizer.zero_grad()
        model(torch.randn(batch, 1024, device="cuda")).pow(2).mean().backward()
        optimizer.step()
done()
