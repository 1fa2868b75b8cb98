"""A convolutional autoencoder with a KL term, compiled with options of its own (CUDA graphs), both halves of the loss outside, an EMA."""

import torch
from torch import nn
from torch.nn import functional as F


def block(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(8, b), nn.SiLU())


class Auto(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(block(3, 64), nn.MaxPool2d(2), block(64, 128), nn.MaxPool2d(2), block(128, 256), nn.Conv2d(256, 16, 1))
        self.decode = nn.Sequential(block(8, 256), nn.Upsample(scale_factor=2), block(256, 128), nn.Upsample(scale_factor=2), block(128, 64), nn.Conv2d(64, 3, 1))

    def forward(self, x, noise):
        mean, log = self.encode(x).chunk(2, 1)
        return self.decode(mean + noise * (log / 2).exp()), mean, log


torch.manual_seed(0)
model = Auto().cuda()
run = torch.compile(model, options={"triton.cudagraphs": True})
averaged = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.999))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
for step in range(50):
    images, noise = torch.rand(96, 3, 128, 128, device="cuda"), torch.randn(96, 8, 32, 32, device="cuda")
    made, mean, log = run(images, noise)
    loss = F.l1_loss(made, images) + 1e-4 * (mean.square() + log.exp() - log - 1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    averaged.update_parameters(model)
