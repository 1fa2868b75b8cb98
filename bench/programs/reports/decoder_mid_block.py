"""Pictures of 1328 x 1328: the decoder's attention has a score for each pair of 27,556 latents (utensils/mold#1046)."""
import torch
from torch import nn


class Residual(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(32, inside), nn.Conv2d(inside, outside, 3, 1, 1)
        self.norm2, self.conv2 = nn.GroupNorm(32, outside), nn.Conv2d(outside, outside, 3, 1, 1)
        self.skip = nn.Identity() if inside == outside else nn.Conv2d(inside, outside, 1)

    def forward(self, x):
        y = self.conv1(nn.functional.silu(self.norm1(x)))
        return self.skip(x) + self.conv2(nn.functional.silu(self.norm2(y)))


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.GroupNorm(32, width)
        self.q, self.k, self.v, self.out = (nn.Conv2d(width, width, 1) for _ in range(4))

    def forward(self, x):
        b, c, h, w = x.shape
        y = self.norm(x)
        q, k, v = (f(y).flatten(2).transpose(1, 2) for f in (self.q, self.k, self.v))
        weights = torch.softmax(q @ k.transpose(1, 2) * c**-0.5, dim=-1)
        return x + self.out((weights @ v).transpose(1, 2).view(b, c, h, w))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = nn.Conv2d(16, 256, 3, 1, 1)
        self.middle = nn.Sequential(Residual(256, 256), Attention(256), Residual(256, 256))
        ups, width = [], 256
        for outside in (256, 128, 64):
            ups += [nn.Upsample(scale_factor=2), Residual(width, outside)]
            width = outside
        self.ups = nn.Sequential(*ups)
        self.out = nn.Conv2d(64, 3, 3, 1, 1)

    def forward(self, latents):
        return self.out(self.ups(self.middle(self.inside(latents))))


class Denoiser(nn.Module):
    def __init__(self, width=512, layers=8):
        super().__init__()
        self.inside, self.outside = nn.Conv2d(16, width, 2, 2), nn.ConvTranspose2d(width, 16, 2, 2)
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, x):
        y = self.inside(x)
        return self.outside(self.body(y.flatten(2).transpose(1, 2)).transpose(1, 2).view_as(y))


@torch.inference_mode()
def picture(denoiser, decoder, size=1328, steps=20):
    x = torch.randn(1, 16, size // 8, size // 8, device="cuda", dtype=torch.half)
    for _ in range(steps):
        x = x - denoiser(x) / steps
    return decoder(x.float()).clamp(-1, 1).cpu()


denoiser = Denoiser().cuda().half().eval()
decoder = Decoder().cuda().eval()
for number in range(4):
    print(number, picture(denoiser, decoder).shape)
