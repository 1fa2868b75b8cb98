"""Who leaves next month: a row of numbers and categories per customer and a history of 1 to 512 purchases; all held-out customers scored for the AUC."""
import argparse
import json

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=250)
ap.add_argument("--batch-size", type=int, default=192)
ap.add_argument("--eval-batch-size", type=int, default=512)
ap.add_argument("--eval-every", type=int, default=50)
ap.add_argument("--history", type=int, default=512)
ap.add_argument("--dim", type=int, default=128)
ap.add_argument("--layers", type=int, default=4)
ap.add_argument("--device", default="cuda")
a = ap.parse_args()
CATEGORIES, NUMBERS, SHOPS = (7, 50, 1000, 12), 24, 5000


class Customers(Dataset):
    def __init__(self, n, seed):
        self.g = torch.Generator().manual_seed(seed)
        u = torch.rand(n, generator=self.g)
        self.purchases = (3 / u**0.9).clamp(1, a.history).int().tolist()  # most have few, some have hundreds
        self.numbers = torch.randn(n, NUMBERS, generator=self.g)
        self.categories = torch.stack([torch.randint(c, (n,), generator=self.g) for c in CATEGORIES], dim=1)

    def __len__(self):
        return len(self.purchases)

    def __getitem__(self, i):
        n = self.purchases[i]
        shops = torch.randint(1, SHOPS, (n,), generator=self.g)
        amounts = torch.randn(n, 2, generator=self.g)
        return self.numbers[i], self.categories[i], shops, amounts, float(n % 3 == 0)


def collate(rows):
    numbers, categories, shops, amounts, left = zip(*rows)
    pad = lambda parts: nn.utils.rnn.pad_sequence(parts, batch_first=True)
    return torch.stack(numbers), torch.stack(categories), pad(shops), pad(amounts), torch.tensor(left)


class Churn(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.kinds = nn.ModuleList(nn.Embedding(c, 16) for c in CATEGORIES)
        self.row = nn.Sequential(nn.BatchNorm1d(NUMBERS + 64), nn.Linear(NUMBERS + 64, 2 * d), nn.ReLU(), nn.Linear(2 * d, d))
        self.shop, self.amount = nn.Embedding(SHOPS, d, padding_idx=0), nn.Linear(2, d)
        layer = nn.TransformerEncoderLayer(d, 4, 4 * d, dropout=0.1, batch_first=True)
        self.history = nn.TransformerEncoder(layer, a.layers)
        self.pool = nn.MultiheadAttention(d, 4, batch_first=True)
        self.out = nn.Linear(2 * d, 1)

    def forward(self, numbers, categories, shops, amounts):
        row = self.row(torch.cat([numbers, *(e(c) for e, c in zip(self.kinds, categories.T))], dim=1))
        empty = shops == 0
        past = self.history(self.shop(shops) + self.amount(amounts), src_key_padding_mask=empty)
        empty = empty[:, : past.shape[1]]
        seen, _ = self.pool(row[:, None], past, past, key_padding_mask=empty, need_weights=False)
        return self.out(torch.cat([row, seen[:, 0]], dim=1)).squeeze(1)


def auc(scores, left):
    order = left[scores.argsort()]
    positive = order.sum()
    ranks = torch.arange(1, len(order) + 1, device=order.device, dtype=torch.float64)
    return ((ranks * order).sum() - positive * (positive + 1) / 2) / (positive * (len(order) - positive))


@torch.no_grad()
def score_all(model, loader):
    model.eval()
    scores, left = [], []
    for batch in loader:
        *inputs, y = (t.to(a.device) for t in batch)
        scores.append(model(*inputs))
        left.append(y)
    model.train()
    return auc(torch.cat(scores), torch.cat(left).double()).item()


torch.manual_seed(0)
train = DataLoader(Customers(250 * a.batch_size, 1), batch_size=a.batch_size, shuffle=True, collate_fn=collate, drop_last=True)
valid = DataLoader(Customers(4 * a.eval_batch_size, 2), batch_size=a.eval_batch_size, collate_fn=collate)
model = Churn(a.dim).to(a.device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=a.steps)
step = 0
while step < a.steps:
    for batch in train:
        *inputs, left = (t.to(a.device) for t in batch)
        loss = nn.functional.binary_cross_entropy_with_logits(model(*inputs), left)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        cycle.step()
        step += 1
        if step % a.eval_every == 0:
            print(f"step {step} history {batch[2].shape[1]} loss {loss.item():.4f} auc {score_all(model, valid):.4f}")
        if step >= a.steps:
            break
print("MEASURED", json.dumps({"steps": step, "peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved()}))
