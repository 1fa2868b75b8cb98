"""Texts of at most 60 tokens are padded to 256 in the data set."""
import random

import torch
from torch import nn
from torch.utils.data import DataLoader

random.seed(0)
texts = [[random.randrange(1, 1000) for _ in range(random.randint(10, 60))] for _ in range(512)]


def sample(text):
    return torch.tensor(text + [0] * (256 - len(text))), torch.tensor([True] * len(text) + [False] * (256 - len(text)))


layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True)
net = nn.Sequential(nn.Embedding(1000, 128), nn.TransformerEncoder(layer, 4), nn.Linear(128, 2)).cuda()
opt = torch.optim.SGD(net.parameters(), 0.1)
for ids, mask in DataLoader([sample(it) for it in texts], 64):
    out = net(ids.cuda())[:, 0]
    loss = out.square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
