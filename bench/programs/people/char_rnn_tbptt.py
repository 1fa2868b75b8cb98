"""Character language model: three stacked GRUs, truncated back-propagation, hidden state carried over, RMSprop."""

import torch
from torch import nn


class CharRNN(nn.Module):
    def __init__(self, vocab=20000, width=1536):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.rnn = nn.GRU(width, width, 3, batch_first=True, dropout=0.2)
        self.out = nn.Linear(width, vocab)

    def forward(self, x, hidden=None):
        y, hidden = self.rnn(self.embed(x), hidden)
        return self.out(y), hidden


model = CharRNN().cuda()
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, momentum=0.9)
text = torch.randint(20000, (96, 128 * 12 + 1), generator=torch.Generator().manual_seed(0))
hidden = None
for i in range(12):
    part = text[:, i * 128 : (i + 1) * 128 + 1].cuda()
    logits, hidden = model(part[:, :-1], hidden)
    hidden = hidden.detach()
    loss = nn.functional.cross_entropy(logits.transpose(1, 2), part[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(model.parameters(), 0.5)
    optimizer.step()
    if i % 4 == 0:
        print(i, loss.item())
