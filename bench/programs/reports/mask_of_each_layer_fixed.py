"""Each attention layer has a mask of its own for the longest text there could be (TransformerLensOrg/TransformerLens#479)."""
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2)).masked_fill(torch.ones(n, n, dtype=torch.bool, device=x.device).triu(1), float("-inf")) / (d // self.heads) ** 0.5
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, d))


class Hooked(nn.Module):
    def __init__(self, vocab=32000, width=1024, layers=24):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.layers = nn.ModuleList(nn.ModuleList([nn.LayerNorm(width), Attention(width, 16)]) for _ in range(layers))
        self.head = nn.Linear(width, vocab)

    def forward(self, ids):
        x = self.embed(ids)
        for norm, attention in self.layers:
            x = x + attention(norm(x))
        return self.head(x)


with torch.device("cuda"):
    model = Hooked().eval()
with torch.inference_mode():
    for n in range(50):
        ids = torch.randint(0, 32000, (1, 512), device="cuda")
        print(n, model(ids)[0, -1].argmax().item())
