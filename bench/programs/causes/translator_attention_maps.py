"""cause: leak/graph-retained at line 32
also right: leak/results-kept
also right: line 19
also right: line 28
memory: 2GiB
why: attention maps are kept for a picture, with their graphs.
"""
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, d=256):
        super().__init__()
        self.inner = nn.MultiheadAttention(d, 4, batch_first=True)
        self.out = nn.Linear(d, d)

    def forward(self, x):
        y, maps = self.inner(x, x, x, need_weights=True, average_attn_weights=False)
        self.maps = maps
        return self.out(y)


model = Attention().cuda()
optimizer = torch.optim.Adam(model.parameters())
pictures = []
for step in range(300):
    loss = model(torch.randn(16, 256, 256, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    pictures.append(model.maps)  # here
