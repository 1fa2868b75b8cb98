"""A network of sines that learns a video by its places: large batches of coordinates, derivatives in the loss, Adam."""
import torch
from torch import nn

POINTS, WIDTH = 300_000, 512


class Sine(nn.Module):
    def __init__(self, inside, outside, by=30.0):
        super().__init__()
        self.linear, self.by = nn.Linear(inside, outside), by

    def forward(self, x):
        return torch.sin(self.by * self.linear(x))


torch.manual_seed(0)
model = nn.Sequential(Sine(3, WIDTH), Sine(WIDTH, WIDTH), Sine(WIDTH, WIDTH), Sine(WIDTH, WIDTH), nn.Linear(WIDTH, 3)).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
video = torch.rand(64, 128, 128, 3, device="cuda")
for step in range(30):
    places = torch.rand(POINTS, 3, device="cuda")
    t, y, x = ((places * torch.tensor([63.0, 127.0, 127.0], device="cuda")).round().long()).unbind(1)
    colors = model(places * 2 - 1)
    loss = (colors - video[t, y, x]).square().mean() + 1e-4 * (colors[1:] - colors[:-1]).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
