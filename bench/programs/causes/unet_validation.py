"""cause: leak/eval-without-no-grad at line 22
memory: 3GiB
"""
import torch
from torch import nn


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList([nn.Conv2d(i, o, 3, 2, 1) for i, o in ((3, 32), (32, 64), (64, 128))])
        self.up = nn.ModuleList([nn.ConvTranspose2d(i, o, 2, 2) for i, o in ((128, 64), (64, 32), (32, 3))])

    def forward(self, x):
        for layer in [*self.down, *self.up]:
            x = nn.functional.silu(layer(x))
        return x


@torch.enable_grad()
def evaluate(net, loader):
    return sum(nn.functional.mse_loss(net(x), x).item() for x in loader)  # here


net = Small().cuda()
optimizer = torch.optim.AdamW(net.parameters())
for step in range(4):
    x = torch.randn(4, 3, 256, 256, device="cuda")
    loss = nn.functional.mse_loss(net(x), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
net.eval()
print(evaluate(net, (torch.randn(128, 3, 256, 256, device="cuda") for _ in range(3))))
