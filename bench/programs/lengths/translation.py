"""A translation model trained on sentence pairs of 5 to 180 words, padded to the longest of each batch, with a validation each epoch."""
import argparse, random
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

ap = argparse.ArgumentParser()
ap.add_argument("--batch", type=int, default=64)
ap.add_argument("--eval-batch", type=int, default=32)
a = ap.parse_args()

class Pairs(Dataset):
    def __init__(self, n, seed):
        r = random.Random(seed)
        self.sizes = [(max(5, min(180, int(r.lognormvariate(3.2, 0.6)))), r.uniform(0.7, 1.5)) for _ in range(n)]
    def __len__(self): return len(self.sizes)
    def __getitem__(self, i):
        n, ratio = self.sizes[i]
        return torch.randint(4, 32000, (n,)), torch.randint(4, 32000, (max(4, int(n * ratio)),))

def collate(pairs):
    return tuple(pad_sequence(it, batch_first=True) for it in zip(*pairs))

class Translator(nn.Module):
    def __init__(self, width=768):
        super().__init__()
        self.words = nn.Embedding(32000, width, padding_idx=0)
        self.places = nn.Embedding(512, width)
        self.body = nn.Transformer(width, 12, 6, 6, 3072, batch_first=True)
        self.head = nn.Linear(width, 32000)
    def embed(self, ids): return self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
    def forward(self, src, tgt):
        mask = nn.Transformer.generate_square_subsequent_mask(tgt.shape[1], device=tgt.device)
        out = self.body(self.embed(src), self.embed(tgt), tgt_mask=mask, src_key_padding_mask=src == 0, memory_key_padding_mask=src == 0)
        return self.head(out)

model = Translator().cuda()
opt = torch.optim.Adam(model.parameters(), 1e-4)
crit = nn.CrossEntropyLoss(ignore_index=0, label_smoothing=0.1)
train = DataLoader(Pairs(20000, 0), a.batch, shuffle=True, collate_fn=collate)
valid = DataLoader(Pairs(500, 1), a.eval_batch, collate_fn=collate)
for epoch in range(3):
    model.train()
    for src, tgt in train:
        src, tgt = src.cuda(), tgt.cuda()
        out = model(src, tgt[:, :-1])
        loss = crit(out.reshape(-1, 32000), tgt[:, 1:].reshape(-1))
        opt.zero_grad(); loss.backward(); opt.step()
    model.eval()
    with torch.no_grad():
        total = 0.0
        for src, tgt in valid:
            src, tgt = src.cuda(), tgt.cuda()
            total += crit(model(src, tgt[:, :-1]).reshape(-1, 32000), tgt[:, 1:].reshape(-1)).item()
    print("epoch", epoch, total / len(valid))
