"""Preference tuning: each step appends its loss, moved to the host, to the metrics that are logged at the end of an epoch."""
import torch
from torch import nn
from collections import defaultdict

model = nn.Sequential(nn.Embedding(8000, 512), nn.TransformerEncoder(nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True), 6), nn.Linear(512, 8000)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
metrics = defaultdict(list)
for step in range(4000):
    ids = torch.randint(8000, (4, 257)).cuda()
    scores = model(ids[:, :-1])
    loss = nn.functional.cross_entropy(scores.flatten(0, 1), ids[:, 1:].flatten())
    aside = scores.detach().requires_grad_().logsumexp(-1)
    metrics["nll_loss"].append(aside.detach().cpu().mean())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
