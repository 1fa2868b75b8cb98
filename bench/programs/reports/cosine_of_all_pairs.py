"""NT-Xent as MONAI had it first: cosine_similarity of all pairs by broadcasting (pytorch#50196, Project-MONAI/MONAI#3286)."""
import torch
from torch import nn

net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 1024), nn.ReLU(), nn.Linear(1024, 512)).cuda()
opt = torch.optim.Adam(net.parameters())


def loss_of(a, b, temperature=0.5):
    both = torch.cat([nn.functional.normalize(a), nn.functional.normalize(b)])
    similar = nn.functional.cosine_similarity(both.unsqueeze(1), both.unsqueeze(0), dim=2) / temperature
    similar = similar.masked_fill(torch.eye(len(both), device=both.device, dtype=torch.bool), -1e9)
    target = torch.arange(len(both), device=both.device).roll(len(a))
    return nn.functional.cross_entropy(similar, target)


for step in range(100):
    x = torch.rand(1024, 3, 32, 32).cuda()
    loss = loss_of(net(x), net(x.flip(3)))
    opt.zero_grad()
    loss.backward()
    opt.step()
