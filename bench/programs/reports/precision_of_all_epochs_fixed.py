"""AveragePrecision is called in each training step and never reset: it stores all predictions (Lightning-AI/torchmetrics#3294)."""
import torch
from torch import nn
from torchmetrics import AveragePrecision

net = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 512)).cuda()
opt = torch.optim.Adam(net.parameters())
precision = AveragePrecision(task="multilabel", num_labels=512).to("cuda")
for epoch in range(20):
    for _ in range(10):
        x, y = torch.randn(2056, 256).cuda(), torch.randint(0, 2, (2056, 512)).cuda()
        scores = net(x)
        loss = nn.functional.binary_cross_entropy_with_logits(scores, y.float())
        opt.zero_grad()
        loss.backward()
        opt.step()
        precision.update(scores.detach().sigmoid(), y)
    precision.reset()
    print(epoch, loss.item())
