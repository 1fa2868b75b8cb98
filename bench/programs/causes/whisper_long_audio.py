"""cause: inputs/dynamic-shapes at line 27
also right: line 25
memory: 2GiB
why: the longest sentence comes in the sixth step.
"""
import torch
from torch import nn


class Speech(nn.Module):
    def __init__(self):
        super().__init__()
        self.front = nn.Conv1d(80, 256, 3, stride=2, padding=1)
        layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 4)
        self.head = nn.Linear(256, 1000)

    def forward(self, x):
        return self.head(self.body(self.front(x).transpose(1, 2)))


model = Speech().cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step, frames in enumerate([600, 640, 500, 620, 580, 4000, 600, 600]):
    features = torch.randn(8, 80, frames).cuda()
    targets = torch.randint(0, 1000, (8, (frames + 1) // 2)).cuda()
    out = model(features)  # here
    loss = nn.functional.cross_entropy(out.flatten(0, 1), targets.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
