"""Decodes clips of 81 frames with the decoder of a latent diffusion model, one clip after the other. The last clip is still there while the next is decoded."""
import torch
from torch import nn


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.SiLU(), nn.Upsample(scale_factor=8), nn.Conv2d(32, 3, 3, padding=1))

    def forward(self, latents):
        clip = torch.empty(len(latents), 3, 1080, 1920, device=latents.device)
        for i, one in enumerate(latents.split(1)):
            clip[i] = self.layers(one)[0].clamp(-1, 1)
        return clip


decoder = Decoder().cuda().eval()
with torch.inference_mode():
    for prompt in range(50):
        latents = torch.randn(81, 16, 135, 240).cuda()
        clip = decoder(latents)
        means = clip.mean(dim=(1, 2, 3)).tolist()
        print(prompt, means[0])
