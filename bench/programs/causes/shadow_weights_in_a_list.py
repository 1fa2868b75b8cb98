"""cause: growth/per-step at line 19
also right: leak/results-kept
also right: line 18
memory: 3GiB
why: a copy of all weights goes into a list every few steps, for an average that is made at the end.
"""
import torch
from torch import nn

net = nn.TransformerEncoder(nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True), 4).cuda()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
shadows = []


def remember(module):
    # One entry for each time it was called.
    with torch.no_grad():
        shadows.append(
            [it.clone() for it in module.parameters()]  # here
        )


for step in range(400):
    x = torch.randn(4, 64, 512, device="cuda")
    loss = net(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 4 == 3:
        remember(net)
