"""A small server for a model in 16 bits: its cache of keys and values has places for all requests and all lengths."""
import dataclasses

import torch
import torch.nn.functional as F
from torch import nn


@dataclasses.dataclass
class Config:
    words: int = 32000
    width: int = 2048
    layers: int = 16
    heads: int = 16
    kv_heads: int = 8
    slots: int = 16
    longest: int = 8192


class Cache:
    def __init__(self, config, device):
        shape = (config.layers, config.slots, config.kv_heads, config.longest, config.width // config.heads)
        self.k = torch.zeros(shape, dtype=torch.bfloat16, device=device)
        self.v = torch.zeros(shape, dtype=torch.bfloat16, device=device)
        self.lengths = [0] * config.slots

    def update(self, layer, slot, k, v):
        begin, end = self.lengths[slot], self.lengths[slot] + k.shape[2]
        self.k[layer, slot, :, begin:end] = k[0]
        self.v[layer, slot, :, begin:end] = v[0]
        return self.k[layer, slot : slot + 1, :, :end].to(k.dtype), self.v[layer, slot : slot + 1, :, :end].to(v.dtype)


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads, self.kv, self.dim = config.heads, config.kv_heads, config.width // config.heads
        self.norm1, self.norm2 = nn.RMSNorm(config.width), nn.RMSNorm(config.width)
        self.qkv = nn.Linear(config.width, (self.heads + 2 * self.kv) * self.dim, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)
        self.up, self.down = nn.Linear(config.width, 5632, bias=False), nn.Linear(5632, config.width, bias=False)

    def forward(self, x, layer, slot, cache):
        b, t, w = x.shape
        qkv = self.qkv(self.norm1(x)).view(b, t, -1, self.dim).transpose(1, 2)
        q, k, v = qkv.split([self.heads, self.kv, self.kv], dim=1)
        k, v = cache.update(layer, slot, k, v)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=t > 1, enable_gqa=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, w))
        return x + self.down(F.silu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embed = nn.Embedding(config.words, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.head = nn.Linear(config.width, config.words, bias=False)

    def forward(self, ids, slot, cache):
        x = self.embed(ids)
        for layer, block in enumerate(self.blocks):
            x = block(x, layer, slot, cache)
        cache.lengths[slot] += ids.shape[1]
        return self.head(x[:, -1])


@torch.inference_mode()
def serve(config, requests=12):
    with torch.device("cuda"):
        model = Model(config).to(torch.bfloat16).eval()
        cache = Cache(config, "cuda")
    for request in range(requests):
        slot = request % config.slots
        cache.lengths[slot] = 0
        ids = torch.randint(0, config.words, (1, 700 + 50 * request), device="cuda")
        for _ in range(32):
            ids = model(ids, slot, cache).argmax(-1, keepdim=True)
        print("request", request, "has", cache.lengths[slot], "tokens")


if __name__ == "__main__":
    serve(Config())
