"""FT-Transformer: each of 380 columns of a table is a token; RMSNorm, GEGLU, a CLS token, AdamW without decay on biases."""
import torch
from torch import nn


class GEGLU(nn.Module):
    def forward(self, x):
        a, b = x.chunk(2, -1)
        return a * nn.functional.gelu(b)


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(d), nn.RMSNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.ff = nn.Sequential(nn.Linear(d, 4 * d), GEGLU(), nn.Dropout(0.1), nn.Linear(2 * d, d))

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        w = (q @ k.transpose(-1, -2) / (d // self.heads) ** 0.5).softmax(-1)
        w = nn.functional.dropout(w, 0.2, self.training)
        x = x + self.proj((w @ v).transpose(1, 2).reshape(b, n, d))
        return x + self.ff(self.norm2(x))


class FTTransformer(nn.Module):
    def __init__(self, numbers=300, kinds=(50,) * 80, d=192, depth=6):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(numbers, d) * 0.02), nn.Parameter(torch.zeros(numbers, d))
        self.tables = nn.ModuleList(nn.Embedding(k, d) for k in kinds)
        self.cls = nn.Parameter(torch.randn(d))
        self.blocks = nn.ModuleList(Block(d, 8) for _ in range(depth))
        self.head = nn.Sequential(nn.RMSNorm(d), nn.ReLU(), nn.Linear(d, 1))

    def forward(self, xs, cs):
        tokens = [self.cls.expand(len(xs), 1, -1), xs[..., None] * self.weight + self.bias]
        tokens += [table(cs[:, i])[:, None] for i, table in enumerate(self.tables)]
        x = torch.cat(tokens, 1)
        for block in self.blocks:
            x = block(x)
        return self.head(x[:, 0])[:, 0]


def main():
    torch.manual_seed(0)
    n = 20_000
    X, C, y = torch.randn(n, 300), torch.randint(0, 50, (n, 80)), torch.randn(n)
    model = FTTransformer().cuda()
    plain = [p for name, p in model.named_parameters() if p.ndim < 2]
    rest = [p for name, p in model.named_parameters() if p.ndim >= 2]
    optimizer = torch.optim.AdamW([{"params": rest, "weight_decay": 1e-5}, {"params": plain, "weight_decay": 0.0}], 1e-4)
    for step in range(60):
        idx = torch.randint(0, n, (128,))
        optimizer.zero_grad(set_to_none=True)
        out = model(X[idx].cuda(), C[idx].cuda())
        loss = nn.functional.mse_loss(out, y[idx].cuda())
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"{step} {loss.item():.4f}")


if __name__ == "__main__":
    main()
