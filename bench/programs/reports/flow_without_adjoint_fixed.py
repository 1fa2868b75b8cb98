"""Each step is computed again: a continuous normalizing flow of point clouds: the likelihood of each cloud by integrating over 60 steps."""

import argparse

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from solver import integrate, step


class Field(nn.Module):
    """The velocity of each point, and how much the flow spreads there."""

    def __init__(self, width):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 4)
        )

    def forward(self, time, state):
        return self.net(torch.cat([state[..., :3], time.expand(*state.shape[:-1], 1)], -1))


class Flow(nn.Module):
    def __init__(self, width, steps):
        super().__init__()
        self.field = Field(width)
        self.register_buffer("times", torch.linspace(0.0, 1.0, steps + 1))

    def again(self, function, time, y, size):
        return checkpoint(step, function, time, y, size, use_reentrant=False)

    def log_prob(self, points):
        state = torch.cat([points, torch.zeros_like(points[..., :1])], -1)
        state = integrate(self.field, state, self.times, self.again)[-1]
        z, spread = state[..., :3], state[..., 3]
        return -0.5 * z.pow(2).sum(-1) - spread


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--clouds", type=int, default=16)
    parser.add_argument("--points", type=int, default=2048)
    parser.add_argument("--iterations", type=int, default=300)
    args = parser.parse_args()
    flow = Flow(args.width, args.steps).cuda()
    optimizer = torch.optim.Adam(flow.parameters(), lr=1e-3)
    for iteration in range(args.iterations):
        points = torch.randn(args.clouds, args.points, 3).cuda()
        loss = -flow.log_prob(points).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
