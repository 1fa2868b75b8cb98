"""Fine-tuning with low-rank adapters written by hand: the base is frozen and in bfloat16, the adapters are float32."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

dim, n_layers, n_heads, ffn, vocab, seq, bs = 2048, 16, 16, 5632, 32000, 1024, 6
device = "cuda"
torch.manual_seed(0)


class RMSNorm(nn.Module):
    def __init__(self, d, eps=1e-5):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(d)), eps

    def forward(self, x):
        y = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + self.eps)
        return y.type_as(x) * self.weight


class LoRALinear(nn.Module):
    def __init__(self, base, r=16, alpha=32, p=0.05):
        super().__init__()
        self.base, self.scale, self.drop = base, alpha / r, nn.Dropout(p)
        self.A = nn.Parameter(torch.empty(r, base.in_features))
        self.B = nn.Parameter(torch.zeros(base.out_features, r))
        nn.init.kaiming_uniform_(self.A, a=math.sqrt(5))

    def forward(self, x):
        low = F.linear(F.linear(self.drop(x).float(), self.A), self.B) * self.scale
        return self.base(x) + low.to(x.dtype)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(dim, dim, bias=False) for _ in range(4))

    def forward(self, x):
        B, T, C = x.shape
        split = lambda t: t.view(B, T, n_heads, C // n_heads).transpose(1, 2)
        y = F.scaled_dot_product_attention(split(self.q_proj(x)), split(self.k_proj(x)), split(self.v_proj(x)), is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(B, T, C))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2, self.attn = RMSNorm(dim), RMSNorm(dim), Attention()
        self.gate, self.up, self.down = nn.Linear(dim, ffn, bias=False), nn.Linear(dim, ffn, bias=False), nn.Linear(ffn, dim, bias=False)

    def forward(self, x):
        x = x + self.attn(self.n1(x))
        h = self.n2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(Layer() for _ in range(n_layers))
        self.norm, self.head = RMSNorm(dim), nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


with torch.device(device):
    torch.set_default_dtype(torch.bfloat16)
    model = LM()
    torch.set_default_dtype(torch.float32)
for p in model.parameters():
    p.requires_grad = False
for layer in model.layers:
    for name in ("q_proj", "v_proj"):
        setattr(layer.attn, name, LoRALinear(getattr(layer.attn, name)).to(device))
trainable = [p for p in model.parameters() if p.requires_grad]
print(f"trainable: {sum(p.numel() for p in trainable) / 1e6:.2f}M")
opt = torch.optim.AdamW(trainable, lr=2e-4, weight_decay=0.0)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 30)
for step in range(30):
    ids = torch.randint(vocab, (bs, seq + 1), device=device)
    logits = model(ids[:, :-1])
    loss = F.cross_entropy(logits.float().view(-1, vocab), ids[:, 1:].reshape(-1))
    loss.backward()
    torch.nn.utils.clip_grad_norm_(trainable, 1.0)
    opt.step()
    sched.step()
    opt.zero_grad()
    if step % 10 == 0:
        print(step, loss.item())
