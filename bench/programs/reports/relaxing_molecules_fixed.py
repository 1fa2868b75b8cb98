"""Molecules are relaxed with our own L-BFGS: memory grows in each step, with FIRE it does not (torch-sim#559)."""
import torch
from torch import nn


class Forces(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 32), nn.SiLU(), nn.Linear(32, 1))

    def forward(self, positions):
        energy = self.net(positions).sum()
        forces, = torch.autograd.grad(energy, positions)
        return energy.item(), -forces


class Relaxer:
    def __init__(self, atoms, history=8):
        self.history = history
        self.s = torch.zeros(atoms, 0, 3, device="cuda")
        self.y = torch.zeros(atoms, 0, 3, device="cuda")
        self.last = None

    def direction(self, positions, forces):
        if self.last is not None:
            s_new, y_new = (positions - self.last[0]).detach(), (self.last[1] - forces).detach()
            self.s = torch.cat([self.s, s_new.unsqueeze(1)], 1)[:, -self.history:]
            self.y = torch.cat([self.y, y_new.unsqueeze(1)], 1)[:, -self.history:]
        self.last = positions, forces
        q, rest = forces, []
        for i in reversed(range(self.s.shape[1])):
            s, y = self.s[:, i], self.y[:, i]
            alpha = (s * q).sum() / ((s * y).sum() + 1e-3)
            q = q - alpha * y
            rest.append((s, y, alpha))
        for s, y, alpha in reversed(rest):
            q = q + s * (alpha - (y * q).sum() / ((s * y).sum() + 1e-3))
        return q


model = Forces().cuda()
positions = torch.randn(200000, 3, device="cuda").requires_grad_()
relaxer = Relaxer(len(positions))
for step in range(2000):
    energy, forces = model(positions)
    positions = positions + 0.01 * relaxer.direction(positions, forces)
    if step % 50 == 0:
        print(step, energy)
