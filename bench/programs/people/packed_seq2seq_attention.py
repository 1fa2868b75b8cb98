"""Translation with a bidirectional packed GRU, additive attention and teacher forcing, as tutorials have it; lengths differ."""
import random
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

VOCAB, D = 20_000, 512


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.drop = nn.Embedding(VOCAB, 256, padding_idx=0), nn.Dropout(0.3)
        self.gru, self.join = nn.GRU(256, D, bidirectional=True), nn.Linear(2 * D, D)

    def forward(self, src, lengths):
        packed = pack_padded_sequence(self.drop(self.embed(src)), lengths.cpu(), enforce_sorted=False)
        states, hidden = self.gru(packed)
        return pad_packed_sequence(states)[0], torch.tanh(self.join(torch.cat([hidden[-2], hidden[-1]], 1)))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.drop = nn.Embedding(VOCAB, 256, padding_idx=0), nn.Dropout(0.3)
        self.energy, self.v = nn.Linear(3 * D, D), nn.Linear(D, 1, bias=False)
        self.gru, self.out = nn.GRUCell(2 * D + 256, D), nn.Linear(3 * D + 256, VOCAB)

    def forward(self, word, hidden, states, mask):
        embedded = self.drop(self.embed(word))
        repeated = hidden[None].expand(states.size(0), -1, -1)
        energy = self.v(torch.tanh(self.energy(torch.cat([repeated, states], 2)))).squeeze(2)
        weights = energy.masked_fill(mask, -1e10).softmax(0)
        context = (weights[..., None] * states).sum(0)
        hidden = self.gru(torch.cat([embedded, context], 1), hidden)
        return self.out(torch.cat([hidden, context, embedded], 1)), hidden


torch.manual_seed(0)
random.seed(0)
encoder, decoder = Encoder().cuda(), Decoder().cuda()
parameters = [*encoder.parameters(), *decoder.parameters()]
optimizer = torch.optim.Adam(parameters)
for step in range(25):
    sentences = [(torch.randint(4, VOCAB, (random.randint(20, 48),)), torch.randint(4, VOCAB, (random.randint(20, 40),))) for _ in range(96)]
    src, trg = (pad_sequence(list(it)).cuda() for it in zip(*sentences))
    lengths = torch.tensor([len(it[0]) for it in sentences])
    states, hidden = encoder(src, lengths)
    mask = (src == 0)[: states.size(0)]
    word, outputs = trg[0], []
    for t in range(1, trg.size(0)):
        logits, hidden = decoder(word, hidden, states, mask)
        outputs.append(logits)
        word = trg[t] if random.random() < 0.5 else logits.argmax(1)
    loss = F.cross_entropy(torch.stack(outputs).view(-1, VOCAB), trg[1:].reshape(-1), ignore_index=0)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
