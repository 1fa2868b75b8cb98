"""The same, each batch as long as its longest text."""
import random

import torch
from torch import nn
from torch.utils.data import DataLoader

random.seed(0)
texts = [[random.randrange(1, 1000) for _ in range(random.randint(10, 60))] for _ in range(512)]


def join(batch):
    longest = max(map(len, batch))
    return torch.tensor([it + [0] * (longest - len(it)) for it in batch])


layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True)
net = nn.Sequential(nn.Embedding(1000, 128), nn.TransformerEncoder(layer, 4), nn.Linear(128, 2)).cuda()
opt = torch.optim.SGD(net.parameters(), 0.1)
for ids in DataLoader(texts, 64, collate_fn=join):
    out = net(ids.cuda())[:, 0]
    loss = out.square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
