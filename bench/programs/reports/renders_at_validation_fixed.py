"""A radiance field trains in 2 GB; the first validation picture, 400 x 400, runs out (ngp_pl#44)."""
import torch
from torch import nn

SAMPLES = 64


class Field(nn.Module):
    def __init__(self, width=128, octaves=6):
        super().__init__()
        self.octaves = octaves
        self.net = nn.Sequential(
            nn.Linear(3 + 6 * octaves, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4))

    def forward(self, x):
        parts = [x]
        for i in range(self.octaves):
            parts += [torch.sin(2 ** i * x), torch.cos(2 ** i * x)]
        return self.net(torch.cat(parts, -1))


def render(field, rays):
    start, direction = rays[:, :3], rays[:, 3:]
    t = torch.linspace(2, 6, SAMPLES, device=rays.device)
    out = field(start[:, None] + t[:, None] * direction[:, None])
    alpha = 1 - torch.exp(-torch.relu(out[..., 3]) * 4 / SAMPLES)
    clear = torch.cumprod(1 - alpha + 1e-10, 1)
    return ((alpha * clear)[..., None] * torch.sigmoid(out[..., :3])).sum(1)


field = Field().cuda()
optimizer = torch.optim.Adam(field.parameters(), 5e-4)
for epoch in range(30):
    for step in range(100):
        rays, wanted = torch.randn(4096, 6, device="cuda"), torch.rand(4096, 3, device="cuda")
        loss = (render(field, rays) - wanted).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        rays, wanted = torch.randn(400 * 400, 6, device="cuda"), torch.rand(400 * 400, 3, device="cuda")
        made = torch.cat([render(field, part) for part in rays.split(4096)])
        print(epoch, loss.item(), "val", (made - wanted).pow(2).mean().item())
