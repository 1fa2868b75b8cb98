"""The decoder gets all frames of a clip as one batch (Comfy-Org/ComfyUI#13813)."""
import torch
from torch import nn


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(16, 256, 3, padding=1)
        self.blocks = nn.ModuleList(nn.Conv2d(i, o, 3, padding=1) for i, o in ((256, 256), (256, 128), (128, 64)))
        self.last = nn.Conv2d(64, 3, 3, padding=1)

    def forward(self, z):
        x = self.first(z)
        for block in self.blocks:
            x = nn.functional.silu(block(nn.functional.interpolate(x, scale_factor=2)))
        return self.last(x)


decoder = Decoder().half().cuda().eval()


@torch.inference_mode()
def decode(samples):
    b, c, t, h, w = samples.shape
    frames = samples.transpose(1, 2).reshape(b * t, c, h, w)
    return torch.cat([decoder(it).cpu() for it in frames.split(4)]).view(b, t, 3, h * 8, w * 8)


for clip in range(10):
    latent = torch.randn(1, 16, 121, 60, 104, dtype=torch.half, device="cuda")
    video = decode(latent)
    print(clip, video.shape)
