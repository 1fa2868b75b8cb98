"""cause: size/one-allocation at line 20
also right: size/activations
also right: line 21
memory: 3GiB
why: every expert is computed for every word, and then one of them is chosen.
"""
import torch
from torch import nn


class Experts(nn.Module):
    def __init__(self, n=32, width=512):
        super().__init__()
        self.gate = nn.Linear(width, n)
        self.up = nn.Parameter(torch.randn(n, width, 2 * width) * 0.02)
        self.down = nn.Parameter(torch.randn(n, 2 * width, width) * 0.02)

    def forward(self, x):
        share = self.gate(x).softmax(-1)
        inner = torch.einsum("bw,nwv->bnv", x, self.up)  # here
        outer = torch.einsum("bnv,nvw->bnw", inner.relu(), self.down)
        return x + (share[..., None] * outer).sum(1)


net = nn.Sequential(Experts(), Experts()).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for step in range(5):
    x = torch.randn(8192, 512, device="cuda")
    loss = (net(x) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
