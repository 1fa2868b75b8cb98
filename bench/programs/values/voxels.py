"""Points sorted into voxels: as many as are filled, at most so many points in each, and a convolution over the grid."""
import os
import torch
from torch import nn

device = os.environ.get("DEVICE", "cuda")
torch.manual_seed(19)
net = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 128)).to(device)
grid = nn.Conv2d(128, 64, 3, padding=1).to(device)
optimizer = torch.optim.AdamW([*net.parameters(), *grid.parameters()])
low, size = torch.tensor([-40.0, -40.0, -3.0], device=device), torch.tensor([0.8, 0.8, 4.0], device=device)
for step in range(5):
    points = (torch.randn(16000, 3) * torch.tensor([14.0, 14.0, 1.0])).to(device)
    cell = torch.floor((points - low) / size).long()
    inside = ((cell >= 0) & (cell < torch.tensor([100, 100, 1], device=device))).all(1)
    points, cell = points[inside], cell[inside]
    voxels, member, counts = torch.unique(cell[:, 0] * 100 + cell[:, 1], return_inverse=True, return_counts=True)
    crowded = counts > 8
    features = net(torch.cat([points, points - points.mean(0)], 1))
    pooled = torch.zeros(voxels.numel(), 128, device=device).index_reduce(0, member, features, "amax")
    canvas = torch.zeros(10000, 128, device=device)
    canvas[voxels] = pooled
    loss = grid(canvas.t().reshape(1, 128, 100, 100)).pow(2).mean() + pooled[crowded].mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("sizes", points.shape[0], voxels.numel(), int(crowded.sum()))
