"""Patients with any number of visits as nested tensors (jagged layout): no padding anywhere, attention within a patient; all held-out ones at the end."""
import argparse
import json

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

CODES, MEASURED = 4000, 16


class Patients(Dataset):
    def __init__(self, count, most, seed):
        g = torch.Generator().manual_seed(seed)
        self.visits = (2 + torch.empty(count).log_normal_(3.6, 1.0, generator=g)).clamp(max=most).int().tolist()
        self.seed = seed

    def __len__(self):
        return len(self.visits)

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed * 100003 + i)
        n = self.visits[i]
        return torch.randint(CODES, (n,), generator=g), torch.randn(n, MEASURED, generator=g), torch.rand((), generator=g).round()


def collate(rows):
    codes, measured, ill = zip(*rows)
    return torch.cat(codes), torch.cat(measured), torch.tensor([len(it) for it in codes]), torch.stack(ill)


class Layer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads, self.n1, self.n2 = heads, nn.LayerNorm(d), nn.LayerNorm(d)
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * d, d))

    def forward(self, x):
        y = self.n1(x)
        q, k, v = (it(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for it in (self.q, self.k, self.v))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2))
        return x + self.mlp(self.n2(x))


class Risk(nn.Module):
    def __init__(self, d, layers):
        super().__init__()
        self.code, self.measured = nn.Embedding(CODES, d), nn.Linear(MEASURED, d)
        self.layers, self.out = nn.ModuleList(Layer(d, d // 32) for _ in range(layers)), nn.Linear(d, 1)

    def forward(self, codes, measured, counts):
        offsets = F.pad(counts.cumsum(0), (1, 0))
        x = torch.nested.nested_tensor_from_jagged(self.code(codes) + self.measured(measured), offsets)
        for layer in self.layers:
            x = layer(x)
        last = x.values()[offsets[1:] - 1]
        return self.out(last).squeeze(1)


def main(args):
    torch.manual_seed(0)
    net = Risk(args.dim, args.layers).cuda()
    opt = torch.optim.AdamW(net.parameters(), lr=5e-4)
    train = DataLoader(Patients(200 * args.batch_size, 1024, 1), args.batch_size, shuffle=True, collate_fn=collate)
    valid = DataLoader(Patients(4 * args.batch_size, 2048, 2), 2 * args.batch_size, collate_fn=collate)
    step = 0
    while step < args.steps:
        for batch in train:
            codes, measured, counts, ill = (it.cuda() for it in batch)
            with torch.autocast("cuda", torch.bfloat16):
                out = net(codes, measured, counts)
            loss = F.binary_cross_entropy_with_logits(out.float(), ill)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % args.eval_every == 0:
                net.eval()
                with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
                    scores = [net(*(it.cuda() for it in batch[:3])).float().cpu() for batch in valid]
                net.train()
                print(f"step {step} loss {loss.item():.3f} mean risk {torch.cat(scores).sigmoid().mean():.3f}")
            if step >= args.steps:
                break
    print("MEASURED", json.dumps({"steps": step, "peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved()}))


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--batch-size", type=int, default=128)
    ap.add_argument("--eval-every", type=int, default=50)
    ap.add_argument("--dim", type=int, default=512)
    ap.add_argument("--layers", type=int, default=8)
    main(ap.parse_args())
