"""An image captioner: photographs of several sizes in batches of one area, a convolutional encoder, a decoder over captions of any length."""
import argparse
import json

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

VOCAB = 12000
SIZES = ((224, 224), (192, 256), (256, 192), (288, 384), (384, 288), (384, 384))


class Photographs(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.sizes = [SIZES[i] for i in torch.randint(len(SIZES), (n,), generator=g)]
        self.words = torch.randint(8, 81, (n,), generator=g).tolist()

    def __len__(self):
        return len(self.sizes)

    def __getitem__(self, i):
        return torch.zeros(3, *self.sizes[i], dtype=torch.uint8), torch.randint(1, VOCAB, (self.words[i],))


class OneSize:
    """Batches of one size each."""

    def __init__(self, sizes, batch_size, seed):
        self.sizes, self.batch_size, self.g = sizes, batch_size, torch.Generator().manual_seed(seed)
        self.n = sum(sizes.count(it) // batch_size for it in SIZES)

    def __len__(self):
        return self.n

    def __iter__(self):
        batches = []
        for size in SIZES:
            here = [i for i, it in enumerate(self.sizes) if it == size]
            here = [here[i] for i in torch.randperm(len(here), generator=self.g)]
            batches += [here[i : i + self.batch_size] for i in range(0, len(here) - self.batch_size + 1, self.batch_size)]
        yield from (batches[i] for i in torch.randperm(len(batches), generator=self.g))


def together(items):
    words = pad_sequence([w for _, w in items], batch_first=True)
    return torch.stack([x for x, _ in items]), words


class Captioner(nn.Module):
    def __init__(self, d, layers):
        super().__init__()
        widths = (64, 128, 256, d)
        blocks = [nn.Conv2d(3, 64, 4, 4)]
        for i, o in zip(widths, widths[1:]):
            blocks += [nn.GroupNorm(8, i), nn.GELU(), nn.Conv2d(i, i, 3, 1, 1), nn.GroupNorm(8, i), nn.GELU(), nn.Conv2d(i, o, 3, 2, 1)]
        self.see = nn.Sequential(*blocks)
        self.words, self.where = nn.Embedding(VOCAB, d, padding_idx=0), nn.Embedding(128, d)
        layer = nn.TransformerDecoderLayer(d, d // 64, 4 * d, 0.1, batch_first=True, norm_first=True)
        self.say = nn.TransformerDecoder(layer, layers)
        self.out = nn.Linear(d, VOCAB)

    def forward(self, pictures, words):
        seen = self.see(pictures.float() / 127.5 - 1).flatten(2).transpose(1, 2)
        x = self.words(words) + self.where.weight[: words.shape[1]]
        mask = nn.Transformer.generate_square_subsequent_mask(words.shape[1], device=words.device)
        return self.out(self.say(x, seen, tgt_mask=mask, tgt_key_padding_mask=words == 0))


def loss_of(model, pictures, words):
    return F.cross_entropy(model(pictures, words[:, :-1]).flatten(0, 1), words[:, 1:].flatten(), ignore_index=0)


ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=200)
ap.add_argument("--batch-size", type=int, default=24)
ap.add_argument("--eval-every", type=int, default=50)
a = ap.parse_args()
torch.manual_seed(0)
model = Captioner(768, 8).cuda()
data = Photographs(1600, 1)
train = DataLoader(data, batch_sampler=OneSize(data.sizes, a.batch_size, 2), collate_fn=together, num_workers=2)
held = Photographs(60, 3)
valid = DataLoader(held, batch_sampler=OneSize(held.sizes, 4, 4), collate_fn=together)
opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
step = 0
while step < a.steps:
    for pictures, words in train:
        opt.zero_grad()
        loss = loss_of(model, pictures.cuda(), words.cuda())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        step += 1
        if step % a.eval_every == 0:
            model.eval()
            with torch.no_grad():
                held_out = [loss_of(model, p.cuda(), w.cuda()).item() for p, w in valid]
            model.train()
            print(f"step {step} loss {loss.item():.3f} held out {sum(held_out) / len(held_out):.3f}")
        if step >= a.steps:
            break
print("MEASURED", json.dumps({"steps": step, "peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved()}))
