"""cause: size/one-allocation at line 14
memory: 2GiB
why: the distances of all points from all others at once.
"""
import torch

points = torch.randn(24000, 128, device="cuda")
centres = points[torch.randperm(24000, device="cuda")[:50]].clone()
for _ in range(5):
    nearest = torch.cdist(points, centres).argmin(1)
    for centre in range(50):
        centres[centre] = points[nearest == centre].mean(0) if (nearest == centre).any() else centres[centre]

spread = torch.cdist(points, points)  # here
print(spread.mean())
