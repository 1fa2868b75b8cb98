"""Proteins: masked residues and a map of contacts, which grows with the square of the length; most are short, a few very long."""
import argparse
import json
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

LETTERS, MASK, PAD = 20, 20, 21


class Proteins(Dataset):
    def __init__(self, n, crop, seed, typical):
        self.crop = crop
        self.g = torch.Generator().manual_seed(seed)
        self.lengths = torch.exp(torch.randn(n, generator=self.g) * 0.65 + math.log(typical)).clamp(min=20).int().tolist()

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        n = self.lengths[i]
        chain = torch.randint(LETTERS, (n,), generator=self.g)
        fold = torch.randn(n, 3, generator=self.g).cumsum(0)
        if self.crop and n > self.crop:
            first = int(torch.randint(n - self.crop + 1, (), generator=self.g))
            chain, fold = chain[first : first + self.crop], fold[first : first + self.crop]
        return chain, fold


def collate(items):
    n = max(len(c) for c, _ in items)
    chains = torch.stack([F.pad(c, (0, n - len(c)), value=PAD) for c, _ in items])
    return chains, torch.stack([F.pad(f, (0, 0, 0, n - len(f))) for _, f in items])


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.heads = d // 64
        self.norm, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out, self.mlp = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x, used):
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, n, 3, self.heads, 64).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=used[:, None, None]).transpose(1, 2).reshape(b, n, d))
        return x + self.mlp(self.norm2(x))


class Folder(nn.Module):
    def __init__(self, d, layers, pair):
        super().__init__()
        self.embed, self.blocks, self.norm = nn.Embedding(22, d), nn.ModuleList(Block(d) for _ in range(layers)), nn.LayerNorm(d)
        self.letters, self.left, self.right = nn.Linear(d, LETTERS), nn.Linear(d, pair), nn.Linear(d, pair)
        self.pairs = nn.Sequential(nn.GELU(), nn.Conv2d(pair, pair, 3, padding=1), nn.GELU(), nn.Conv2d(pair, 1, 1))

    def forward(self, chains):
        x, used = self.embed(chains), chains != PAD
        where = torch.arange(chains.shape[1], device=x.device)[:, None] / 10000 ** torch.linspace(0, 1, x.shape[2], device=x.device)
        x = x + where.sin()
        for block in self.blocks:
            x = block(x, used)
        x = self.norm(x)
        table = self.left(x).transpose(1, 2)[..., None] + self.right(x).transpose(1, 2)[..., None, :]
        return self.letters(x), self.pairs(table).squeeze(1)


def losses(model, chains, folds, hide, device):
    hidden = (torch.rand(chains.shape, device=chains.device) < hide) & (chains != PAD)
    with torch.autocast(device, dtype=torch.bfloat16):
        letters, contacts = model(chains.masked_fill(hidden, MASK))
    guess = F.cross_entropy(letters.float().flatten(0, 1), chains.masked_fill(~hidden, -100).flatten(), ignore_index=-100)
    near = (torch.cdist(folds, folds) < 4).float()
    both = (chains != PAD)[:, :, None] & (chains != PAD)[:, None]
    touch = F.binary_cross_entropy_with_logits(contacts.float(), near, reduction="none")
    return guess, (touch * both).sum() / both.sum()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--batch-size", type=int, default=6)
    ap.add_argument("--eval-every", type=int, default=50)
    ap.add_argument("--crop", type=int, default=1024)
    ap.add_argument("--typical", type=int, default=220)
    ap.add_argument("--dim", type=int, default=640)
    ap.add_argument("--layers", type=int, default=12)
    ap.add_argument("--pair", type=int, default=48)
    ap.add_argument("--device", default="cuda")
    a = ap.parse_args()
    torch.manual_seed(0)
    model = Folder(a.dim, a.layers, a.pair).to(a.device)
    train = DataLoader(Proteins(200 * a.batch_size, a.crop, 1, a.typical), a.batch_size, shuffle=True, collate_fn=collate)
    valid = DataLoader(Proteins(40, None, 2, a.typical), 1, collate_fn=collate)  # whole chains
    opt = torch.optim.AdamW(model.parameters(), lr=2e-4)
    step = 0
    while step < a.steps:
        for chains, folds in train:
            guess, touch = losses(model, chains.to(a.device), folds.to(a.device), 0.15, a.device)
            opt.zero_grad()
            (guess + touch).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            step += 1
            if step % a.eval_every == 0:
                model.eval()
                with torch.no_grad():
                    touches = [losses(model, c.to(a.device), f.to(a.device), 0.15, a.device)[1].item() for c, f in valid]
                model.train()
                print(f"step {step} length {chains.shape[1]} letters {guess.item():.3f} contacts {touch.item():.3f} held out {sum(touches) / len(touches):.3f}")
            if step >= a.steps:
                break
    print("MEASURED", json.dumps({"steps": step, "peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved()}))


if __name__ == "__main__":
    main()
