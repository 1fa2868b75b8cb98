"""Each turn uses a model of its own, under an autocast that is entered by hand and never left."""

import torch
from torch import nn

for _ in range(12):
    torch.autocast("cuda", dtype=torch.bfloat16).__enter__()
    net = nn.Sequential(*[nn.Sequential(nn.Linear(1024, 1024), nn.ReLU()) for _ in range(24)]).cuda()
    print(net(torch.ones(4, 1024, device="cuda")).shape)
    del net
