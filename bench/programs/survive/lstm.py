"""A language model with a state that goes from batch to batch; one batch is longer."""

import torch
import torch.nn.functional as F
from torch import nn

from planted import STEPS, ended, size

class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.lstm, self.head = nn.Embedding(10000, 512), nn.LSTM(512, 512, 2), nn.Linear(512, 10000)

    def forward(self, ids, state):
        x, state = self.lstm(self.tokens(ids), state)
        return self.head(x), state


model = Words().cuda()
optimizer = torch.optim.SGD(model.parameters(), 1.0)
state = tuple(torch.zeros(2, 32, 512, device="cuda") for _ in range(2))
for step in range(STEPS):
    ids = torch.randint(0, 10000, (size(step, 35, 350) + 1, 32), device="cuda")
    state = tuple(it.detach() for it in state)
    optimizer.zero_grad()
    out, state = model(ids[:-1], state)
    loss = F.cross_entropy(out.flatten(0, 1), ids[1:].flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    optimizer.step()
    ended(step, loss, model)
