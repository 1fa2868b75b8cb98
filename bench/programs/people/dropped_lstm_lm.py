"""A language model of three LSTM layers: dropout of the same units for all times, a state that is carried on, averaged SGD, temporal penalties."""
import torch
import torch.nn.functional as F
from torch import nn

VOCAB, D, HIDDEN, BATCH, LENGTH = 33000, 400, 1150, 64, 70


class Locked(nn.Module):
    def __init__(self, share):
        super().__init__()
        self.share = share

    def forward(self, x):
        if not self.training:
            return x
        return x * x.new_empty(1, x.shape[1], x.shape[2]).bernoulli_(1 - self.share) / (1 - self.share)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, D)
        sizes = [(D, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, D)]
        self.layers = nn.ModuleList(nn.LSTM(a, b) for a, b in sizes)
        self.between, self.head = Locked(0.3), nn.Linear(D, VOCAB)
        self.head.weight = self.embed.weight

    def forward(self, ids, states):
        x, after = self.between(self.embed(ids)), []
        for layer, state in zip(self.layers, states):
            raw, state = layer(x, state)
            after.append(tuple(it.detach() for it in state))
            x = self.between(raw)
        return self.head(x), raw, x, after


torch.manual_seed(0)
model = Model().cuda()
optimizer = torch.optim.ASGD(model.parameters(), lr=10, t0=0, lambd=0.0, weight_decay=1.2e-6)
stream = torch.randint(0, VOCAB, (LENGTH * 40 + 1, BATCH), device="cuda")
states = [None] * 3
for step in range(30):
    ids = stream[step * LENGTH : (step + 1) * LENGTH + 1]
    logits, raw, dropped, states = model(ids[:-1], states)
    loss = F.cross_entropy(logits.flatten(0, 1), ids[1:].flatten())
    loss = loss + 2 * dropped.square().mean() + (raw[1:] - raw[:-1]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
