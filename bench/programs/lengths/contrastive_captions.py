"""Pictures and their captions, which are from 6 to 256 words: two transformers and one table of similarities; retrieval over the whole held-out set."""
import argparse
import json

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split


class Captioned(Dataset):
    def __init__(self, n, side, longest, vocab, seed=0):
        g = torch.Generator().manual_seed(seed)
        kind = torch.rand(n, generator=g)
        short, long = torch.randint(6, 32, (n,), generator=g), torch.randint(32, longest + 1, (n,), generator=g)
        self.words = torch.where(kind < 0.995, short.clamp(max=longest), long).tolist()  # one in two hundred is a paragraph
        self.side, self.vocab = side, vocab

    def __len__(self):
        return len(self.words)

    def __getitem__(self, i):
        picture = torch.rand(3, self.side // 16, self.side // 16).repeat(1, 16, 16)
        return picture, torch.randint(1, self.vocab, (self.words[i],))


def collate(items):
    pictures, captions = zip(*items)
    longest = max(len(c) for c in captions)
    return torch.stack(pictures), torch.stack([F.pad(c, (0, longest - len(c))) for c in captions])


class Layer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.n1, self.n2, self.heads = nn.LayerNorm(d), nn.LayerNorm(d), d // 64
        self.qkv, self.out, self.up, self.down = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x, seen=None):
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.qkv(self.n1(x)).chunk(3, dim=-1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=seen).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))


class Tower(nn.Module):
    def __init__(self, d, layers, places):
        super().__init__()
        self.place = nn.Parameter(torch.randn(places, d) * 0.02)
        self.layers, self.norm = nn.ModuleList(Layer(d) for _ in range(layers)), nn.LayerNorm(d)

    def forward(self, x, used=None):
        x = x + self.place[: x.shape[1]]
        for layer in self.layers:
            x = layer(x, None if used is None else used[:, None, None])
        x = self.norm(x)
        return x.mean(1) if used is None else (x * used[..., None]).sum(1) / used.sum(1, keepdim=True)


class TwoTowers(nn.Module):
    def __init__(self, d, layers, side, longest, vocab):
        super().__init__()
        self.patches = nn.Conv2d(3, d, 16, 16)
        self.picture, self.caption = Tower(d, layers, (side // 16) ** 2), Tower(d, layers, longest)
        self.words, self.scale = nn.Embedding(vocab, d), nn.Parameter(torch.tensor(2.66))

    def forward(self, pictures, captions):
        p = self.picture(self.patches(pictures).flatten(2).transpose(1, 2))
        c = self.caption(self.words(captions), captions != 0)
        return F.normalize(p.float(), dim=-1), F.normalize(c.float(), dim=-1)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=120)
    ap.add_argument("--batch-size", type=int, default=192)
    ap.add_argument("--eval-every", type=int, default=40)
    ap.add_argument("--side", type=int, default=160)
    ap.add_argument("--max-len", type=int, default=256)
    ap.add_argument("--dim", type=int, default=384)
    ap.add_argument("--layers", type=int, default=8)
    ap.add_argument("--device", default="cuda")
    a = ap.parse_args()
    torch.manual_seed(0)
    data = Captioned(125 * a.batch_size, a.side, a.max_len, 20000)
    train_set, held = random_split(data, [120 * a.batch_size, 5 * a.batch_size])
    train = DataLoader(train_set, a.batch_size, shuffle=True, drop_last=True, collate_fn=collate)
    valid = DataLoader(held, a.batch_size, collate_fn=collate)
    model = TwoTowers(a.dim, a.layers, a.side, a.max_len, 20000).to(a.device)
    opt = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.2, betas=(0.9, 0.98))
    step = 0
    while step < a.steps:
        for pictures, captions in train:
            with torch.autocast(a.device, dtype=torch.bfloat16):
                p, c = model(pictures.to(a.device), captions.to(a.device))
            table = model.scale.exp() * p @ c.T
            same = torch.arange(len(p), device=a.device)
            loss = (F.cross_entropy(table, same) + F.cross_entropy(table.T, same)) / 2
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % a.eval_every == 0:
                model.eval()
                with torch.no_grad(), torch.autocast(a.device, dtype=torch.bfloat16):
                    seen = [model(x.to(a.device), y.to(a.device)) for x, y in valid]
                    p, c = (torch.cat(side) for side in zip(*seen))
                    first = ((p @ c.T).argsort(dim=1, descending=True)[:, :5] == torch.arange(len(p), device=a.device)[:, None]).any(1)
                model.train()
                print(f"step {step} words {captions.shape[1]} loss {loss.item():.3f} recall@5 {first.float().mean().item():.3f}")
            if step >= a.steps:
                break
    print("MEASURED", json.dumps({"steps": step, "peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved()}))
