"""cause: leak/results-kept at line 18
also right: inputs/all-on-device
also right: growth/per-step
memory: 3GiB
why: the teacher's scores of the whole data set are computed before the student's training, and stay on the device.
"""
import torch
from torch import nn

teacher = nn.Sequential(nn.Linear(128, 1024), nn.ReLU(), nn.Linear(1024, 20000)).cuda().eval()
student = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 20000)).cuda()
inputs = [torch.randn(512, 128) for _ in range(100)]
soft = []
with torch.no_grad():
    for x in inputs:
        x = x.cuda()
        scores = teacher(x)
        soft.append(scores.div(2).softmax(-1).half())  # here
optimizer = torch.optim.AdamW(student.parameters())
for x, wanted in zip(inputs, soft):
    loss = -(student(x.cuda()).log_softmax(-1) * wanted).sum(-1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
