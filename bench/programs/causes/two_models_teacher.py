"""cause: leak/eval-without-no-grad at line 17
also right: size/activations
also right: evaluation/unused-graph
memory: 3GiB
why: the teacher's pass keeps a graph that nothing goes back through.
"""
import torch
from torch import nn
from torchvision.models import resnet18, resnet50

student, teacher = resnet18(num_classes=10).cuda(), resnet50(num_classes=10).cuda().eval()
optimizer = torch.optim.SGD(student.parameters(), lr=0.1)

for step in range(3):
    images = torch.randn(32, 3, 224, 224, device="cuda")
    small = student(images)
    large = teacher(images)  # here
    loss = nn.functional.mse_loss(small, large.detach())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
