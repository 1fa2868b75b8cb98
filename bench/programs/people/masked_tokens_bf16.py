"""Pictures as tokens, all weights in bfloat16: a bidirectional transformer with RMSNorm, rotary places and SwiGLU predicts masked ones."""
import torch
import torch.nn.functional as F
from torch import nn

VOCAB, D, HEADS, TOKENS, LAYERS, BATCH = 16384, 1024, 16, 256, 14, 48


def turned(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.RMSNorm(D), nn.RMSNorm(D)
        self.qkv, self.out = nn.Linear(D, 3 * D, bias=False), nn.Linear(D, D, bias=False)
        self.gate, self.down = nn.Linear(D, 2 * 2816, bias=False), nn.Linear(2816, D, bias=False)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(turned(q, cos, sin), turned(k, cos, sin), v)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, D))
        a, g = self.gate(self.n2(x)).chunk(2, -1)
        return x + self.down(F.silu(a) * g)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.blocks, self.norm = nn.Embedding(VOCAB + 1, D), nn.ModuleList(Block() for _ in range(LAYERS)), nn.RMSNorm(D)
        self.head = nn.Linear(D, VOCAB, bias=False)
        at = torch.arange(TOKENS)[:, None] / 10000 ** (torch.arange(32) / 32)
        self.register_buffer("cos", at.cos())
        self.register_buffer("sin", at.sin())

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.head(self.norm(x))


torch.manual_seed(0)
model = Model().to("cuda", torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.96), fused=True)
for step in range(30):
    ids = torch.randint(0, VOCAB, (BATCH, TOKENS), device="cuda")
    share = torch.cos(torch.rand(BATCH, 1, device="cuda") * 1.5708)
    masked = torch.rand(BATCH, TOKENS, device="cuda") < share
    logits = model(torch.where(masked, VOCAB, ids))
    each = F.cross_entropy(logits.flatten(0, 1), ids.flatten(), reduction="none").view_as(ids)
    loss = (each * masked).sum() / masked.sum().clamp(min=1)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 10 == 0:
        print(step, loss.item())
