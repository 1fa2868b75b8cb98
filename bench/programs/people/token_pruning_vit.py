"""A ViT that drops the tokens of which a scorer thinks little after its third block; tokens of a batch go on packed."""
import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, TOKENS, DIM, HEADS, DEPTH = 48, 576, 768, 12, 10


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.out = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))

    def attend(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, DIM))

    def forward(self, x):
        x = x + self.attend(x)
        return x + self.mlp(self.norm2(x))


class Packed(nn.Module):
    """Only its MLP, of the tokens that are left."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class Pruned(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(16 * 16 * 3, DIM)
        self.first = nn.ModuleList([Block() for _ in range(3)])
        self.score = nn.Linear(DIM, 1)
        self.later = nn.ModuleList([Packed() for _ in range(DEPTH - 3)])
        self.head = nn.Linear(DIM, 1000)

    def forward(self, patches):
        x = self.embed(patches)
        for it in self.first:
            x = it(x)
        score = self.score(x).squeeze(-1)
        keep = score > score.mean(1, keepdim=True)
        left = x[keep] * torch.sigmoid(score[keep])[:, None]
        for it in self.later:
            left = it(left)
        whose = torch.arange(BATCH, device=x.device)[:, None].expand_as(keep)[keep]
        pooled = torch.zeros(BATCH, DIM, device=x.device).index_add_(0, whose, left)
        return self.head(pooled / keep.sum(1, keepdim=True).clamp(min=1))


model = Pruned().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.05)
for step in range(10):
    patches = torch.randn(BATCH, TOKENS, 16 * 16 * 3, device="cuda")
    target = torch.randint(1000, (BATCH,), device="cuda")
    loss = F.cross_entropy(model(patches), target)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
