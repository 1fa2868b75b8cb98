"""cause: leak/graph-retained at line 22
also right: line 19
also right: line 21
memory: 2GiB
why: the running mean of the penalty keeps the graph of each step, and that of the gradients in it.
"""
import torch
from torch import nn

critic = nn.Sequential(nn.Linear(784, 2048), nn.LeakyReLU(), nn.Linear(2048, 2048), nn.LeakyReLU(), nn.Linear(2048, 1)).cuda()
maker = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 784)).cuda()
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-4)
average = 0.0
for step in range(200):
    real = torch.randn(512, 784, device="cuda")
    fake = maker(torch.randn(512, 64, device="cuda")).detach()
    mix = torch.rand(512, 1, device="cuda")
    between = (mix * real + (1 - mix) * fake).requires_grad_()
    score = critic(between)
    (slope,) = torch.autograd.grad(score.sum(), between, create_graph=True)
    penalty = (slope.norm(dim=1) - 1).square().mean()
    average = 0.9 * average + 0.1 * penalty  # here
    loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
