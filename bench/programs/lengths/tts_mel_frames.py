"""Text to speech as FastSpeech does it: phonemes are stretched to mel frames by their durations; utterances of one to fourteen seconds."""
import argparse
import json

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--batch-size", type=int, default=24)
parser.add_argument("--eval-batch-size", type=int, default=8)
parser.add_argument("--eval-every", type=int, default=50)
parser.add_argument("--phonemes", type=int, nargs=2, default=(12, 170))
parser.add_argument("--dim", type=int, default=384)
parser.add_argument("--layers", type=int, default=4)
args = parser.parse_args()
MELS = 80


class Utterances(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        low, high = args.phonemes
        self.items = []
        for _ in range(n):
            length = int(low + (high - low) * torch.rand((), generator=g) ** 1.5)
            self.items.append((torch.randint(1, 80, (length,), generator=g), torch.randint(2, 13, (length,), generator=g)))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        phonemes, durations = self.items[i]
        return phonemes, durations, torch.randn(int(durations.sum()), MELS)


def collate(items):
    phonemes, durations, mels = zip(*items)
    return pad_sequence(phonemes, True), pad_sequence(durations, True), pad_sequence(mels, True), torch.tensor([len(m) for m in mels])


class Block(nn.Module):
    """Attention, then two convolutions over time."""

    def __init__(self, dim):
        super().__init__()
        self.attention = nn.MultiheadAttention(dim, 2, dropout=0.1, batch_first=True)
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.up, self.down = nn.Conv1d(dim, 4 * dim, 9, padding=4), nn.Conv1d(4 * dim, dim, 1)

    def forward(self, x, empty):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, key_padding_mask=empty, need_weights=False)[0]
        y = self.norm2(x).masked_fill(empty[..., None], 0).transpose(1, 2)
        return x + F.dropout(self.down(F.relu(self.up(y))), 0.1, self.training).transpose(1, 2)


class Speaker(nn.Module):
    def __init__(self, dim, layers):
        super().__init__()
        self.embed = nn.Embedding(80, dim, padding_idx=0)
        self.places = nn.Embedding(4096, dim)
        self.encoder = nn.ModuleList(Block(dim) for _ in range(layers))
        self.durations = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 1))
        self.decoder = nn.ModuleList(Block(dim) for _ in range(layers))
        self.mel = nn.Linear(dim, MELS)
        self.post = nn.Sequential(nn.Conv1d(MELS, 512, 5, padding=2), nn.BatchNorm1d(512), nn.Tanh(), nn.Conv1d(512, MELS, 5, padding=2))

    def forward(self, phonemes, durations):
        empty = phonemes == 0
        x = self.embed(phonemes) + self.places.weight[: phonemes.shape[1]]
        for block in self.encoder:
            x = block(x, empty)
        told = self.durations(x).squeeze(-1).masked_fill(empty, 0)
        frames = pad_sequence([row.repeat_interleave(n, dim=0) for row, n in zip(x, durations)], batch_first=True)
        ends = durations.sum(1)
        empty = torch.arange(frames.shape[1], device=x.device) >= ends[:, None]
        x = frames + self.places.weight[: frames.shape[1]]
        for block in self.decoder:
            x = block(x, empty)
        mel = self.mel(x)
        return mel, mel + self.post(mel.transpose(1, 2)).transpose(1, 2), told, empty


def loss_of(model, batch):
    phonemes, durations, mels, _ = (x.cuda(non_blocking=True) for x in batch)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        mel, refined, told, empty = model(phonemes, durations)
    keep = ~empty[..., None]
    l1 = sum(((x.float() - mels).abs() * keep).sum() / (keep.sum() * MELS) for x in (mel, refined))
    return l1 + F.mse_loss(told.float(), durations.float().log1p() * (phonemes != 0))


torch.manual_seed(7)
model = Speaker(args.dim, args.layers).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98))
train = DataLoader(Utterances(args.batch_size * 300, 1), args.batch_size, shuffle=True, collate_fn=collate, drop_last=True)
valid = DataLoader(Utterances(48, 2), args.eval_batch_size, collate_fn=collate)
step = 0
while step < args.steps:
    for batch in train:
        loss = loss_of(model, batch)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        if step % args.eval_every == 0:
            model.eval()
            with torch.no_grad():
                total = sum(loss_of(model, batch).item() for batch in valid) / len(valid)
            model.train()
            print(f"step {step} train {loss.item():.3f} valid {total:.3f}")
        if step >= args.steps:
            break
print("MEASURED", json.dumps({"steps": step, "peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved()}))
