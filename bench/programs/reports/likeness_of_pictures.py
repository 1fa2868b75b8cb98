"""PSNR and SSIM of torchmetrics get pictures that have a graph (Lightning-AI/torchmetrics#2597)."""
import torch
from torch import nn
from torchmetrics import MetricCollection
from torchmetrics.image import PeakSignalNoiseRatio, StructuralSimilarityIndexMeasure

net = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 3, 3, padding=1)).cuda()
opt = torch.optim.Adam(net.parameters(), 2e-4)
metrics = MetricCollection({"PSNR": PeakSignalNoiseRatio(data_range=1.0), "SSIM": StructuralSimilarityIndexMeasure(data_range=1.0)}).cuda()
for step in range(2000):
    real = torch.rand(4, 3, 256, 256).cuda()
    fake = net(real + 0.1 * torch.randn_like(real))
    metrics(fake, real)
    loss = nn.functional.l1_loss(fake, real)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 500 == 499:
        print(metrics.compute())
        metrics.reset()
