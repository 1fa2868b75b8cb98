"""A system's dynamics are learned from its trajectories: an encoder, a step that is applied 24 times, a penalty on its states."""

import argparse

import torch
from torch import nn

from own_trainer import Trainer


class Step(nn.Module):
    def __init__(self, states, inputs, width):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(states + inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, states)
        )

    def forward(self, x, u):
        return x + self.net(torch.cat([x, u], -1))


class Problem(nn.Module):
    def __init__(self, states=16, inputs=4, width=256):
        super().__init__()
        self.encode, self.step = nn.Linear(states, states), Step(states, inputs, width)

    def forward(self, batch):
        x, losses = self.encode(batch["y"][:, 0]), []
        for t in range(1, batch["y"].shape[1]):
            x = self.step(x, batch["u"][:, t - 1])
            losses.append((x - batch["y"][:, t]).pow(2).mean() + 0.1 * (x.abs() - 1).relu().mean())
        return {"loss": torch.stack(losses).mean(), "x": x}


def batches(n, size, steps):
    for _ in range(n):
        yield {"y": torch.randn(size, steps, 16).cuda(), "u": torch.randn(size, steps, 4).cuda()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=25)
    args = parser.parse_args()
    problem = Problem().cuda()
    optimizer = torch.optim.AdamW(problem.parameters(), lr=1e-3)
    train, dev = list(batches(4, args.batch_size, args.steps)), list(batches(2, args.batch_size, args.steps))
    trainer = Trainer(problem, train, dev, optimizer, args.epochs, patience=args.epochs)
    best = trainer.train()
    print(trainer.best, len(best))


if __name__ == "__main__":
    main()
