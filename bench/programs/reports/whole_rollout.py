"""GAIL: the discriminator is trained on all samples of an iteration at once (Khrylx/PyTorch-RL#2)."""
import torch
from torch import nn

policy = nn.Sequential(nn.Linear(53, 512), nn.Tanh(), nn.Linear(512, 2)).cuda()
disc = nn.Sequential(nn.Linear(55, 4096), nn.Tanh(), nn.Linear(4096, 4096), nn.Tanh(), nn.Linear(4096, 1)).cuda()
opt = torch.optim.Adam(disc.parameters(), 3e-4)
for iteration in range(100):
    with torch.no_grad():
        states = torch.randn(300_000, 53).cuda()
        actions = policy(states)
    expert = torch.randn(300_000, 55).cuda()
    for _ in range(3):
        g, e = disc(torch.cat([states, actions], 1)), disc(expert)
        loss = nn.functional.binary_cross_entropy_with_logits(g, torch.ones_like(g)) + nn.functional.binary_cross_entropy_with_logits(e, torch.zeros_like(e))
        opt.zero_grad()
        loss.backward()
        opt.step()
