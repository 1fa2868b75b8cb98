"""A causal video autoencoder of 3-D convolutions, with a perceptual term from a frozen VGG."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision

device = torch.device("cuda")


class Res3d(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, cin), nn.Conv3d(cin, cout, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(8, cout), nn.Conv3d(cout, cout, 3, padding=1)
        self.skip = nn.Conv3d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x):
        h = self.conv1(F.silu(self.norm1(x)))
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


class Autoencoder(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.stem = nn.Conv3d(3, width, 3, padding=1)
        self.down = nn.ModuleList([Res3d(width, width), Res3d(width, 2 * width), Res3d(2 * width, 4 * width)])
        self.to_latent = nn.Conv3d(4 * width, 8, 1)
        self.from_latent = nn.Conv3d(4, 4 * width, 1)
        self.up = nn.ModuleList([Res3d(4 * width, 2 * width), Res3d(2 * width, width), Res3d(width, width)])
        self.out = nn.Conv3d(width, 3, 3, padding=1)

    def forward(self, x):
        h = self.stem(x)
        for block in self.down:
            h = F.avg_pool3d(block(h), (1, 2, 2))
        mean, logvar = self.to_latent(h).chunk(2, 1)
        z = mean + torch.randn_like(mean) * (0.5 * logvar).exp()
        h = self.from_latent(z)
        for block in self.up:
            h = block(F.interpolate(h, scale_factor=(1, 2, 2)))
        return self.out(h), mean, logvar


def main():
    model = Autoencoder().to(device)
    vgg = torchvision.models.vgg16(weights=None).features[:16].eval().requires_grad_(False).to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.5, 0.9))
    for step in range(40):
        clip = torch.rand(2, 3, 16, 128, 128, device=device) * 2 - 1
        recon, mean, logvar = model(clip)
        frames, target = (it.transpose(1, 2).flatten(0, 1) for it in (recon, clip))
        perceptual = F.l1_loss(vgg(frames), vgg(target))
        kl = -0.5 * (1 + logvar - mean**2 - logvar.exp()).mean()
        loss = F.l1_loss(recon, clip) + 0.5 * perceptual + 1e-6 * kl
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0:
            print(step, loss.item())


main()
