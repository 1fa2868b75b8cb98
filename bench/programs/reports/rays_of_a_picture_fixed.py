"""A radiance field: trained with 1,024 rays a step, and every 250 steps a whole picture is rendered at once for a look at it."""
import torch
from torch import nn

field = nn.Sequential(nn.Linear(63, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4)).cuda()
optimizer = torch.optim.Adam(field.parameters(), lr=5e-4)


def render(rays):
    points = rays[:, None, :] * torch.linspace(2, 6, 64, device="cuda")[None, :, None]
    encoded = torch.cat([points] + [wave(points * 2**i) for i in range(10) for wave in (torch.sin, torch.cos)], -1)
    colour = field(encoded)
    weight = torch.softmax(colour[..., 3], -1)
    return (weight[..., None] * colour[..., :3].sigmoid()).sum(1)


for step in range(2000):
    rays = torch.randn(1024, 3, device="cuda")
    loss = (render(rays) - 0.5).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 250 == 249:
        with torch.no_grad():
            picture = torch.randn(400 * 400, 3, device="cuda")
            shown = torch.cat([render(part) for part in picture.split(4096)])
            print(step, shown.mean().item())
