"""A video decoder: the frames of each latent go to the host."""
import torch
from torch import nn


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv3d(16, 64, 1), nn.SiLU(), nn.ConvTranspose3d(64, 3, (4, 8, 8), (4, 8, 8)))

    def decode(self, latents):
        video = torch.empty(1, 3, 4 * latents.shape[2], 8 * latents.shape[3], 8 * latents.shape[4])
        for index in range(latents.shape[2]):
            frames = self.body(latents[:, :, index : index + 1])
            video[:, :, 4 * index : 4 * index + 4] = frames
        return video


decoder = Decoder().cuda()
with torch.no_grad():
    latents = torch.randn(1, 16, 321, 60, 104).cuda()
    video = decoder.decode(latents)
