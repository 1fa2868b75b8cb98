"""An exact Gaussian process on 20,000 points in double precision."""
import math

import torch
from torch import nn


class ExactGP(nn.Module):
    def __init__(self, dims):
        super().__init__()
        self.log_length = nn.Parameter(torch.zeros(dims, dtype=torch.float64))
        self.log_scale = nn.Parameter(torch.zeros((), dtype=torch.float64))
        self.log_noise = nn.Parameter(torch.tensor(-2.0, dtype=torch.float64))

    def kernel(self, a, b):
        a, b = a / self.log_length.exp(), b / self.log_length.exp()
        squared = a.pow(2).sum(1)[:, None] + b.pow(2).sum(1)[None] - 2 * a @ b.T
        return self.log_scale.exp() * torch.exp(-0.5 * squared.clamp_min(0))

    def forward(self, x, y):
        n = len(x)
        k = self.kernel(x, x) + self.log_noise.exp() * torch.eye(n, dtype=x.dtype, device=x.device)
        chol = torch.linalg.cholesky(k)
        alpha = torch.cholesky_solve(y[:, None], chol)
        return 0.5 * (y @ alpha.squeeze(1)) + chol.diagonal().log().sum() + 0.5 * n * math.log(2 * math.pi)


x = torch.rand(20000, 6, dtype=torch.float64, device="cuda")
y = torch.sin(x.sum(1) * 4)
gp = ExactGP(6).cuda()
optimizer = torch.optim.Adam(gp.parameters(), lr=0.05)
for step in range(100):
    optimizer.zero_grad()
    loss = gp(x, y)
    loss.backward()
    optimizer.step()
