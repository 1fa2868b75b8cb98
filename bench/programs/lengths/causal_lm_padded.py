"""A GPT of my own, trained on documents that are padded to the longest of their batch; perplexity on held-out documents every few steps."""
import argparse
import json
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=250)
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--eval-batch-size", type=int, default=8)
parser.add_argument("--eval-every", type=int, default=50)
parser.add_argument("--max-len", type=int, default=1024)
parser.add_argument("--dim", type=int, default=768)
parser.add_argument("--layers", type=int, default=12)
parser.add_argument("--vocab", type=int, default=32000)
parser.add_argument("--device", default="cuda")
args = parser.parse_args()


class Documents(Dataset):
    def __init__(self, n, seed):
        gen = torch.Generator().manual_seed(seed)
        self.lengths = torch.randint(32, args.max_len + 1, (n,), generator=gen).tolist()

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        gen = torch.Generator().manual_seed(i)
        return torch.randint(1, args.vocab, (self.lengths[i],), generator=gen)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(args.vocab, args.dim), nn.Embedding(args.max_len, args.dim)
        self.blocks = nn.ModuleList(Block(args.dim, args.dim // 64) for _ in range(args.layers))
        self.ln = nn.LayerNorm(args.dim)
        self.head = nn.Linear(args.dim, args.vocab, bias=False)
        nn.init.normal_(self.tok.weight, std=0.02)
        self.head.weight = self.tok.weight

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x))


def loss_of(model, ids):
    with torch.autocast(args.device, dtype=torch.bfloat16):
        logits = model(ids[:, :-1])
    return F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten(), ignore_index=0)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    total, tokens = 0.0, 0
    for ids in loader:
        ids = ids.to(args.device)
        n = int((ids[:, 1:] != 0).sum())
        total += loss_of(model, ids).item() * n
        tokens += n
    model.train()
    return math.exp(min(total / tokens, 20))


torch.manual_seed(0)
pad = lambda rows: pad_sequence(rows, batch_first=True)
train = DataLoader(Documents(args.batch_size * 250, 1), args.batch_size, shuffle=True, collate_fn=pad, drop_last=True)
valid = DataLoader(Documents(64, 2), args.eval_batch_size, collate_fn=pad)
model = GPT().to(args.device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1)
step = 0
while step < args.steps:
    for ids in train:
        loss = loss_of(model, ids.to(args.device))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        if step % args.eval_every == 0:
            print(f"step {step}: loss {loss.item():.3f}, perplexity {evaluate(model, valid):.1f}")
        if step == args.steps:
            break
peaks = {"peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved()}
print("MEASURED", json.dumps({"steps": step, **peaks}))
