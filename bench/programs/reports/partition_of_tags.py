"""Morphological tagging: an LSTM with a conditional random field over 1,000 tags (pytorch-crf#35, NCRFpp#117)."""
import torch
from torch import nn


class CRF(nn.Module):
    def __init__(self, tags):
        super().__init__()
        self.start, self.end = nn.Parameter(torch.zeros(tags)), nn.Parameter(torch.zeros(tags))
        self.transitions = nn.Parameter(torch.zeros(tags, tags))

    def forward(self, emissions, tags, mask):
        return (self.normalizer(emissions, mask) - self.score(emissions, tags, mask)).mean()

    def score(self, emissions, tags, mask):
        steps = torch.arange(len(tags), device=tags.device)
        score = self.start[tags[0]] + emissions[0].gather(1, tags[0][:, None]).squeeze(1)
        for i in steps[1:].tolist():
            here = self.transitions[tags[i - 1], tags[i]] + emissions[i].gather(1, tags[i][:, None]).squeeze(1)
            score = score + here * mask[i]
        return score + self.end[tags[-1]]

    def step(self, score, emission):
        next_score = score.unsqueeze(2) + self.transitions + emission.unsqueeze(1)
        return torch.logsumexp(next_score, dim=1)

    def normalizer(self, emissions, mask):
        score = self.start + emissions[0]
        for i in range(1, len(emissions)):
            next_score = self.step(score, emissions[i])
            score = torch.where(mask[i].unsqueeze(1), next_score, score)
        return torch.logsumexp(score + self.end, dim=1)


class Tagger(nn.Module):
    def __init__(self, words=20000, tags=1000):
        super().__init__()
        self.words = nn.Embedding(words, 200)
        self.lstm = nn.LSTM(200, 256, bidirectional=True)
        self.emit = nn.Linear(512, tags)
        self.crf = CRF(tags)

    def forward(self, ids, tags, mask):
        states, _ = self.lstm(self.words(ids))
        return self.crf(self.emit(states), tags, mask)


model = Tagger().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(1500):
    ids = torch.randint(20000, (120, 32), device="cuda")
    tags = torch.randint(1000, (120, 32), device="cuda")
    mask = torch.ones(120, 32, dtype=torch.bool, device="cuda")
    loss = model(ids, tags, mask)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    if step % 100 == 0:
        print(step, loss.item())
