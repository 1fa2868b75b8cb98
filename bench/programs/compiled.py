"""Six compiled training steps of one of three models; see `../instruments/compiled.py`. The last line says in seconds when each was done, and what was reserved."""

import json
import os
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

START = float(os.environ.get("BENCH_START", time.time()))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.first(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.second(x))


class Gpt(nn.Module):
    def __init__(self, vocabulary=50257, width=768, layers=6):
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(1024, width)
        self.blocks = nn.ModuleList(Block(width, 12) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def texts(lengths):
    return [torch.randint(50257, (8, it + 1)) for it in lengths]


def of_words(model, ids):
    ids = ids.cuda()
    return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


def of_pictures(model, _):
    return F.cross_entropy(model(torch.randn(32, 3, 224, 224, device="cuda")), torch.randint(1000, (32,), device="cuda"))


def main(name):
    torch.manual_seed(0)
    if name == "resnet50":
        from torchvision.models import resnet50

        model, dynamic, batches, loss_of = resnet50(), None, [None] * 6, of_pictures
    else:
        dynamic = name == "gpt_dynamic"
        lengths = (256, 384, 200, 511, 320, 450) if dynamic else (256,) * 6
        model, batches, loss_of = Gpt(), texts(lengths), of_words
    model = model.cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    compiled = torch.compile(model, dynamic=dynamic or None)
    begun, ends = time.time() - START, []
    for batch in batches:
        loss = loss_of(compiled, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
        ends.append(round(time.time() - START, 2))
    print(json.dumps({"begun": round(begun, 2), "steps": ends, "reserved": torch.cuda.max_memory_reserved()}))


if __name__ == "__main__":
    main(sys.argv[1])
