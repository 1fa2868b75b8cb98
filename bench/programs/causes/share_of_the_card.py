"""cause: limit/process
memory: 24GiB
why: the script allows itself a twentieth of the card.
"""
import torch
from torch import nn
from torchvision.models import resnet34

torch.cuda.set_per_process_memory_fraction(0.05)
net = resnet34(num_classes=100).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for step in range(10):
    images = torch.randn(64, 3, 224, 224, device="cuda")
    loss = nn.functional.cross_entropy(net(images), torch.randint(0, 100, (64,), device="cuda"))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
