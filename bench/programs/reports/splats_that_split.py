"""Gaussian splatting: every 50 steps each splat with a large gradient is split, and nothing limits their number."""
import torch
from torch import nn


class Splats:
    def __init__(self, n, device="cuda"):
        self.values = {
            "means": nn.Parameter(torch.randn(n, 3, device=device)),
            "scales": nn.Parameter(torch.zeros(n, 3, device=device)),
            "colors": nn.Parameter(torch.rand(n, 48, device=device)),
            "opacity": nn.Parameter(torch.zeros(n, 1, device=device)),
        }
        self.optimizer = torch.optim.Adam([{"params": [p], "name": name, "lr": 1e-3} for name, p in self.values.items()])

    def __len__(self):
        return len(self.values["means"])

    def densify(self, chosen):
        for group in self.optimizer.param_groups:
            old = group["params"][0]
            state = self.optimizer.state.pop(old, None)
            new = nn.Parameter(torch.cat([old.data, old.data[chosen] * 0.8]))
            if state:
                for key in ("exp_avg", "exp_avg_sq"):
                    state[key] = torch.cat([state[key], torch.zeros_like(state[key][chosen])])
                self.optimizer.state[new] = state
            group["params"][0] = self.values[group["name"]] = new

    def render(self, pixels):
        v = self.values
        distance = (pixels[:, None] - v["means"][None, :, :2] ).pow(2).sum(-1)
        weight = torch.exp(-distance / v["scales"].exp().mean(1)) * v["opacity"].sigmoid().T
        return weight @ v["colors"][:, :3]


splats = Splats(20000)
for step in range(1, 30001):
    pixels, target = torch.rand(256, 2, device="cuda"), torch.rand(256, 3, device="cuda")
    loss = (splats.render(pixels) - target).abs().mean() + 1e-4 * splats.values["colors"].pow(2).mean()
    splats.optimizer.zero_grad(set_to_none=True)
    loss.backward()
    splats.optimizer.step()
    if step % 50 == 0 and step < 15000:
        n = len(splats)
        splats.densify(torch.randperm(n, device="cuda")[: n // 20])
