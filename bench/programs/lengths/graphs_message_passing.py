"""Molecule-like graphs of any number of nodes and edges in one big graph per batch; messages by index_add, mean and largest read out."""
import argparse
import json

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=200)
ap.add_argument("--batch-size", type=int, default=384)
ap.add_argument("--eval-every", type=int, default=50)
ap.add_argument("--dim", type=int, default=256)
ap.add_argument("--layers", type=int, default=5)
ap.add_argument("--most-nodes", type=int, default=250)
ap.add_argument("--device", default="cuda")
args = ap.parse_args()


class Graphs(Dataset):
    def __init__(self, n, seed):
        self.gen = torch.Generator().manual_seed(seed)
        nodes = torch.exp(torch.randn(n, generator=self.gen) * 0.7 + 3.4)
        self.nodes = nodes.clamp(5, args.most_nodes).int().tolist()
        self.degree = torch.randint(3, 13, (n,), generator=self.gen).tolist()

    def __len__(self):
        return len(self.nodes)

    def __getitem__(self, i):
        n, m = self.nodes[i], self.nodes[i] * self.degree[i]
        edges = torch.randint(n, (2, m), generator=self.gen)
        return {
            "atoms": torch.randint(100, (n,), generator=self.gen),
            "edges": edges,
            "bonds": torch.rand(m, 16, generator=self.gen),
            "y": torch.randn(1, generator=self.gen),
        }


def batch_graphs(graphs):
    first, edges, owner = 0, [], []
    for i, graph in enumerate(graphs):
        edges.append(graph["edges"] + first)
        owner.append(torch.full_like(graph["atoms"], i))
        first += len(graph["atoms"])
    joined = {key: torch.cat([g[key] for g in graphs]) for key in ("atoms", "bonds", "y")}
    return {**joined, "edges": torch.cat(edges, dim=1), "owner": torch.cat(owner), "graphs": len(graphs)}


class Passing(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.message = nn.Sequential(nn.Linear(2 * d + 16, d), nn.SiLU(), nn.Linear(d, d), nn.SiLU())
        self.gate = nn.Linear(d, 1)
        self.update = nn.Sequential(nn.Linear(2 * d, d), nn.SiLU(), nn.Linear(d, d))
        self.norm = nn.LayerNorm(d)

    def forward(self, h, edges, bonds):
        source, target = edges
        m = self.message(torch.cat([h[source], h[target], bonds], dim=1))
        m = m * torch.sigmoid(self.gate(m))
        heard = torch.zeros_like(h).index_add_(0, target, m)
        return self.norm(h + self.update(torch.cat([h, heard], dim=1)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(100, args.dim)
        self.layers = nn.ModuleList(Passing(args.dim) for _ in range(args.layers))
        self.out = nn.Sequential(nn.Linear(2 * args.dim, args.dim), nn.SiLU(), nn.Linear(args.dim, 1))

    def forward(self, g):
        h = self.embed(g["atoms"])
        for layer in self.layers:
            h = layer(h, g["edges"], g["bonds"])
        shape, index = (g["graphs"], args.dim), g["owner"][:, None].expand_as(h)
        mean = torch.zeros(shape, device=h.device).scatter_reduce(0, index, h, "mean", include_self=False)
        most = torch.zeros(shape, device=h.device).scatter_reduce(0, index, h, "amax", include_self=False)
        return self.out(torch.cat([mean, most], dim=1)).squeeze(1)


def to_device(batch):
    return {k: v.to(args.device) if torch.is_tensor(v) else v for k, v in batch.items()}


torch.set_float32_matmul_precision("high")
torch.manual_seed(42)
train = DataLoader(Graphs(200 * args.batch_size, 0), args.batch_size, shuffle=True, collate_fn=batch_graphs)
valid = DataLoader(Graphs(4 * args.batch_size, 1), 2 * args.batch_size, collate_fn=batch_graphs)
model = Net().to(args.device)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=2)
step = 0
while step < args.steps:
    for batch in train:
        batch = to_device(batch)
        optimizer.zero_grad()
        loss = F.l1_loss(model(batch), batch["y"])
        loss.backward()
        optimizer.step()
        step += 1
        if step % args.eval_every == 0:
            model.eval()
            with torch.no_grad():
                errors = [(model(b) - b["y"]).abs().mean().item() for b in map(to_device, valid)]
            model.train()
            plateau.step(sum(errors) / len(errors))
            print(f"step {step}: {len(batch['atoms'])} atoms, {batch['edges'].shape[1]} edges, loss {loss.item():.3f}, held out {sum(errors) / len(errors):.3f}")
        if step >= args.steps:
            break
print("MEASURED", json.dumps({"steps": step, "peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved()}))
