"""cause: size/activations at line 12
memory: 3GiB
"""
import torch
from torch import nn

layer = nn.TransformerEncoderLayer(384, 6, 1536, batch_first=True, activation="gelu")
net = nn.TransformerEncoder(layer, 12).cuda()
optimizer = torch.optim.AdamW(net.parameters())
for step in range(3):
    patches = torch.randn(96, 197, 384, device="cuda")
    loss = net(patches).mean()  # here
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
