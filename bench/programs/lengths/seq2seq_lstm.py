"""Sequence to sequence as tutorials have it: a packed LSTM reads, an LSTM with attention writes; the evaluation writes step by step into one tensor."""
import argparse
import json

import torch
from torch import nn, optim
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset

PAD_IDX, SOS_IDX, EOS_IDX = 0, 1, 2


class TranslationDataset(Dataset):
    def __init__(self, size, vocab, max_len, seed):
        g = torch.Generator().manual_seed(seed)
        src = torch.randint(5, max_len + 1, (size,), generator=g)
        trg = (src + torch.randint(-4, 5, (size,), generator=g)).clamp(3, max_len)
        make = lambda n: torch.cat([torch.tensor([SOS_IDX]), torch.randint(3, vocab, (n,), generator=g), torch.tensor([EOS_IDX])])
        self.data = [(make(s), make(t)) for s, t in zip(src.tolist(), trg.tolist())]

    def __len__(self):
        return len(self.data)

    def __getitem__(self, idx):
        return self.data[idx]


def collate_fn(batch):
    src, trg = zip(*batch)
    lengths = torch.tensor([len(s) for s in src])
    return pad_sequence(src, padding_value=PAD_IDX), lengths, pad_sequence(trg, padding_value=PAD_IDX)


class Encoder(nn.Module):
    def __init__(self, vocab, emb, hid, layers):
        super().__init__()
        self.embedding = nn.Embedding(vocab, emb, padding_idx=PAD_IDX)
        self.rnn = nn.LSTM(emb, hid // 2, layers, bidirectional=True, dropout=0.3)
        self.layers, self.hid = layers, hid

    def forward(self, src, lengths):
        packed = pack_padded_sequence(self.embedding(src), lengths, enforce_sorted=False)
        outputs, states = self.rnn(packed)
        outputs, _ = pad_packed_sequence(outputs)
        join = lambda s: s.view(self.layers, 2, -1, self.hid // 2).transpose(1, 2).reshape(self.layers, -1, self.hid)
        return outputs, tuple(join(s) for s in states)


class Decoder(nn.Module):
    def __init__(self, vocab, emb, hid, layers):
        super().__init__()
        self.embedding = nn.Embedding(vocab, emb)
        self.rnn = nn.LSTM(emb, hid, layers, dropout=0.3)
        self.query, self.mix, self.fc_out = nn.Linear(hid, hid), nn.Linear(2 * hid, hid), nn.Linear(hid, vocab)

    def forward(self, trg, states, memory, mask):
        outputs, states = self.rnn(self.embedding(trg), states)
        scores = torch.einsum("tbh,sbh->bts", self.query(outputs), memory)
        weights = scores.masked_fill(mask.T[:, None], float("-inf")).softmax(-1)
        context = torch.einsum("bts,sbh->tbh", weights, memory)
        return self.fc_out(torch.tanh(self.mix(torch.cat([outputs, context], -1)))), states


def evaluate(encoder, decoder, iterator, criterion, device, vocab):
    encoder.eval(), decoder.eval()
    epoch_loss = 0
    with torch.no_grad():
        for src, lengths, trg in iterator:
            src, trg = src.to(device), trg.to(device)
            memory, states = encoder(src, lengths)
            outputs = torch.zeros(trg.shape[0], trg.shape[1], vocab, device=device)
            word = trg[:1]
            for t in range(1, trg.shape[0]):
                output, states = decoder(word, states, memory, src == PAD_IDX)
                outputs[t] = output[0]
                word = output.argmax(-1)
            epoch_loss += criterion(outputs[1:].view(-1, vocab), trg[1:].reshape(-1)).item()
    encoder.train(), decoder.train()
    return epoch_loss / len(iterator)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--eval-batch-size", type=int, default=320)
    parser.add_argument("--eval-every", type=int, default=50)
    parser.add_argument("--max-len", type=int, default=60)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--vocab", type=int, default=25000)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    torch.manual_seed(1234)
    train_iterator = DataLoader(TranslationDataset(200 * args.batch_size, args.vocab, args.max_len, 1), args.batch_size, shuffle=True, collate_fn=collate_fn)
    valid_iterator = DataLoader(TranslationDataset(2 * args.eval_batch_size, args.vocab, args.max_len, 2), args.eval_batch_size, collate_fn=collate_fn)
    encoder = Encoder(args.vocab, args.hidden // 2, args.hidden, 2).to(args.device)
    decoder = Decoder(args.vocab, args.hidden // 2, args.hidden, 2).to(args.device)
    parameters = [*encoder.parameters(), *decoder.parameters()]
    optimizer, criterion = optim.Adam(parameters), nn.CrossEntropyLoss(ignore_index=PAD_IDX)
    step = 0
    while step < args.steps:
        for src, lengths, trg in train_iterator:
            optimizer.zero_grad()
            src, trg = src.to(args.device), trg.to(args.device)
            output, _ = decoder(trg[:-1], *encoder(src, lengths)[::-1], src == PAD_IDX)
            loss = criterion(output.flatten(0, 1), trg[1:].flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 1)
            optimizer.step()
            step += 1
            if step % args.eval_every == 0:
                valid_loss = evaluate(encoder, decoder, valid_iterator, criterion, args.device, args.vocab)
                print(f"step {step} | train loss {loss.item():.3f} | val loss {valid_loss:.3f}")
            if step >= args.steps:
                break
    print("MEASURED", json.dumps({"steps": step, "peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved()}))


if __name__ == "__main__":
    main()
