"""A contrastive loss sets each positive pair against each negative one: 512 embeddings have 65,280 of the first and 131,072 of the second."""
import torch
import torch.nn.functional as F
from torch import nn

net = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 128)).cuda()
optimizer = torch.optim.Adam(net.parameters(), 1e-3)
labels = torch.cat([torch.zeros(256), torch.arange(1, 257)]).long().cuda()


def loss_of(x):
    x = F.normalize(x)
    like = x @ x.T / 0.5
    same = labels[:, None] == labels[None]
    eye = torch.eye(len(x), dtype=torch.bool, device=x.device)
    positive, negative = like[same & ~eye], like[~same]
    each = torch.cat([positive[:, None], negative[None].expand(len(positive), -1)], 1)
    return -F.log_softmax(each, 1)[:, 0].mean()


for step in range(1000):
    loss = loss_of(net(torch.randn(512, 512).cuda()))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
