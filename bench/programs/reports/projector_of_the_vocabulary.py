"""Gradients projected to a low rank; one layer, Linear(256, 60000), kills it (GaLore#4)."""
import torch
from torch import nn


class Projector:
    def __init__(self, rank, every=200):
        self.rank, self.every = rank, every
        self.steps, self.basis = 0, None

    def basis_of(self, matrix):
        u, s, vh = torch.linalg.svd(matrix)
        if matrix.shape[0] >= matrix.shape[1]:
            return vh[: self.rank].clone()
        return u[:, : self.rank].t().clone()

    def project(self, grad):
        if self.steps % self.every == 0:
            self.basis = self.basis_of(grad)
        self.steps += 1
        return grad @ self.basis.t() if grad.shape[0] >= grad.shape[1] else self.basis @ grad

    def back(self, low, shape):
        return low @ self.basis if shape[0] >= shape[1] else self.basis.t() @ low


model = nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 60000)).cuda()
matrices = [p for p in model.parameters() if p.dim() == 2]
projectors = {p: Projector(16) for p in matrices}
moments = {}
for step in range(1000):
    x = torch.randn(64, 256, device="cuda")
    y = torch.randint(60000, (64,), device="cuda")
    model.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    with torch.no_grad():
        for p in matrices:
            low = projectors[p].project(p.grad)
            moments[p] = low if p not in moments else moments[p].mul_(0.9).add_(low)
            p -= 1e-3 * projectors[p].back(moments[p], p.shape)
