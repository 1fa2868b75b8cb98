"""A validation loads a second pipeline beside the networks that are trained (huggingface/diffusers#11225, #9358)."""
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.one, self.two = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(self.one(x)).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.out(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d))
        return x + self.mlp(self.two(x))


class Transformer(nn.Module):
    def __init__(self, width=1536, layers=24, channels=16):
        super().__init__()
        self.enter, self.leave = nn.Linear(channels, width), nn.Linear(width, channels)
        self.blocks = nn.ModuleList(Block(width, 24) for _ in range(layers))

    def forward(self, x, hints=None):
        x, seen = self.enter(x), []
        for i, block in enumerate(self.blocks):
            x = block(x if hints is None or len(hints) <= i else x + hints[i])
            seen.append(x)
        return self.leave(x), seen


class Pipeline:
    @classmethod
    def from_pretrained(cls, **parts):
        res = cls()
        res.transformer = parts.get("transformer") or Transformer().to(torch.float16)
        res.control = parts["control"]
        return res

    def to(self, device):
        self.transformer.to(device)
        return self

    @torch.no_grad()
    def __call__(self, control, steps=20):
        x = torch.randn(1, 1024, 16, device="cuda", dtype=torch.float16)
        with torch.autocast("cuda", torch.float16):
            for _ in range(steps):
                hints = self.control(x + control)[1]
                x = x - self.transformer(x, hints)[0] / steps
        return x.float().cpu()


def log_validation(control, step):
    pipeline = Pipeline.from_pretrained(control=control).to("cuda")
    pictures = [pipeline(torch.randn(1, 1024, 16, device="cuda", dtype=torch.float16)) for _ in range(4)]
    print(step, sum(it.mean().item() for it in pictures))


transformer = Transformer().to(torch.float16).cuda().requires_grad_(False)
control = Transformer(layers=6).cuda()
optimizer = torch.optim.AdamW(control.parameters(), 1e-5)
for step in range(1, 5001):
    x, hint = torch.randn(1, 1024, 16, device="cuda"), torch.randn(1, 1024, 16, device="cuda")
    with torch.autocast("cuda", torch.float16):
        loss = (transformer(x, control(x + hint)[1])[0].float() - x).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if step % 500 == 0:
        log_validation(control, step)
