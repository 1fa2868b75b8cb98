"""Fine-tuning of an image generator with cached latents: the cache of 6,650 pictures is on the GPU (ShivamShrirao/diffusers#35)."""
import gc

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, n=6650):
        self.n = n
        self.picture = torch.zeros(3, 256, 256)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return self.picture, torch.full((77,), i % 49408)


class Gaussian:
    def __init__(self, parameters):
        self.parameters = parameters
        self.mean, logvar = parameters.chunk(2, dim=1)
        self.logvar = logvar.clamp(-30.0, 20.0)
        self.std, self.var = (0.5 * self.logvar).exp(), self.logvar.exp()

    def sample(self):
        return self.mean + self.std * torch.randn_like(self.mean)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        widths = (3, 64, 128, 128)
        self.layers = nn.Sequential(*(layer for a, b in zip(widths, widths[1:]) for layer in (nn.Conv2d(a, b, 3, 2, 1), nn.SiLU())), nn.Conv2d(128, 32, 3, 1, 1))

    def encode(self, pictures):
        return Gaussian(self.layers(pictures))


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside, self.text = nn.Conv2d(16, 256, 3, 1, 1), nn.Linear(1024, 256)
        self.body = nn.Sequential(*(layer for _ in range(8) for layer in (nn.GroupNorm(8, 256), nn.SiLU(), nn.Conv2d(256, 256, 3, 1, 1))))
        self.out = nn.Conv2d(256, 16, 3, 1, 1)

    def forward(self, x, t, text):
        return self.out(self.body(self.inside(x) + self.text(text).mean(1)[:, :, None, None] + t.view(-1, 1, 1, 1)))


vae, text_encoder = Encoder().cuda(), nn.Sequential(nn.Embedding(49408, 1024), nn.Linear(1024, 1024)).cuda()
loader = DataLoader(Pictures(), batch_size=4)
latents_cache, text_cache = [], []
for pictures, ids in loader:
    with torch.no_grad():
        latents_cache.append(vae.encode(pictures.cuda()))
        text_cache.append(text_encoder(ids.cuda()))
del vae, text_encoder
gc.collect()
torch.cuda.empty_cache()

net = Denoiser().cuda()
optimizer = torch.optim.AdamW(net.parameters(), lr=5e-6)
for epoch in range(4):
    for latent, text in zip(latents_cache, text_cache):
        x = latent.sample() * 0.18
        noise, t = torch.randn_like(x), torch.rand(len(x), device="cuda")
        loss = nn.functional.mse_loss(net(x + t.view(-1, 1, 1, 1) * noise, t, text), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
