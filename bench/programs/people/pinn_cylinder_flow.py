"""Physics-informed network for unsteady flow past a cylinder: residuals of Navier-Stokes with second derivatives, unknown viscosity."""
import math

import torch
import torch.nn as nn

device = torch.device("cuda")
torch.manual_seed(1234)


class MLP(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes[:-1], sizes[1:]))
        for layer in self.linears:
            nn.init.xavier_normal_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x):
        for layer in self.linears[:-1]:
            x = torch.tanh(layer(x))
        return self.linears[-1](x)


def grad(y, x):
    return torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True, retain_graph=True)[0]


class FlowPINN:
    def __init__(self, n_collocation=40000, n_data=5000):
        self.net = MLP([3] + [400] * 8 + [3]).to(device)
        self.lambda_1 = nn.Parameter(torch.tensor(0.5, device=device))
        self.lambda_2 = nn.Parameter(torch.tensor(0.0, device=device))
        self.n_collocation = n_collocation
        low, high = torch.tensor([1.0, -2.0, 0.0]), torch.tensor([8.0, 2.0, 20.0])
        self.low, self.high = low.to(device), high.to(device)
        self.x_data = low + (high - low) * torch.rand(n_data, 3)
        self.u_data = torch.stack([
            1 - torch.exp(-self.x_data[:, 0] / 4) * torch.cos(math.pi * self.x_data[:, 1] - self.x_data[:, 2]),
            torch.exp(-self.x_data[:, 0] / 4) * torch.sin(math.pi * self.x_data[:, 1] - self.x_data[:, 2]),
        ], 1).to(device)
        self.x_data = self.x_data.to(device)
        self.optimizer = torch.optim.Adam([*self.net.parameters(), self.lambda_1, self.lambda_2], lr=1e-3)
        self.scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(self.optimizer, patience=10, factor=0.5)

    def predict(self, x, y, t):
        inp = torch.cat([x, y, t], 1)
        inp = 2 * (inp - self.low) / (self.high - self.low) - 1
        return self.net(inp).split(1, dim=1)

    def residuals(self, x, y, t):
        u, v, p = self.predict(x, y, t)
        u_t, u_x, u_y = grad(u, t), grad(u, x), grad(u, y)
        v_t, v_x, v_y = grad(v, t), grad(v, x), grad(v, y)
        p_x, p_y = grad(p, x), grad(p, y)
        u_xx, u_yy = grad(u_x, x), grad(u_y, y)
        v_xx, v_yy = grad(v_x, x), grad(v_y, y)
        f = u_t + self.lambda_1 * (u * u_x + v * u_y) + p_x - self.lambda_2 * (u_xx + u_yy)
        g = v_t + self.lambda_1 * (u * v_x + v * v_y) + p_y - self.lambda_2 * (v_xx + v_yy)
        return f, g, u_x + v_y

    def train(self, iterations):
        for it in range(iterations):
            points = self.low + (self.high - self.low) * torch.rand(self.n_collocation, 3, device=device)
            x, y, t = (points[:, i : i + 1].clone().requires_grad_(True) for i in range(3))
            f, g, div = self.residuals(x, y, t)
            u, v, _ = self.predict(*self.x_data.split(1, dim=1))
            loss_data = ((u[:, 0] - self.u_data[:, 0]) ** 2).mean() + ((v[:, 0] - self.u_data[:, 1]) ** 2).mean()
            loss_pde = (f**2).mean() + (g**2).mean() + (div**2).mean()
            loss = loss_data + loss_pde
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.scheduler.step(loss.item())
            if it % 10 == 0:
                print(f"It {it:4d}  data {loss_data.item():.3e}  pde {loss_pde.item():.3e}  l1 {self.lambda_1.item():.3f}  l2 {self.lambda_2.item():.5f}")


if __name__ == "__main__":
    FlowPINN().train(50)
