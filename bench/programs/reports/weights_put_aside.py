"""Averaged weights for validation: store() puts the trained weights aside on the GPU, restore() never lets go of them."""
import torch
import torch.nn.functional as F
from torch import nn


class EMAModel:
    def __init__(self, parameters, decay=0.9999):
        self.shadow = [p.clone().detach() for p in parameters]
        self.decay, self.stored = decay, []

    @torch.no_grad()
    def step(self, parameters):
        for s, p in zip(self.shadow, parameters):
            s.sub_((1 - self.decay) * (s - p))

    def store(self, parameters):
        self.stored.append([p.detach().clone() for p in parameters])

    def copy_to(self, parameters):
        for s, p in zip(self.shadow, parameters):
            p.data.copy_(s)

    def restore(self, parameters):
        for s, p in zip(self.stored[-1], parameters):
            p.data.copy_(s)


model = nn.Sequential(nn.Linear(784, 4096), nn.SiLU(), *[m for _ in range(3) for m in (nn.Linear(4096, 4096), nn.SiLU())], nn.Linear(4096, 784)).cuda()
ema = EMAModel(model.parameters())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)


def validate():
    ema.store(model.parameters())
    ema.copy_to(model.parameters())
    model.eval()
    with torch.no_grad():
        total = sum(F.mse_loss(model(x := torch.rand(256, 784, device="cuda")), x).item() for _ in range(5))
    ema.restore(model.parameters())
    model.train()
    return total / 5


for epoch in range(200):
    for i in range(20):
        x = torch.rand(256, 784).cuda()
        noisy = x + 0.1 * torch.randn_like(x)
        loss = F.mse_loss(model(noisy), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.step(model.parameters())
    print(epoch, validate())
