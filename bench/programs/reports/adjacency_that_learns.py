"""A graph network whose edges have weights that are learned: the sparse adjacency matrix is a parameter."""
import torch
from torch import nn

nodes, edges = 110_000, 860_000
ends = torch.randint(nodes, (2, edges)).cuda()
weights = torch.sparse_coo_tensor(ends, torch.rand(edges).cuda(), (nodes, nodes)).requires_grad_()
features, labels = torch.randn(nodes, 128).cuda(), torch.randint(40, (nodes,)).cuda()
layer = nn.Linear(128, 40).cuda()
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for epoch in range(100):
    optimizer.zero_grad()
    scores = torch.sparse.mm(weights, layer(features))
    loss = nn.functional.cross_entropy(scores, labels)
    loss.backward()
    optimizer.step()
