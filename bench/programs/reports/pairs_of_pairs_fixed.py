"""The same, each positive pair against the negative ones of its own row."""
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
    others = like.masked_fill(same, float("-inf")).logsumexp(1, keepdim=True)
    return (torch.logaddexp(like, others) - like)[same & ~eye].mean()



for step in range(1000):
    loss = loss_of(net(torch.randn(512, 512).cuda()))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
