"""A closure handed to `step` (as for L-BFGS), a NeRF-like MLP over sampled points, loss.sum()."""

import torch
from torch import nn


class Field(nn.Module):
    def __init__(self, width=512, depth=10, freqs=12):
        super().__init__()
        self.freqs = freqs
        sizes = [3 + 6 * freqs] + [width] * depth
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.sigma, self.rgb = nn.Linear(width, 1), nn.Linear(width, 3)

    def forward(self, points):
        bands = 2.0 ** torch.arange(self.freqs, device=points.device)
        angles = (points[..., None] * bands).flatten(-2)
        x = torch.cat([points, angles.sin(), angles.cos()], -1)
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.sigma(x).squeeze(-1), torch.sigmoid(self.rgb(x))


def render(field, origins, directions, n_samples, far=4.0):
    t = torch.linspace(0.1, far, n_samples, device=origins.device)
    points = origins[:, None] + directions[:, None] * t[None, :, None]
    sigma, rgb = field(points)
    alpha = 1 - torch.exp(-torch.relu(sigma) * (far / n_samples))
    trans = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], 1), 1)[:, :-1]
    return ((alpha * trans)[..., None] * rgb).sum(1)


if __name__ == "__main__":
    torch.manual_seed(0)
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    field = Field().to(device)
    opt = torch.optim.RAdam(field.parameters(), lr=5e-4)
    n_rays, n_samples = 4096, 128
    for step in range(25):
        o = torch.rand(n_rays, 3, device=device)
        d = torch.nn.functional.normalize(torch.randn(n_rays, 3, device=device), dim=-1)
        target = torch.rand(n_rays, 3, device=device)

        def closure():
            opt.zero_grad()
            loss = ((render(field, o, d, n_samples) - target) ** 2).sum()
            loss.backward()
            return loss

        loss = opt.step(closure)
    print(loss.item())
