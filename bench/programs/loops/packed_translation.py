"""Sequence to sequence in the older manner: packed GRUs, attention, a decoder that goes word by word with teacher forcing."""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
vocab, emb, hid, batch_size, longest, steps = 16000, 512, 1024, 256, 40, 8


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(vocab, emb, padding_idx=0)
        self.gru = nn.GRU(emb, hid, bidirectional=True)
        self.fc = nn.Linear(2 * hid, hid)

    def forward(self, src, lengths):
        packed = pack_padded_sequence(self.embedding(src), lengths, enforce_sorted=False)
        outputs, hidden = self.gru(packed)
        outputs, _ = pad_packed_sequence(outputs)
        return outputs, torch.tanh(self.fc(torch.cat((hidden[-2], hidden[-1]), dim=1)))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(vocab, emb, padding_idx=0)
        self.attn, self.v = nn.Linear(3 * hid, hid), nn.Linear(hid, 1, bias=False)
        self.gru = nn.GRU(2 * hid + emb, hid)
        self.out = nn.Linear(3 * hid + emb, vocab)

    def forward(self, word, hidden, encoded, mask):
        embedded = self.embedding(word).unsqueeze(0)
        repeated = hidden.unsqueeze(0).expand(encoded.size(0), -1, -1)
        scores = self.v(torch.tanh(self.attn(torch.cat((repeated, encoded), 2)))).squeeze(2)
        weights = F.softmax(scores.masked_fill(~mask, -1e10), dim=0)
        context = (weights.unsqueeze(2) * encoded).sum(0, keepdim=True)
        output, hidden = self.gru(torch.cat((embedded, context), 2), hidden.unsqueeze(0))
        joined = torch.cat((output.squeeze(0), context.squeeze(0), embedded.squeeze(0)), 1)
        return self.out(joined), hidden.squeeze(0)


class Seq2Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Encoder(), Decoder()

    def forward(self, src, lengths, trg, teacher_forcing=0.5):
        outputs = []
        encoded, hidden = self.encoder(src, lengths)
        mask, word = (src != 0)[: encoded.size(0)], trg[0]
        for t in range(1, trg.size(0)):
            output, hidden = self.decoder(word, hidden, encoded, mask)
            outputs.append(output)
            word = trg[t] if random.random() < teacher_forcing else output.argmax(1)
        return torch.stack(outputs)


def main():
    model = Seq2Seq().to(device)
    optimizer = torch.optim.Adam(model.parameters())
    criterion = nn.CrossEntropyLoss(ignore_index=0)
    for step in range(steps):
        lengths = torch.randint(longest // 2, longest + 1, (batch_size,))
        lengths[0] = longest
        src, trg = torch.randint(1, vocab, (longest, batch_size)), torch.randint(1, vocab, (longest, batch_size))
        src[torch.arange(longest)[:, None] >= lengths] = 0
        output = model(src.to(device), lengths, trg.to(device))
        optimizer.zero_grad()
        loss = criterion(output.view(-1, vocab), trg[1:].to(device).view(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1)
        optimizer.step()


if __name__ == "__main__":
    main()
