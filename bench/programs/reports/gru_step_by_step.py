"""A decoder calls its GRU once for each of 80 letters. Its weights were set one by one, so cuDNN joins them into one piece at each call, and each copy waits for the backward pass."""
import torch
from torch import nn

WIDTH, LETTERS, BATCH = 1536, 80, 16


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(WIDTH, WIDTH, num_layers=3, batch_first=True)
        self.head = nn.Linear(WIDTH, 97)

    def forward(self, x):
        state, letters = None, []
        for _ in range(LETTERS):
            x, state = self.gru(x, state)
            letters.append(self.head(x))
        return torch.cat(letters, 1)


model = Decoder().cuda()
for name, weight in list(model.gru.named_parameters()):
    weight.data = nn.init.uniform_(torch.empty_like(weight), -0.05, 0.05)
optimizer = torch.optim.Adam(model.parameters())
for step in range(500):
    scores = model(torch.randn(BATCH, 1, WIDTH).cuda())
    loss = nn.functional.cross_entropy(scores.flatten(0, 1), torch.randint(97, (BATCH * LETTERS,)).cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
