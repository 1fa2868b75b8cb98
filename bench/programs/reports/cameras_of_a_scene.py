"""Fits a radiance field to 800 photographs. All cameras, each with its picture, are put on the device when the scene is read."""
import torch
from torch import nn


class Camera:
    def __init__(self, picture):
        self.picture = picture.cuda()
        self.rays = torch.randn(1024, 3)


scene = [Camera(torch.zeros(3, 1024, 1280)) for _ in range(800)]
field = nn.Sequential(nn.Linear(3, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 3)).cuda()
optimizer = torch.optim.Adam(field.parameters(), lr=5e-4)
for step in range(30_000):
    camera = scene[step % len(scene)]
    rows, columns = torch.randint(1024, (1024,)), torch.randint(1280, (1024,))
    wanted = camera.picture[:, rows.cuda(), columns.cuda()].T
    loss = (field(camera.rays.cuda()) - wanted).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
