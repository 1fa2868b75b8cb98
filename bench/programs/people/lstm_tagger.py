"""A bidirectional LSTM that tags words, with characters through a convolution, packed, Adam, a dev set after the epoch."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

torch.manual_seed(0)
device = "cuda"


class Tagger(nn.Module):
    def __init__(self, words=60000, chars=120, tags=50):
        super().__init__()
        self.words, self.chars = nn.Embedding(words, 300, padding_idx=0), nn.Embedding(chars, 64, padding_idx=0)
        self.conv = nn.Conv1d(64, 128, 3, padding=1)
        self.lstm = nn.LSTM(428, 512, num_layers=3, bidirectional=True, batch_first=True, dropout=0.3)
        self.out = nn.Sequential(nn.Dropout(0.3), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, tags))

    def forward(self, words, chars, lengths):
        b, t, c = chars.shape
        x = self.chars(chars).view(b * t, c, 64).transpose(1, 2)
        x = self.conv(x).relu().max(-1).values.view(b, t, 128)
        x = torch.cat([self.words(words), x], -1)
        x = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        x, _ = pad_packed_sequence(self.lstm(x)[0], batch_first=True)
        return self.out(x)


def batches(n, size):
    for _ in range(n):
        lengths = torch.randint(20, 200, (size,))
        longest = int(lengths.max())
        mask = torch.arange(longest)[None] < lengths[:, None]
        words, chars = torch.randint(1, 60000, (size, longest)) * mask, torch.randint(1, 120, (size, longest, 16)) * mask[..., None]
        yield words.to(device), chars.to(device), lengths, (torch.randint(50, (size, longest)) * mask - (~mask).long()).to(device)


model = Tagger().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss(ignore_index=-1)
for epoch in range(2):
    model.train()
    for words, chars, lengths, tags in batches(12, 160):
        optimizer.zero_grad()
        loss = criterion(model(words, chars, lengths).flatten(0, 1), tags.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
    model.eval()
    with torch.no_grad():
        right = sum((model(w, c, n).argmax(-1) == t).sum().item() for w, c, n, t in batches(2, 160))
    print(epoch, loss.item(), right)
