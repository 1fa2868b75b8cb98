"""A decoder with a mixture of eight experts in every layer, the best two for each token; load-balancing loss; bf16 autocast."""

import torch
import torch.nn as nn
import torch.nn.functional as F

D, H, L, E, K, V, T, B = 768, 12, 8, 8, 2, 32000, 1024, 12


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w2 = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)

    def forward(self, x):
        return self.w2(F.gelu(self.w1(x)))


class MoE(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(D, E, bias=False)
        self.experts = nn.ModuleList(Expert() for _ in range(E))

    def forward(self, x):
        flat = x.view(-1, D)
        probs = F.softmax(self.gate(flat), -1, dtype=torch.float)
        weight, chosen = probs.topk(K, -1)
        weight = (weight / weight.sum(-1, keepdim=True)).to(flat.dtype)
        out = torch.zeros_like(flat)
        for e, expert in enumerate(self.experts):
            token, slot = torch.where(chosen == e)
            out.index_add_(0, token, (expert(flat[token]) * weight[token, slot, None]).to(out.dtype))
        share = F.one_hot(chosen, E).float().mean((0, 1))
        return out.view_as(x), E * (share * probs.mean(0)).sum()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.proj, self.moe = nn.Linear(D, 3 * D), nn.Linear(D, D), MoE()

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, H, D // H).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, D))
        y, balance = self.moe(self.ln2(x))
        return x + y, balance


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(V, D), nn.Parameter(torch.zeros(1, T, D))
        self.blocks, self.ln = nn.ModuleList(Block() for _ in range(L)), nn.LayerNorm(D)
        self.head = nn.Linear(D, V, bias=False)

    def forward(self, ids, targets):
        x, aux = self.tok(ids) + self.pos[:, : ids.size(1)], 0.0
        for block in self.blocks:
            x, balance = block(x)
            aux = aux + balance
        logits = self.head(self.ln(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten()) + 0.01 * aux


model = Model().cuda()
opt = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95))
for it in range(20):
    ids = torch.randint(V, (B, T + 1), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(ids[:, :-1], ids[:, 1:])
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
