"""expect: fits
peak: allocated at least 168 MiB
never: grows
why: L-BFGS keeps up to 20 pairs of vectors as long as the weights, 1024 x 1024 x 4 = 4 MiB each: 160 MiB when its history is
    full. Weights and gradients are 8 MiB more.
"""
import torch
from torch import nn

model = nn.Linear(1024, 1024, bias=False).cuda()
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4, history_size=20)
x = torch.randn(2048, 1024, device="cuda")


def closure():
    optimizer.zero_grad()
    loss = (model(x) - x).pow(2).mean()
    loss.backward()
    return loss


for step in range(60):
    loss = optimizer.step(closure)
    if step % 10 == 0:
        print(step, loss.item())
