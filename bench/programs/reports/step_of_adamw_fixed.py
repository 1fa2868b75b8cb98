"""It trained with PyTorch 1.13; with 2.0 the optimizer's step runs out of memory on 8 GB (pytorch#97712, lit-llama#389)."""
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width=4096):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return x + nn.functional.gelu(self.linear(self.norm(x)))


def make(depth=26, width=4096):
    return nn.Sequential(*[Block(width) for _ in range(depth)], nn.LayerNorm(width), nn.Linear(width, 100))


def batch(rows=32, width=4096):
    return torch.randn(rows, width, device="cuda"), torch.randint(100, (rows,), device="cuda")


model = make().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, foreach=False)
for step in range(3000):
    x, y = batch()
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(step, loss.item())
