"""expect: out_of_memory in evaluation at line 18
options: --gpu rtx4060-8g
why: without no_grad each of 40 layers keeps 65536 x 1024 x 4 = 256 MiB: 10 GiB of 7.6, in the look at one batch before the first
    step. With no_grad it would take less than 1 GiB; a training step takes 40 x 16 MiB.
"""
import torch
from torch import nn

model = nn.Sequential(*[nn.Sequential(nn.Linear(1024, 1024), nn.ReLU()) for _ in range(40)]).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def validate():
    model.eval()
    loss = 0.0
    for _ in range(2):
        x = torch.randn(65536, 1024, device="cuda")
        loss += nn.functional.mse_loss(model(x), x).item()  # dies
    model.train()
    return loss


print("before", validate())
for step in range(200):
    x = torch.randn(4096, 1024, device="cuda")
    loss = nn.functional.mse_loss(model(x), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
