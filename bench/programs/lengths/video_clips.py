"""Clips of 8 to 64 frames: a residual network sees each frame, a transformer the clip; whole videos are evaluated one at a time."""
import argparse
import json

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset


class Clips(Dataset):
    counts = (8, 12, 16, 24, 32, 48, 64)

    def __init__(self, n, side, seed, whole=None):
        g = torch.Generator().manual_seed(seed)
        picks = torch.randint(len(self.counts), (n,), generator=g)
        self.frames = [self.counts[p] for p in picks] if whole is None else torch.randint(whole // 4, whole + 1, (n,), generator=g).tolist()
        self.side = side

    def __len__(self):
        return len(self.frames)

    def __getitem__(self, i):
        first = torch.randint(0, 256, (1, 3, self.side, self.side), dtype=torch.uint8)
        return first.expand(self.frames[i], -1, -1, -1), i % 50


class Basic(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o)
        self.c2, self.b2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
        self.short = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o)) if stride > 1 or i != o else None

    def forward(self, x):
        y = F.relu(self.b1(self.c1(x)))
        return F.relu(self.b2(self.c2(y)) + (x if self.short is None else self.short(x)))


class Video(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        w, blocks = width, []
        self.stem = nn.Sequential(nn.Conv2d(3, w, 7, 2, 3, bias=False), nn.BatchNorm2d(w), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        for i, o, s in ((w, w, 1), (w, 2 * w, 2), (2 * w, 4 * w, 2), (4 * w, 8 * w, 2)):
            blocks += [Basic(i, o, s), Basic(o, o, 1)]
        self.body = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.when = nn.Embedding(1024, 8 * w)
        layer = nn.TransformerEncoderLayer(8 * w, max(1, w // 8), 16 * w, 0.1, batch_first=True)
        self.time = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.out = nn.Linear(8 * w, 50)

    def forward(self, frames, counts):
        seen = self.body(self.stem(frames.float().div(127.5).sub(1)))
        clips = pad_sequence(seen.split(counts), batch_first=True)
        counts = torch.tensor(counts, device=seen.device)
        empty = torch.arange(clips.shape[1], device=seen.device) >= counts[:, None]
        x = self.time(clips + self.when.weight[: clips.shape[1]], src_key_padding_mask=empty)
        return self.out(x.masked_fill(empty[..., None], 0).sum(1) / counts[:, None])


def collate(clips):
    return torch.cat([c for c, _ in clips]), [len(c) for c, _ in clips], torch.tensor([y for _, y in clips])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=120)
    p.add_argument("--batch-size", type=int, default=20)
    p.add_argument("--eval-every", type=int, default=30)
    p.add_argument("--side", type=int, default=160)
    p.add_argument("--width", type=int, default=64)
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--whole", type=int, default=600, help="frames of the longest video")
    p.add_argument("--device", default="cuda")
    a = p.parse_args()
    torch.manual_seed(0)
    model = Video(a.width, a.layers).to(a.device)
    clips = DataLoader(Clips(120 * a.batch_size, a.side, 1), a.batch_size, shuffle=True, collate_fn=collate, drop_last=True)
    videos = DataLoader(Clips(12, a.side, 2, whole=a.whole), batch_size=1, collate_fn=collate)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-4, weight_decay=0.02)
    best, best_state, step = -1.0, None, 0
    while step < a.steps:
        for frames, counts, labels in clips:
            with torch.autocast(a.device, dtype=torch.bfloat16):
                loss = F.cross_entropy(model(frames.to(a.device), counts), labels.to(a.device))
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % a.eval_every == 0:
                model.eval()
                right = 0
                with torch.no_grad(), torch.autocast(a.device, dtype=torch.bfloat16):
                    for frames, counts, labels in videos:
                        right += (model(frames.to(a.device), counts).argmax(-1).cpu() == labels).sum().item()
                model.train()
                print(f"step {step} frames {sum(counts)} loss {loss.item():.3f} right {right}")
                if right > best:  # the best weights stay on the device
                    best, best_state = right, {k: v.detach().clone() for k, v in model.state_dict().items()}
            if step >= a.steps:
                break
    print("MEASURED", json.dumps({"steps": step, "peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved()}))


if __name__ == "__main__":
    main()
