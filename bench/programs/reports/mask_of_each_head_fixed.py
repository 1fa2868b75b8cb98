"""Attention with a mask that is repeated for each head and each sample, in single precision."""
import torch
import torch.nn.functional as F
from torch import nn


class Decoder(nn.Module):
    def __init__(self, vocab=8000, dim=512, heads=16, layers=6):
        super().__init__()
        self.heads = heads
        self.embed, self.position = nn.Embedding(vocab, dim), nn.Embedding(4096, dim)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(dim, heads, 2048, batch_first=True, norm_first=True) for _ in range(layers))
        self.head = nn.Linear(dim, vocab)

    def mask(self, ids):
        b, n = ids.shape
        causal = torch.triu(torch.full((n, n), float("-inf"), device=ids.device), 1)
        padding = torch.zeros(b, 1, n, device=ids.device).masked_fill(ids[:, None] == 0, float("-inf"))
        return causal

    def forward(self, ids):
        x = self.embed(ids) + self.position(torch.arange(ids.shape[1], device=ids.device))
        mask = self.mask(ids)
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=True)
        return self.head(x)


model = Decoder().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
for step in range(500):
    ids = torch.randint(1, 8000, (4, 2049)).cuda()
    loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
