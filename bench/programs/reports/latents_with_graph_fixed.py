"""Fine-tuning of a latent diffusion model: the autoencoder runs with a graph, and nobody froze it."""
import torch
import torch.nn.functional as F
from torch import nn


def block(cin, cout, stride=1):
    return nn.Sequential(nn.GroupNorm(8, cin), nn.SiLU(), nn.Conv2d(cin, cout, 3, stride, 1))


class AutoencoderKL(nn.Module):
    def __init__(self, ch=128):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, ch, 3, 1, 1), block(ch, ch), block(ch, 2 * ch, 2), block(2 * ch, 2 * ch), block(2 * ch, 4 * ch, 2), block(4 * ch, 4 * ch), block(4 * ch, 4 * ch, 2), nn.Conv2d(4 * ch, 8, 1))

    def encode(self, x):
        mean, logvar = self.encoder(x).chunk(2, 1)
        return mean + torch.randn_like(mean) * (0.5 * logvar.clamp(-30, 20)).exp()


class UNet(nn.Module):
    def __init__(self, ch=192):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(1, ch), nn.SiLU(), nn.Linear(ch, ch))
        self.first = nn.Conv2d(4, ch, 3, 1, 1)
        self.down = nn.ModuleList([block(ch, ch), block(ch, 2 * ch, 2), block(2 * ch, 2 * ch)])
        self.up = nn.ModuleList([block(2 * ch, 2 * ch), block(2 * ch, ch)])
        self.last = nn.Conv2d(ch, 4, 3, 1, 1)

    def forward(self, x, t):
        h = self.first(x) + self.time(t[:, None].float() / 1000)[:, :, None, None]
        skip = h
        for layer in self.down:
            h = layer(h)
        h = F.interpolate(self.up[0](h), scale_factor=2)
        return self.last(self.up[1](h) + skip)


vae, unet = AutoencoderKL().cuda(), UNet().cuda()
vae.requires_grad_(False).eval()
optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-5)
alphas = torch.linspace(0.9999, 0.98, 1000, device="cuda").cumprod(0)
for step in range(2000):
    pixels = torch.rand(8, 3, 512, 512).cuda() * 2 - 1
    with torch.no_grad():
        latents = vae.encode(pixels) * 0.18215
    noise = torch.randn_like(latents)
    t = torch.randint(0, 1000, (8,), device="cuda")
    a = alphas[t][:, None, None, None]
    noisy = a.sqrt() * latents + (1 - a).sqrt() * noise
    loss = F.mse_loss(unet(noisy, t), noise)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
