"""Two towers over two million items; dense gradients, Adam, in-batch negatives."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

N_USERS, N_ITEMS, DIM = 300_000, 2_000_000, 128
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Tower(nn.Module):
    def __init__(self, n, dim):
        super().__init__()
        self.emb = nn.Embedding(n, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 512), nn.ReLU(), nn.Dropout(0.1), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 64))

    def forward(self, ids):
        return F.normalize(self.mlp(self.emb(ids)), dim=-1)


class TwoTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.user, self.item = Tower(N_USERS, DIM), Tower(N_ITEMS, DIM)
        self.temperature = nn.Parameter(torch.tensor(0.07))

    def forward(self, u, i):
        return self.user(u) @ self.item(i).T / self.temperature


users, items = torch.randint(N_USERS, (400_000,)), torch.randint(N_ITEMS, (400_000,))
loader = DataLoader(TensorDataset(users, items), batch_size=8192, shuffle=True, drop_last=True)
model = TwoTower().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(1):
    running = 0.0
    for u, i in loader:
        u, i = u.to(device), i.to(device)
        scores = model(u, i)
        loss = F.cross_entropy(scores, torch.arange(len(u), device=device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running += loss.item()
    print(f"epoch {epoch}: {running / len(loader):.4f}")
