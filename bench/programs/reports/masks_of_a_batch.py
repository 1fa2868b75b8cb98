"""Instance masks are resized to the picture before anything is thresholded (dbolya/yolact#107)."""
import torch
from torch import nn
from torchvision.models import resnet18

net = nn.Sequential(*list(resnet18().children())[:-2], nn.Conv2d(512, 32, 1)).cuda()
opt = torch.optim.SGD(net.parameters(), 0.01)


def masks(picture, n, height, width):
    prototypes = nn.functional.interpolate(net(picture), scale_factor=8)[0]
    coefficients = torch.randn(n, 32, device="cuda")
    found = (prototypes.permute(1, 2, 0) @ coefficients.t()).sigmoid().permute(2, 0, 1)
    return nn.functional.interpolate(found[None], (height, width), mode="bilinear", align_corners=False)[0].gt(0.5)


for epoch in range(2):
    for _ in range(30):
        loss = net(torch.randn(8, 3, 550, 550).cuda()).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    net.eval()
    with torch.no_grad():
        for _ in range(10):
            kept = masks(torch.randn(1, 3, 550, 550).cuda(), 200, 3000, 4000)
            print(kept.sum().item())
    net.train()
