"""Fluid simulation: the windows of a rollout are predicted one after the other, and the error of each stays (DeepLagrangianFluids#19)."""
import torch
from torch import nn

net = nn.Sequential(nn.Linear(6, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 3)).cuda()
opt = torch.optim.Adam(net.parameters(), 1e-3)
summary = {}


def train(batch):
    pos, vel, goal = batch
    loss = 0
    for _ in range(2):
        vel = net(torch.cat([pos, vel], -1))
        pos = pos + vel
        error = (pos - goal).norm(dim=-1)
        loss = loss + error.mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss, error


for step in range(20000):
    loss, error = train([torch.randn(40000, 3).cuda() for _ in range(3)])
    if step % 10 == 0:
        summary.setdefault("error", {})[step] = error
        print(step, float(loss))
