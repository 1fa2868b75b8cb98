"""A decoder writes on and on, its state is its next input; after some thousand words there is no memory (pytorch#1887)."""
import torch
from torch import nn


class Writer(nn.Module):
    def __init__(self, width=1024, words=8000):
        super().__init__()
        self.cell = nn.GRU(width, width)
        self.out = nn.Linear(width, words)

    def begin(self, batch):
        return torch.zeros(1, batch, self.cell.hidden_size, device="cuda")

    def forward(self, given, hidden):
        output, hidden = self.cell(given, hidden)
        return output, hidden, self.out(output[0])


writer = Writer().cuda()
writer.eval()
hidden = writer.begin(128)
given = hidden
texts = [[] for _ in range(128)]
for position in range(100000):
    with torch.no_grad():
        given, hidden, scores = writer(given, hidden)
    words = scores.argmax(1).tolist()
    for text, word in zip(texts, words):
        text.append(word)
    if position % 1000 == 0:
        print(position, words[:4])
