"""The same, label by label with the product over the words first."""
import torch
from torch import nn

WORDS, WIDTH, LABELS, BATCH = 128, 512, 50, 100


class Parser(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.LSTM(300, WIDTH, batch_first=True)
        self.weight = nn.Parameter(torch.randn(LABELS, WIDTH, WIDTH) / WIDTH)

    def forward(self, x):
        x, _ = self.encoder(x)
        return torch.stack([(x @ w) @ x.transpose(1, 2) for w in self.weight], 1)


model = Parser().cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(500):
    scores = model(torch.randn(BATCH, WORDS, 300).cuda())
    loss = scores.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
