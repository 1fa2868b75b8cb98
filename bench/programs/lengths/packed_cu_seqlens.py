"""Documents are packed one after the other, without padding, up to so many tokens; attention stays within each by its cumulative lengths."""
import argparse
import json

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

VOCAB = 16000


class Documents(IterableDataset):
    """Packs of (ids, cu_seqlens); what does not fit any more begins the next one."""

    def __init__(self, documents, longest, tokens, seed):
        self.documents, self.longest, self.tokens, self.seed = documents, longest, tokens, seed

    def __iter__(self):
        g = torch.Generator().manual_seed(self.seed)
        pack, used = [], 0
        for _ in range(self.documents):
            n = int(min(self.longest, 64 + torch.empty(()).exponential_(3 / self.longest, generator=g)))
            if used + n > self.tokens:
                yield self.close(pack)
                pack, used = [], 0
            pack.append(torch.randint(VOCAB, (n,), generator=g))
            used += n
        yield self.close(pack)

    @staticmethod
    def close(pack):
        ends = torch.tensor([0] + [len(d) for d in pack]).cumsum(0).int()
        where = torch.cat([torch.arange(len(d)) for d in pack])
        labels = torch.cat([torch.cat([d[1:], torch.tensor([-100])]) for d in pack])
        return {"ids": torch.cat(pack), "labels": labels, "where": where, "cu_seqlens": ends}


def rotate(x, where):
    half = x.shape[-1] // 2
    angle = where[:, None] / 10000 ** (torch.arange(half, device=x.device) / half)
    sin, cos = angle.sin()[:, None].to(x.dtype), angle.cos()[:, None].to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


def attend(q, k, v, cu_seqlens):
    out = []
    for begin, end in zip(cu_seqlens[:-1], cu_seqlens[1:]):
        part = (x[begin:end].transpose(0, 1)[None] for x in (q, k, v))
        out.append(F.scaled_dot_product_attention(*part, is_causal=True)[0].transpose(0, 1))
    return torch.cat(out)


class Layer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.heads = d // 64
        self.n1, self.n2 = nn.RMSNorm(d), nn.RMSNorm(d)
        self.qkv, self.o = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.gate, self.up, self.down = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, 3 * d, bias=False), nn.Linear(3 * d, d, bias=False)

    def forward(self, x, where, cu_seqlens):
        q, k, v = self.qkv(self.n1(x)).view(len(x), 3, self.heads, 64).unbind(1)
        x = x + self.o(attend(rotate(q, where), rotate(k, where), v, cu_seqlens).flatten(1))
        y = self.n2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class LM(nn.Module):
    def __init__(self, d, layers):
        super().__init__()
        self.embed, self.norm, self.head = nn.Embedding(VOCAB, d), nn.RMSNorm(d), nn.Linear(d, VOCAB, bias=False)
        self.layers = nn.ModuleList(Layer(d) for _ in range(layers))

    def forward(self, ids, labels, where, cu_seqlens):
        x = self.embed(ids)
        ends = cu_seqlens.tolist()
        for layer in self.layers:
            x = layer(x, where, ends)
        return F.cross_entropy(self.head(self.norm(x)).float(), labels)


ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=200)
ap.add_argument("--batch-size", type=int, default=10000, help="tokens of a pack")
ap.add_argument("--eval-every", type=int, default=50)
ap.add_argument("--max-len", type=int, default=2048)
ap.add_argument("--dim", type=int, default=1024)
ap.add_argument("--layers", type=int, default=8)
ap.add_argument("--device", default="cuda")
args = ap.parse_args()
torch.manual_seed(0)
model = LM(args.dim, args.layers).to(args.device, torch.bfloat16)  # weights and moments in half precision
per_pack = max(1, args.batch_size * 3 // args.max_len)
train = DataLoader(Documents(200 * per_pack, args.max_len, args.batch_size, 1), batch_size=None)
valid = DataLoader(Documents(6 * per_pack, args.max_len, 2 * args.batch_size, 2), batch_size=None)
opt = torch.optim.AdamW(model.parameters(), lr=2e-4, fused=args.device == "cuda")
step = 0
while step < args.steps:
    for pack in train:
        loss = model(**{k: v.to(args.device) for k, v in pack.items()})
        loss.backward()
        opt.step()
        opt.zero_grad()
        step += 1
        if step % args.eval_every == 0:
            model.eval()
            with torch.no_grad():
                losses = [model(**{k: v.to(args.device) for k, v in p.items()}).item() for p in valid]
            model.train()
            print(f"step {step} tokens {len(pack['ids'])} documents {len(pack['cu_seqlens']) - 1} loss {loss.item():.3f} held out {sum(losses) / len(losses):.3f}")
        if step >= args.steps:
            break
print("MEASURED", json.dumps({"steps": step, "peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved()}))
