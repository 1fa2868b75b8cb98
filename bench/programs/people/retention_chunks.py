"""A language model with retention in chunks: a state goes from chunk to chunk in a Python loop, gates, group norm of heads, z-loss."""
import torch
import torch.nn.functional as F
from torch import nn

VOCAB, D, HEADS, LENGTH, CHUNK, BATCH, LAYERS = 32000, 768, 6, 1024, 128, 12, 8


class Retention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.g, self.o = (nn.Linear(D, D, bias=False) for _ in range(5))
        self.norm = nn.GroupNorm(HEADS, D)
        self.register_buffer("decay", 1 - torch.exp2(-5 - torch.arange(HEADS).float()))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (f(x).view(b, t, HEADS, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        n = torch.arange(CHUNK, device=x.device)
        inside = torch.where(n[:, None] >= n, self.decay[:, None, None] ** (n[:, None] - n), 0.0)
        across, into = self.decay[:, None] ** (n + 1), self.decay[:, None] ** (CHUNK - 1 - n)
        state, out = x.new_zeros(b, HEADS, D // HEADS, D // HEADS), []
        for at in range(0, t, CHUNK):
            qc, kc, vc = (it[:, :, at : at + CHUNK] for it in (q, k, v))
            y = (qc @ kc.transpose(-1, -2) * inside) @ vc + (qc @ state) * across[..., None]
            state = state * self.decay[:, None, None] ** CHUNK + (kc * into[..., None]).transpose(-1, -2) @ vc
            out.append(y)
        y = torch.cat(out, 2).transpose(1, 2).reshape(b * t, D)
        return self.o(self.norm(y).view(b, t, D) * F.silu(self.g(x)))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2, self.mix = nn.RMSNorm(D), nn.RMSNorm(D), Retention()
        self.gate, self.up, self.down = nn.Linear(D, 2 * D, bias=False), nn.Linear(D, 2 * D, bias=False), nn.Linear(2 * D, D, bias=False)

    def forward(self, x):
        x = x + self.mix(self.n1(x))
        y = self.n2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.layers, self.norm, self.head = nn.Embedding(VOCAB, D), nn.ModuleList([Layer() for _ in range(LAYERS)]), nn.RMSNorm(D), nn.Linear(D, VOCAB, bias=False)

    def forward(self, ids):
        x = self.tokens(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


torch.manual_seed(0)
model = Model().cuda()
decayed = [p for p in model.parameters() if p.dim() > 1]
others = [p for p in model.parameters() if p.dim() <= 1]
optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], lr=4e-4, betas=(0.9, 0.95))
for step in range(40):
    ids = torch.randint(0, VOCAB, (BATCH, LENGTH + 1), device="cuda")
    logits = model(ids[:, :-1])
    loss = F.cross_entropy(logits.transpose(1, 2), ids[:, 1:]) + 1e-4 * logits.logsumexp(-1).square().mean()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    if step % 10 == 0:
        print(step, loss.item())
