"""L-BFGS for a physics-informed network: its history of 200 keeps 400 vectors of all parameters."""
import torch
from torch import nn


class Sine(nn.Module):
    def forward(self, x):
        return torch.sin(x)


def network(width=2048, depth=6):
    layers = [nn.Linear(3, width), Sine()]
    for _ in range(depth):
        layers += [nn.Linear(width, width), Sine()]
    return nn.Sequential(*layers, nn.Linear(width, 1))


torch.manual_seed(0)
device = "cuda"
net = network().to(device)
points = torch.rand(4096, 3, device=device)
values = torch.sin(points.sum(1, keepdim=True))
optimizer = torch.optim.LBFGS(net.parameters(), lr=1.0, max_iter=20, history_size=5, line_search_fn="strong_wolfe")
history = []


def closure():
    optimizer.zero_grad()
    loss = (net(points) - values).pow(2).mean()
    loss.backward()
    history.append(loss.item())
    return loss


for epoch in range(500):
    loss = optimizer.step(closure)
    if epoch % 10 == 0:
        print(epoch, float(loss))
