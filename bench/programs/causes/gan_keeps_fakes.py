"""cause: leak/graph-retained at line 23
also right: leak/results-kept
also right: line 17
memory: 2GiB
why: pictures are collected for the end of the epoch and never detached.
"""
import torch
from torch import nn

G = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 3 * 64 * 64)).cuda()
D = nn.Sequential(nn.Linear(3 * 64 * 64, 512), nn.LeakyReLU(0.2), nn.Linear(512, 1)).cuda()
g_step = torch.optim.Adam(G.parameters())
d_step = torch.optim.Adam(D.parameters())
samples = []
for step in range(400):
    real = torch.rand(256, 3 * 64 * 64, device="cuda")
    fake = G(torch.randn(256, 64, device="cuda"))
    d_loss = D(fake.detach()).mean() - D(real).mean()
    d_step.zero_grad(); d_loss.backward(); d_step.step()
    g_loss = -D(fake).mean()
    g_step.zero_grad(); g_loss.backward(); g_step.step()
    if step % 2 == 0:
        samples.append(fake)  # here
