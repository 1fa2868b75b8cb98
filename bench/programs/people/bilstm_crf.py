"""Named entities: characters, packed sentences of all lengths, a bidirectional LSTM and a CRF whose forward algorithm is a loop."""
import random

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

WORDS, CHARS, TAGS, BATCH = 200_000, 120, 25, 256
rng = random.Random(3)


def sentence():
    n = rng.randint(20, 160)
    return torch.randint(1, WORDS, (n,)), torch.randint(1, CHARS, (n, 16)), torch.randint(0, TAGS, (n,))


class CRF(nn.Module):
    def __init__(self, tags):
        super().__init__()
        self.start, self.end = nn.Parameter(torch.randn(tags) * 0.1), nn.Parameter(torch.randn(tags) * 0.1)
        self.moves = nn.Parameter(torch.randn(tags, tags) * 0.1)

    def forward(self, emitted, tags, mask):
        score = self.start[tags[:, 0]] + emitted[:, 0].gather(1, tags[:, :1]).squeeze(1)
        alpha = self.start + emitted[:, 0]
        for t in range(1, emitted.shape[1]):
            keep = mask[:, t]
            score = score + keep * (self.moves[tags[:, t - 1], tags[:, t]] + emitted[:, t].gather(1, tags[:, t : t + 1]).squeeze(1))
            following = torch.logsumexp(alpha.unsqueeze(2) + self.moves + emitted[:, t].unsqueeze(1), dim=1)
            alpha = torch.where(keep.bool().unsqueeze(1), following, alpha)
        last = mask.sum(1).long() - 1
        score = score + self.end[tags.gather(1, last.unsqueeze(1)).squeeze(1)]
        return (torch.logsumexp(alpha + self.end, dim=1) - score).mean()


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.chars = nn.Embedding(WORDS, 300, padding_idx=0), nn.Embedding(CHARS, 50, padding_idx=0)
        self.conv = nn.Conv1d(50, 200, 3, padding=1)
        self.lstm = nn.LSTM(500, 768, num_layers=3, bidirectional=True, dropout=0.3, batch_first=True)
        self.dropout, self.out, self.crf = nn.Dropout(0.5), nn.Linear(1536, TAGS), CRF(TAGS)

    def forward(self, words, chars, lengths, tags):
        b, n, c = chars.shape
        of_chars = self.conv(self.chars(chars.view(b * n, c)).transpose(1, 2)).max(2).values.view(b, n, -1)
        x = self.dropout(torch.cat([self.words(words), of_chars], dim=2))
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        x, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        mask = (words != 0).float()
        return self.crf(self.out(self.dropout(x)), tags, mask)


torch.manual_seed(0)
model = Tagger().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
for epoch in range(2):
    model.train()
    total = 0.0
    for step in range(10):
        words, chars, tags = zip(*(sentence() for _ in range(BATCH)))
        lengths = torch.tensor([len(it) for it in words])
        words, chars, tags = (pad_sequence(it, batch_first=True).cuda() for it in (words, chars, tags))
        loss = model(words, chars, lengths, tags)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        total += loss.item()
    scheduler.step(total)
    print(epoch, total / 10)
