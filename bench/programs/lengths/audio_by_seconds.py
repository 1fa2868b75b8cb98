"""Speakers by their voice: recordings of 1 to 20 seconds, sorted into batches of so many seconds with padding; a convolutional encoder with attention."""
import argparse
import json
import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

RATE, SPEAKERS = 8000, 400


class Voices(Dataset):
    def __init__(self, n, seed):
        r = random.Random(seed)
        self.seconds = [min(20.0, 1 + r.expovariate(0.25)) for _ in range(n)]

    def __len__(self):
        return len(self.seconds)

    def __getitem__(self, i):
        return torch.randn(int(RATE * self.seconds[i])), i % SPEAKERS


class BySeconds:
    """Neighbours in length, until a batch has so many seconds with its padding."""

    def __init__(self, seconds, most, seed):
        order, self.batches, self.r = sorted(range(len(seconds)), key=seconds.__getitem__), [], random.Random(seed)
        batch = []
        for i in order:
            if batch and (len(batch) + 1) * seconds[i] > most:
                self.batches.append(batch)
                batch = []
            batch.append(i)
        self.batches.append(batch)

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        self.r.shuffle(self.batches)
        return iter(self.batches)


def pad(items):
    return pad_sequence([x for x, _ in items], batch_first=True), torch.tensor([len(x) for x, _ in items]), torch.tensor([y for _, y in items])


class Speakers(nn.Module):
    def __init__(self, d, layers):
        super().__init__()
        strides = ((1, 128, 10, 5), (128, 256, 8, 4), (256, 512, 4, 2), (512, d, 4, 2))
        self.hear = nn.ModuleList(nn.Conv1d(i, o, k, s) for i, o, k, s in strides)
        layer = nn.TransformerEncoderLayer(d, d // 64, 4 * d, 0.1, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.weigh, self.out = nn.Linear(d, 1), nn.Linear(d, SPEAKERS)

    def forward(self, sound, lengths):
        x = sound[:, None]
        for conv in self.hear:
            x = F.gelu(conv(x))
            lengths = (lengths - conv.kernel_size[0]) // conv.stride[0] + 1
        x = x.transpose(1, 2)
        empty = torch.arange(x.shape[1], device=x.device) >= lengths[:, None]
        x = self.body(x, src_key_padding_mask=empty)
        weights = self.weigh(x).masked_fill(empty[..., None], -torch.inf).softmax(1)
        return self.out((weights * x).sum(1))


ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=200)
ap.add_argument("--seconds", type=float, default=160, help="of a batch, padding included")
ap.add_argument("--eval-every", type=int, default=50)
a = ap.parse_args()
torch.manual_seed(0)
model = Speakers(512, 8).cuda()
voices, held = Voices(4000, 1), Voices(80, 2)
train = DataLoader(voices, batch_sampler=BySeconds(voices.seconds, a.seconds, 3), collate_fn=pad, num_workers=2)
valid = DataLoader(held, batch_sampler=BySeconds(held.seconds, 40, 4), collate_fn=pad)
opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
step = 0
while step < a.steps:
    for sound, lengths, who in train:
        opt.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(sound.cuda(), lengths.cuda()), who.cuda())
        loss.backward()
        opt.step()
        step += 1
        if step % a.eval_every == 0:
            model.eval()
            with torch.no_grad():
                right = sum((model(s.cuda(), n.cuda()).argmax(1).cpu() == w).sum().item() for s, n, w in valid)
            model.train()
            print(f"step {step} loss {loss.item():.3f} right {right} of {len(held)}")
        if step >= a.steps:
            break
print("MEASURED", json.dumps({"steps": step, "peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved()}))
