"""Latent diffusion with buckets of aspect ratios, as SDXL trains; now and then a sheet of samples is made with the average and decoded to pixels."""
import argparse
import json

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset

ap = argparse.ArgumentParser()
for name, value in {"steps": 160, "batch-size": 24, "eval-every": 40, "samples": 24, "sample-steps": 12, "width": 160, "unit": 8}.items():
    ap.add_argument(f"--{name}", type=int, default=value)
ap.add_argument("--device", default="cuda")
a = ap.parse_args()
BUCKETS = [(4, 12), (5, 10), (6, 8), (7, 9), (8, 8), (9, 7), (8, 6), (10, 5), (12, 4), (4, 6), (6, 4)]


class Latents(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.bucket = torch.multinomial(torch.tensor([1, 2, 6, 5, 8, 5, 6, 2, 1, 3, 3.0]), n, replacement=True, generator=g).tolist()

    def __len__(self):
        return len(self.bucket)

    def __getitem__(self, i):
        return torch.randn(4, *(side * a.unit for side in BUCKETS[self.bucket[i]])), torch.tensor(i % 100)


class SameBucket(BatchSampler):
    def __init__(self, data, size):
        self.data, self.size = data, size

    def __iter__(self):
        waiting = {}
        for i in torch.randperm(len(self.data)).tolist():
            batch = waiting.setdefault(self.data.bucket[i], [])
            batch.append(i)
            if len(batch) == self.size:
                yield waiting.pop(self.data.bucket[i])
        yield from waiting.values()  # what is left over, smaller


class Res(nn.Module):
    def __init__(self, i, o, t):
        super().__init__()
        self.n1, self.c1 = nn.GroupNorm(8, i), nn.Conv2d(i, o, 3, padding=1)
        self.n2, self.c2, self.t = nn.GroupNorm(8, o), nn.Conv2d(o, o, 3, padding=1), nn.Linear(t, o)
        self.skip = nn.Conv2d(i, o, 1) if i != o else nn.Identity()

    def forward(self, x, t):
        y = self.c1(F.silu(self.n1(x))) + self.t(t)[:, :, None, None]
        return self.c2(F.silu(self.n2(y))) + self.skip(x)


class Attention(nn.Sequential):
    def forward(self, x):
        norm, qkv, out = self
        q, k, v = qkv(norm(x)).flatten(2).unflatten(1, (3, -1, 40)).transpose(-1, -2).unbind(1)
        return x + out(F.scaled_dot_product_attention(q, k, v).transpose(-1, -2).reshape(x.shape))


class UNet(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.kind, self.when, self.first = nn.Embedding(101, 4 * w), nn.Linear(64, 4 * w), nn.Conv2d(4, w, 3, padding=1)
        self.d1, self.d2, self.d3 = Res(w, w, 4 * w), Res(w, 2 * w, 4 * w), Res(2 * w, 4 * w, 4 * w)
        attend = lambda c: Attention(nn.GroupNorm(8, c), nn.Conv2d(c, 3 * c, 1), nn.Conv2d(c, c, 1))
        self.a2, self.a3 = attend(2 * w), attend(4 * w)
        self.u2, self.u1, self.u0 = Res(6 * w, 2 * w, 4 * w), Res(3 * w, w, 4 * w), Res(2 * w, w, 4 * w)
        self.last = nn.Sequential(nn.GroupNorm(8, w), nn.SiLU(), nn.Conv2d(w, 4, 3, padding=1))

    def forward(self, x, t, kind):
        waves = t[:, None] * torch.exp(torch.linspace(0, 7, 32, device=x.device))
        e = F.silu(self.when(torch.cat([waves.sin(), waves.cos()], 1)) + self.kind(kind))
        x0 = self.first(x)
        x1 = self.d1(x0, e)
        x2 = self.a2(self.d2(F.avg_pool2d(x1, 2), e))
        x3 = self.a3(self.d3(F.avg_pool2d(x2, 2), e))
        y = self.u2(torch.cat([F.interpolate(x3, size=x2.shape[2:]), x2], 1), e)
        y = self.u1(torch.cat([F.interpolate(y, size=x1.shape[2:]), x1], 1), e)
        return self.last(self.u0(torch.cat([y, x0], 1), e))


def pixels():
    """Stands for the decoder of an autoencoder that is not trained here."""
    up = lambda i, o: [nn.Upsample(scale_factor=2), nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(8, o), nn.SiLU()]
    return nn.Sequential(nn.Conv2d(4, 256, 3, padding=1), *up(256, 256), *up(256, 128), *up(128, 64), nn.Conv2d(64, 3, 3, padding=1))


@torch.no_grad()
def sheet(model, decoder, h, w):
    """Euler steps with guidance; both halves of the guidance in one batch."""
    x = torch.randn(a.samples, 4, h * a.unit, w * a.unit, device=a.device)
    kinds = torch.arange(a.samples, device=a.device) % 100
    for i in range(a.sample_steps):
        t = torch.full((2 * a.samples,), 1 - i / a.sample_steps, device=a.device)
        with torch.autocast(a.device, dtype=torch.bfloat16):
            told, free = model(torch.cat([x, x]), t, torch.cat([kinds, torch.full_like(kinds, 100)])).float().chunk(2)
        x = x - (free + 4 * (told - free)) / a.sample_steps
    return (decoder(x).clamp(-1, 1) * 127.5 + 127.5).byte().cpu()


torch.manual_seed(0)
model, decoder = UNet(a.width).to(a.device), pixels().to(a.device).requires_grad_(False)
average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.999))
data = Latents(160 * a.batch_size, 1)
loader = DataLoader(data, batch_sampler=SameBucket(data, a.batch_size))
opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
step = 0
while step < a.steps:
    for latents, kinds in loader:
        latents = latents.to(a.device)
        kinds = torch.where(torch.rand(len(kinds)) < 0.1, 100, kinds).to(a.device)
        noise, t = torch.randn_like(latents), torch.rand(len(latents), device=a.device)
        with torch.autocast(a.device, dtype=torch.bfloat16):
            loss = F.mse_loss(model(torch.lerp(latents, noise, t[:, None, None, None]), t, kinds).float(), noise - latents)
        opt.zero_grad()
        loss.backward()
        opt.step()
        average.update_parameters(model)
        step += 1
        if step % a.eval_every == 0:
            pictures = sheet(average, decoder, *BUCKETS[step // a.eval_every % len(BUCKETS)])
            print(f"step {step} latents {tuple(latents.shape)} loss {loss.item():.4f} pictures {tuple(pictures.shape)} {pictures.float().mean().item():.1f}")
        if step >= a.steps:
            break
print("MEASURED", json.dumps({"steps": step, "peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved()}))
