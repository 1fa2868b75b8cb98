"""Log-likelihoods of 144 candidates of an answer to one long prompt, by a decoder that makes its own causal mask."""

import argparse

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, x, mask):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        out = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(out.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.one, self.two = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention = Attention(width, heads)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, mask):
        x = x + self.attention(self.one(x), mask)
        return x + self.feed(self.two(x))


class Decoder(nn.Module):
    def __init__(self, words=4096, width=512, heads=8, depth=6, longest=8192):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(depth)])
        self.head = nn.Linear(width, words, bias=False)
        causal = torch.full((longest, longest), True).triu(1)
        self.register_buffer("causal", causal, persistent=False)

    def mask(self, attention_mask, dtype):
        batch, length = attention_mask.shape
        lowest = torch.finfo(dtype).min
        mask = self.causal[None, None, :length, :length].repeat(batch, 1, 1, 1).to(dtype) * lowest
        padding = mask.eq(0.0) * attention_mask[:, None, None, :].eq(0.0)
        return mask.masked_fill(padding, lowest)

    def forward(self, ids, attention_mask):
        x = self.embed(ids)
        mask = self.mask(attention_mask, x.dtype)
        for block in self.blocks:
            x = block(x, mask)
        return self.head(x[:, -64:])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--candidates", type=int, default=144)
    parser.add_argument("--length", type=int, default=4096)
    args = parser.parse_args()
    model = Decoder().cuda().to(torch.bfloat16).eval()
    prompt = torch.randint(4096, (1, args.length - 64)).cuda()
    for question in range(100):
        answers = torch.randint(4096, (args.candidates, 64)).cuda()
        ids = torch.cat([prompt.expand(args.candidates, -1), answers], 1)
        with torch.no_grad():
            scores = model(ids, torch.ones_like(ids)).log_softmax(-1)
        best = scores.gather(-1, answers[..., None]).sum((1, 2)).argmax()
        print(question, best.item())


if __name__ == "__main__":
    main()
