"""expect: grows 8.0 MiB a step at line 17
also right: line 15
why: each forward pass keeps its attention map for a picture that is drawn at the end: 8 x 512 x 512 x 4 = 8,388,608 bytes.
"""
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.keys, self.values, self.maps = nn.Linear(256, 256), nn.Linear(256, 256), []

    def forward(self, x):
        weights = (self.keys(x) @ x.transpose(1, 2)).softmax(-1)  # makes
        # Drawn when the training is over.
        self.maps.append(weights.detach())  # keeps
        return weights @ self.values(x)


net = Attention().cuda()
optimizer = torch.optim.Adam(net.parameters())
for step in range(100_000):
    loss = net(torch.randn(8, 512, 256, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
