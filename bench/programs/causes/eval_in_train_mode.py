"""cause: leak/eval-without-no-grad at line 19
memory: 2GiB 3GiB
"""
import torch
from torch import nn

encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True), 6)
net = nn.Sequential(nn.Embedding(1000, 512), encoder, nn.Linear(512, 1000)).cuda()
optimizer = torch.optim.AdamW(net.parameters())


def words(n):
    return torch.randint(1000, (n, 128), device="cuda")


def check():
    # Neither eval() nor no_grad().
    batch = words(128)
    return nn.functional.cross_entropy(net(batch).transpose(1, 2), batch)  # here


for step in range(12):
    batch = words(8)
    loss = nn.functional.cross_entropy(net(batch).transpose(1, 2), batch)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 4 == 3:
        print(check().item())
