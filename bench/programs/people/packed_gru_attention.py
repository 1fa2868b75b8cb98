"""Summaries: a bidirectional GRU over packed sentences, a decoder with additive attention that goes word by word."""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset

random.seed(3)
torch.manual_seed(3)
PAD, BOS, VOCAB = 0, 1, 20000
DEVICE = "cuda:0"


class Pairs(Dataset):
    def __init__(self, n):
        self.lengths = [(random.randint(120, 400), random.randint(10, 40)) for _ in range(n)]

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        src, trg = self.lengths[i]
        return torch.randint(2, VOCAB, (src,)), torch.randint(2, VOCAB, (trg,))


def collate(items):
    items.sort(key=lambda it: -len(it[0]))
    src, trg = zip(*items)
    return pad_sequence(src, True, PAD), torch.tensor([len(s) for s in src]), pad_sequence(trg, True, PAD)


class Encoder(nn.Module):
    def __init__(self, emb=256, hid=512):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, emb, padding_idx=PAD)
        self.gru = nn.GRU(emb, hid, num_layers=2, bidirectional=True, batch_first=True, dropout=0.2)
        self.bridge = nn.Linear(2 * hid, hid)

    def forward(self, src, lengths):
        packed = pack_padded_sequence(self.embedding(src), lengths, batch_first=True)
        out, h = self.gru(packed)
        out, _ = pad_packed_sequence(out, batch_first=True)
        return out, torch.tanh(self.bridge(torch.cat([h[-2], h[-1]], 1)))


class Attention(nn.Module):
    def __init__(self, hid=512):
        super().__init__()
        self.W = nn.Linear(3 * hid, hid)
        self.v = nn.Linear(hid, 1, bias=False)

    def forward(self, state, memory, mask):
        state = state.unsqueeze(1).expand(-1, memory.size(1), -1)
        energy = self.v(torch.tanh(self.W(torch.cat([state, memory], 2)))).squeeze(2)
        return F.softmax(energy.masked_fill(~mask, -1e9), 1)


class Decoder(nn.Module):
    def __init__(self, emb=256, hid=512):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, emb, padding_idx=PAD)
        self.attention = Attention(hid)
        self.cell = nn.GRUCell(emb + 2 * hid, hid)
        self.out = nn.Linear(3 * hid + emb, VOCAB)

    def forward(self, word, state, memory, mask):
        e = self.embedding(word)
        a = self.attention(state, memory, mask)
        context = torch.bmm(a.unsqueeze(1), memory).squeeze(1)
        state = self.cell(torch.cat([e, context], 1), state)
        return self.out(torch.cat([state, context, e], 1)), state


class Seq2Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Encoder(), Decoder()

    def forward(self, src, lengths, trg):
        memory, state = self.encoder(src, lengths)
        mask = src != PAD
        word, logits = torch.full((len(src),), BOS, device=src.device), []
        for t in range(trg.size(1)):
            step, state = self.decoder(word, state, memory, mask)
            logits.append(step)
            word = trg[:, t]
        return torch.stack(logits, 1)


model = Seq2Seq().to(DEVICE)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
criterion = nn.CrossEntropyLoss(ignore_index=PAD)
for epoch in range(1):
    model.train()
    for src, lengths, trg in DataLoader(Pairs(1500), batch_size=64, shuffle=True, collate_fn=collate):
        src, trg = src.to(DEVICE), trg.to(DEVICE)
        optimizer.zero_grad()
        logits = model(src, lengths, trg)
        loss = criterion(logits.reshape(-1, VOCAB), trg.reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    print("epoch", epoch, loss.item())
