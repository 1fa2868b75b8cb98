"""Word-level LSTM with its state carried from window to window (truncated backpropagation through time)."""

import argparse
import math

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--emsize", type=int, default=650)
parser.add_argument("--nhid", type=int, default=650)
parser.add_argument("--nlayers", type=int, default=2)
parser.add_argument("--batch_size", type=int, default=160)
parser.add_argument("--bptt", type=int, default=70)
parser.add_argument("--lr", type=float, default=20)
parser.add_argument("--clip", type=float, default=0.25)
parser.add_argument("--dropout", type=float, default=0.5)
parser.add_argument("--max_batches", type=int, default=40)
args = parser.parse_args()

torch.manual_seed(1111)
device = torch.device("cuda")
ntokens = 33278


def batchify(data, bsz):
    nbatch = data.size(0) // bsz
    return data.narrow(0, 0, nbatch * bsz).view(bsz, -1).t().contiguous().to(device)


class RNNModel(nn.Module):
    def __init__(self, ntoken, ninp, nhid, nlayers, dropout):
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = nn.LSTM(ninp, nhid, nlayers, dropout=dropout)
        self.decoder = nn.Linear(nhid, ntoken)
        self.nhid, self.nlayers, self.ntoken = nhid, nlayers, ntoken
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)

    def forward(self, input, hidden):
        emb = self.drop(self.encoder(input))
        output, hidden = self.rnn(emb, hidden)
        decoded = self.decoder(self.drop(output)).view(-1, self.ntoken)
        return torch.log_softmax(decoded, dim=1), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        return weight.new_zeros(self.nlayers, bsz, self.nhid), weight.new_zeros(self.nlayers, bsz, self.nhid)


def repackage_hidden(h):
    return tuple(v.detach() for v in h)


corpus = torch.randint(ntokens, (args.batch_size * args.bptt * args.max_batches + args.batch_size,))
train_data = batchify(corpus, args.batch_size)
model = RNNModel(ntokens, args.emsize, args.nhid, args.nlayers, args.dropout).to(device)
criterion = nn.NLLLoss()

model.train()
total_loss = 0.0
hidden = model.init_hidden(args.batch_size)
for batch, i in enumerate(range(0, train_data.size(0) - 1, args.bptt)):
    seq_len = min(args.bptt, len(train_data) - 1 - i)
    data, targets = train_data[i : i + seq_len], train_data[i + 1 : i + 1 + seq_len].view(-1)
    model.zero_grad()
    hidden = repackage_hidden(hidden)
    output, hidden = model(data, hidden)
    loss = criterion(output, targets)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
    for p in model.parameters():
        p.data.add_(p.grad, alpha=-args.lr)
    total_loss += loss.item()
    if batch % 10 == 0 and batch > 0:
        cur = total_loss / 10
        print(f"| {batch:5d} batches | loss {cur:5.2f} | ppl {math.exp(min(cur, 20)):8.2f}")
        total_loss = 0.0
