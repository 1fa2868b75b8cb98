"""Piano pieces as tokens: a sampler that fills each batch up to a number of tokens, pieces of one bucket together; whole pieces as evaluation."""
import argparse
import json
import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

NOTES, PAD = 388, 0


class Pieces(Dataset):
    def __init__(self, count, shortest, longest, seed):
        draw = random.Random(seed)
        self.lengths = [min(longest, int(shortest * draw.paretovariate(1.1))) for _ in range(count)]
        self.seed = seed

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        return torch.randint(1, NOTES, (self.lengths[i] + 1,), generator=torch.Generator().manual_seed(self.seed * 7919 + i))


class UpToSoManyTokens(Sampler):
    def __init__(self, lengths, tokens):
        self.lengths, self.tokens = lengths, tokens

    def __iter__(self):
        order = sorted(range(len(self.lengths)), key=lambda i: (self.lengths[i] // 128, random.random()))
        batches, batch = [], []
        for i in order:
            longest = max([self.lengths[i], *(self.lengths[j] for j in batch)])
            if batch and longest * (len(batch) + 1) > self.tokens:
                batches.append(batch)
                batch = []
            batch.append(i)
        batches.append(batch)
        random.shuffle(batches)
        return iter(batches)


def collate(rows):
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads, self.n1, self.n2 = heads, nn.RMSNorm(d), nn.RMSNorm(d)
        self.qkv, self.o = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.up, self.gate, self.down = nn.Linear(d, 3 * d), nn.Linear(d, 3 * d), nn.Linear(3 * d, d)

    def forward(self, x, turn):
        b, n, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k = (torch.view_as_real(torch.view_as_complex(it.float().unflatten(-1, (-1, 2))) * turn).flatten(-2).to(v.dtype) for it in (q, k))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        y = self.n2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Composer(nn.Module):
    def __init__(self, d, layers, heads):
        super().__init__()
        self.notes, self.out = nn.Embedding(NOTES, d, padding_idx=PAD), nn.Linear(d, NOTES, bias=False)
        self.blocks, self.norm = nn.ModuleList(Block(d, heads) for _ in range(layers)), nn.RMSNorm(d)
        self.speeds = 10000 ** -torch.linspace(0, 1, d // heads // 2)

    def forward(self, ids):
        angles = torch.arange(ids.shape[1], device=ids.device)[:, None] * self.speeds.to(ids.device)
        turn, x = torch.polar(torch.ones_like(angles), angles), self.notes(ids)
        for block in self.blocks:
            x = block(x, turn)
        return self.out(self.norm(x))


def error(model, ids):
    with torch.autocast("cuda", torch.bfloat16):
        out = model(ids[:, :-1])
    return F.cross_entropy(out.float().flatten(0, 1), ids[:, 1:].flatten(), ignore_index=PAD)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=160)
    ap.add_argument("--eval-every", type=int, default=40)
    ap.add_argument("--tokens", type=int, default=16384)
    ap.add_argument("--dim", type=int, default=512)
    ap.add_argument("--layers", type=int, default=10)
    a = ap.parse_args()
    random.seed(0)
    torch.manual_seed(0)
    model = Composer(a.dim, a.layers, 8).cuda()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95))
    pieces = Pieces(4000, 96, 2048, 1)
    train = DataLoader(pieces, batch_sampler=UpToSoManyTokens(pieces.lengths, a.tokens), collate_fn=collate)
    valid = DataLoader(Pieces(12, 1500, 4096, 2), 2, collate_fn=collate)
    step = 0
    while step < a.steps:
        for ids in train:
            opt.zero_grad()
            loss = error(model, ids.cuda())
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            step += 1
            if step % a.eval_every == 0:
                model.eval()
                with torch.inference_mode():
                    held_out = [error(model, ids.cuda()).item() for ids in valid]
                model.train()
                print(f"step {step} loss {loss.item():.3f} held out {sum(held_out) / len(held_out):.3f}")
            if step >= a.steps:
                break
    print("MEASURED", json.dumps({"steps": step, "peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved()}))
