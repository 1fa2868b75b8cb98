"""A language model out of nn.TransformerEncoder, as in PyTorch's tutorial: batches of a long token stream, SGD, clipping, evaluation."""
import math
import torch
from torch import nn

VOCAB, D, LAYERS, LENGTH, BATCH = 33278, 512, 8, 256, 48


class Positions(nn.Module):
    def __init__(self, d, longest=5000):
        super().__init__()
        self.drop = nn.Dropout(0.2)
        at = torch.arange(longest).unsqueeze(1)
        by = torch.exp(torch.arange(0, d, 2) * (-math.log(10000.0) / d))
        table = torch.zeros(longest, 1, d)
        table[:, 0, 0::2] = torch.sin(at * by)
        table[:, 0, 1::2] = torch.cos(at * by)
        self.register_buffer("table", table)

    def forward(self, x):
        return self.drop(x + self.table[: x.size(0)])


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.positions = Positions(D)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(D, 8, 2048, 0.2), LAYERS)
        self.embed = nn.Embedding(VOCAB, D)
        self.out = nn.Linear(D, VOCAB)

    def forward(self, src, mask):
        return self.out(self.encoder(self.positions(self.embed(src) * math.sqrt(D)), mask))


def batchify(n):
    return torch.randint(0, VOCAB, (n * LENGTH + 1, BATCH)).cuda()


torch.manual_seed(0)
train, valid = batchify(30), batchify(3)
model = Model().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=5.0)
criterion = nn.CrossEntropyLoss()
mask = nn.Transformer.generate_square_subsequent_mask(LENGTH).cuda()
total = 0.0
for epoch in range(2):
    model.train()
    for i in range(0, len(train) - 1, LENGTH):
        loss = criterion(model(train[i : i + LENGTH], mask).view(-1, VOCAB), train[i + 1 : i + 1 + LENGTH].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        total += loss.item()
    model.eval()
    with torch.no_grad():
        for i in range(0, len(valid) - 1, LENGTH):
            total += criterion(model(valid[i : i + LENGTH], mask).view(-1, VOCAB), valid[i + 1 : i + 1 + LENGTH].reshape(-1)).item()
    print(epoch, total)
