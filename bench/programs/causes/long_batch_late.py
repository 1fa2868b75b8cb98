"""cause: inputs/dynamic-shapes at line 12
memory: 2GiB 3GiB
"""
import torch
from torch import nn

encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True), 4)
net = nn.Sequential(nn.Embedding(5000, 512), encoder, nn.Linear(512, 5000)).cuda()
optimizer = torch.optim.AdamW(net.parameters())
lengths = [64, 80, 72, 64, 96, 64, 88, 1400, 64]
for length in lengths:
    batch = torch.randint(5000, (16, length), device="cuda")  # here
    loss = nn.functional.cross_entropy(net(batch).transpose(1, 2), batch)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
