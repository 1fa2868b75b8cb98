"""Fine-tunes the denoiser of a latent diffusion model. The pictures are encoded with gradients on, by an autoencoder that is not in the optimizer."""
import torch
from torch import nn


def block(n, m, stride=1):
    return nn.Sequential(nn.GroupNorm(8, n), nn.SiLU(), nn.Conv2d(n, m, 3, stride, 1))


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, 128, 3, 1, 1), block(128, 128), block(128, 128), block(128, 256, 2), block(256, 256), block(256, 512, 2), block(512, 512), block(512, 4, 2))

    def encode(self, x):
        return self.encoder(x)


autoencoder = Autoencoder().cuda().eval()
denoiser = nn.Sequential(nn.Conv2d(4, 320, 3, 1, 1), block(320, 320), block(320, 640, 2), block(640, 640), nn.Upsample(scale_factor=2), block(640, 4)).cuda()
optimizer = torch.optim.AdamW(denoiser.parameters(), lr=3e-5)
for step in range(2000):
    pictures = torch.randn(8, 3, 512, 512).cuda()
    latents = autoencoder.encode(pictures)
    noise = torch.randn_like(latents)
    loss = (denoiser(latents + noise) - noise).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
