"""A neural ODE by a fixed Runge-Kutta of forty steps, all of it in one graph; trained on spirals."""
import torch
import torch.nn as nn

torch.manual_seed(0)


class Field(nn.Module):
    def __init__(self, width=1024):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 64))

    def forward(self, t, y):
        return self.net(y * torch.cos(t))


def solve(f, y, steps=40):
    h, out = 1.0 / steps, [y]
    for n in range(steps):
        t = torch.tensor(n * h, device=y.device)
        k1 = f(t, y)
        k2 = f(t + h / 2, y + h / 2 * k1)
        k3 = f(t + h / 2, y + h / 2 * k2)
        k4 = f(t + h, y + h * k3)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        out.append(y)
    return torch.stack(out)


field = Field().cuda()
optimizer = torch.optim.RMSprop(field.parameters(), 1e-3)
for it in range(15):
    start = torch.randn(8192, 64, device="cuda")
    path = solve(field, start)
    loss = (path[1:] - start.roll(1, 1)).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
