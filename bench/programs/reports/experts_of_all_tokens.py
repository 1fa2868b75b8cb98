"""Tuning of the roundings of a mixture of experts, block by block: each expert computes all tokens (llm-compressor#2877)."""
import torch
import torch.nn.functional as F
from torch import nn

WIDTH, INNER, EXPERTS, TOP_K = 2048, 768, 64, 8


class RoundedLinear(nn.Module):
    """The weights are rounded to 4 bits, and how far each is shifted before is learned by the sign of its gradient."""

    def __init__(self, inside, outside):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outside, inside) / inside**0.5, requires_grad=False)
        self.scale = nn.Parameter(torch.ones(outside, 1))

    def forward(self, x):
        step = self.weight.abs().amax(1, keepdim=True) * self.scale / 7
        shifted = self.weight / step
        rounded = shifted + (shifted.round() - shifted).detach()
        return F.linear(x, (rounded * step).to(x.dtype))


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up, self.down = RoundedLinear(WIDTH, INNER), RoundedLinear(WIDTH, INNER), RoundedLinear(INNER, WIDTH)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = nn.ModuleList(Expert() for _ in range(EXPERTS))

    def forward(self, x):
        flat = x.flatten(0, 1)
        weights = self.router(flat).softmax(-1)
        out = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            share, tokens = weights[:, number].topk(len(flat) * TOP_K // EXPERTS)
            result = expert(flat)[tokens]
            out.index_add_(0, tokens, share[:, None] * result)
        return x + out.view_as(x)


with torch.device("cuda"):
    block = Experts().bfloat16()
block.router.requires_grad_(False)
learned = [p for p in block.parameters() if p.requires_grad]
for step in range(200):
    hidden = torch.randn(8, 2048, WIDTH, device="cuda", dtype=torch.bfloat16)
    target = hidden * 1.01
    loss = F.mse_loss(block(hidden), target)
    loss.backward()
    with torch.no_grad():
        for p in learned:
            p -= 5e-3 * (1 - step / 200) * p.grad.sign()
            p.grad = None
    if step % 20 == 0:
        print(step, loss.item())
