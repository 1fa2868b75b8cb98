"""A language model on documents packed into rows; a row is as long as what was packed into it, and a mask keeps attention within each document."""
import argparse
import json

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

VOCAB = 20000


class Rows(Dataset):
    """Documents in their order, as many to a row as fit."""

    def __init__(self, n, longest, seed):
        g = torch.Generator().manual_seed(seed)
        self.rows, row = [], []
        while len(self.rows) < n:
            words = int(min(longest, 32 + torch.empty(()).exponential_(4 / longest, generator=g)))
            if sum(row) + words > longest:
                self.rows.append(row)
                row = []
            row.append(words)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        ids = torch.randint(1, VOCAB, (sum(self.rows[i]),))
        return ids, torch.repeat_interleave(torch.arange(len(self.rows[i])), torch.tensor(self.rows[i]))


def pad(rows):
    longest = max(len(ids) for ids, _ in rows)
    ids = torch.stack([F.pad(ids, (0, longest - len(ids))) for ids, _ in rows])
    document = torch.stack([F.pad(d, (0, longest - len(d)), value=-1) for _, d in rows])
    return ids, document


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.heads = d // 64
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.o = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x, mask):
        b, n, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, n, 3, self.heads, 64).permute(2, 0, 3, 1, 4)
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).reshape(b, n, d))
        return x + self.mlp(self.n2(x))


class LM(nn.Module):
    def __init__(self, d, layers, longest):
        super().__init__()
        self.embed, self.where = nn.Embedding(VOCAB, d), nn.Embedding(longest, d)
        self.blocks = nn.ModuleList(Block(d) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, VOCAB, bias=False)

    def forward(self, ids, document):
        n = ids.shape[1]
        causal = torch.ones(n, n, dtype=torch.bool, device=ids.device).tril()
        mask = ((document[:, :, None] == document[:, None, :]) & causal)[:, None]
        x = self.embed(ids) + self.where.weight[:n]
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.norm(x))


def loss_of(model, ids, document):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        logits = model(ids, document)
    is_next = (document[:, 1:] == document[:, :-1]) & (document[:, 1:] >= 0)
    return F.cross_entropy(logits[:, :-1][is_next].float(), ids[:, 1:][is_next])


ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=200)
ap.add_argument("--batch-size", type=int, default=12)
ap.add_argument("--eval-every", type=int, default=50)
ap.add_argument("--longest", type=int, default=1536)
a = ap.parse_args()
torch.manual_seed(0)
model = LM(768, 10, a.longest).cuda()
train = DataLoader(Rows(1200, a.longest, 1), a.batch_size, shuffle=True, collate_fn=pad)
valid = DataLoader(Rows(32, a.longest, 2), 4, collate_fn=pad)
opt = torch.optim.AdamW(model.parameters(), lr=3e-4)
step = 0
while step < a.steps:
    for ids, document in train:
        loss = loss_of(model, ids.cuda(), document.cuda())
        loss.backward()
        opt.step()
        opt.zero_grad()
        step += 1
        if step % a.eval_every == 0:
            model.eval()
            with torch.no_grad():
                held_out = [loss_of(model, i.cuda(), d.cuda()).item() for i, d in valid]
            model.train()
            print(f"step {step} loss {loss.item():.3f} held out {sum(held_out) / len(held_out):.3f}")
        if step >= a.steps:
            break
print("MEASURED", json.dumps({"steps": step, "peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved()}))
