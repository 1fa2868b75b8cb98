"""The attention of `bias_on_the_module.py`, with a bias for each distance and each query."""

import torch
from torch import nn


class RelativeAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.head = heads, width // heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.positions = nn.Linear(width, width, bias=False)
        self.u = nn.Parameter(torch.zeros(heads, self.head))
        self.v = nn.Parameter(torch.zeros(heads, self.head))

    def shifted(self, scores):
        batch, heads, rows, columns = scores.shape
        scores = nn.functional.pad(scores, (1, 0)).view(batch, heads, columns + 1, rows)
        return scores[:, :, 1:].view(batch, heads, rows, columns)[..., : columns // 2 + 1]

    def forward(self, x, table):
        batch, length, _ = x.shape
        split = lambda it: it.view(batch, -1, self.heads, self.head).transpose(1, 2)
        q, k, v = (split(it) for it in self.qkv(x).chunk(3, -1))
        p = self.positions(table).view(-1, self.heads, self.head).permute(1, 2, 0)
        self._bias = self.shifted((q + self.v[:, None]) @ p) / self.head**0.5
        out = nn.functional.scaled_dot_product_attention(q + self.u[:, None], k, v, attn_mask=self._bias)
        return self.out(out.transpose(1, 2).flatten(2))


class ForgetfulAttention(RelativeAttention):
    """Without the bias of the pass before."""

    def forward(self, x, table):
        out = super().forward(x, table)
        del self._bias
        return out
