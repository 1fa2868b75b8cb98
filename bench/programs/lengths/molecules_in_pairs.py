"""Proteins with a representation of each pair of residues (triangles, attention with the pairs as a bias): memory grows with the square of the length."""
import argparse
import json

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

KINDS, BINS = 22, 32


class Chains(Dataset):
    def __init__(self, count, shortest, longest, seed):
        g = torch.Generator().manual_seed(seed)
        lengths = (shortest + torch.empty(count).exponential_(4 / (longest - shortest), generator=g)).clamp(max=longest).long().tolist()
        self.rows = [(torch.randint(1, KINDS, (n,), generator=g), torch.randn(n, 3, generator=g).cumsum(0)) for n in lengths]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(rows):
    n = max(len(ids) for ids, _ in rows)
    ids = torch.stack([F.pad(ids, (0, n - len(ids))) for ids, _ in rows])
    where = torch.stack([F.pad(x, (0, 0, 0, n - len(x))) for _, x in rows])
    return ids, where


class Block(nn.Module):
    def __init__(self, d, p, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2, self.np = nn.LayerNorm(d), nn.LayerNorm(d), nn.LayerNorm(p)
        self.qkv, self.o, self.bias = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Linear(p, heads)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        self.left, self.right, self.gate, self.back = nn.Linear(p, p), nn.Linear(p, p), nn.Linear(p, p), nn.Linear(p, p)
        self.outer = nn.Linear(d, p)

    def forward(self, x, pairs, mask):
        b, n, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        bias = self.bias(pairs).permute(0, 3, 1, 2) + mask[:, None, None]
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2).reshape(b, n, d))
        x = x + self.mlp(self.n2(x))
        y = self.np(pairs)
        triangles = torch.einsum("bikc,bjkc->bijc", self.left(y), self.right(y)) / n
        pairs = pairs + self.back(torch.sigmoid(self.gate(y)) * triangles)
        o = self.outer(x)
        return x, pairs + o[:, :, None] * o[:, None]


class Folder(nn.Module):
    def __init__(self, d, p, blocks):
        super().__init__()
        self.ids, self.pairs = nn.Embedding(KINDS, d, padding_idx=0), nn.Embedding(65, p)
        self.blocks = nn.ModuleList(Block(d, p, d // 32) for _ in range(blocks))
        self.out = nn.Linear(p, BINS)

    def forward(self, ids):
        n = ids.shape[1]
        at = torch.arange(n, device=ids.device)
        pairs = self.pairs((at[:, None] - at[None]).clamp(-32, 32) + 32).expand(len(ids), -1, -1, -1)
        x, mask = self.ids(ids), torch.zeros_like(ids, dtype=torch.float).masked_fill(ids == 0, -1e4)
        for block in self.blocks:
            x, pairs = block(x, pairs, mask)
        return self.out(pairs)


def error(net, ids, where):
    bins = (torch.cdist(where, where) / 2).long().clamp(max=BINS - 1)
    return F.cross_entropy(net(ids).flatten(0, 2), bins.flatten())


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=120)
    ap.add_argument("--batch-size", type=int, default=2)
    ap.add_argument("--eval-every", type=int, default=40)
    ap.add_argument("--dim", type=int, default=256)
    ap.add_argument("--pair", type=int, default=64)
    ap.add_argument("--blocks", type=int, default=6)
    a = ap.parse_args()
    torch.manual_seed(0)
    net = Folder(a.dim, a.pair, a.blocks).cuda()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    train = DataLoader(Chains(64 * a.batch_size, 40, 256, 1), a.batch_size, shuffle=True, collate_fn=collate)
    valid = DataLoader(Chains(10, 100, 320, 2), 1, collate_fn=collate)
    step = 0
    while step < a.steps:
        for ids, where in train:
            loss = error(net, ids.cuda(), where.cuda())
            opt.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            step += 1
            if step % a.eval_every == 0:
                net.eval()
                with torch.no_grad():
                    held_out = [error(net, ids.cuda(), where.cuda()).item() for ids, where in valid]
                net.train()
                print(f"step {step} loss {loss.item():.3f} held out {sum(held_out) / len(held_out):.3f}")
            if step >= a.steps:
                break
    print("MEASURED", json.dumps({"steps": step, "peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved()}))
