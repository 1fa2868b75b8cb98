"""cause: copies/double-buffer at line 24
also right: size/one-allocation
also right: size/activations
also right: inputs/dynamic-shapes
memory: 6GiB
why: the frames of a clip are prepared one by one on the device, then stacked: frames and clip are there together.
"""
import torch
from torch import nn
from torch.nn import functional as F

net = nn.Sequential(nn.Conv3d(3, 16, 3, stride=4, padding=1), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(16, 10)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)


def prepared(frame):
    frame = F.interpolate(frame.float() / 255, size=(1024, 1024), mode="bilinear")
    return (frame - 0.45) / 0.225


for step in range(4):
    raw = [torch.randint(0, 255, (2, 3, 360, 640), dtype=torch.uint8, device="cuda") for _ in range(40 + 40 * step)]
    clip = [prepared(it) for it in raw]
    clip = torch.stack(clip, dim=2)  # here
    loss = F.cross_entropy(net(clip), torch.randint(0, 10, (2,), device="cuda"))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
