"""A graph network whose edges have weights that are learned: each message is multiplied by the weight of its edge."""
import torch
from torch import nn

nodes, edges = 110_000, 860_000
ends = torch.randint(nodes, (2, edges)).cuda()
weights = torch.rand(edges).cuda().requires_grad_()
features, labels = torch.randn(nodes, 128).cuda(), torch.randint(40, (nodes,)).cuda()
layer = nn.Linear(128, 40).cuda()
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for epoch in range(100):
    optimizer.zero_grad()
    hidden = layer(features)
    scores = torch.zeros_like(hidden).index_add(0, ends[0], hidden[ends[1]] * weights[:, None])
    loss = nn.functional.cross_entropy(scores, labels)
    loss.backward()
    optimizer.step()
