"""A Conformer over speech features; a sampler puts utterances of like length together until a batch holds so many frames."""
import argparse
import json
import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler


class Speech(Dataset):
    def __init__(self, n, longest, seed):
        rng = random.Random(seed)
        self.frames = [int(min(longest, max(longest // 30, rng.gammavariate(2.5, longest / 6)))) for _ in range(n)]

    def __len__(self):
        return len(self.frames)

    def __getitem__(self, i):
        return torch.randn(self.frames[i], 80), i % 64


class FrameBuckets(Sampler):
    """Batches whose padded size stays below `frames`."""

    def __init__(self, lengths, frames, shuffle):
        self.shuffle, self.batches, batch = shuffle, [], []
        for i in sorted(range(len(lengths)), key=lengths.__getitem__):
            if batch and lengths[i] * (len(batch) + 1) > frames:
                self.batches.append(batch)
                batch = []
            batch.append(i)
        self.batches.append(batch)

    def __iter__(self):
        order = torch.randperm(len(self.batches)).tolist() if self.shuffle else range(len(self.batches))
        return iter([self.batches[i] for i in order])

    def __len__(self):
        return len(self.batches)


def collate(rows):
    longest = max(len(x) for x, _ in rows)
    sound = torch.stack([F.pad(x, (0, 0, 0, longest - len(x))) for x, _ in rows])
    return sound, torch.tensor([len(x) for x, _ in rows]), torch.tensor([y for _, y in rows])


class Conformer(nn.Module):
    def __init__(self, d):
        super().__init__()
        feed = lambda: nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.SiLU(), nn.Dropout(0.1), nn.Linear(4 * d, d), nn.Dropout(0.1))
        self.first, self.last = feed(), feed()
        self.norm, self.attend = nn.LayerNorm(d), nn.MultiheadAttention(d, d // 64, batch_first=True)
        self.norm_conv, self.wide = nn.LayerNorm(d), nn.Conv1d(d, 2 * d, 1)
        self.deep, self.bn, self.narrow = nn.Conv1d(d, d, 15, padding=7, groups=d), nn.BatchNorm1d(d), nn.Conv1d(d, d, 1)
        self.end = nn.LayerNorm(d)

    def forward(self, x, padding):
        x = x + self.first(x) / 2
        y = self.norm(x)
        x = x + self.attend(y, y, y, key_padding_mask=padding, need_weights=False)[0]
        y = F.glu(self.wide(self.norm_conv(x).transpose(1, 2)), dim=1)
        x = x + self.narrow(F.silu(self.bn(self.deep(y)))).transpose(1, 2)
        return self.end(x + self.last(x) / 2)


class Speakers(nn.Module):
    def __init__(self, d, layers):
        super().__init__()
        self.sub = nn.Sequential(nn.Conv1d(80, d, 5, stride=2, padding=2), nn.GELU(), nn.Conv1d(d, d, 5, stride=2, padding=2), nn.GELU())
        self.layers = nn.ModuleList(Conformer(d) for _ in range(layers))
        self.out = nn.Linear(2 * d, 64)

    def forward(self, sound, lengths):
        x = self.sub(sound.transpose(1, 2)).transpose(1, 2)
        padding = torch.arange(x.shape[1], device=x.device)[None] >= ((lengths + 3) // 4)[:, None]
        for layer in self.layers:
            x = layer(x, padding)
        return self.out(torch.cat([x.masked_fill(padding[..., None], 0).mean(1), x.amax(1)], dim=-1))


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--batch-size", type=int, default=40000, help="frames of a batch, with padding")
    ap.add_argument("--eval-every", type=int, default=50)
    ap.add_argument("--longest", type=int, default=3000)
    ap.add_argument("--dim", type=int, default=512)
    ap.add_argument("--layers", type=int, default=12)
    ap.add_argument("--utterances", type=int, default=6000)
    ap.add_argument("--device", default="cuda")
    a = ap.parse_args()
    torch.manual_seed(11)
    data, held = Speech(a.utterances, a.longest, 1), Speech(a.utterances // 40, a.longest, 2)
    train = DataLoader(data, batch_sampler=FrameBuckets(data.frames, a.batch_size, True), collate_fn=collate)
    valid = DataLoader(held, batch_size=16, collate_fn=collate)  # not bucketed: short ones are padded a lot
    net = Speakers(a.dim, a.layers).to(a.device)
    opt = torch.optim.AdamW(net.parameters(), lr=3e-4)
    step = 0
    while step < a.steps:
        for sound, lengths, who in train:
            with torch.autocast(a.device, dtype=torch.bfloat16):
                loss = F.cross_entropy(net(sound.to(a.device), lengths.to(a.device)), who.to(a.device))
            loss.backward()
            opt.step()
            opt.zero_grad(set_to_none=True)
            step += 1
            if step % a.eval_every == 0:
                net.eval()
                right = 0
                with torch.no_grad(), torch.autocast(a.device, dtype=torch.bfloat16):
                    for sound, lengths, who in valid:
                        right += (net(sound.to(a.device), lengths.to(a.device)).argmax(-1).cpu() == who).sum().item()
                net.train()
                print(step, loss.item(), right / len(held))
            if step >= a.steps:
                break
    print("MEASURED", json.dumps({"steps": step, "peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved()}))
