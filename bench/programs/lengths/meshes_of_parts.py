"""Surrogate of a solver: meshes of any number of vertices and edges, messages along edges, fields predicted on vertices; finer meshes as evaluation."""
import argparse
import json
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Mesh:
    vertices: torch.Tensor
    edges: torch.Tensor
    field: torch.Tensor

    def to(self, device):
        return Mesh(self.vertices.to(device), self.edges.to(device), self.field.to(device))


class Meshes(Dataset):
    """Grids of triangles, each of another resolution."""

    def __init__(self, count, coarsest, finest, seed):
        g = torch.Generator().manual_seed(seed)
        self.sides = torch.randint(coarsest, finest + 1, (count, 2), generator=g).tolist()

    def __len__(self):
        return len(self.sides)

    def __getitem__(self, i):
        rows, columns = self.sides[i]
        at = torch.arange(rows * columns).view(rows, columns)
        pairs = [(at[1:], at[:-1]), (at[:, 1:], at[:, :-1]), (at[1:, 1:], at[:-1, :-1])]
        one_way = torch.cat([torch.stack([a.flatten(), b.flatten()]) for a, b in pairs], dim=1)
        g = torch.Generator().manual_seed(i)
        vertices = torch.rand(rows * columns, 6, generator=g)
        return vertices, torch.cat([one_way, one_way.flip(0)], dim=1), vertices[:, :3].sin()


def join(meshes):
    first, vertices, edges, fields = 0, [], [], []
    for its_vertices, its_edges, field in meshes:
        vertices.append(its_vertices)
        edges.append(its_edges + first)
        fields.append(field)
        first += len(its_vertices)
    return Mesh(torch.cat(vertices), torch.cat(edges, dim=1), torch.cat(fields))


def mlp(i, d, o):
    return nn.Sequential(nn.Linear(i, d), nn.SiLU(), nn.Linear(d, o), nn.LayerNorm(o))


class Messages(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.on_edges, self.on_vertices = mlp(3 * d, d, d), mlp(2 * d, d, d)

    def forward(self, x, e, edges):
        sent, received = edges
        e = e + self.on_edges(torch.cat([x[sent], x[received], e], dim=1))
        return x + self.on_vertices(torch.cat([x, torch.zeros_like(x).index_add_(0, received, e)], dim=1)), e


class Solver(nn.Module):
    def __init__(self, d, rounds):
        super().__init__()
        self.vertices, self.edges, self.out = mlp(6, d, d), mlp(6, d, d), nn.Linear(d, 3)
        self.rounds = nn.ModuleList(Messages(d) for _ in range(rounds))

    def forward(self, mesh):
        sent, received = mesh.edges
        x, e = self.vertices(mesh.vertices), self.edges(mesh.vertices[sent] - mesh.vertices[received])
        for messages in self.rounds:
            x, e = messages(x, e, mesh.edges)
        return self.out(x)


ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=160)
ap.add_argument("--batch-size", type=int, default=4)
ap.add_argument("--eval-every", type=int, default=40)
ap.add_argument("--dim", type=int, default=128)
ap.add_argument("--rounds", type=int, default=12)
a = ap.parse_args()
torch.manual_seed(0)
solver = Solver(a.dim, a.rounds).cuda()
opt = torch.optim.Adam(solver.parameters(), lr=1e-3)
train = DataLoader(Meshes(160 * a.batch_size, 24, 96, 1), a.batch_size, shuffle=True, collate_fn=join)
valid = DataLoader(Meshes(6, 120, 200, 2), 1, collate_fn=join)
step = 0
while step < a.steps:
    for mesh in train:
        mesh = mesh.to("cuda")
        loss = (solver(mesh) - mesh.field).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
        if step % a.eval_every == 0:
            solver.eval()
            with torch.no_grad():
                errors = [(solver(it) - it.field).abs().max().item() for it in (mesh.to("cuda") for mesh in valid)]
            solver.train()
            print(f"step {step} loss {loss.item():.4f} worst error {max(errors):.3f}")
        if step >= a.steps:
            break
print("MEASURED", json.dumps({"steps": step, "peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved()}))
