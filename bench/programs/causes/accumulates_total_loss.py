"""cause: leak/graph-retained at line 17
also right: line 15
memory: 2GiB
why: the running sum of losses is a tensor with a graph.
"""
import torch
from torch import nn
from torchvision.models import mobilenet_v3_small

model = mobilenet_v3_small(num_classes=10).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
running = 0.0
for step in range(200):
    images, labels = torch.randn(32, 3, 224, 224, device="cuda"), torch.randint(0, 10, (32,), device="cuda")
    out = model(images)
    loss = nn.functional.cross_entropy(out, labels)
    running = running + loss  # here
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
