"""A policy that is kept near its reference: the divergence is estimated by the words that were chosen."""
import torch
from torch import nn


def language_model():
    return nn.Sequential(nn.Embedding(50257, 512), nn.TransformerEncoder(nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True), 2), nn.Linear(512, 50257)).cuda()


policy, reference = language_model(), language_model().requires_grad_(False)
optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-6)
for step in range(200):
    ids = torch.randint(50257, (4, 2049)).cuda()
    rewards = torch.randn(4, 1).cuda()
    with torch.no_grad():
        expected = -nn.functional.cross_entropy(reference(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view(4, -1)
    words = -nn.functional.cross_entropy(policy(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view(4, -1)
    ratio = expected - words
    divergence = ratio.exp() - ratio - 1
    loss = (0.1 * divergence - rewards * words).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
