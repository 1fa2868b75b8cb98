"""expect: fits
peak: allocated at least 1100 MiB
never: grows
why: under no_grad 32 results of 8192 x 1024 x 4 = 32 MiB stay until the end of the validation, 1 GiB; the weights are 160 MiB.
    After each epoch all of it is given back.
"""
import torch
from torch import nn

model = nn.Sequential(*[nn.Sequential(nn.Linear(1024, 1024), nn.ReLU()) for _ in range(40)]).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


@torch.no_grad()
def validate():
    model.eval()
    results = [model(torch.randn(8192, 1024, device="cuda")) for _ in range(32)]
    model.train()
    return sum(it.mean() for it in results).item()


for epoch in range(6):
    for step in range(16):
        x = torch.randn(2048, 1024, device="cuda")
        loss = nn.functional.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, validate())
