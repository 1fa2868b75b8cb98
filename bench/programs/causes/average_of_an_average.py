"""cause: leak/eval-without-no-grad at line 34
also right: leak/graph-retained
memory: 2GiB
why: after training, a function scores a folder of pictures one by one and adds the scores up, with gradients on.
"""
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        layers, width = [], 3
        for to in (24, 48, 96):
            layers += [nn.Conv2d(width, to, 3, 1, 1), nn.BatchNorm2d(to), nn.SiLU(), nn.MaxPool2d(2)]
            width = to
        self.body, self.head = nn.Sequential(*layers), nn.Linear(96, 1)

    def forward(self, x):
        x = self.body(x)
        return self.head(x.mean((2, 3))).squeeze(1)


net = Net().cuda()
optimizer = torch.optim.AdamW(net.parameters())
for step in range(8):
    loss = net(torch.randn(4, 3, 128, 128, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
net.eval()
total = 0.0
for n in range(200):
    total = total + net(torch.randn(1, 3, 256, 256, device="cuda")).mean()  # here
print(float(total) / 200)
