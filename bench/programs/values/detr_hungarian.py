"""DETR: queries, a set loss, the matching computed on the host from costs that come back from the device."""
import os
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

device = os.environ.get("DEVICE", "cuda")
torch.manual_seed(2)
rng = torch.Generator().manual_seed(2)


def assign(cost):
    """Rows to columns at the least cost (Jonker and Volgenant's shortest paths), for no more columns than rows."""
    cost = np.asarray(cost, dtype=np.float64).T
    n, m = cost.shape
    u, v, match, way = np.zeros(n + 1), np.zeros(m + 1), np.zeros(m + 1, int), np.zeros(m + 1, int)
    for i in range(1, n + 1):
        match[0], j0 = i, 0
        least, used = np.full(m + 1, np.inf), np.zeros(m + 1, bool)
        while True:
            used[j0] = True
            i0, j1, delta = match[j0], 0, np.inf
            for j in range(1, m + 1):
                if not used[j]:
                    cur = cost[i0 - 1, j - 1] - u[i0] - v[j]
                    if cur < least[j]:
                        least[j], way[j] = cur, j0
                    if least[j] < delta:
                        delta, j1 = least[j], j
            for j in range(m + 1):
                if used[j]:
                    u[match[j]] += delta
                    v[j] -= delta
                else:
                    least[j] -= delta
            j0 = j1
            if match[j0] == 0:
                break
        while j0:
            match[j0] = match[way[j0]]
            j0 = way[j0]
    rows = [j for j in range(1, m + 1) if match[j]]
    return torch.tensor([j - 1 for j in rows]), torch.tensor([match[j] - 1 for j in rows])


class Detr(nn.Module):
    def __init__(self, d=192):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 64, 7, 4, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 128, 3, 2, 1), nn.BatchNorm2d(128), nn.ReLU(), nn.Conv2d(128, d, 3, 2, 1))
        self.transformer = nn.Transformer(d, 6, 2, 3, 768, batch_first=True)
        self.queries = nn.Embedding(60, d)
        self.classes, self.boxes = nn.Linear(d, 21), nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, 4))

    def forward(self, x, mask):
        f = self.backbone(x)
        m = F.interpolate(mask[None].float(), size=f.shape[-2:])[0].bool().flatten(1)
        h = self.transformer(f.flatten(2).transpose(1, 2), self.queries.weight.expand(len(x), -1, -1), src_key_padding_mask=m, memory_key_padding_mask=m)
        return self.classes(h), self.boxes(h).sigmoid()


model = Detr().to(device)
optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
weights = torch.ones(21, device=device)
weights[-1] = 0.1
for step in range(6):
    sizes = torch.randint(192, 385, (4, 2), generator=rng).tolist()
    h, w = max(s[0] for s in sizes), max(s[1] for s in sizes)
    images, mask = torch.zeros(4, 3, h, w), torch.ones(4, h, w, dtype=torch.bool)
    for i, (a, b) in enumerate(sizes):
        images[i, :, :a, :b] = torch.randn(3, a, b, generator=rng)
        mask[i, :a, :b] = False
    targets = []
    for _ in sizes:
        n = int(torch.randint(1, 12, (1,), generator=rng))
        targets.append((torch.randint(0, 20, (n,), generator=rng).to(device), (torch.rand(n, 4, generator=rng) * 0.5 + 0.2).to(device)))
    logits, boxes = model(images.to(device), mask.to(device))
    with torch.no_grad():
        p = logits.flatten(0, 1).softmax(-1)
        names, places = torch.cat([t[0] for t in targets]), torch.cat([t[1] for t in targets])
        cost = (torch.cdist(boxes.flatten(0, 1), places, p=1) * 5 - p[:, names]).view(4, 60, -1).cpu()
        found = [assign(c[i]) for i, c in enumerate(cost.split([len(t[0]) for t in targets], -1))]
    batch = torch.cat([torch.full_like(a, i) for i, (a, _) in enumerate(found)]).to(device)
    source = torch.cat([a for a, _ in found]).to(device)
    labels = torch.full((4, 60), 20, dtype=torch.long, device=device)
    labels[batch, source] = torch.cat([t[0][b.to(device)] for t, (_, b) in zip(targets, found)])
    wanted = torch.cat([t[1][b.to(device)] for t, (_, b) in zip(targets, found)])
    n = max(float(len(wanted)), 1)
    loss = F.cross_entropy(logits.transpose(1, 2), labels, weights) + 5 * F.l1_loss(boxes[batch, source], wanted, reduction="sum") / n
    missed = (labels != 20).sum() - len(wanted)
    assert int(missed) == 0, int(missed)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    print("sizes", step, h, w, len(wanted))
