"""cause: size/activations at line 11
memory: 2GiB 3GiB 4GiB
"""
import torch
from torch import nn
encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True), 12)
net = nn.Sequential(nn.Embedding(1000, 512), encoder, nn.Linear(512, 1000)).cuda()
optimizer = torch.optim.AdamW(net.parameters())
for step in range(3):
    batch = torch.randint(1000, (64, 256), device="cuda")
    loss = nn.functional.cross_entropy(net(batch).transpose(1, 2), batch)  # here
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
