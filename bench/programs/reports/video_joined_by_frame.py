"""A video decoder: the frames of each latent are joined to those that are there already."""
import torch
from torch import nn


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv3d(16, 64, 1), nn.SiLU(), nn.ConvTranspose3d(64, 3, (4, 8, 8), (4, 8, 8)))

    def decode(self, latents):
        video = None
        for index in range(latents.shape[2]):
            frames = self.body(latents[:, :, index : index + 1])
            video = frames if video is None else torch.cat([video, frames], 2)
        return video


decoder = Decoder().cuda()
with torch.no_grad():
    latents = torch.randn(1, 16, 321, 60, 104).cuda()
    video = decoder.decode(latents).cpu()
