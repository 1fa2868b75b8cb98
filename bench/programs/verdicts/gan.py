"""expect: fits
never: grows
why: two networks and two optimizers by turns; the false images of one step are used twice and then given back.
"""
import torch
from torch import nn

maker = nn.Sequential(nn.ConvTranspose2d(64, 128, 4), nn.ReLU(), nn.ConvTranspose2d(128, 64, 4, 4), nn.ReLU(), nn.Conv2d(64, 3, 1)).cuda()
judge = nn.Sequential(nn.Conv2d(3, 64, 4, 4), nn.LeakyReLU(0.2), nn.Conv2d(64, 128, 4), nn.Flatten(), nn.Linear(128, 1)).cuda()
one = torch.optim.Adam(maker.parameters(), lr=2e-4, betas=(0.5, 0.999))
two = torch.optim.Adam(judge.parameters(), lr=2e-4, betas=(0.5, 0.999))
score = nn.BCEWithLogitsLoss()
for step in range(200):
    real = torch.randn(64, 3, 16, 16, device="cuda")
    false = maker(torch.randn(64, 64, 1, 1, device="cuda"))
    loss = score(judge(real), torch.ones(64, 1, device="cuda")) + score(judge(false.detach()), torch.zeros(64, 1, device="cuda"))
    two.zero_grad()
    loss.backward()
    two.step()
    fooled = score(judge(false), torch.ones(64, 1, device="cuda"))
    one.zero_grad()
    fooled.backward()
    one.step()
