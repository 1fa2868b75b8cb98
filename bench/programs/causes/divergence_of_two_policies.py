"""cause: size/one-allocation at line 28
also right: line 30
also right: line 29
memory: 4GiB 6GiB
why: a reinforcement learner from preferences takes the divergence over the whole vocabulary, for all words of all answers.
"""
import copy
import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self, words=50_000, width=256, depth=2):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.body = nn.TransformerEncoder(nn.TransformerEncoderLayer(width, 4, 512, batch_first=True), depth)

    def forward(self, ids):
        return self.body(self.words(ids)) @ self.words.weight.t()


policy = Policy().cuda()
reference = copy.deepcopy(policy).eval().requires_grad_(False)
optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-6)


def divergence(scores, wanted):
    scores = scores.log_softmax(-1)  # here
    wanted = wanted.log_softmax(-1)
    return (scores.exp() * (scores - wanted)).sum(-1)


for step in range(10):
    answers = torch.randint(0, 50_000, (24, 256), device="cuda")
    rewards = torch.randn(24, device="cuda")
    with torch.no_grad():
        wanted = reference(answers)
    penalty = divergence(policy(answers), wanted).mean(1)
    loss = (0.1 * penalty - rewards).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
