"""Speech recognition: spectrograms of every length, convolutions, packed LSTMs in both directions, CTC; greedy error rate as evaluation."""
import argparse
import json

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset

ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=150)
ap.add_argument("--batch-size", type=int, default=112)
ap.add_argument("--eval-every", type=int, default=50)
ap.add_argument("--seconds", type=float, default=12.0, help="the longest utterance")
ap.add_argument("--hidden", type=int, default=640)
ap.add_argument("--layers", type=int, default=4)
ap.add_argument("--device", default="cuda")
cfg = ap.parse_args()
MELS, SIGNS = 80, 512


class Utterances(Dataset):
    def __init__(self, n, seed):
        self.gen = torch.Generator().manual_seed(seed)
        frames = torch.normal(0.55, 0.22, (n,), generator=self.gen).clamp(0.1, 1.0) * cfg.seconds * 100
        self.frames = frames.long().tolist()

    def __len__(self):
        return len(self.frames)

    def __getitem__(self, i):
        n = self.frames[i]
        said = max(2, n // 12)
        sound = torch.randn(n, 1, generator=self.gen) * torch.randn(MELS, generator=self.gen)
        return sound, torch.randint(1, SIGNS, (said,), generator=self.gen)


def collate(batch):
    batch = sorted(batch, key=lambda item: -len(item[0]))  # as pack_padded_sequence wants it
    sound = pad_sequence([s for s, _ in batch], batch_first=True)
    text = pad_sequence([t for _, t in batch], batch_first=True)
    return sound, torch.tensor([len(s) for s, _ in batch]), text, torch.tensor([len(t) for _, t in batch])


class Listener(nn.Module):
    def __init__(self):
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv2d(1, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU()
        )
        self.rnn = nn.LSTM(32 * MELS // 4, cfg.hidden, cfg.layers, batch_first=True, bidirectional=True, dropout=0.2)
        self.out = nn.Linear(2 * cfg.hidden, SIGNS)

    def forward(self, sound, lengths):
        x = self.front(sound[:, None])
        x = x.permute(0, 2, 1, 3).flatten(2)
        lengths = (lengths + 3) // 4
        packed = pack_padded_sequence(x, lengths, batch_first=True)
        x, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        return self.out(x).log_softmax(-1), lengths


def distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]


def error_rate(model, loader):
    model.eval()
    wrong = total = 0
    with torch.no_grad():
        for sound, lengths, text, said in loader:
            scores, lengths = model(sound.to(cfg.device), lengths)
            best = scores.argmax(-1).cpu()
            for row, n, want, m in zip(best, lengths, text, said):
                heard = [s for s in torch.unique_consecutive(row[:n]).tolist() if s]
                wrong += distance(heard[: 2 * m], want[:m].tolist())
                total += int(m)
    model.train()
    return wrong / total


torch.manual_seed(0)
train = DataLoader(Utterances(150 * cfg.batch_size, 0), batch_size=cfg.batch_size, shuffle=True, collate_fn=collate, num_workers=0)
valid = DataLoader(Utterances(2 * cfg.batch_size, 1), batch_size=cfg.batch_size, collate_fn=collate)
model = Listener().to(cfg.device)
ctc = nn.CTCLoss(zero_infinity=True)
opt = torch.optim.AdamW(model.parameters(), lr=5e-4)
step = 0
while step < cfg.steps:
    for sound, lengths, text, said in train:
        scores, lengths = model(sound.to(cfg.device), lengths)
        loss = ctc(scores.transpose(0, 1), text.to(cfg.device), lengths, said)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        opt.step()
        step += 1
        if step % 25 == 0:
            print(f"{step}: {loss.item():.3f}")
        if step % cfg.eval_every == 0:
            print(f"{step}: error rate {error_rate(model, valid):.3f}")
        if step >= cfg.steps:
            break
print("MEASURED", json.dumps({"steps": step, "peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved()}))
