"""A torch.compile'd model, bf16 autocast and TF32 already there, loss inside of forward, an endless IterableDataset."""

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

torch.set_float32_matmul_precision("high")


class Stream(IterableDataset):
    def __iter__(self):
        g = torch.Generator().manual_seed(0)
        while True:
            ids = torch.randint(50257, (1025,), generator=g)
            yield ids[:-1], ids[1:]


class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.n1, self.n2, self.h = nn.LayerNorm(d), nn.LayerNorm(d), h
        self.attn, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.attn(self.n1(x)).chunk(3, -1)
        q, k, v = (it.view(B, T, self.h, C // self.h).transpose(1, 2) for it in (q, k, v))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C)
        x = x + self.out(y)
        return x + self.mlp(self.n2(x))


class GPT(nn.Module):
    def __init__(self, d=768, n=12, h=12, vocab=50257):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, d), nn.Embedding(1024, d)
        self.h = nn.Sequential(*[Block(d, h) for _ in range(n)])
        self.ln, self.lm_head = nn.LayerNorm(d), nn.Linear(d, vocab, bias=False)

    def forward(self, idx, targets=None):
        x = self.ln(self.h(self.wte(idx) + self.wpe(torch.arange(idx.size(1), device=idx.device))))
        logits = self.lm_head(x)
        if targets is None:
            return logits, None
        return logits, nn.functional.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = torch.compile(GPT().to(device))
    opt = torch.optim.AdamW(model.parameters(), lr=6e-4, fused=device == "cuda")
    for step, (x, y) in enumerate(DataLoader(Stream(), batch_size=16)):
        x, y = x.to(device), y.to(device)
        with torch.autocast(device, dtype=torch.bfloat16):
            _, loss = model(x, y)
        loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
        if step == 20:
            break


if __name__ == "__main__":
    main()
