"""Answers by a decoder written by hand: the keys and values of all tokens are a tuple, joined with the new ones in each pass."""
import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads, kv_heads):
        super().__init__()
        self.heads, self.kv_heads, self.dim = heads, kv_heads, width // heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * kv_heads * self.dim, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.mlp = nn.Sequential(nn.Linear(width, 3 * width), nn.SiLU(), nn.Linear(3 * width, width))

    def forward(self, x, past):
        b, t, w = x.shape
        h = self.norm1(x)
        q = self.q(h).view(b, t, self.heads, self.dim).transpose(1, 2)
        k, v = self.kv(h).view(b, t, 2 * self.kv_heads, self.dim).transpose(1, 2).chunk(2, 1)
        if past is not None:
            k = torch.cat([past[0], k], dim=2)
            v = torch.cat([past[1], v], dim=2)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=past is None, enable_gqa=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, w))
        return x + self.mlp(self.norm2(x)), (k, v)


class Decoder(nn.Module):
    def __init__(self, words=32000, width=1024, layers=24, heads=16, kv_heads=8):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, heads, kv_heads) for _ in range(layers))
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, ids, past=None):
        x = self.embed(ids)
        new = []
        for i, block in enumerate(self.blocks):
            x, kv = block(x, past[i] if past is not None else None)
            new.append(kv)
        return self.head(x[:, -1:]), tuple(new)


@torch.inference_mode()
def generate(model, prompt, tokens):
    logits, past = model(prompt)
    ids = logits.argmax(-1)
    answer = [ids]
    for _ in range(tokens - 1):
        logits, past = model(ids, past)
        ids = logits.argmax(-1)
        answer.append(ids)
    return torch.cat(answer, 1)


model = Decoder().half().cuda().eval()
for batch in range(8):
    prompts = torch.randint(0, 32000, (28, 3072), device="cuda")
    text = generate(model, prompts, tokens=256).cpu()
    print("batch", batch, tuple(text.shape), f"{torch.cuda.max_memory_allocated() / 2**30:.2f} GiB")
