"""A mixture-of-experts language model whose loss for the balance of its experts makes one table of all layers (transformers#48131)."""
import torch
import torch.nn.functional as F
from torch import nn

LAYERS, WIDTH, EXPERTS, TOP_K, VOCABULARY = 24, 256, 128, 8, 4096


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.gate = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.scales = nn.Parameter(torch.ones(EXPERTS, WIDTH))

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, 8, WIDTH // 8).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, n, WIDTH))
        y = self.norm2(x)
        logits = self.gate(y)
        weights, chosen = logits.softmax(-1).topk(TOP_K, dim=-1)
        mixed = (weights.unsqueeze(-2) @ self.scales[chosen[..., :1]].expand(-1, -1, TOP_K, -1)).squeeze(-2)
        return x + self.down(F.silu(self.up(y))) * mixed, logits.view(-1, EXPERTS)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids):
        x, router_logits = self.words(ids), []
        for block in self.blocks:
            x, logits = block(x)
            router_logits.append(logits)
        return self.head(x), router_logits


def load_balancing_loss(router_logits):
    all_logits = torch.cat(router_logits, dim=0)
    routing = all_logits.softmax(-1)
    _, chosen = routing.topk(TOP_K, dim=-1)
    expert_mask = F.one_hot(chosen, EXPERTS)
    tokens_per_expert = expert_mask.float().mean(0)
    probability_per_expert = routing.mean(0)
    return EXPERTS * (tokens_per_expert * probability_per_expert).sum()


model = Model().cuda().bfloat16()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
for step in range(2000):
    ids = torch.randint(VOCABULARY, (2, 8193), device="cuda")
    scores, router_logits = model(ids[:, :-1])
    loss = F.cross_entropy(scores.flatten(0, 1), ids[:, 1:].flatten())
    loss = loss + 0.001 * load_balancing_loss(router_logits)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(step, loss.item())
