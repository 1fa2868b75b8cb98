"""cause: copies/double-buffer at line 26
memory: 2GiB
why: after two epochs of warming up, averages of the weights are begun at five paces, each a copy of the model on the device.
"""
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


class Mixer(nn.Module):
    def __init__(self, width=2048, depth=5):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return x


model = Mixer().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
averages = []
for epoch in range(4):
    if epoch == 2:
        averages = [AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(it)) for it in (0.9, 0.99, 0.999, 0.9999, 0.99999)]  # here
    for _ in range(5):
        x = torch.randn(64, 2048, device="cuda")
        loss = (model(x) - x.roll(1, 1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for it in averages:
            it.update_parameters(model)
